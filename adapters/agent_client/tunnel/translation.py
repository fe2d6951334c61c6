"""Ends behind which a proxy stands, for MCP clients of another revision than the client's server, or over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Raw

from adapters.agent_client.tunnel import mcp_messages, tool_rules
from adapters.agent_client.tunnel.agent_end import AgentEnd, Asked, McpPeer, OpenEnds, Told
from adapters.agent_client.tunnel.mcp_messages import McpMessage, unpacked
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.wire import JsonObject
from gateway.core.errors import AgentGone
from gateway.core.version import version
from gateway.mcp import wire
from gateway.mcp.proxy import ANY, McpProxy
from gateway.transport.pipe import Inbox, Unreadable

HELD = 1024 * 1024
"""Bytes on the way from which on the sender waits."""


class ProxiedEnd(AgentEnd):
    """An end that is the gateway's own. `start` it once, `hang_up` at the end."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, capabilities: JsonObject, info: JsonObject) -> None:
        super().__init__(server, ends)
        self.proxy = McpProxy(
            server.offered.name or "an MCP server",
            self._request,
            lambda method, params: self.tell(mcp_messages.message(method, params)),
            capabilities=capabilities,
            info=info,
            rules=partial(tool_rules.asked, server),
        )

    async def start(self) -> None:
        """Shake hands, if the server does that. Raises RpcError, and the errors of the tree."""
        client = await self.connected()
        await self.proxy.start(modern=client.stateless)

    @property
    def there(self) -> bool:
        """Whether it is connected to the client that it was connected to."""
        return self._client is not None

    async def hang_up(self) -> None:
        await self.proxy.aclose()
        await super().hang_up()

    async def _request(self, method: str, params: JsonObject) -> Raw:
        """Rules were asked by the proxy."""
        message = mcp_messages.message(method, params)
        result = await self._unwrapped(message)
        if method == wire.INITIALIZE:
            self._hello = message
        return result

    async def asked(self, message: Raw) -> Raw:
        said = mcp_messages.read(message)
        return await self.proxy.asked(said.method, said.params)

    async def told(self, message: Raw) -> None:
        said = mcp_messages.read(message)
        await self.proxy.heard(said.method, said.params)


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

    def __init__(self, end: ProxiedEnd, asked: Asked, told: Told) -> None:
        self._end = end
        ours = MemoryPipe(end.server.offered.name)
        theirs = MemoryPipe(end.server.offered.name, ours)
        self._serving = asyncio.create_task(end.proxy.converse(theirs))
        self._mcp = McpPeer(ours, asked, told)
        self._mcp.peer.start()
        self.ask = self._mcp.ask
        self.tell = self._mcp.tell

    async def aclose(self) -> None:
        await self._mcp.peer.aclose()
        self._serving.cancel()
        await asyncio.wait([self._serving])
        await self._end.hang_up()


async def begun(ends: OpenEnds, server: OfferedServer, first: McpMessage, asked: Asked, told: Told) -> Translation:
    """One more connection to the server, handshake and all. Raises RpcError, and the errors of the tree.

    `first`: the request that the agent's MCP client begins with: it says what that can do.
    """
    return Translation(await reached(ends, server, *_introduced(first)), asked, told)


async def reached(
    ends: OpenEnds, server: OfferedServer, capabilities: JsonObject = ANY, info: JsonObject | None = None
) -> ProxiedEnd:
    """The server, for MCP clients of any revision. It is told what the agent's is known to be able to."""
    end = ProxiedEnd(server, ends, capabilities, info or {"name": "interlingua", "version": version()})
    ends.add(end)
    try:
        await end.start()
    except BaseException:
        await end.hang_up()
        raise
    return end


def _introduced(first: McpMessage) -> tuple[JsonObject, JsonObject | None]:
    """An MCP client's description of itself in `initialize`, or in any request of 2026-07-28."""
    said = unpacked(first.params, dict[str, Any])
    meta = said.get(wire.META)
    if isinstance(meta, dict) and wire.META_VERSION in meta:
        said = {"capabilities": meta.get(wire.META_CAPABILITIES), "clientInfo": meta.get(wire.META_CLIENT)}
    capabilities, info = said.get("capabilities"), said.get("clientInfo")
    return capabilities if isinstance(capabilities, dict) else {}, info if isinstance(info, dict) else None
