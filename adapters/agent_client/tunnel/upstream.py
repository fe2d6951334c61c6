"""The gateway as the MCP client of a client's server: what is behind `Proxy`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Raw

from adapters.agent_client.tunnel import mcp_messages
from adapters.agent_client.tunnel.agent_end import AgentEnd, OpenEnds
from adapters.agent_client.tunnel.offers import OfferedServer
from gateway.core.errors import AgentGone
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.client.calls import CallCounts, OutgoingCall, OutgoingCalls
from gateway.mcp.client.contract import CallListener
from gateway.mcp.client.session import ClientSession
from gateway.mcp.server.contract import McpClient, ServerIdentity
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

INFO: Final[JsonObject] = {"name": "interlingua", "version": "1"}
ANY: Final[JsonObject] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}}
"""Capabilities declared until those of the agent's MCP client are known: until then it refuses what it cannot do."""


def _unheard(agreed: JsonObject) -> None:
    """It was not asked for."""


def _nobody(method: str, params: Raw) -> None:
    """News are not wanted yet."""


class UpstreamEnd(AgentEnd):
    """An end that is the gateway's own. `start` it once, `hang_up` at the end. A `Channel` of a session."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, capabilities: JsonObject, info: JsonObject) -> None:
        super().__init__(server, ends)
        self._news: Callable[[str, Raw], None] = _nobody
        self._acknowledged: Callable[[JsonObject], object] = _unheard
        self.version = ""
        self.closed: asyncio.Future[AgentGone] = asyncio.get_running_loop().create_future()
        self._capabilities: JsonObject = dict(capabilities)
        self._calls = OutgoingCalls(self.name, CallCounts(), self._heard, None)
        self._session = ClientSession(self, self._calls, self._capabilities, info)

    async def start(self) -> None:
        """Shake hands, if the server does that. Raises RpcError, and the errors of the tree."""
        line = await self.connected()
        await self._session.start(modern=line.stateless)

    def speak(self, version: str) -> None:
        """See `Channel`."""
        self.version = version

    def on_lost(self, renew: Callable[[], Awaitable[None]]) -> None:
        """See `Channel`: its session lasts as long as its connection."""

    @property
    def identity(self) -> ServerIdentity:
        """The server's description of itself."""
        said = self._session.server
        meta = said.get(wire.META)
        info = said.get("serverInfo") or (meta.get(wire.META_SERVER) if isinstance(meta, dict) else None)
        capabilities, instructions = said.get("capabilities"), said.get("instructions")
        return ServerIdentity(
            capabilities if isinstance(capabilities, dict) else {},
            info if isinstance(info, dict) else {"name": self.name, "version": "0"},
            instructions if isinstance(instructions, str) else None,
        )

    def report_to(self, news: Callable[[str, Raw], None]) -> None:
        """Pass the server's notifications on, by method and params, from now on."""
        self._news = news

    def _heard(self, method: str, params: Raw) -> None:
        self._news(method, params)

    def introduce(self, client: McpClient) -> None:
        """Set the client that calls now, for a server that is told its capabilities with every request."""
        if versions.modern(self.version):
            self._capabilities.clear()
            self._capabilities.update(client.capabilities)

    async def call(self, method: str, params: JsonObject, listener: CallListener) -> Raw:
        """A request, to its result. Raises what `ClientSession.call` does."""
        return await self._session.call(method, params, listener=listener)

    async def beside(self, method: str, params: JsonObject) -> Raw:
        """The same for a request that is no MCP client's."""
        return await self._session.call(method, params)

    async def listen(self, wanted: JsonObject, acknowledged: Callable[[JsonObject], object]) -> None:
        """Hear of what is wanted (`subscriptions/listen`), until cancelled, or the server does not tell.

        `acknowledged` is given what a server of 2026-07-28 agrees to tell of.
        """
        self._acknowledged = acknowledged
        await self._session.listen(wanted)

    def tell_later(self, method: str, params: Raw) -> None:
        """A notification, if the server takes such."""
        if not versions.modern(self.version):
            self.tell(mcp_messages.encoded({"method": method, "params": params}))

    async def hang_up(self) -> None:
        if not self.closed.done():
            self.closed.set_result(AgentGone(f"the connection to {self.name} was closed"))
            await self._session.aclose()
        await super().hang_up()

    # --- from the server ------------------------------------------------------------------------------------------

    async def asked(self, message: Raw) -> Raw:
        said = mcp_messages.read(message)
        if said.method == wire.PING:
            return Raw(b"{}")
        if versions.modern(self.version):
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"{said.method}: servers ask nothing in {self.version}")
        task = asyncio.current_task()
        assert task is not None
        answer = await self._calls.asker(said.method, said.params).asked(said.method, said.params, task.cancel)
        return answer if isinstance(answer, Raw) else mcp_messages.encoded(answer)

    async def told(self, message: Raw) -> None:
        said = mcp_messages.read(message)
        if said.method == wire.ACKNOWLEDGED:
            agreed = mcp_messages.unpacked(said.params, dict[str, Any]).get("notifications")
            self._acknowledged(agreed if isinstance(agreed, dict) else {})
            return
        waiting = self._calls.heard(said.method, said.params)
        if waiting is not None:
            await waiting

    # --- gateway.mcp.client.channel.Channel -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self.server.offered.name or "an MCP server"

    @property
    def there(self) -> bool:
        """Whether it is connected to the client that it was connected to."""
        return self._client is not None

    @property
    def alive(self) -> bool:
        return not self.closed.done()

    @property
    def shared(self) -> bool:
        return versions.modern(self.version)

    async def request(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        """See `Channel`. Rules were asked by who calls."""
        message = mcp_messages.encoded({"method": method, "params": params})
        result = await self._unwrapped(message)
        if method == wire.INITIALIZE:
            self._hello = message
        return result

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        self.tell(mcp_messages.encoded({"method": method, "params": params or {}}))

    async def aclose(self) -> None:
        """See `Channel`."""
