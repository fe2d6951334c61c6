"""Calls agents of the Agent Context Protocol, and plain MCP servers as if they were some.

link.py        how an agent is reached: Link, Line        sessions.py    over the connection it registered on: Links
pools.py       over connections of the gateway's own      registered.py  an agent that registered
discovering.py who lives at a target                      message_heads.py  what a message says of itself
turn.py        one run                                    ways.py        which of the two it is:
messages.py    by agent/message or agent/delegate         tools.py       as a tool
request.py     what is sent                               answers.py     what comes back, read
asks.py        what an agent asks meanwhile               growing_text.py   the text that it tells
beside.py      what it tells besides
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Raw

from adapters.agent_context.options import AgentContextTarget
from adapters.agent_context.outbound.discovering import Server
from adapters.agent_context.outbound.pools import PoolLink, Pools
from adapters.agent_context.outbound.turn import Turns
from adapters.agent_context.outbound.ways import chooser
from adapters.agent_context.wire.constants import (
    PROMPTS_GET,
    PROMPTS_LIST,
    RESOURCES_LIST,
    RESOURCES_READ,
    TEMPLATES_LIST,
)
from gateway.contract import ThreadContext
from gateway.core.errors import Unsupported
from gateway.core.types import Agent
from gateway.mcp.client.target import Target
from gateway.wire import jsonrpc

RELAYED: Final = frozenset((PROMPTS_LIST, PROMPTS_GET, RESOURCES_LIST, TEMPLATES_LIST, RESOURCES_READ))
"""What clients may ask a target's server besides runs."""


class One(Turns):
    """One agent of a target. See `gateway.contract.Outbound`, `Supervised` and `Relay`.

    Closes nothing: it is the target's.
    """

    def __init__(self, link: PoolLink, server: Server, name: str | None) -> None:
        super().__init__(link, chooser(name, link.target.call))
        self._server = server
        self._name = name
        self._listed: Agent | None = None

    def listed(self, agent: Agent) -> None:
        """What the server has just said of it: the next `describe` need not ask."""
        self._listed = agent

    async def describe(self) -> Agent:
        """See `Outbound.describe`. Raises NotFound, which lists who is there."""
        found, self._listed = self._listed, None
        return await self._server.agent(self._name) if found is None else found

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """See `gateway.contract.Relay`: what clients of MCP read of its server, prompts and resources."""
        if method not in RELAYED:
            raise Unsupported(f"{method} is not relayed")
        link = self._server.link
        async with link.lease(alone=False) as session:
            return await session.call(method, jsonrpc.unpack(params), timeout=link.target.request_timeout)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        """See `Relay.forward`."""
        raise Unsupported(f"{method} is not relayed")

    async def aclose(self) -> None:
        """See `Outbound.aclose`."""


class AgentContextOutbound(Target[Agent]):
    """See `gateway.contract.Outbound`, `Discovering` and `Supervised`. `pools` is for tests."""

    def __init__(self, target: AgentContextTarget, pools: Pools | None = None) -> None:
        self._link = PoolLink(target, pools=pools)
        self._server = Server(self._link, target.call)
        self._alone = One(self._link, self._server, target.agent)
        super().__init__(self._alone, discovers=target.agents is not None)

    async def entries(self) -> Mapping[str, Agent]:
        """See `Target.entries`."""
        return await self._server.agents()

    def found(self, name: str) -> One:
        """See `Target.found`."""
        return One(self._link, self._server, name)

    def on_change(self, changed: Callable[[], None]) -> None:
        """See `Discovering.on_change`."""
        self._server.on_change(changed)

    async def relay(self, context: ThreadContext, method: str, params: Raw) -> Raw:
        """See `Relay.relay`."""
        return await self._alone.relay(context, method, params)

    async def forward(self, context: ThreadContext, method: str, params: Raw) -> None:
        """See `Relay.forward`."""
        await self._alone.forward(context, method, params)

    @property
    def reachable(self) -> bool | None:
        """See `Supervised.reachable`."""
        return self._link.reachable

    async def aclose(self) -> None:
        """See `Outbound.aclose`."""
        await self._server.aclose()
        await self._link.aclose()
