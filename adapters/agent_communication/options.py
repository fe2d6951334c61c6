"""Options of the protocol in routes.yaml: those of its `inbound:` section, and a target's."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gateway.access import AuthenticatingOptions
from gateway.contract.options import Count
from gateway.mcp.options import McpServeOptions, McpTarget


class AgentCommunicationServe(McpServeOptions, AuthenticatingOptions):
    """`inbound.agent_communication`, besides what every server of MCP clients has.

    page_size: how many agents, templates or tools one answer lists; the next page is asked for with its cursor.
    """

    page_size: Count = 100


class AgentCommunicationTarget(McpTarget):
    """A `target:` with `protocol: agent_communication`, besides what every MCP server's has.

    agent: the agent's name there; may be left out where only one lives.
    agents: `"*"`: the route stands for all agents that live there, and each becomes one under its own name.
    template: an agent template there, instead of an agent: each `config` of runs gets an agent made of it.
    created: how many agents made of the template are kept for further runs with the same `config`; the one that was
        unused longest is destroyed first, and each after `idle` seconds.
    """

    agents: Literal["*"] | None = None
    template: Annotated[str, Field(min_length=1)] | None = None
    created: Annotated[int, Field(ge=0)] = 8

    @property
    def stands_for_many(self) -> bool:
        return self.agents is not None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if sum(name is not None for name in (self.agent, self.agents, self.template)) > 1:
            raise ValueError("name one of agent, agents and template")
        return self
