"""The WebSocket endpoint (docs/rfds/streamable-http-websocket-transport): one socket, one connection."""

from __future__ import annotations

import logging

from starlette.websockets import WebSocket

from adapters.agent_client.inbound.clients import Clients
from adapters.agent_client.inbound.connection import Connection
from adapters.agent_client.streamable import CONNECTION_ID
from gateway.core.errors import AgentGone, Denied, InterlinguaError
from gateway.transport.asgi import origin
from gateway.transport.asgi.refusals import refusal
from gateway.transport.websocket import ServerSocket

log = logging.getLogger(__name__)


class Socket:
    """The endpoint; the agent is in the path, or left to the client."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def serve(self, websocket: WebSocket) -> None:
        """One connection, from the upgrade to its end. What may not connect is refused before the upgrade."""
        try:
            page = websocket.headers.get("origin")
            if not origin.allowed(page, self._clients.options.origins):
                raise Denied(f"pages of {page} may not connect here (see `origins`)")
            agent = self._clients.agent(websocket.path_params.get("agent"))
            with self._clients.connected() as id:
                limit = self._clients.options.max_message
                pipe = await ServerSocket.accept(websocket, headers={CONNECTION_ID: id}, limit=limit)
                await Connection(self._clients, pipe, agent).serve()
        except AgentGone as error:
            log.debug("%s", error)
        except InterlinguaError as error:
            await websocket.send_denial_response(refusal(error))
