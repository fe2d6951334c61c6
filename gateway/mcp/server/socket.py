"""The WebSocket endpoint: one socket, one connection. A transport of its own that bee's SDKs have."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from gateway.access import EXPIRED, Visit, bearer
from gateway.core.errors import AgentGone, InterlinguaError
from gateway.mcp import wire
from gateway.mcp.server.http.endpoint import refusal, response
from gateway.mcp.server.hub import Hub
from gateway.mcp.server.pipe import PipeSession
from gateway.transport.asgi import HttpRequest, origin
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
            session = PipeSession(self._hub, agent, bearer=token, visit=visit, admit=self._hub.admit).admitted()
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
