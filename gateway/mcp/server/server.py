"""McpServer: one service, over every transport."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from starlette.routing import BaseRoute, Route, WebSocketRoute

from gateway.mcp.server.contract import Service, Session
from gateway.mcp.server.http.events import MESSAGES, Events, Messages
from gateway.mcp.server.http.streamable import Streamable
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.options import McpServeOptions
from gateway.mcp.server.pipe import converse
from gateway.mcp.server.socket import Socket
from gateway.transport.pipe import Pipe

LINGER_SECONDS = 2.0
"""For a client that closes its half of a pipe after its last request, and waits for the answer."""


class McpServer:
    """Serves MCP clients of every revision. Made by an inbound adapter, which is its `service` or brings it."""

    def __init__(self, service: Service, options: McpServeOptions) -> None:
        self._hub = Hub(service, options)
        self.streamable = Streamable(self._hub)
        """Streamable HTTP alone, an ASGI application, for who has it at another path (`{agent}` names the agent)."""
        self._events = Events(self._hub)
        self.linger = LINGER_SECONDS

    @property
    def sessions(self) -> Collection[Session]:
        """All that have joined and not left, as they are now: for what concerns everybody."""
        return tuple(self._hub.joined)

    def routes(self) -> Sequence[BaseRoute]:
        """Starlette routes below the protocol's mount point."""
        socket = Socket(self._hub)
        return [
            *(Route(path, self.streamable) for path in ("/mcp", "/mcp/{agent}")),
            *(Route(path, self._events) for path in ("/sse", "/sse/{agent}")),
            Route(MESSAGES, Messages(self._hub, self._events)),
            *(WebSocketRoute(path, socket.serve) for path in ("/ws", "/ws/{agent}")),
        ]

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        """See `gateway.adapter.Conversing`. Raises Unavailable for one client too many."""
        await converse(self._hub, pipe, agent, self.linger)

    def quiet(self) -> None:
        """The gateway stops: nobody new is served, and every session over HTTP ends, with its calls.

        Who calls this is the service's own adapter: it knows then that the calls that are cancelled now were not
        given up by their clients. WebSockets are closed by the server itself, standard input by who opened it.
        """
        self._hub.stop()

    async def aclose(self) -> None:
        """The same, and wait until nothing is left of them."""
        self.quiet()
        await self.streamable.aclose()
