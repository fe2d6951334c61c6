"""The WebSocket endpoint (docs/rfds/streamable-http-websocket-transport): one socket, one connection."""

from __future__ import annotations

import logging
from typing import Final

from starlette.responses import Response
from starlette.websockets import WebSocket

from adapters.agent_client.inbound.clients import EditorClients
from adapters.agent_client.inbound.connection import EditorConnection
from adapters.agent_client.inbound.people import CHALLENGE, UNAUTHORIZED
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.streamable import CONNECTION_ID
from gateway.core.errors import AgentGone, Denied, InterlinguaError
from gateway.transport.asgi import origin
from gateway.transport.asgi.refusals import refusal
from gateway.transport.streamable_http import JSON
from gateway.transport.websocket import ServerSocket

log = logging.getLogger(__name__)

POLICY_VIOLATION: Final = 1008
"""RFC 6455, 7.4.1."""


class EditorSocket:
    """The endpoint; the agent is in the path, or left to the client."""

    def __init__(self, clients: EditorClients) -> None:
        self._clients = clients

    async def serve(self, websocket: WebSocket) -> None:
        """One connection, from the upgrade to its end. What may not connect is refused before the upgrade."""
        try:
            origin.admit(websocket.headers.get("origin"), websocket.scope, self._clients.options.origins)
            visitor = self._visitor(websocket)
            if visitor is None:
                await websocket.send_denial_response(Response(UNAUTHORIZED, 401, CHALLENGE, JSON))
                return
            agent = self._clients.agent(websocket.path_params.get("agent"), visitor)
            with self._clients.connected(visitor) as id:
                limit = self._clients.options.max_message
                pipe = await _Door.accept(websocket, headers={CONNECTION_ID: id}, limit=limit)
                pipe.visitor = visitor
                await EditorConnection(self._clients, pipe, agent, visitor).serve()
        except AgentGone as error:
            log.debug("%s", error)
        except InterlinguaError as error:
            await websocket.send_denial_response(refusal(error))

    def _visitor(self, websocket: WebSocket) -> Visitor | None:
        """Who it is by its headers; None if its token is nobody's."""
        people = self._clients.people
        try:
            shown = people.arrived(websocket.headers.getlist("authorization"))
        except Denied:
            log.info("the token of a client at %s was refused", websocket.client and websocket.client.host)
            return None
        return Visitor(people, shown, self._clients.gateway.agents.created)


class _Door(ServerSocket):
    """Says why, to a client that may not stay."""

    visitor: Visitor | None = None

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """See Pipe."""
        if self.visitor is not None and self.visitor.ended:
            code, reason = POLICY_VIOLATION, self.visitor.ended
        await super().aclose(code, reason)
