"""A new session with a target: which transport, which revision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from gateway.core.errors import AgentBroken, AgentFailed, InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.client.calls import OutgoingCalls
from gateway.mcp.client.channel import Channel
from gateway.mcp.client.contract import Keyed
from gateway.mcp.client.piped import PipedChannel
from gateway.mcp.client.session import ClientSession
from gateway.mcp.options import McpTarget
from gateway.transport import websocket
from gateway.transport.http import HttpClient, credentials_of
from gateway.transport.pipe import Pipe
from gateway.transport.stdio import spawn
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from gateway.mcp.client.http import Address
    from gateway.transport.guard import Guard

MOST_CONNECTIONS = 10_000
NOT_THERE = frozenset({400, 404, 405, 406, 410, 415, 501})
"""Statuses by which a server without Streamable HTTP answers a POST at the address of its HTTP+SSE."""


class PoolExtras(msgspec.Struct, frozen=True):
    """Given by a pool to its sessions. unowned: told notifications that belong to no call. The rest: see `McpPool`."""

    unowned: Callable[[str, Raw], None]
    keyed: Keyed | None = None
    unclaimed: Callable[[ClientSession, str, Raw], None] | None = None
    dialects: Mapping[str, str] | None = None
    guard: Guard | None = None


class Connector:
    """Opens sessions with one target."""

    def __init__(
        self, target: McpTarget, capabilities: JsonObject, info: JsonObject, name: str, extras: PoolExtras
    ) -> None:
        self.name = name
        self._target = target
        self._auth = credentials_of(target)
        self._capabilities = capabilities
        self._info = info
        self._extras = extras
        self._http: HttpClient | None = None
        self._addresses: dict[str, Address] = {}
        self._modern = False
        self._transport = _transport(target)

    async def open(self) -> ClientSession:
        """A session that has shaken hands. Raises the errors of the tree."""
        if self._transport != "auto":
            return await self._shaken(self._transport)
        try:
            session = await self._shaken("streamable")
        except InterlinguaError as error:
            from gateway.mcp.client.http import HttpRefused

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
        session = ClientSession(channel, calls, self._capabilities, self._info, self._extras.dialects)
        if self._extras.unclaimed is not None:
            calls.on_unclaimed(partial(self._extras.unclaimed, session))
        try:
            await session.start(modern=self._modern)
        except BaseException:
            await session.aclose()
            raise
        return session

    async def _made(self, transport: str) -> tuple[Channel, OutgoingCalls]:
        calls = OutgoingCalls(self.name, self._extras.unowned, self._extras.keyed)
        if transport not in ("streamable", "sse"):
            return PipedChannel(await self._pipe(), calls), calls
        from gateway.mcp.client.http import SsePipe, StreamableChannel

        address = self._address(transport)
        if transport == "streamable":
            return StreamableChannel(address, calls), calls
        return PipedChannel(await SsePipe.connect(address), calls), calls

    async def _pipe(self) -> Pipe:
        target = self._target
        if target.url is None:
            return await spawn(
                target.command,
                name=target.route or self.name,
                cwd=target.cwd,
                env=target.env,
                limit=target.max_message,
                grace=target.stop_timeout,
            )
        return await websocket.connect(
            target.url,
            auth=self._auth,
            subprotocols=(wire.SUBPROTOCOL,),
            limit=target.max_message,
            open_timeout=target.start_timeout,
            guard=self._extras.guard,
        )

    def _address(self, transport: str) -> Address:
        """One for all sessions: it keeps the connections, and where a redirect has led."""
        from gateway.mcp.client.http import Address

        target = self._target
        assert target.url is not None
        if self._http is None:
            parts = urlsplit(target.url)
            self._http = HttpClient(
                f"{parts.scheme}://{parts.netloc}",
                auth=self._auth,
                timeout=target.request_timeout,
                pool_size=MOST_CONNECTIONS,
                guard=self._extras.guard,
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


def named(target: McpTarget) -> str:
    """The name of a target without one: its program, or its host."""
    if target.url is None:
        return Path(target.command[0]).name
    return urlsplit(target.url).netloc.rpartition("@")[2]
