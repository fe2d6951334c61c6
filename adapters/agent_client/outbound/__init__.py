"""Calls agents of the Agent Client Protocol: the gateway is their client.

links.py       connections, one for each set of client capabilities     connection.py  one of them
sessions.py    the agent's sessions of threads                          session.py     one of them
turn.py        one prompt, settings.py: what is set before it           asks.py        what the agent asks for
relays.py      what clients of the same protocol say beside prompts     raw.py         messages that are passed on
workspace.py   files of a folder, terminals.py: commands in it
governed.py    the rules of a governed route, calls.py: for what the agent says of its tool calls
"""

from __future__ import annotations

import asyncio

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_client.codec import agents
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.outbound.asks import Asks
from adapters.agent_client.outbound.links import Links
from adapters.agent_client.outbound.relays import Relays
from adapters.agent_client.outbound.sessions import Sessions
from adapters.agent_client.outbound.turn import Turn
from adapters.agent_client.tunnel.tunnels import Tunnels
from gateway.contract import RunContext, ThreadContext
from gateway.core.errors import AgentGone
from gateway.core.types import Agent


class AgentClientOutbound:
    """See `gateway.contract.Outbound`, `Relay`, `Supervised` and `Prefacing`."""

    prefaces = True

    def __init__(self, target: AgentClientTarget) -> None:
        self._target = target
        self._tunnels = Tunnels(target)
        self._links = Links(target, Asks(target, self._tunnels))
        self._sessions = Sessions(target, self._links, self._tunnels)
        self._relays = Relays(target, self._links, self._sessions, self._tunnels)
        self._turns: dict[str, Turn] = {}

    async def describe(self) -> Agent:
        """The agent's answer of `initialize`; starts it if it does not run."""
        async with self._links.any().use() as connection:
            assert connection.agent is not None
            bridged = {"bridged": True} if self._tunnels.possible(connection) else {}
            return replace(connection.agent, extra={**connection.agent.extra, agents.BRIDGED: bridged})

    async def run(self, context: RunContext) -> None:
        """See `Outbound.run`."""
        turn = self._turns[context.run.id] = Turn(self._target, self._sessions, context)
        try:
            await turn.run()
        finally:
            del self._turns[context.run.id]

    async def attach(self, context: RunContext) -> None:
        """The protocol has no way back to a prompt under way, in either version, and it is never sent twice (README,
        re-attach). Raises AgentGone.
        """
        raise AgentGone("the gateway was stopped while the agent worked on this prompt; what came of it is not known")

    async def cancel(self, context: RunContext) -> None:
        """`session/cancel`; the run goes on until the agent has answered the prompt."""
        turn = self._turns.get(context.run.id)
        if turn is not None:
            await turn.cancel()

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """See `Relay.relay`."""
        return await self._relays.relay(context, method, params)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        """See `Relay.forward`."""
        await self._relays.forward(context, method, params)

    @property
    def reachable(self) -> bool | None:
        """See `Supervised.reachable`."""
        return self._links.reachable

    async def aclose(self) -> None:
        """See `Outbound.aclose`."""
        await asyncio.gather(self._links.aclose(), self._sessions.aclose())
        await self._tunnels.aclose()
