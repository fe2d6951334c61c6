"""Serves MCP servers of clients to agents on other machines: Streamable HTTP, at a path that cannot be guessed."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from adapters.agent_client.options import AgentClientServe
from adapters.agent_client.tunnel.agent_end import OpenEnds
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.wire import JsonObject
from gateway import access
from gateway.contract import Gateway
from gateway.core.errors import AgentError, InterlinguaError, NotFound, Unavailable

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from adapters.agent_client.tunnel.translation import ProxiedEnd

MOUNT: Final = "/agent-client"
"""Where the protocol is mounted unless told otherwise."""
PATH: Final = "/-/mcp"


class Doors:
    """One per gateway process, and an ASGI application: the inbound half's. Doors are opened by the outbound one."""

    def __init__(self, options: AgentClientServe, gateway: Gateway) -> None:
        self._mount = options.path or MOUNT
        self._gateway = gateway
        self._open: dict[str, HttpDoor] = {}
        self._served = False

    def routes(self) -> list[BaseRoute]:
        """Starlette routes below the mount."""
        from starlette.routing import Route

        self._served = True
        return [Route(f"{PATH}/{{door}}", self)]

    @property
    def address(self) -> str | None:
        """Where the doors are; None for a gateway on standard input and output, which has no port."""
        public = self._gateway.public_url
        return f"{public}{self._mount}{PATH}" if self._served and public else None

    def open(self, server: OfferedServer, ends: OpenEnds) -> HttpDoor | None:
        """A door for the server, until it is closed. None where no doors can be opened."""
        address = self.address
        if address is None:
            return None
        id = self._gateway.new_id()
        door = self._open[id] = HttpDoor(server, ends, f"{address}/{id}", lambda: self._open.pop(id, None))
        return door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from gateway.transport.asgi import refusals

        door = self._open.get(scope["path_params"]["door"])
        try:
            if door is None:
                raise NotFound("there is no such server")
            await door.serve(scope, receive, send)
        except InterlinguaError as error:
            await refusals.refusal(error)(scope, receive, send)


class HttpDoor:
    """One server over HTTP. The client's end is connected with the first request, and is one for all that come."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, url: str, closed: Callable[[], object]) -> None:
        self.url = url
        self._server = server
        self._ends = ends
        self._closed = closed
        self._lock = asyncio.Lock()
        self._behind: ProxiedEnd | None = None

    @property
    def entry(self) -> JsonObject:
        """The server as an agent is told of it (schema: McpServerHttp)."""
        key = {"name": "Authorization", "value": f"Bearer {self._server.secret.hex()}"}
        return {"type": "http", "name": self._server.offered.name, "url": self.url, "headers": [key]}

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. Raises NotFound if it has not the key."""
        shown = access.bearer(scope["headers"]) or ""
        if not hmac.compare_digest(shown.encode(), self._server.secret.hex().encode()):
            raise NotFound("there is no such server")
        await (await self._reached())(scope, receive, send)

    async def _reached(self) -> ASGIApp:
        from adapters.agent_client.tunnel.translation import reached

        async with self._lock:
            if self._behind is not None and not self._behind.there:
                await self._leave()
            if self._behind is None:
                try:
                    self._behind = await reached(self._ends, self._server)
                except AgentError as error:
                    raise Unavailable(f"the MCP server is not there: {error}") from error
            return self._behind.proxy.http

    async def _leave(self) -> None:
        behind, self._behind = self._behind, None
        if behind is not None:
            await behind.hang_up()

    async def aclose(self) -> None:
        self._closed()
        await self._leave()
