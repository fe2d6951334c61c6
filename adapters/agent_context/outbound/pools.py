"""Agents that are servers: reached over connections that the gateway makes, by a route's target or an endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from msgspec import Raw

from adapters.agent_context import wire
from adapters.agent_context.options import AgentContextTarget
from adapters.agent_context.outbound import answers
from adapters.agent_context.outbound.sessions import REMEMBERED, AgentLine, unknown, unused
from gateway.core.errors import AgentGone, InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp.client.contract import CallListener, Hearing, UpstreamPool, UpstreamSession
from gateway.mcp.client.pool import McpPool
from gateway.mcp.client.target import TargetPools, gateway_info
from gateway.mcp.wire import CANCELLED, META, declares, server_info
from gateway.transport.guard import Guard
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

QUESTIONS: Final[JsonObject] = {"elicitation": {}, wire.AGENT: {wire.MESSAGES: True, "protocols": [wire.VERSION]}}
"""Capabilities for every agent, whatever its client: take messages, and ask with a form."""

Pools = Callable[[JsonObject, "PoolLink"], UpstreamPool]
"""Makes the sessions of a client with these capabilities."""


class PoolLink:
    """See `ContextLink`. All agents of one target share it.

    guard: judges the addresses of an endpoint, which an agent named that registered. pools: for tests.
    """

    def __init__(self, target: AgentContextTarget, *, guard: Guard | None = None, pools: Pools | None = None) -> None:
        self.target = target
        self.guard = guard
        make = pools or _pool
        self._pools = TargetPools(lambda capabilities: make(capabilities, self), self._heard)
        self._used: set[str] = set()
        self._over: dict[str, None] = {}
        self._told: list[Callable[[str, Raw], None]] = []
        self._telling = TaskSet()

    @classmethod
    def to_endpoint(cls, endpoint: JsonObject, *, allow: Iterable[str] = ()) -> PoolLink:
        """The link to an endpoint that an agent named when it registered: `{url, transport?}`.

        `allow`: CIDRs of internal addresses that may be called. Raises ValueError for no URL.
        """
        transport = endpoint.get("transport", "auto")
        target = AgentContextTarget(protocol="agent_context", url=endpoint["url"], transport=transport)
        return cls(target, guard=Guard(allow, what="endpoint"))

    @property
    def reachable(self) -> bool | None:
        return self._pools.reachable

    @asynccontextmanager
    async def open(
        self, correlation: str, listener: CallListener, capabilities: JsonObject | None = None
    ) -> AsyncIterator[AgentLine]:
        """See `ContextLink`. A session of its own while there are enough: not every question says what it is about."""
        correlation = unused(correlation, self._used)
        self._used.add(correlation)
        try:
            async with self.lease(capabilities) as session:
                with session.hearing(listener, correlation) as hearing:
                    line = PoolLine(session, hearing, correlation, knows_agents=self.guard is not None)
                    try:
                        yield line
                    finally:
                        await line.aclose()
        finally:
            self._used.discard(correlation)
            self._over[correlation] = None
            if len(self._over) > REMEMBERED:
                del self._over[next(iter(self._over))]

    def lease(
        self, capabilities: JsonObject | None = None, *, alone: bool = True
    ) -> AbstractAsyncContextManager[UpstreamSession]:
        """A session for what is no run: lists, resources. See `gateway.mcp.client.contract.UpstreamPool.lease`."""
        return self._pools.lease(capabilities or QUESTIONS, alone=alone)

    def on_notification(self, heard: Callable[[str, Raw], None]) -> None:
        """Register a callback for notifications that belong to no run."""
        self._told.append(heard)

    def unclaimed(self, session: UpstreamSession, method: str, params: Raw) -> None:
        """Something came with the correlation id of no run: the agent is told, unless the run has just ended."""
        correlation = answers.correlation(method, params)
        if correlation is None or method not in (wire.MESSAGE, wire.ERROR) or correlation in self._over:
            return
        log.info("%s with the correlation id of no message", method)
        if method == wire.MESSAGE:  # an error is never answered with one
            self._telling.start(_tell(session, wire.ERROR, unknown(correlation)))

    async def aclose(self) -> None:
        self._telling.cancel()
        await self._pools.aclose()

    def _heard(self, method: str, params: Raw) -> None:
        for told in self._told:
            told(method, params)


class PoolLine:
    """See `AgentLine`. Made by `PoolLink.open`."""

    def __init__(self, session: UpstreamSession, hearing: Hearing, correlation: str, *, knows_agents: bool) -> None:
        self.correlation = correlation
        self.knows_agents = knows_agents
        self._hearing = hearing
        self._session = session
        self._last: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> JsonObject:
        return capabilities_of(self._session)

    @property
    def native(self) -> bool:
        return is_native(self._session)

    @property
    def gateway(self) -> bool:
        return self.native and server_info(self._session.server).get("name") == wire.SELF

    @property
    def lasting(self) -> bool:
        return self._session.lasting

    @property
    def closed(self) -> asyncio.Future[AgentGone]:
        return self._session.closed

    async def request(self, method: str, params: JsonObject, *, timeout: float | None = None) -> Raw:
        """See `AgentLine.request`. A plain MCP server is told no correlation id."""
        if self.native:
            given = params.get(META)
            params = {
                **params,
                META: {**(given if isinstance(given, dict) else {}), wire.CORRELATION: self.correlation},
            }
        return await self._session.call(method, params, listener=self._hearing, timeout=timeout)

    async def list(self, method: str, key: str, *, timeout: float | None = None) -> list[JsonObject]:
        return await self._session.list(method, key, timeout=timeout)

    def tell(self, method: str, params: JsonObject) -> None:
        """See `AgentLine`. In the order of the calls."""
        self._last = asyncio.create_task(self._tell_after(self._last, method, params))

    def withdraw(self, reason: str) -> None:
        id = self._hearing.id
        if id is not None:
            self.tell(CANCELLED, {"requestId": id, "reason": reason, META: {wire.CORRELATION: self.correlation}})

    async def aclose(self) -> None:
        """Nothing to wait for: the transport's own limits bound what is on its way."""
        if self._last is not None:
            await asyncio.wait([self._last], timeout=2.0)
            self._last.cancel()

    async def _tell_after(self, before: asyncio.Task[None] | None, method: str, params: JsonObject) -> None:
        if before is not None:
            await asyncio.wait([before])
        await _tell(self._session, method, params)


async def _tell(session: UpstreamSession, method: str, params: JsonObject) -> None:
    try:
        await session.tell(method, params)
    except InterlinguaError as error:
        log.debug("%s was not taken: %s", method, error)


def capabilities_of(session: UpstreamSession) -> JsonObject:
    """The capabilities that a server declared."""
    found = session.server.get("capabilities")
    return found if isinstance(found, dict) else {}


def is_native(session: UpstreamSession) -> bool:
    """Whether a server speaks this protocol."""
    return declares(capabilities_of(session), wire.AGENT)


def _pool(capabilities: JsonObject, link: PoolLink) -> UpstreamPool:
    return McpPool(
        link.target,
        capabilities=capabilities,
        info=gateway_info(),
        keyed=answers.correlation,
        unclaimed=link.unclaimed,
        dialects={wire.VERSION: wire.MCP_VERSION},
        guard=link.guard,
        warm=link.target.warmed and capabilities == QUESTIONS,  # that by which agents are described
    )
