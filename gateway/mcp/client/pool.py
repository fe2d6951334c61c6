"""The sessions with one target: made when needed (by which transport, in which revision), leased, kept warm, made again
after a failure.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Raw

from gateway.core.errors import AgentBroken, AgentFailed, InterlinguaError, Unavailable
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.client.calls import Keyed, OutgoingCalls
from gateway.mcp.client.piped import PipedChannel
from gateway.mcp.client.session import Channel, ClientSession
from gateway.mcp.options import McpTarget
from gateway.transport.guard import Guard
from gateway.transport.http import HttpClient, credentials_of
from gateway.transport.pipe import Pipe
from gateway.transport.stdio import Supervisor, spawn
from gateway.transport.tasks import TaskSet
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from gateway.mcp.client.http import Address

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 10_000
NOT_THERE = frozenset({400, 404, 405, 406, 410, 415, 501})
"""Statuses by which a server without Streamable HTTP answers a POST at the address of its HTTP+SSE."""


class Connector:
    """Opens sessions with one target.

    target: where the server is. capabilities, info: what it is told of its client (`ClientCapabilities`,
    `Implementation`). name: what it is called in logs and errors; by its program or host where it is empty.
    keyed: finds the key of `ClientSession.hearing` that a message of the server is marked with. unclaimed: is told,
    with the session, a notification whose key nobody listens to; without it, that is like any other.
    dialects: names that the server may answer `initialize` with instead of a revision -> the revision they stand for.
    guard: judges every address that is connected to, of a target that a stranger named.
    """

    def __init__(
        self,
        target: McpTarget,
        *,
        capabilities: JsonObject,
        info: JsonObject,
        name: str = "",
        keyed: Keyed | None = None,
        unclaimed: Callable[[ClientSession, str, Raw], None] | None = None,
        dialects: Mapping[str, str] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.name = name or target.called
        self.target = target
        self._auth = credentials_of(target)
        self._capabilities = capabilities
        self._info = info
        self._unowned: Callable[[str, Raw], None] = lambda method, params: None
        self._keyed = keyed
        self._unclaimed = unclaimed
        self._dialects = dialects
        self._guard = guard
        self._http: HttpClient | None = None
        self._addresses: dict[str, Address] = {}
        self._modern = False
        self._transport = _transport(target)

    def on_unowned(self, told: Callable[[str, Raw], None]) -> None:
        """`told` is called with a notification that belongs to no call. Before the first session."""
        self._unowned = told

    async def open(self) -> ClientSession:
        """A session that has shaken hands. Raises the errors of the tree."""
        if self._transport != "auto":
            return await self._shaken(self._transport)
        try:
            session = await self._shaken("streamable")
        except InterlinguaError as error:
            from gateway.transport.streamable_http.client import HttpRefused

            if not isinstance(error, HttpRefused) or error.status not in NOT_THERE:
                raise
            try:
                session = await self._shaken("sse")
            except (AgentFailed, AgentBroken) as other:
                raise AgentFailed(f"{error}; nor is HTTP+SSE there: {other}", detail=other.detail) from other
            self._transport = "sse"
            return session
        self._transport = "streamable"
        return session

    async def aclose(self) -> None:
        """Close every HTTP connection; once the sessions are closed."""
        if self._http is not None:
            await self._http.aclose()

    async def _shaken(self, transport: str) -> ClientSession:
        """Also where the server speaks only a revision without handshake and, once it was sent one, no more at all."""
        try:
            session = await self._tried(transport)
        except RpcError as error:
            if self._modern or error.error.code != wire.UNSUPPORTED_VERSION:
                raise AgentFailed(f"{self.name} refused initialize: {error}", detail=error.detail) from error
            self._modern = True
            try:
                session = await self._tried(transport)
            except RpcError as again:
                self._modern = False
                raise AgentFailed(f"{self.name} refused initialize: {again}", detail=again.detail) from again
        self._modern = versions.modern(session.version)
        return session

    async def _tried(self, transport: str) -> ClientSession:
        channel, calls = await self._made(transport)
        session = ClientSession(channel, calls, self._capabilities, self._info, self._dialects)
        if self._unclaimed is not None:
            calls.on_unclaimed(partial(self._unclaimed, session))
        try:
            await session.start(modern=self._modern)
        except BaseException:
            await session.aclose()
            raise
        return session

    async def _made(self, transport: str) -> tuple[Channel, OutgoingCalls]:
        calls = OutgoingCalls(self.name, self._unowned, self._keyed)
        if transport not in ("streamable", "sse"):
            return PipedChannel(await self._pipe(), calls, prints=self.target.url is None), calls
        from gateway.mcp.client.http import SsePipe, StreamableChannel

        address = self._address(transport)
        if transport == "streamable":
            return StreamableChannel(address, calls), calls
        return PipedChannel(await SsePipe.connect(address), calls), calls

    async def _pipe(self) -> Pipe:
        target = self.target
        if target.url is None:
            return await spawn(
                target.command,
                name=target.route or self.name,
                cwd=target.cwd,
                env=target.env,
                limit=target.max_message,
                grace=target.stop_timeout,
            )
        from gateway.transport.websocket.client import connect

        return await connect(
            target.url,
            auth=self._auth,
            subprotocols=(wire.SUBPROTOCOL,),
            limit=target.max_message,
            open_timeout=target.start_timeout,
            guard=self._guard,
        )

    def _address(self, transport: str) -> Address:
        """One for all sessions: it keeps the connections, and where a redirect has led."""
        from gateway.mcp.client.http import Address

        target = self.target
        assert target.url is not None
        if self._http is None:
            parts = urlsplit(target.url)
            self._http = HttpClient(
                f"{parts.scheme}://{parts.netloc}",
                auth=self._auth,
                timeout=target.request_timeout,
                pool_size=MOST_CONNECTIONS,
                guard=self._guard,
            )
        found = self._addresses.get(transport)
        if found is None:
            found = Address(target.url, self._http, limit=target.max_message, timeout=target.request_timeout)
            self._addresses[transport] = found
        return found


def _transport(target: McpTarget) -> str:
    """stdio, ws, sse, streamable; auto where only a try can tell."""
    if target.url is None:
        return "stdio"
    parts = urlsplit(target.url)
    if target.transport != "auto":
        return target.transport
    if parts.scheme in ("ws", "wss"):
        return "ws"
    return "sse" if parts.path.rstrip("/").endswith("/sse") else "auto"


class PoolSlot:
    """One supervised session, and who has it now."""

    def __init__(self, supervisor: Supervisor[ClientSession]) -> None:
        self.supervisor = supervisor
        self.users = 0
        self.alone = 0
        self._session: ClientSession | None = None

    @property
    def reachable(self) -> bool | None:
        """See `Supervisor.reachable`, which learns of an end only once nothing of it is left."""
        known = self.supervisor.reachable
        return False if known and self._session is not None and not self._session.alive else known

    @property
    def doubtful(self) -> bool:
        return self._session is not None and self._session.alive and self._session.doubtful

    def take(self, alone: bool) -> None:
        """One more has it, or waits for it; to itself, if that can be."""
        self.users += 1
        self.alone += alone

    def give_back(self, alone: bool) -> None:
        """One of them has it no more."""
        self.users -= 1
        self.alone -= alone

    async def join(self) -> ClientSession:
        session = self._session = await self.supervisor.join()
        return session


class Lease:
    """One use of a pool: see `McpPool.lease`."""

    __slots__ = ("_alone", "_pool", "_session", "_slot")

    def __init__(self, pool: McpPool, alone: bool) -> None:
        self._pool = pool
        self._alone = alone
        self._session: ClientSession | None = None

    async def __aenter__(self) -> ClientSession:
        while True:
            self._slot = self._pool.taken(self._alone)
            try:
                session = self._session = await self._slot.join()
                if self._pool.fits(self._slot, session, self._alone):
                    return session
            except BaseException:
                self._end()
                raise
            self._end()

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._slot.supervisor.leave(session)
        self._pool.given_back(self._slot, self._alone)


class McpPool:
    """The sessions with one server: made when needed, kept warm, made again after a failure.

    warm: whether a process, once started, is kept while nobody uses it, and started again when it ends.
    """

    def __init__(self, connector: Connector, *, warm: bool = False) -> None:
        target = connector.target
        connector.on_unowned(self._unowned)
        self._opener = connector
        self._idle = math.inf if warm else target.idle
        self._most = 1 if target.url is None else target.sessions
        self._slots = [self._slot()]
        self._shared: bool | None = True if target.url is None else None
        self._heard: list[Callable[[str, Raw], None]] = []
        self._closing = TaskSet()
        self._closed = False

    @property
    def reachable(self) -> bool | None:
        """See `gateway.contract.Supervised`."""
        known = [slot.reachable for slot in self._slots]
        return True if True in known else (False if False in known else None)

    def on_notification(self, heard: Callable[[str, Raw], None]) -> None:
        """Pass `heard` the notifications that belong to no call (list_changed), from any session."""
        self._heard.append(heard)

    def lease(self, *, alone: bool = True) -> Lease:
        """A session for one call, or some.

        A request from the server names no call, except on Streamable HTTP. With `alone` the session is therefore not
        shared meanwhile, while the pool's `most` sessions suffice. Beyond that, and over stdio where a session is a
        process, the least used session is shared. Requests that then fit more than one call are refused and counted.
        A server's request about a call that was just given up is not put to the next call.

        Raises AgentGone, AgentTimeout, AgentBroken; AgentFailed where the server refuses to shake hands, or speaks none
        of our revisions; Unavailable once the pool is closed.
        """
        return Lease(self, alone)

    def taken(self, alone: bool) -> PoolSlot:
        """The slot for one more user. Raises Unavailable once the pool is closed."""
        if self._closed:
            raise Unavailable(f"{self._opener.name} is not called any more")
        slot = self._chosen(alone)
        slot.take(alone)
        return slot

    def _chosen(self, alone: bool) -> PoolSlot:
        """The first that is free, so that those at the end fall idle; a new one; else that with the fewest users."""
        if self._shared is None or self._shared:
            return self._slots[0]  # whether one is enough is known once it is open
        free = [slot for slot in self._slots if not slot.users]
        sure = [slot for slot in free if not slot.doubtful]
        if sure:
            return next((slot for slot in sure if slot.reachable), sure[0])
        common = [slot for slot in self._slots if not slot.alone]
        if common and not alone:
            return min(common, key=lambda slot: slot.users)
        if len(self._slots) < self._most:
            self._slots.append(self._slot())
            return self._slots[-1]
        return min(free or common or self._slots, key=lambda slot: slot.users)

    def fits(self, slot: PoolSlot, session: ClientSession, alone: bool) -> bool:
        """Whether it may be used, now that it is known what it is: others may have waited for it too."""
        self._shared = session.shared if self._opener.target.url is not None else True
        if self._shared or slot.users == 1 or (not alone and not slot.alone):
            return True
        return len(self._slots) >= self._most and all(each.users for each in self._slots)

    def given_back(self, slot: PoolSlot, alone: bool) -> None:
        """A user has left. Drop a slot that failed and has no user: the first one is tried again, for all."""
        slot.give_back(alone)
        if slot.users or self._closed or slot is self._slots[0] or slot.reachable is not False:
            return
        self._slots.remove(slot)
        self._close(slot)

    def _close(self, slot: PoolSlot) -> None:
        self._closing.start(slot.supervisor.aclose())

    def _slot(self) -> PoolSlot:
        target = self._opener.target
        supervisor = Supervisor(
            self._opener.open,
            name=target.route or self._opener.name,
            idle=self._idle,
            start_timeout=target.start_timeout,
            wait=target.start_timeout,
        )
        return PoolSlot(supervisor)

    def _unowned(self, method: str, params: Raw) -> None:
        for heard in self._heard:
            try:
                heard(method, params)
            except Exception:
                log.exception("%s: telling %s failed", self._opener.name, method)

    async def aclose(self) -> None:
        """End every session and process. Leases that are still out fail. Idempotent."""
        self._closed = True
        await asyncio.gather(*(slot.supervisor.aclose() for slot in self._slots), *self._closing)
        await self._opener.aclose()
