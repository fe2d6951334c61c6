"""State that all connections of this protocol share: their number, and the sessions that they have open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from msgspec import Raw

from adapters.agent_client.codec import errors
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.options import AgentClientServe
from adapters.agent_client.tunnel.http_doors import Doors
from adapters.agent_client.tunnel.switchboard import Offering, Switchboard
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.access import Authenticator
from gateway.contract import Gateway
from gateway.core.errors import InterlinguaError, NotFound, Unavailable
from gateway.core.types import ThreadUpdate
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

T = TypeVar("T")

log = logging.getLogger(__name__)

METHODS: Final = frozenset(
    (
        *("initialize", "authenticate", "logout", "auth/login", "auth/logout", "mcp/message"),
        *("session/new", "session/load", "session/resume", "session/list", "session/fork", "session/close"),
        *("session/delete", "session/prompt", "session/set_mode", "session/set_model", "session/set_config_option"),
    )
)
"""The requests of clients of both versions, by which they are traced. Agents may know others."""


class SharedSession(Offering, Protocol):
    """A session as one connection has it open, for the others that have it open."""

    @property
    def params(self) -> Raw:
        """The params that it was opened with there."""

    def heard(self, update: ThreadUpdate) -> None:
        """Tell the client of a change that another client has made."""

    async def configured(self, options: list[JsonObject] | None = None) -> None:
        """Tell the client all options of the session: the given ones, else the current ones."""

    def chosen(self, agent: str, config: JsonObject) -> None:
        """Set the agent and the configuration that another client has chosen."""

    async def up_to_date(self) -> None:
        """Wait until the client was told what has happened in it by now; a moment at most."""

    async def close(self) -> None:
        """Stop following it on that connection. A run in progress goes on."""


class EditorClients:
    """One per gateway process."""

    def __init__(self, options: AgentClientServe, gateway: Gateway) -> None:
        self.options = options
        self.gateway = gateway
        self.requests = gateway.requests(PROTOCOL, METHODS, _code)
        self.switchboard = Switchboard(self.open)
        self.doors = Doors(options, gateway)
        self.people = Authenticator(options.authentication)
        self._connected: set[Visitor] = set()
        self._work = TaskSet(lambda error: log.debug("for whoever still waits: %r", error))
        self._sessions: dict[str, set[SharedSession]] = {}
        self._setting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.contextmanager
    def connected(self, visitor: Visitor) -> Iterator[str]:
        """Counts as a connection, whose new id it gives. Raises Unavailable where there are as many as may be.

        Of those who have not said who they are there may be a quarter: they keep nobody else out.
        """
        most = self.options.max_connections
        strangers = sum(each.stranger for each in self._connected) if visitor.stranger else 0
        if len(self._connected) >= most or strangers >= max(most // 4, 1):
            raise Unavailable("too many clients are connected; try again later")
        self._connected.add(visitor)
        try:
            yield uuid.uuid4().hex
        finally:
            self._connected.discard(visitor)

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._connected)

    def agent(self, name: str | None, visitor: Visitor) -> str | None:
        """The agent for a connection made under this name (in a path, on a command line); None for any agent.

        Without a name it is the only agent, if there is only one. Raises NotFound, with the names that exist.
        """
        names = visitor.among(self.gateway.agents.names(PROTOCOL))
        if name is None:
            return names[0] if len(names) == 1 else None
        if name not in names:
            there = "" if visitor.stranger else f"; there are {', '.join(names) or 'none'}"
            raise NotFound(f"no agent {name}{there}")
        return name

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a change of the gateway's records, which is carried out whole even if who awaits it is cancelled.

        That happens whenever a client goes away. What becomes of the change is then logged, if it fails.
        """
        task = asyncio.ensure_future(work)
        self._work.hold(task)
        return await asyncio.shield(task)

    # --- open sessions, across connections ----------------------------------------------------------------------

    def opened(self, session: SharedSession) -> None:
        """Register a session that a connection has opened."""
        self._sessions.setdefault(session.id, set()).add(session)

    def closed(self, session: SharedSession) -> None:
        """Remove a session that a connection has closed."""
        there = self._sessions.get(session.id, set())
        there.discard(session)
        if not there:
            self._sessions.pop(session.id, None)

    def open(self, session_id: str) -> tuple[SharedSession, ...]:
        """List the session as each connection has it open."""
        return tuple(self._sessions.get(session_id, ()))

    def setting(self, session_id: str) -> asyncio.Lock:
        """Held while one of its options is set: the next one, whichever connection sets it, adds to what it is then."""
        return self._setting.setdefault(session_id, asyncio.Lock())


def _code(error: Exception) -> int:
    """The JSON-RPC code that an exception is answered with."""
    return errors.to_rpc(error).error.code if isinstance(error, InterlinguaError) else jsonrpc.INTERNAL_ERROR
