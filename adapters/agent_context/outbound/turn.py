"""One run: what the agent says until it is done becomes events of the run, and ends it exactly once.

    native agent       messages.py   agent/message or agent/delegate, updates, questions, a response now or later
    plain MCP server   tools.py      tools/call

A run whose connection ends, or whose gateway dies, is not taken up again: not even one that was acknowledged, since the
agent would have to say the rest on another connection, of which nothing tells that the same agent is at its end.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Raw

from adapters.agent_context.codec.agents import agent_of, native
from adapters.agent_context.outbound import answers
from adapters.agent_context.outbound.messages import AgentQuestions, How, NativeRun, capabilities, correlation
from adapters.agent_context.outbound.sessions import AgentLine, ContextLink
from adapters.agent_context.outbound.tools import ToolRun, check, is_tool
from gateway.contract import Placed, RunContext
from gateway.core import events as e
from gateway.core.types import Agent, JsonObject
from gateway.mcp.client import called_run as calls
from gateway.wire.jsonrpc import RpcError


class AgentContextTurn(calls.CalledRun):
    """See `gateway.mcp.client.called_run`. Its CallListener is the line's.

    name: the agent's id, or the tool's name, there; None for the only one, which `describe` has found.
    """

    def __init__(self, context: RunContext, link: ContextLink, name: str | None, how: How) -> None:
        super().__init__(context)
        self._declared = capabilities(context.caller)
        self._asks = AgentQuestions(self.ask, lambda: context.caller, self._declared)
        self._link = link
        self._name = name
        self._how = how
        self._run: NativeRun | ToolRun | None = None

    async def called(self) -> e.Event:
        """The way that the agent is run, to its end."""
        if self._as_tool(native=not is_tool(self.context.agent)):
            check(self.context)
        async with self._link.open(correlation(self.context), self, self._declared) as line:
            self._run = self._run_on(line)
            try:
                return await self._run.go(line)
            finally:
                self.over = True

    def _run_on(self, line: AgentLine) -> NativeRun | ToolRun:
        if self._as_tool(native=line.native):
            return ToolRun(self.context, self.say, self._name)
        known = (native(self.context.agent) or {}).get("id")
        target = self._name or (known if isinstance(known, str) else None)
        return NativeRun(self.context, self.say, self._asks, target, self._how)

    def _as_tool(self, *, native: bool) -> bool:
        return self._how == "tool" or (self._how == "auto" and not native)

    def failed(self, error: RpcError) -> e.RunFailed:
        """The end of a run whose agent has answered with an error."""
        return answers.failed(error.error)

    # --- what comes meanwhile ---------------------------------------------------------------------------------------

    def told(self, method: str, params: Raw) -> list[e.Event]:
        """The events that a notification means."""
        if self._run is None:
            self.context.lost(self.late)
            return []
        return self._run.told(method, params)

    def again(self) -> None:
        """See `CallListener.again`. Progress of a tool may be told twice, which harms nobody."""
        if isinstance(self._run, NativeRun):
            self._run.again()

    async def asked(self, method: str, params: Raw) -> Any:
        if isinstance(self._run, NativeRun):
            return await self._run.asked(method, params)
        return await self._asks.answer(method, params)


class AgentContextRuns(calls.CalledRuns):
    """All runs of one agent. See `gateway.contract.Outbound` and `Supervised`, of which it has what concerns runs."""

    def __init__(self, link: ContextLink, name: str | None, how: How) -> None:
        super().__init__(lambda context: AgentContextTurn(context, link, name, how))
        self._link = link

    @property
    def reachable(self) -> bool | None:
        return self._link.reachable


# --- an agent that registered ----------------------------------------------------------------------------------------


class RegisteredLink(ContextLink, Placed, Protocol):
    """The way to an agent that registered. `process`: where it is connected."""


class RegisteredOutbound(AgentContextRuns):
    """See `gateway.contract.Outbound`, `Supervised` and `Placed`. `record` is the agent's own, less its credentials."""

    _link: RegisteredLink

    def __init__(self, record: JsonObject, link: RegisteredLink) -> None:
        super().__init__(link, str(record["id"]), "auto")
        self._agent = agent_of(record)

    @property
    def process(self) -> str | None:
        return self._link.process

    async def known(self) -> None:
        await self._link.known()

    def doubt(self) -> None:
        self._link.doubt()

    async def describe(self) -> Agent:
        """See `Outbound.describe`. As it registered."""
        return self._agent

    async def aclose(self) -> None:
        """See `Outbound.aclose`: with the last run, the link ends as well."""
        await self._link.aclose()
