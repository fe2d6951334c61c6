"""Stands between an agent and a client's MCP server that speak different revisions of MCP, with `McpProxy`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any

from msgspec import Raw

from adapters.agent_client.tunnel import mcp_messages
from adapters.agent_client.tunnel.agent_end import CANCELLED, Asked, OpenEnds, Told
from adapters.agent_client.tunnel.mcp_messages import McpMessage, unpacked
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.tunnel.proxy import ANY, INFO, McpProxy, UpstreamEnd
from adapters.agent_client.wire import JsonObject
from gateway.core.errors import AgentGone
from gateway.mcp import wire
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.options import McpServeOptions
from gateway.mcp.server.pipe import serve
from gateway.transport.pipe import Unreadable
from gateway.transport.rpc import Peer
from gateway.wire.jsonrpc import Id, Malformed

HELD = 1024 * 1024
"""Bytes on the way from which on the sender waits."""


class MemoryPipe:
    """One end of a connection in memory; see `gateway.transport.pipe.Pipe`."""

    def __init__(self, name: str, other: MemoryPipe | None = None) -> None:
        """`other` is the other end, if that is made already."""
        self.name = name
        self._other = self if other is None else other._joined(self)
        self._came: deque[bytes] = deque()
        self._held = 0
        self._closed = False
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def _joined(self, other: MemoryPipe) -> MemoryPipe:
        self._other = other
        return self

    async def send(self, messages: Sequence[bytes]) -> None:
        await self._other._room.wait()
        if self._closed or self._other._closed:
            raise AgentGone(f"{self.name} has gone")
        self._other._take(messages)

    def _take(self, messages: Sequence[bytes]) -> None:
        self._came += messages
        self._held += sum(map(len, messages))
        self._some.set()
        if self._held > HELD:
            self._room.clear()

    async def receive(self) -> Sequence[bytes | Unreadable]:
        while not self._came and not self._closed and not self._other._closed:
            self._some.clear()
            await self._some.wait()
        came, self._came, self._held = list(self._came), deque(), 0
        self._room.set()
        return came

    async def aclose(self) -> None:
        self._closed = True
        for half in (self, self._other):
            half._some.set()
            half._room.set()


class Translation:
    """See `agent_end.McpTranslation`; a Handler of its Peer, which is the proxy's MCP client. Made by `begun`."""

    def __init__(self, upstream: UpstreamEnd, proxy: McpProxy, asked: Asked, told: Told) -> None:
        self._upstream = upstream
        self._proxy = proxy
        self._asked = asked
        self._told = told
        ours = MemoryPipe(upstream.name)
        theirs = MemoryPipe(upstream.name, ours)
        self._serving = asyncio.create_task(serve(Hub(proxy, McpServeOptions(), {}), theirs, None))
        self._peer = Peer(ours, self)
        self._peer.start()

    async def ask(self, message: Raw) -> Raw:
        said = mcp_messages.read(message)
        return await self._peer.request(said.method, said.params or None, cancel=_no_longer_wanted)

    def tell(self, message: Raw) -> None:
        said = mcp_messages.read(message)
        if said.method != CANCELLED:
            self._peer.notify(said.method, said.params or None)

    async def aclose(self) -> None:
        await self._peer.aclose()
        self._proxy.close()
        self._serving.cancel()
        await asyncio.wait([self._serving])
        await self._upstream.hang_up()

    # --- gateway.transport.rpc.Handler ------------------------------------------------------------------------------

    async def request(self, method: str, params: Raw, id: Id) -> Any:
        return await self._asked(_message(method, params))

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if method == CANCELLED:
            self._peer.cancel_incoming(mcp_messages.cancelled(params))
            return None
        return self._told(_message(method, params))

    def unreadable(self, what: Unreadable | Malformed) -> None:
        """See `Handler`: it does not happen."""


async def begun(ends: OpenEnds, server: OfferedServer, first: McpMessage, asked: Asked, told: Told) -> Translation:
    """One more connection to the server, handshake and all. Raises RpcError, and the errors of the tree.

    `first`: the request that the agent's MCP client begins with: it says what that can do.
    """
    upstream, proxy = await reached(ends, server, *_introduced(first))
    return Translation(upstream, proxy, asked, told)


async def reached(
    ends: OpenEnds, server: OfferedServer, capabilities: JsonObject = ANY, info: JsonObject = INFO
) -> tuple[UpstreamEnd, McpProxy]:
    """The server, for MCP clients of any revision. It is told what the agent's is known to be able to."""
    upstream = UpstreamEnd(server, ends, capabilities, info)
    ends.add(upstream)
    try:
        await upstream.start()
    except BaseException:
        await upstream.hang_up()
        raise
    return upstream, McpProxy(server, upstream)


def _introduced(first: McpMessage) -> tuple[JsonObject, JsonObject]:
    """An MCP client's description of itself in `initialize`, or in any request of 2026-07-28."""
    said = unpacked(first.params, dict[str, Any])
    meta = said.get(wire.META)
    if isinstance(meta, dict) and wire.META_VERSION in meta:
        said = {"capabilities": meta.get(wire.META_CAPABILITIES), "clientInfo": meta.get(wire.META_CLIENT)}
    capabilities, info = said.get("capabilities"), said.get("clientInfo")
    return capabilities if isinstance(capabilities, dict) else {}, info if isinstance(info, dict) else INFO


def _message(method: str, params: Raw) -> Raw:
    return mcp_messages.encoded({"method": method, "params": params} if params else {"method": method})


def _no_longer_wanted(id: Id) -> tuple[str, JsonObject]:
    return CANCELLED, {"requestId": id}
