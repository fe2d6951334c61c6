"""Serves clients of the Agent Client Protocol: the gateway is their agent.

connection.py      one connection: initialize, what needs no session, and which method is served by what
client.py          the client at its other end: what it is told and asked; what all clients share
sessions.py        the sessions it has open: new, load, resume, list, close, delete
session.py         one of them: what happens on its thread is told, prompts are taken
context.py         what everything about one session works on
turns.py           a prompt, and the run that it starts
follower.py        one run: its updates, and the answer of its prompt, its questions
replay.py          what was, for who loads a session
config_options.py  the agent, modes and options   set_option.py  setting them
updates.py         what a session's client is told and how its prompts are answered; updates_v2.py for version 2
governed.py        what a governed route changes: what is declared, where sessions may be, how they end
visitor.py         who a client is, and what is there for it
http.py            Streamable HTTP, http_connection.py: one connection of it; the WebSocket endpoint is here
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from adapters.agent_client.inbound.client import EditorClients
from adapters.agent_client.inbound.connection import EditorConnection
from adapters.agent_client.inbound.http import HttpServer
from adapters.agent_client.inbound.http_connection import HttpConnection
from adapters.agent_client.inbound.visitor import LOCAL, Visitor, shown
from adapters.agent_client.options import AgentClientServe
from adapters.agent_client.wire import CONNECTION_ID
from gateway.contract import Gateway
from gateway.core.errors import AgentGone, Denied, InterlinguaError
from gateway.transport.asgi import origin, refusals
from gateway.transport.pipe import Pipe
from gateway.transport.websocket import ServerSocket

log = logging.getLogger(__name__)

POLICY_VIOLATION: Final = 1008
"""RFC 6455, 7.4.1."""
LINGER_SECONDS = 2.0
"""For a client that closes its half of a pipe after its last request, and waits for the answer."""


class AgentClientInbound:
    """See `Inbound`, `Conversing`, `Knowing` and `Leaving` of `gateway.contract`."""

    def __init__(self, options: AgentClientServe, gateway: Gateway) -> None:
        self.clients = EditorClients(options, gateway)
        self.linger = LINGER_SECONDS
        self._http = HttpServer(options, gateway, self._serve, self.clients.people)
        self._socket = EditorSocket(self.clients)

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        return self.clients.people.sees(headers)

    def known(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        try:
            known = self.clients.people.arrived(headers)
        except Denied:
            return None
        return None if known is None else known.who.id

    def routes(self) -> Sequence[BaseRoute]:
        return [
            *self.clients.doors.routes(),
            *(Route(path, self._http) for path in ("/", "/{agent}")),
            *(WebSocketRoute(path, self._socket) for path in ("/", "/{agent}")),
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        return refusals.refusal(error)

    async def _serve(self, link: HttpConnection, agent: str | None) -> None:
        await self.welcome(link, agent, link.visitor)

    def quiet(self) -> None:
        """The server closes sockets itself."""
        self._http.quiet()

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        """Serve a client without authentication: it started the gateway.

        Raises NotFound for an unknown agent, Unavailable for one client too many.
        """
        await self.welcome(pipe, agent, Visitor(LOCAL))

    async def welcome(self, pipe: Pipe, agent: str | None, visitor: Visitor) -> None:
        """The same for a client of whom this much is known."""
        try:
            name = self.clients.agent(agent, visitor)
            self.clients.connect(visitor)
            try:
                await EditorConnection(self.clients, pipe, name, visitor, linger=self.linger).serve()
            finally:
                self.clients.disconnect(visitor)
        finally:
            with contextlib.suppress(InterlinguaError):
                await pipe.aclose()


class EditorSocket:
    """The endpoint, an ASGI application; the agent is in the path, or left to the client."""

    def __init__(self, clients: EditorClients) -> None:
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, from the upgrade to its end. What may not connect is refused before the upgrade."""
        websocket = WebSocket(scope, receive, send)
        try:
            origin.admit(Headers(scope=scope).get("origin"), scope, self._clients.options.origins)
            people = self._clients.people
            visitor = Visitor(people, shown(people, scope))
            agent = self._clients.agent(websocket.path_params.get("agent"), visitor)
            id = self._clients.connect(visitor)
            try:
                limit = self._clients.options.max_message
                pipe = await _Door.accept(websocket, headers={CONNECTION_ID: id}, limit=limit)
                pipe.closes_for(visitor)
                connection = EditorConnection(self._clients, pipe, agent, visitor, counted=True)
                if (idle := self._clients.options.socket_idle) is not None:
                    pipe.close_when_idle(idle, lambda: connection.busy)
                await connection.serve()
            finally:
                self._clients.disconnect(visitor)
        except AgentGone as error:
            log.debug("%s", error)
        except InterlinguaError as error:
            await websocket.send_denial_response(refusals.refusal(error))


class _Door(ServerSocket):
    """Says why, to a client that may not stay."""

    _visitor: Visitor | None = None

    def closes_for(self, visitor: Visitor) -> None:
        """Close with the reason that this client's visit ended for."""
        self._visitor = visitor

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """See Pipe."""
        if self._visitor is not None and self._visitor.ended:
            code, reason = POLICY_VIOLATION, self._visitor.ended
        await super().aclose(code, reason)
