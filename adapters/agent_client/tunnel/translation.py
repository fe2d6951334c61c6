"""An agent that speaks another revision of MCP than the client's server: `Proxy` is between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from adapters.agent_client.tunnel.link import Link, pair
from adapters.agent_client.tunnel.mcp_messages import Message, unpacked
from adapters.agent_client.tunnel.proxy import Proxy
from adapters.agent_client.tunnel.upstream import ANY, INFO, Upstream
from adapters.agent_client.wire import JsonObject
from gateway.mcp import wire
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.options import McpServeOptions
from gateway.mcp.server.pipe import serve

if TYPE_CHECKING:
    from adapters.agent_client.tunnel.tunnels import Server


class Translation:
    """Made by `begun`. `link` is what the agent's end talks to."""

    def __init__(self, upstream: Upstream, proxy: Proxy, link: Link, serving: asyncio.Task[None]) -> None:
        self.link = link
        self._upstream = upstream
        self._proxy = proxy
        self._serving = serving

    async def aclose(self) -> None:
        """End it, and tell the client."""
        await self.link.aclose()
        self._proxy.close()
        self._serving.cancel()
        await asyncio.wait([self._serving])
        await self._upstream.hang_up()


async def begun(
    server: Server, first: Message, asked: Callable[[Raw], Awaitable[Raw]], told: Callable[[Raw], Awaitable[None]]
) -> Translation:
    """One more connection to the server, handshake and all. Raises RpcError, and the errors of the tree.

    `first`: the request that the agent's MCP client begins with: it says what that can do.
    """
    upstream, proxy = await reached(server, *_introduced(first))
    ours, theirs = pair(upstream.name)
    serving = asyncio.create_task(serve(Hub(proxy, McpServeOptions(), {}), theirs, None))
    return Translation(upstream, proxy, Link(ours, asked, told), serving)


async def reached(server: Server, capabilities: JsonObject = ANY, info: JsonObject = INFO) -> tuple[Upstream, Proxy]:
    """The server, for MCP clients of any revision. It is told what the agent's is known to be able to."""
    upstream = Upstream(server, capabilities, info)
    server.tunnels.opened(upstream)
    try:
        await upstream.start()
    except BaseException:
        await upstream.hang_up()
        raise
    return upstream, Proxy(server, upstream)


def _introduced(first: Message) -> tuple[JsonObject, JsonObject]:
    """What an MCP client says of itself in `initialize`, or in any request of 2026-07-28."""
    said = unpacked(first.params, dict[str, Any])
    meta = said.get(wire.META)
    if isinstance(meta, dict) and wire.META_VERSION in meta:
        said = {"capabilities": meta.get(wire.META_CAPABILITIES), "clientInfo": meta.get(wire.META_CLIENT)}
    capabilities, info = said.get("capabilities"), said.get("clientInfo")
    return capabilities if isinstance(capabilities, dict) else {}, info if isinstance(info, dict) else INFO
