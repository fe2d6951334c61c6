"""Calls agents of the Agent Context Protocol, and plain MCP servers as if they were some.

sessions.py     how an agent is reached: ContextLink, AgentLine; over the connection it registered on
pools.py        over connections of the gateway's own
discovering.py  who lives at a target
turn.py         one run, in whichever of the two ways; an agent that registered
messages.py     by agent/message or agent/delegate
tools.py        as a tool
answers.py      what comes back, read: heads of messages, updates, answers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Raw

from adapters.agent_context.options import AgentContextTarget
from adapters.agent_context.outbound.discovering import DescribedServer
from adapters.agent_context.outbound.pools import PoolLink, Pools
from adapters.agent_context.outbound.turn import AgentContextRuns
from adapters.agent_context.wire import constants as wire
from gateway.contract import ThreadContext
from gateway.core.errors import Unsupported
from gateway.core.types import Agent
from gateway.mcp.client.target import Target
from gateway.wire import jsonrpc

RELAYED: Final = frozenset(
    (wire.PROMPTS_LIST, wire.PROMPTS_GET, wire.RESOURCES_LIST, wire.TEMPLATES_LIST, wire.RESOURCES_READ)
)
"""Methods that clients may call on a target's server besides runs."""


class OneAgent(AgentContextRuns):
    """One agent of a target. See `gateway.contract.Outbound`, `Supervised` and `Relay`.

    Closes nothing: it is the target's.
    """

    def __init__(self, link: PoolLink, server: DescribedServer, name: str | None) -> None:
        super().__init__(link, name, link.target.call)
        self._server = server
        self._name = name
        self._listed: Agent | None = None

    def listed(self, agent: Agent) -> None:
        """Take over the server's newest description: the next `describe` need not ask."""
        self._listed = agent

    async def describe(self) -> Agent:
        """See `Outbound.describe`. Raises NotFound, which lists who is there."""
        found, self._listed = self._listed, None
        return await self._server.agents.one(self._name) if found is None else found

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """See `gateway.contract.Relay`: what clients of MCP read of its server, prompts and resources."""
        if method not in RELAYED:
            raise Unsupported(f"{method} is not relayed")
        link = self._server.link
        async with link.lease(alone=False) as session:
            return await session.call(method, jsonrpc.unpack(params), timeout=link.target.request_timeout)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        raise Unsupported(f"{method} is not relayed")

    async def aclose(self) -> None:
        """See `Outbound.aclose`."""


class AgentContextOutbound(Target[Agent]):
    """See `gateway.contract.Outbound`, `Discovering` and `Supervised`. `pools` is for tests."""

    def __init__(self, target: AgentContextTarget, pools: Pools | None = None) -> None:
        self._link = PoolLink(target, pools=pools)
        self._server = DescribedServer(self._link, target.call)
        self._alone = OneAgent(self._link, self._server, target.agent)
        super().__init__(self._alone, discovers=target.stands_for_many)

    async def entries(self) -> Mapping[str, Agent]:
        return await self._server.agents.all()

    def found(self, name: str) -> OneAgent:
        return OneAgent(self._link, self._server, name)

    def on_change(self, changed: Callable[[], None]) -> None:
        self._server.news.on_change(changed)

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        return await self._alone.relay(context, method, params)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        await self._alone.forward(context, method, params)

    @property
    def reachable(self) -> bool | None:
        return self._link.reachable

    async def aclose(self) -> None:
        await self._server.aclose()
        await self._link.aclose()
