"""Options of Agent Connect in routes.yaml: those of its `inbound:` section, and a target's."""

from typing import Literal

from gateway.access import AuthenticatingOptions
from gateway.contract import HttpUrl, TargetOptions
from gateway.contract.options import Bytes, HeaderName, Seconds


class AgentConnectServe(AuthenticatingOptions):
    """`inbound.agent_connect`.

    max_body: greatest request body in bytes; larger is 413.
    keep_alive: seconds of silence after which a stream gets a comment line.
    max_stream: seconds after which a stream is ended, though its run goes on: its client resumes it (`Last-Event-ID`).
        Left out: never.
    """

    max_body: Bytes = 16 * 1024 * 1024
    keep_alive: Seconds = 15.0
    max_stream: Seconds | None = None


class AgentConnectTarget(TargetOptions):
    """A `target:` with `protocol: agent_connect`.

    url: the server's address, without the paths of the OpenAPI.
    agent: name or id of the agent there; may be left out if the server has exactly one.
    api_key_header: header that carries `auth.api_key`.
    stream: `auto` streams where the descriptor says the agent can, `always` and `never` overrule it.
    poll_interval: seconds between two looks at a run that is not streamed.
    poll_timeout: longest one blocking wait may take, in seconds, before the run is looked at again.
    idle_timeout: seconds without any event of a stream after which the run itself is asked for the truth.
    reconnect_timeout: seconds for which an agent that went away in the middle of a run is looked for.
    request_timeout: longest any request may take that does not wait for the agent's work, in seconds.
    """

    url: HttpUrl
    api_key_header: HeaderName = "x-api-key"
    stream: Literal["auto", "always", "never"] = "auto"
    poll_interval: Seconds = 1.0
    poll_timeout: Seconds = 30.0
    idle_timeout: Seconds = 30.0
    reconnect_timeout: Seconds = 15.0
    request_timeout: Seconds = 30.0
