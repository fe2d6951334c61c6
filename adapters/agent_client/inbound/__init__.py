"""Serves clients of the Agent Client Protocol: the gateway is their agent.

connection.py      one connection: initialize, what needs no session, and which method is served by what
client.py          the client at its other end: what it is told and asked
sessions.py        the sessions it has open: new, load, resume, list, close, delete
session.py         one of them: what happens on its thread is told, prompts are taken
context.py         what everything about one session works on   states.py  its states, as tables
turns.py           a prompt, and the run that it starts
follower.py        one run: its updates, and the answer of its prompt   questions.py  the run's questions
replay.py          what was, for who loads a session
config_options.py  the agent, modes and options   set_option.py  setting them
mcp_servers.py     MCP servers that are new in a session that is taken up again
session_list.py    session/list
clients.py         what all connections share
dialect.py         requests and answers of versions 1 and 2
updates.py         what a session's client is told; v1.py and v2/ say it
governed.py        what a governed route changes: what is declared, where sessions may be, how they end
people.py          whose token it is; visitor.py: who a client is, and what is there for it
socket.py          the WebSocket endpoint; http/ the other one
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from adapters.agent_client.inbound.clients import EditorClients
from adapters.agent_client.inbound.connection import EditorConnection
from adapters.agent_client.inbound.http import HttpServer
from adapters.agent_client.inbound.http.link import Link
from adapters.agent_client.inbound.people import LOCAL
from adapters.agent_client.inbound.socket import EditorSocket
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.options import AgentClientServe
from gateway.contract import Callback, Gateway
from gateway.core.errors import InterlinguaError, Unsupported
from gateway.core.types import Run
from gateway.transport.asgi import refusals
from gateway.transport.pipe import Pipe

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
        return self.clients.people.sees(headers, self.clients.gateway.agents.created)

    def routes(self) -> Sequence[BaseRoute]:
        return [
            *self.clients.doors.routes(),
            *self._endpoints(),
        ]

    def _endpoints(self) -> Sequence[BaseRoute]:
        return [
            route
            for path in ("/", "/{agent}")
            for route in (Route(path, self._http), WebSocketRoute(path, self._socket.serve))
        ]

    def refusal(self, error: InterlinguaError) -> Response:
        return refusals.refusal(error)

    def callback(self, run: Run) -> Callback:
        """The protocol has no callbacks: its clients ask for none."""
        raise Unsupported("this protocol has no callbacks")

    async def _serve(self, link: Link, agent: str | None) -> None:
        await self.welcome(link, agent, link.visitor)

    def quiet(self) -> None:
        """The server closes sockets itself."""
        self._http.quiet()

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        """Nobody asks who it is: it is who started the gateway.

        Raises NotFound for an unknown agent, Unavailable for one client too many.
        """
        await self.welcome(pipe, agent, Visitor(LOCAL))

    async def welcome(self, pipe: Pipe, agent: str | None, visitor: Visitor) -> None:
        """The same for a client of whom this much is known."""
        try:
            name = self.clients.agent(agent, visitor)
            with self.clients.connected(visitor):
                await EditorConnection(self.clients, pipe, name, visitor, linger=self.linger).serve()
        finally:
            with contextlib.suppress(InterlinguaError):
                await pipe.aclose()
