"""Options of Agent Protocol in routes.yaml: those of its `inbound:` section, and a target's."""

from typing import Literal

from pydantic import Field

from gateway.access import AuthenticatingOptions
from gateway.contract import HttpUrl, TargetOptions

MEGABYTE = 1024 * 1024


class AgentProtocolServe(AuthenticatingOptions):
    """`inbound.agent_protocol`: how this protocol's clients are served."""

    on_disconnect: Literal["continue", "cancel"] = Field(
        "continue", description="What becomes of a run whose client hangs up while a step is executed."
    )
    max_body: int = Field(4 * MEGABYTE, ge=1, description="Largest JSON body in bytes; a larger one is 413.")
    max_upload: int = Field(
        64_000_000,
        ge=1,
        description="Largest uploaded file in bytes; a larger one is 413. "
        "Left out: `store.artifact_limit`, which holds for every file anyway.",
    )


class AgentProtocolTarget(TargetOptions):
    """A `target:` with `protocol: agent_protocol`. `agent` is the path segment that names it there, if several do."""

    url: HttpUrl = Field(description="The agent's address, with or without `/ap/v1`.")
    base_path: Literal["auto", "ap_v1", "legacy"] = Field(
        "auto", description="`ap_v1`: paths begin `/ap/v1/agent`; `legacy`: the RFC's `/agent`; `auto`: ask the agent."
    )
    drive: Literal["auto", "all", "one", "approve"] = Field(
        "auto",
        description="`all`: execute steps to the last; `one`: after each step ask the client for the next one's input; "
        "`approve`: after each step ask the client's permission to go on; "
        "`auto`: `one` for clients of this protocol, who expect it, and `all` for every other.",
    )
    max_steps: int = Field(100, ge=1, description="Steps in one run; a task that wants more fails.")
    step_timeout: float = Field(600.0, gt=0, description="Seconds that one step may take.")
    poll_interval: float = Field(
        0.5, gt=0, description="Seconds between two looks at a step that was answered before it was done."
    )
    request_timeout: float = Field(30.0, gt=0, description="Seconds that any other request may take.")
    max_artifact: int = Field(
        100 * MEGABYTE, ge=1, description="Largest artifact in bytes that is fetched; a larger one is counted as lost."
    )
