"""The outbound half of an agent that registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from adapters.agent_context.codec.agents import agent_of
from adapters.agent_context.codec.agents import native as record_in
from adapters.agent_context.outbound.link import ContextLink
from adapters.agent_context.outbound.messages import How, NativeRun
from adapters.agent_context.outbound.tools import ToolRun, is_tool
from adapters.agent_context.outbound.turn import AgentContextRuns, AgentContextTurn, RunWay, WayChooser
from gateway.core.types import Agent, JsonObject

# --- how an agent is run ---------------------------------------------------------------------------------------------


def chooser(name: str | None, how: How) -> WayChooser:
    """`name`: the agent's id, or the tool's name, there; None for the only one, which `describe` has found."""

    def choose(turn: AgentContextTurn, *, native: bool | None) -> RunWay:
        agent = turn.context.agent
        if how == "tool" or (how == "auto" and not (not is_tool(agent) if native is None else native)):
            return ToolRun(turn, name)
        return NativeRun(turn, name or _id(agent), how)

    return choose


def _id(agent: Agent) -> str | None:
    found = (record_in(agent) or {}).get("id")
    return found if isinstance(found, str) else None


class AgentPlace:
    """See `gateway.contract.Placed`. `process` says which other process drives the agent's runs; `doubt`: see there."""

    def __init__(self, process: Callable[[], str | None], doubt: Callable[[], None]) -> None:
        self._process = process
        self.doubt = doubt

    @property
    def process(self) -> str | None:
        return self._process()


HERE: Final = AgentPlace(lambda: None, lambda: None)
"""Where every agent is connected to this process."""


class RegisteredOutbound(AgentContextRuns):
    """See `gateway.contract.Outbound`, `Supervised` and `Placed`. `record` is the agent's own, less its credentials."""

    def __init__(self, record: JsonObject, link: ContextLink, place: AgentPlace = HERE) -> None:
        super().__init__(link, chooser(str(record["id"]), "auto"))
        self._agent = agent_of(record)
        self._place = place

    @property
    def process(self) -> str | None:
        return self._place.process

    def doubt(self) -> None:
        self._place.doubt()

    async def describe(self) -> Agent:
        """See `Outbound.describe`. As it registered."""
        return self._agent

    async def aclose(self) -> None:
        """See `Outbound.aclose`: with the last run, the link ends as well."""
        await self._link.aclose()


def make(record: JsonObject, link: ContextLink) -> RegisteredOutbound:
    """The outbound half of a registered agent, reached by `link`."""
    return RegisteredOutbound(record, link)
