"""The endpoint: POST, GET and DELETE, with the statuses of the proposal's routing table."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import msgspec
from starlette.types import Receive, Scope, Send

from adapters.agent_client import forwarded
from adapters.agent_client.inbound.http_connection import HttpConnection
from adapters.agent_client.inbound.visitor import Visitor, shown
from adapters.agent_client.options import AgentClientServe
from adapters.agent_client.wire import CONNECTION_ID, INITIALIZE, PROTOCOL, SESSION_ID, TAKING_UP, takes_up
from gateway.access import Authenticator, Principal
from gateway.contract import Gateway
from gateway.core.errors import AgentGone, InterlinguaError, NotFound
from gateway.transport.asgi import Headers, HttpRequest, Reply, WhileConnected, refusals, respond
from gateway.transport.streamable_http import EVENTS, server
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

log = logging.getLogger(__name__)

Converse = Callable[[HttpConnection, str | None], Awaitable[None]]
"""See `gateway.contract.Conversing`. What it raises is what the client's `initialize` is answered with."""


COOKIE = "interlingua"
INITIALIZE_SECONDS = 60.0
METHODS = "POST, GET, DELETE"

WITH_HEADER = frozenset(
    {"session/prompt", "session/cancel", "session/set_mode", "session/set_config_option", "session/close"}
)
"""Methods refused without the session's header. The Python SDK sends the others that name a session without it."""


def refusal(status: int, why: str, *, headers: Headers = ()) -> Reply:
    return Reply(status, msgspec.json.encode({"error": why}), headers)


def _refused(error: InterlinguaError) -> Reply:
    return refusal(refusals.status(error), str(error), headers=refusals.headers(error))


class HttpServer:
    """An ASGI application, for the paths `/` and `/{agent}`. Every HttpConnection is served by `converse`.

    A client says goodbye with DELETE; one that did not is taken to have gone when none of its streams was open, and
    nothing was POSTed, for as long as the option `idle` says.
    """

    def __init__(self, options: AgentClientServe, gateway: Gateway, converse: Converse, people: Authenticator) -> None:
        self._options = options
        self._gateway = gateway
        self._converse = converse
        self._people = people
        self._connections = server.SessionTable[HttpConnection](options.idle, self._on_idle)
        self._tasks = TaskSet()
        self._affinity = uuid.uuid4().hex

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(HttpRequest(scope, receive, send), self._answer, _refused)

    def quiet(self) -> None:
        """End every connection, since its streams would go on for ever. What they were about goes on."""
        for connection in self._connections.all:
            connection.hang_up()

    async def _answer(self, exchange: HttpRequest) -> Reply | None:
        """None where it was answered as a stream. Raises Reply, ClientGone."""
        exposed = f"{CONNECTION_ID}, {SESSION_ID}"
        preflight = server.admit(exchange, self._options.origins, exposed, METHODS, refusal)
        if preflight is not None:
            return preflight
        client = shown(self._people, exchange.scope)
        if exchange.method == "POST":
            return await self._post(exchange, client)
        if exchange.method == "GET":
            await self._get(exchange, client)
            return None
        self._connection(exchange, client).hang_up()
        return Reply(202)

    # --- POST ------------------------------------------------------------------------------------------------------

    async def _post(self, exchange: HttpRequest, client: Principal | None) -> Reply:
        data = await server.posted(exchange, self._options.max_body, refusal)
        message = jsonrpc.decode(data)
        if isinstance(message, jsonrpc.MessageBatch) or (
            isinstance(message, jsonrpc.Malformed) and data.lstrip().startswith(b"[")
        ):
            raise refusal(501, "several messages in an array are not taken")
        if isinstance(message, jsonrpc.Malformed):
            log.info("a client sends what is no message: %s", message.reason)
            raise refusal(400, f"no JSON-RPC message: {message.reason}")
        if (
            isinstance(message, jsonrpc.Request)
            and message.method == INITIALIZE
            and exchange.header(CONNECTION_ID) is None
        ):
            return await self._initialize(exchange, Visitor(self._people, client), message, data)
        connection = self._connection(exchange, client)
        with self._connections.used(connection):
            session = await self._session_of(exchange, connection, message)
            try:
                await connection.deliver(message, data, session, exchange.header(SESSION_ID) is not None)
            except AgentGone as error:
                raise refusal(404, str(error)) from None
        return Reply(202)

    async def _initialize(
        self, exchange: HttpRequest, visitor: Visitor, request: jsonrpc.Request, data: bytes
    ) -> Reply:
        """Raises what `converse` does, AgentGone if it just ends."""
        if request.id is None:
            raise refusal(400, f"{INITIALIZE} needs an id")
        connection = self._opened(exchange.agent, visitor)
        try:
            with self._connections.used(connection), WhileConnected(exchange):
                async with asyncio.timeout(INITIALIZE_SECONDS):
                    body = await connection.initialize(request, data)
        except BaseException as error:
            connection.hang_up()
            if isinstance(error, TimeoutError):
                raise refusal(504, f"{INITIALIZE} was not answered within {INITIALIZE_SECONDS:g} s") from None
            raise
        return Reply(200, body, [(CONNECTION_ID.lower().encode(), connection.id.encode()), *self._cookie(exchange)])

    def _cookie(self, exchange: HttpRequest) -> Headers:
        """One value for all of this process: a balancer that goes by it leads a client back to where its runs are."""
        secure = "; Secure" if exchange.scope.get("scheme") == "https" else ""
        return [(b"set-cookie", f"{COOKIE}={self._affinity}; Path=/; HttpOnly; SameSite=Lax{secure}".encode())]

    async def _session_of(
        self, exchange: HttpRequest, connection: HttpConnection, message: jsonrpc.Message
    ) -> str | None:
        """The session that a POST is about. Raises a Reply if it may not be sent like that."""
        header = exchange.header(SESSION_ID)
        if not isinstance(message, jsonrpc.Request | jsonrpc.Notification):
            return None
        if message.method in WITH_HEADER and header is None:
            raise refusal(400, f"{message.method} needs the header {SESSION_ID}")
        named = forwarded.session_of(message.params)
        if header is not None and named is not None and header != named:
            raise refusal(400, f"the header {SESSION_ID} names another session than the message")
        if header is not None and message.method not in TAKING_UP and not await self._has(connection, header):
            raise refusal(404, f"no session {header}")
        return header or named

    async def _has(self, connection: HttpConnection, session: str) -> bool:
        """Whether there is such a session, or may be for all that the gateway knows: some agents keep their own."""
        if session in connection.sessions:
            return True
        with suppress(NotFound):
            return connection.visitor.owns(await self._gateway.threads.get(session))
        if connection.visitor.required:  # then an agent's own sessions are nobody's
            return False
        names = self._gateway.agents.names(PROTOCOL) if connection.agent is None else [connection.agent]
        if len(names) != 1:
            return False
        try:
            agent = await self._gateway.agents.get(names[0], PROTOCOL)
        except InterlinguaError:
            return False
        return takes_up(agent.extra.get(PROTOCOL))

    # --- GET -------------------------------------------------------------------------------------------------------

    async def _get(self, exchange: HttpRequest, client: Principal | None) -> None:
        if EVENTS not in (exchange.header("accept") or "").lower():
            raise refusal(406, f"the Accept header must include {EVENTS}")
        connection = self._connection(exchange, client)
        name = exchange.header(SESSION_ID)
        with self._connections.used(connection):
            if name is None:
                await connection.main.vacate()
                try:
                    await connection.main.write(exchange, self._options.keep_alive)
                finally:
                    connection.dropped(None)
            else:
                await self._get_session(exchange, connection, name)

    async def _get_session(self, exchange: HttpRequest, connection: HttpConnection, name: str) -> None:
        if not await self._has(connection, name):
            raise refusal(404, f"no session {name}")
        if name not in connection.sessions and not connection.sessions.room():
            raise refusal(429, "too many sessions on one connection")
        with connection.sessions.opening(name) as session:
            await session.lane.vacate()
        try:
            settle = partial(connection.sessions.settle, session)
            await session.lane.write(exchange, self._options.keep_alive, attached=settle)
        finally:
            connection.dropped(session)
            connection.sessions.settle(session)

    def _connection(self, exchange: HttpRequest, client: Principal | None) -> HttpConnection:
        """The connection that a request belongs to, and may. Raises a Reply."""
        name = exchange.header(CONNECTION_ID)
        if name is None:
            raise refusal(400, f"the header {CONNECTION_ID} is missing")
        connection = self._connections.get(name)
        if (
            connection is None
            or connection.over
            or connection.agent != exchange.agent
            or not connection.visitor.fits(client)
        ):
            raise refusal(404, f"no connection {name}")
        return connection

    # --- their life ------------------------------------------------------------------------------------------------

    def _opened(self, agent: str | None, visitor: Visitor) -> HttpConnection:
        """A new connection. It counts as idle from now on. Raises Limited."""
        client, table = visitor.name, self._connections
        self._gateway.limits.session(PROTOCOL, client, table.held(client), lambda: self._spare(client))
        # Twice: a client opens the stream of a session before it asks for it, and is to be told what is wrong then.
        most = 2 * self._options.max_sessions
        connection = HttpConnection(self._gateway.new_id(), agent, visitor, most)
        table.add(connection, client)
        self._tasks.start(self._serve(connection), name=connection.name)
        return connection

    def _spare(self, client: str | None) -> bool:
        """Whether a connection of this client makes room: one that is ending, else one that is idle, which is ended."""
        idle = list(self._connections.idle_of(client)) if client is not None else []
        if idle and not any(one.over for one in idle):
            log.info("%s, which is idle, makes room for another", idle[0].name)
            idle[0].hang_up()
        return bool(idle)

    async def _serve(self, connection: HttpConnection) -> None:
        why: InterlinguaError | None = None
        try:
            await self._converse(connection, connection.agent)
        except InterlinguaError as error:
            why = error
        except Exception:
            log.exception("%s: serving failed", connection.name)
        finally:
            await connection.aclose()
            connection.served(why)
            self._connections.remove(connection)

    def _on_idle(self, connection: HttpConnection) -> None:
        log.info("%s has no stream open for %g s: its connection is ended", connection.name, self._options.idle)
        connection.hang_up()
