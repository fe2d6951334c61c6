"""Calls agents of the Agent Client Protocol: the gateway is their client.

connections.py     connections, one for each set of client capabilities    connection.py  one of them
prompts.py         a prompt, foreground.py: what an agent of version 2 works on
sessions.py        the agent's sessions of threads                         session.py     one of them
states.py          where a prompt is, record.py: what is kept of a session
prompted_run.py    a run, from opening the session to its prompt's end     turn.py        the agent's updates in it
agent_requests.py  what the agent asks for                                 workspace.py   files and commands
relays.py          what clients of the same protocol say beside prompts    forwarded.py   messages that are passed on
governed.py        the rules of a governed route, tool_calls.py: for what the agent says of its tool calls
"""

from __future__ import annotations

import asyncio

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client.codec import agents
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound.agent_requests import AgentRequests
from adapters.agent_client.outbound.connections import AgentConnections
from adapters.agent_client.outbound.prompted_run import PromptedRun
from adapters.agent_client.outbound.relays import AgentRelays
from adapters.agent_client.outbound.sessions import AgentSessions
from adapters.agent_client.outbound.tool_calls import tool_call_of
from adapters.agent_client.tunnel.tunnels import Tunnels
from gateway.contract import RunContext, ThreadContext
from gateway.core.errors import AgentGone
from gateway.core.types import Agent


class AgentClientOutbound:
    """See `gateway.contract.Outbound`, `Relay` and `Supervised`, and
    `gateway.contract.governing.RuleKeeping`.
    """

    prefaces = True
    tool_call_of = staticmethod(tool_call_of)

    def __init__(self, target: AgentClientTarget) -> None:
        self._target = target
        self._tunnels = Tunnels(target)
        self._connections = AgentConnections(target, AgentRequests(target, self._tunnels))
        self._sessions = AgentSessions(target, self._connections, self._tunnels)
        self._relays = AgentRelays(target, self._connections, self._sessions, self._tunnels)
        self._runs: dict[str, PromptedRun] = {}

    async def describe(self) -> Agent:
        """The agent's answer of `initialize`; starts it if it does not run."""
        async with self._connections.any().use() as connection:
            assert connection.agent is not None
            bridged = {"bridged": True} if self._tunnels.possible(connection) else {}
            return replace(connection.agent, extra={**connection.agent.extra, agents.BRIDGED: bridged})

    async def run(self, context: RunContext) -> None:
        run = self._runs[context.run.id] = PromptedRun(self._target, self._sessions, context)
        try:
            await run.run()
        finally:
            del self._runs[context.run.id]

    async def attach(self, context: RunContext) -> None:
        """The protocol has no way back to a prompt under way, in either version, and it is never sent twice (README,
        re-attach). Raises AgentGone.
        """
        raise AgentGone("the gateway was stopped while the agent worked on this prompt; what came of it is not known")

    async def cancel(self, context: RunContext) -> None:
        """`session/cancel`; the run goes on until the agent has answered the prompt."""
        run = self._runs.get(context.run.id)
        if run is not None:
            await run.cancel()

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        return await self._relays.relay(context, method, params)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        await self._relays.forward(context, method, params)

    @property
    def reachable(self) -> bool | None:
        return self._connections.reachable

    async def aclose(self) -> None:
        await asyncio.gather(self._connections.aclose(), self._sessions.aclose())
        await self._tunnels.aclose()
