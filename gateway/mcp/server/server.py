"""McpServer: one service, over every transport. The WebSocket endpoint, one connection a socket, is here: BeeAI's SDKs
have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from gateway.access import EXPIRED, Visit, bearer
from gateway.contract import Gateway
from gateway.core.errors import AgentGone, InterlinguaError
from gateway.mcp import wire
from gateway.mcp.options import McpServeOptions
from gateway.mcp.server.contract import McpSession, Service
from gateway.mcp.server.http.endpoint import refusal, response
from gateway.mcp.server.http.sse import MESSAGES, SseEndpoint, SsePostEndpoint
from gateway.mcp.server.http.streamable import StreamableEndpoint
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.pipe import PipeSession, converse
from gateway.transport.asgi import HttpRequest, origin
from gateway.transport.pipe import Pipe
from gateway.transport.websocket import ServerSocket

log = logging.getLogger(__name__)

POLICY_VIOLATION: Final = 1008
"""RFC 6455, 7.4.1."""
UPGRADE = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))


class UpgradeRequired:
    """An ASGI application that answers requests for the paths of WebSockets which ask for none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await HttpRequest(scope, receive, send).answer(refusal(426, "this is a WebSocket", headers=UPGRADE))


class McpSocket:
    """An ASGI application for the paths `/ws` and `/ws/{agent}`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, from the upgrade to its end. What may not connect is refused before the upgrade."""
        websocket, options = WebSocket(scope, receive, send), self._hub.options
        try:
            origin.admit(Headers(scope=scope).get("origin"), scope, options.origins)
            visit = self._hub.enter(scope)
            token = bearer(scope["headers"])
            agent = websocket.path_params.get("agent")
            session = PipeSession(self._hub, agent, bearer=token, visit=visit, counted=True).admitted()
            named = wire.SUBPROTOCOL if wire.SUBPROTOCOL in scope.get("subprotocols", ()) else None
            with self._hub.connected():
                pipe = await ServerSocket.accept(websocket, subprotocol=named, limit=options.max_message)
                if options.socket_idle is not None:
                    pipe.close_when_idle(options.socket_idle, lambda: session.busy)
                async with _staying(visit, pipe):
                    await session.run(pipe)
        except AgentGone as error:
            log.debug("%s", error)
        except InterlinguaError as error:
            await websocket.send_denial_response(response(error))


@contextlib.asynccontextmanager
async def _staying(visit: Visit | None, pipe: ServerSocket) -> AsyncIterator[None]:
    """In the block the connection is closed when its client's token expires."""
    if visit is None:
        yield
        return
    closing: list[asyncio.Task[None]] = []
    visit.enter(lambda: closing.append(asyncio.create_task(_close(pipe))))
    try:
        yield
    finally:
        visit.leave()
        await asyncio.gather(*closing)


async def _close(pipe: ServerSocket) -> None:
    with contextlib.suppress(InterlinguaError):
        await pipe.aclose(POLICY_VIOLATION, EXPIRED)


SOCKETS = ("/ws", "/ws/{agent}")
LINGER_SECONDS = 2.0
"""For a client that closes its half of a pipe after its last request, and waits for the answer."""


class McpServer:
    """Serves MCP clients of every revision. Made by an inbound adapter, which is its `service` or brings it."""

    def __init__(
        self,
        service: Service,
        options: McpServeOptions | None = None,
        gateway: Gateway | None = None,
        protocol: str = "",
        *,
        dialects: Mapping[str, str] = MappingProxyType({}),
        client: Callable[[McpSession], str | None] | None = None,
    ) -> None:
        """See `Hub`."""
        self._hub = Hub(service, options, gateway, protocol, dialects=dialects, client=client)
        self._streamable = StreamableEndpoint(self._hub)
        self._socket = McpSocket(self._hub)
        self._events = SseEndpoint(self._hub)
        self.linger = LINGER_SECONDS

    @property
    def sessions(self) -> Collection[McpSession]:
        """All that have joined and not left, as they are now: for what concerns everybody."""
        return tuple(self._hub.joined)

    def routes(self) -> Sequence[BaseRoute]:
        return [
            *(Route(path, self._streamable) for path in ("/mcp", "/mcp/{agent}")),
            *(Route(path, self._events) for path in ("/sse", "/sse/{agent}")),
            Route(MESSAGES, SsePostEndpoint(self._hub, self._events)),
            *(WebSocketRoute(path, self._socket) for path in SOCKETS),
            *(Route(path, UpgradeRequired()) for path in SOCKETS),
        ]

    def at(self, path: str = "") -> Sequence[BaseRoute]:
        """Starlette routes for a protocol whose Streamable endpoint is `path` itself, below the mount point, or the
        mount point: there, and at `{agent}` and `ws[/{agent}]` below it.

        `ws` over HTTP is no agent's, but answered 426.
        """
        return [
            *(WebSocketRoute(path + one, self._socket) for one in SOCKETS),
            *(Route(path + one, UpgradeRequired()) for one in SOCKETS),
            *(Route(one, self._streamable) for one in (path or "/", path + "/{agent}")),
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        """See `Inbound.refusal`: an error that belongs to no message."""
        return response(error)

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        """See `gateway.contract.Conversing`. An unknown agent is an error of `initialize`. Raises Unavailable for one
        client too many.
        """
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
        await self._streamable.aclose()
