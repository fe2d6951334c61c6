"""Stands between an agent and a client's MCP server that speak different revisions of MCP, with `McpProxy`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from adapters.agent_client.tunnel.agent_end import Asked, McpPeer, OpenEnds, Told
from adapters.agent_client.tunnel.mcp_messages import McpMessage, unpacked
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.tunnel.proxy import ANY, McpProxy, UpstreamEnd
from adapters.agent_client.wire import JsonObject
from gateway.core.errors import AgentGone
from gateway.core.version import version
from gateway.mcp import wire
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.pipe import PipeSession
from gateway.transport.pipe import Inbox, Unreadable

HELD = 1024 * 1024
"""Bytes on the way from which on the sender waits."""


class MemoryPipe:
    """One end of a connection in memory; see `gateway.transport.pipe.Pipe`."""

    def __init__(self, name: str, other: MemoryPipe | None = None) -> None:
        """`other` is the other end, if that is made already."""
        self.name = name
        self._came = Inbox(HELD) if other is None else other._goes
        self._goes: Inbox = Inbox(HELD) if other is None else other._came

    async def send(self, messages: Sequence[bytes]) -> None:
        await self._goes.room()
        if self._goes.ended:
            raise AgentGone(f"{self.name} has gone")
        self._goes.put(messages)

    async def receive(self) -> Sequence[bytes | Unreadable]:
        return await self._came.receive()

    async def aclose(self) -> None:
        self._came.end()
        self._goes.end()


class Translation:
    """See `agent_end.McpTranslation`: its peer is the proxy's MCP client. Made by `begun`."""

    def __init__(self, upstream: UpstreamEnd, proxy: McpProxy, asked: Asked, told: Told) -> None:
        self._upstream = upstream
        self._proxy = proxy
        ours = MemoryPipe(upstream.name)
        theirs = MemoryPipe(upstream.name, ours)
        self._serving = asyncio.create_task(PipeSession(Hub(proxy), None).run(theirs))
        self._mcp = McpPeer(ours, asked, told)
        self._mcp.peer.start()
        self.ask = self._mcp.ask
        self.tell = self._mcp.tell

    async def aclose(self) -> None:
        await self._mcp.peer.aclose()
        self._proxy.close()
        self._serving.cancel()
        await asyncio.wait([self._serving])
        await self._upstream.hang_up()


async def begun(ends: OpenEnds, server: OfferedServer, first: McpMessage, asked: Asked, told: Told) -> Translation:
    """One more connection to the server, handshake and all. Raises RpcError, and the errors of the tree.

    `first`: the request that the agent's MCP client begins with: it says what that can do.
    """
    upstream, proxy = await reached(ends, server, *_introduced(first))
    return Translation(upstream, proxy, asked, told)


async def reached(
    ends: OpenEnds, server: OfferedServer, capabilities: JsonObject = ANY, info: JsonObject | None = None
) -> tuple[UpstreamEnd, McpProxy]:
    """The server, for MCP clients of any revision. It is told what the agent's is known to be able to."""
    upstream = UpstreamEnd(server, ends, capabilities, info or {"name": "interlingua", "version": version()})
    ends.add(upstream)
    try:
        await upstream.start()
    except BaseException:
        await upstream.hang_up()
        raise
    return upstream, McpProxy(server, upstream)


def _introduced(first: McpMessage) -> tuple[JsonObject, JsonObject | None]:
    """An MCP client's description of itself in `initialize`, or in any request of 2026-07-28."""
    said = unpacked(first.params, dict[str, Any])
    meta = said.get(wire.META)
    if isinstance(meta, dict) and wire.META_VERSION in meta:
        said = {"capabilities": meta.get(wire.META_CAPABILITIES), "clientInfo": meta.get(wire.META_CLIENT)}
    capabilities, info = said.get("capabilities"), said.get("clientInfo")
    return capabilities if isinstance(capabilities, dict) else {}, info if isinstance(info, dict) else None
