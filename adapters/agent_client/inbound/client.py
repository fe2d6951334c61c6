"""Sends to the client at the other end of one connection, and knows who it is and what it can do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from msgspec import Raw

from adapters.agent_client.codec import errors
from adapters.agent_client.codec.version import V1, ProtocolVersion
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.options import AgentClientServe
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.tunnel.http_doors import Doors
from adapters.agent_client.tunnel.switchboard import Offering, Switchboard
from adapters.agent_client.wire import PROTOCOL, JsonObject, cancel_request
from gateway.access import Authenticator
from gateway.contract import Gateway
from gateway.core.errors import AgentGone, InterlinguaError, NotFound, Unavailable, Unsupported
from gateway.core.types import ThreadUpdate
from gateway.transport.rpc import Peer
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

METHODS: Final = frozenset(
    (
        *("initialize", "authenticate", "logout", "auth/login", "auth/logout", "mcp/message"),
        *("session/new", "session/load", "session/resume", "session/list", "session/fork", "session/close"),
        *("session/delete", "session/prompt", "session/set_mode", "session/set_model", "session/set_config_option"),
    )
)
"""The requests of clients of both versions, by which they are traced. Agents may know others."""
Relay = Callable[[str, Raw], Awaitable[Raw]]
"""Hands a method and its params to an agent, and returns its answer."""


# --- state that all connections of this protocol share --------------------------------------------------------------


class SharedSession(Offering, Protocol):
    """A session as one connection has it open, for the others that have it open: see `EditorSession`."""

    @property
    def params(self) -> Raw: ...

    def heard(self, update: ThreadUpdate) -> None: ...

    async def configured(self, options: list[JsonObject] | None = None) -> None: ...

    def chosen(self, agent: str, config: JsonObject) -> None: ...

    async def up_to_date(self) -> None: ...

    async def close(self) -> None: ...


class EditorClients:
    """One per gateway process."""

    def __init__(self, options: AgentClientServe, gateway: Gateway) -> None:
        self.options = options
        self.gateway = gateway
        self.requests = gateway.requests(PROTOCOL, METHODS, _code)
        self.switchboard = Switchboard(self.open)
        self.doors = Doors(options, gateway)
        self.people = Authenticator(options.authentication, created=gateway.agents.created)
        self._connected: set[Visitor] = set()
        self.whole = TaskSet(lambda error: log.debug("for whoever still waits: %r", error)).whole
        """Awaits a change of the gateway's records."""
        self._sessions: dict[str, tuple[SharedSession, ...]] = {}
        self._alone: WeakValueDictionary[tuple[str, object], asyncio.Lock] = WeakValueDictionary()

    def connect(self, visitor: Visitor) -> str:
        """Counts as a connection, whose new id it gives. Raises Unavailable where there are as many as may be.

        Of those who have not said who they are there may be a quarter: they keep nobody else out.
        """
        most = self.options.max_connections
        strangers = sum(each.stranger for each in self._connected) if visitor.stranger else 0
        if len(self._connected) >= most or strangers >= max(most // 4, 1):
            raise Unavailable("too many clients are connected; try again later")
        self._connected.add(visitor)
        return uuid.uuid4().hex

    def disconnect(self, visitor: Visitor) -> None:
        self._connected.discard(visitor)

    @property
    def connections(self) -> int:
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

    # --- open sessions, across connections ----------------------------------------------------------------------

    def opened(self, session: SharedSession) -> None:
        self._sessions[session.id] = (*self.open(session.id), session)

    def closed(self, session: SharedSession) -> None:
        if there := tuple(other for other in self.open(session.id) if other is not session):
            self._sessions[session.id] = there
        else:
            self._sessions.pop(session.id, None)

    def open(self, session_id: str) -> tuple[SharedSession, ...]:
        """List the session as each connection has it open."""
        return self._sessions.get(session_id, ())

    def alone(self, session_id: str, what: object) -> asyncio.Lock:
        """Held while somebody does `what` with a session: whoever would do the same waits."""
        return self._alone.setdefault((session_id, what), asyncio.Lock())


def _code(error: Exception) -> int:
    """The JSON-RPC code that an exception is answered with."""
    return errors.answer(error).code


# --- one client -----------------------------------------------------------------------------------------------------


class EditorClient:
    """See `gateway.contract.Caller`.

    agent: the only agent it may talk to; None if its sessions choose theirs.
    visitor: who it is.
    capabilities: what it declared that it can do, in version 1's words.
    version: the version that it speaks.
    """

    protocol = PROTOCOL

    def __init__(self, peer: Peer, clients: EditorClients, agent: str | None, visitor: Visitor) -> None:
        self.clients = clients
        self.gateway = clients.gateway
        self.agent = agent
        self.visitor = visitor
        self.capabilities: JsonObject = {}
        self.version: ProtocolVersion = V1
        self._peer = peer
        self._tasks = TaskSet()

    def agreed(self, version: ProtocolVersion, capabilities: JsonObject) -> None:
        """What `initialize` has come to."""
        self.version, self.capabilities = version, capabilities

    def names(self) -> Sequence[str]:
        return self.visitor.among([self.agent] if self.agent is not None else self.gateway.agents.names(PROTOCOL))

    # --- what it is told and asked ----------------------------------------------------------------------------

    def say(self, messages: Sequence[bytes]) -> None:
        """Send encoded messages. Dropped if the client has gone."""
        try:
            self._peer.send(*messages)
        except AgentGone:
            return

    @property
    def flowing(self) -> bool:
        """Whether the client reads as fast as it is told, and is there: then `drained` need not be called."""
        return self._peer.flowing

    async def drained(self) -> None:
        """Wait while the client reads slowly. Raises AgentGone."""
        await self._peer.drain()

    async def ask(self, method: str, params: Raw) -> Raw:
        if method in tunnel.METHODS:
            return await self.clients.switchboard.ask(self, method, params)
        return await self.asking(method, params)

    async def asking(self, method: str, params: Raw) -> Raw:
        """Send a request to this very client, also one that `ask` may send to another client of the session."""
        return await self.put(method, self.version.to_client(method, params))

    async def put(self, method: str, params: Raw) -> Raw:
        """Send a request whose params are in the client's own version already."""
        try:
            return await self._peer.request(method, params, cancel=cancel_request)
        except AgentGone as error:
            raise Unavailable("the client has gone", detail=str(error)) from error

    def tell(self, method: str, params: Raw) -> None:
        if method in tunnel.METHODS:
            self.clients.switchboard.tell(method, params)
        else:
            self.telling(method, params)

    def telling(self, method: str, params: Raw) -> None:
        with contextlib.suppress(AgentGone):
            self._peer.notify(method, params)

    async def up_to_date(self, session_id: str) -> None:
        """Wait until it was told what has happened in the session by now, which goes another way than what it is asked;
        a moment at most.
        """
        for session in self.clients.open(session_id):
            if session.client is self:
                await session.up_to_date()

    @property
    def tools(self) -> tuple[str, ...] | None:
        return self.visitor.tools

    # --- what only agents understand --------------------------------------------------------------------------

    async def beside(self, method: str, params: Raw, relay: Relay | None = None) -> Raw:
        """Hand a request to the agent; by `relay` if it is a session's. Raises RpcError where no agent takes it."""
        try:
            if relay is not None:
                return await relay(method, params)
            if self.agent is not None:
                return await self.gateway.backchannel.relay(self.agent, PROTOCOL, method, params, caller=self)
        except Unsupported as error:
            log.debug("%s: %s", method, error)
        raise errors.unknown(method)

    # --- while it is there ------------------------------------------------------------------------------------

    def linger_for(self, work: asyncio.Future[Any]) -> None:
        """Keep a half-closed connection open until `work` is done, as for a request that is not answered."""
        self._peer.linger_for(work)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the requests, until the connection ends."""
        self._tasks.start(work)

    def gone(self) -> None:
        """The connection has ended: cancel what `keep` runs, and end the connections to the client's MCP servers."""
        self._tasks.cancel()
        self.clients.switchboard.left(self)

    async def cancel_run(self, run_id: str) -> None:
        """Cancel a run for the client. A failure is logged, not told."""
        try:
            await self.clients.whole(self.gateway.runs.cancel(run_id, reason="cancelled by the client"))
        except InterlinguaError as error:
            log.warning("%s: run %s could not be cancelled: %s", self._peer.pipe.name, run_id, error)
