"""The connections there are: each served by a task of its own, ended when its client has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from adapters.agent_client.inbound.http.connection import BUFFER_BYTES, STALL_SECONDS, HttpConnection
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.options import AgentClientServe
from adapters.agent_client.wire import PROTOCOL
from gateway.contract import Gateway
from gateway.core.errors import InterlinguaError
from gateway.transport.streamable_http.server import SessionTable
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

Converse = Callable[[HttpConnection, str | None], Awaitable[None]]
"""See `gateway.contract.Conversing`. What it raises is what the client's `initialize` is answered with."""


class EditorHttpConnections:
    """By id. `buffer`, `stall`: see HttpConnection.

    A client says goodbye with DELETE; one that did not is taken to have gone when none of its streams was open, and
    nothing was POSTed, for as long as the option `idle` says.
    """

    def __init__(
        self,
        options: AgentClientServe,
        converse: Converse,
        gateway: Gateway,
        *,
        buffer: int = BUFFER_BYTES,
        stall: float = STALL_SECONDS,
    ) -> None:
        self._options = options
        self._converse = converse
        self._gateway = gateway
        self._buffer = buffer
        self._stall = stall
        self._table = SessionTable[HttpConnection](options.idle, self._on_idle)
        self.used = self._table.used
        self._tasks = TaskSet()

    def get(self, id: str) -> HttpConnection | None:
        """The connection, while it lasts."""
        connection = self._table.get(id)
        return None if connection is None or connection.over else connection

    def open(self, agent: str | None, visitor: Visitor) -> HttpConnection:
        """A new connection. It counts as idle from now on. Raises Limited."""
        client = visitor.name
        self._gateway.limits.session(PROTOCOL, client, self._table.held(client), lambda: self._spare(client))
        # Twice: a client opens the stream of a session before it asks for it, and is to be told what is wrong then.
        most = 2 * self._options.max_sessions
        connection = HttpConnection(
            self._gateway.new_id(), agent, visitor, buffer=self._buffer, stall=self._stall, sessions=most
        )
        self._table.add(connection, client)
        self._tasks.start(self._serve(connection), name=connection.name)
        return connection

    def _spare(self, client: str | None) -> bool:
        """Whether a connection of this client makes room: one that is ending, else one that is idle, which is ended."""
        idle = list(self._table.idle_of(client)) if client is not None else []
        if idle and not any(one.over for one in idle):
            log.info("%s, which is idle, makes room for another", idle[0].name)
            idle[0].hang_up()
        return bool(idle)

    def quiet(self) -> None:
        """End all. What they were about goes on."""
        for connection in self._table.all:
            connection.hang_up()

    async def aclose(self) -> None:
        """The same, and wait until nobody serves them any more."""
        self.quiet()
        if self._tasks:
            await asyncio.wait(self._tasks)

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
            self._table.remove(connection)

    def _on_idle(self, connection: HttpConnection) -> None:
        log.info("%s has no stream open for %g s: its connection is ended", connection.name, self._options.idle)
        connection.hang_up()
