"""The outbound half: what each session of a target's agent was offered, and the agent's ends of MCP connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.tunnel import mcp_messages
from adapters.agent_client.tunnel.bridge import Bridge
from adapters.agent_client.tunnel.doors import Door, Housed
from adapters.agent_client.tunnel.end import End
from adapters.agent_client.tunnel.mcp_messages import CONNECT, DISCONNECT, MESSAGE, SERVERS, TYPE, Offered
from adapters.agent_client.tunnel.native import Connected, Stateless
from adapters.agent_client.wire import JsonObject
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from adapters.agent_client.outbound.connection import Connection
    from adapters.agent_client.outbound.session import Session

log = logging.getLogger(__name__)

MOST_SERVERS: Final = 100
"""Of one session; an older one makes room."""
MOST_ENDS: Final = 100
"""Connections to one of them."""
LOST: Final = "mcp_servers"


class Server:
    """One that a session's client offers. `id` is what the agent knows it by, `secret` what proves that it does."""

    def __init__(self, tunnels: Tunnels, session: Session, offered: Offered) -> None:
        self.tunnels = tunnels
        self.session = session
        self.offered = offered
        self.id = secrets.token_hex(16)
        self.secret = secrets.token_bytes(32)
        self.ends: dict[str, End] = {}
        self.stateless: dict[Connection, Stateless] = {}
        self.door: Door | None = None

    def room(self) -> None:
        """Raises RpcError where there are as many connections as may be."""
        if len(self.ends) >= MOST_ENDS:
            raise mcp_messages.unavailable(f"too many connections to {self.offered.name}")


class Tunnels:
    """One per target. `declared` is called for every session that is opened, `forget` when it is closed.

    `patience`: seconds that a client may take to connect one of its servers.
    """

    def __init__(self, target: AgentClientTarget) -> None:
        self.patience = target.request_timeout
        self._started = target.url is None
        self.ends: dict[str, End] = {}
        self.lines: dict[str, End] = {}
        self._servers: dict[str, Server] = {}
        self._of_session: dict[Session, list[Server]] = {}
        self._bridge = Bridge(self, target)
        self._closing: set[asyncio.Task[None]] = set()

    async def declared(self, session: Session, connection: Connection, params: Raw) -> tuple[Raw, list[str]]:
        """The params that open a session, as its agent is to get them; and what of them it cannot have, by its loss."""
        if b'"%s"' % TYPE.encode() not in bytes(params):
            return params, []
        servers = mcp_messages.members(params).get(SERVERS)
        found: list[JsonObject] = jsonrpc.unpack(servers) if servers else []
        offers = {id(each.whole): each for each in mcp_messages.offered(found)}
        if not offers:
            return params, []
        told: list[JsonObject] = []
        lost: list[str] = []
        for each in found:
            offer = offers.get(id(each))
            entry = each if offer is None else await self._declared(session, connection, offer)
            if entry is None:
                lost = [LOST]
            else:
                told.append(entry)
        return mcp_messages.replaced(params, **{SERVERS: told}), lost

    async def _declared(self, session: Session, connection: Connection, offer: Offered) -> JsonObject | None:
        server = Server(self, session, offer)
        if connection.offers("mcpCapabilities", TYPE):
            entry = mcp_messages.declared(offer, server.id)
        elif (door := self._door(server, connection)) is not None:
            entry = door.entry
        elif self._bridge.possible:
            entry = await self._bridge.declared(server)
        else:
            return None
        self._servers[server.id] = server
        there = self._of_session.setdefault(session, [])
        session.detached = lambda: self.forget(session)
        there.append(server)
        if len(there) > MOST_SERVERS:
            self._drop(there.pop(0))
        return entry

    def possible(self, connection: Connection) -> bool:
        """Whether an agent can have servers that a client offers: itself, by HTTP, or by a program that it starts."""
        return self._bridge.possible or any(connection.offers("mcpCapabilities", how) for how in (TYPE, "http"))

    def _door(self, server: Server, connection: Connection) -> Door | None:
        """A way in for an agent that we did not start and that goes by HTTP."""
        context = server.session.context
        caller = context.caller if context is not None else None
        if self._started or not connection.offers("mcpCapabilities", "http") or not isinstance(caller, Housed):
            return None
        server.door = caller.doors.open(server)
        return server.door

    def server(self, id: str) -> Server | None:
        """One by the id that its agent knows."""
        return self._servers.get(id)

    # --- from the agent -------------------------------------------------------------------------------------------

    async def answer(self, connection: Connection, method: str, params: Raw) -> Raw:
        """A request of an agent's that speaks this itself. Raises RpcError and errors of the tree."""
        if not self._servers:
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
        if method == CONNECT:
            return await self._connect(connection, params)
        said = mcp_messages.read(params)
        if method == MESSAGE and said.connection_id is None:
            return await self._stateless(connection, said.server_id or "").request(params)
        end = self._end(connection, said.connection_id)
        if method == MESSAGE:
            return await end.ask(params)
        assert method == DISCONNECT
        await end.hang_up()
        return Raw(b"{}")

    def tell(self, connection: Connection, method: str, params: Raw) -> None:
        """A notification of such an agent's. Dropped where there is no such connection."""
        if method == MESSAGE:
            with contextlib.suppress(RpcError):
                self._end(connection, mcp_messages.read(params).connection_id).tell(params)

    async def _connect(self, connection: Connection, params: Raw) -> Raw:
        server = self._offered(connection, mcp_messages.unpacked(params, mcp_messages.Connect).server)
        server.room()
        end = Connected(server, connection)
        line = await end.connected(mcp_messages.members(params).get("_meta"))
        self.opened(end)
        return mcp_messages.replaced(line.answer, connectionId=end.id, stateless=None)

    def opened(self, end: End) -> None:
        """An agent has one more connection to a server."""
        end.server.ends[end.id] = self.ends[end.id] = end

    def _offered(self, connection: Connection, id: str) -> Server:
        server = self._servers.get(id)
        if server is None or server.session.connection not in (connection, None):
            raise mcp_messages.unavailable(f"nobody offers {id}")
        return server

    def _stateless(self, connection: Connection, id: str) -> Stateless:
        server = self._offered(connection, id)
        end = server.stateless.get(connection)
        if end is None:
            server.room()
            end = server.stateless[connection] = Stateless(server, connection)
            self.opened(end)
        return end

    def _end(self, connection: Connection, id: str | None) -> End:
        end = self.ends.get(id or "")
        if not isinstance(end, Connected) or end.connection is not connection:
            raise mcp_messages.unavailable(f"there is no connection {id}")
        return end

    # --- from the client ------------------------------------------------------------------------------------------

    async def relay(self, method: str, params: Raw) -> Raw:
        """What a client's MCP server asks. Raises what the agent answers, RpcError if there is no such connection."""
        return await self._line(method, params).asked(params)

    async def forward(self, method: str, params: Raw) -> None:
        """What it tells."""
        await self._line(method, params).told(params)

    def _line(self, method: str, params: Raw) -> End:
        end = self.lines.get(mcp_messages.read(params).connection_id or "")
        if method != MESSAGE or end is None:
            raise mcp_messages.unavailable("there is no such connection")
        return end

    # --- the end --------------------------------------------------------------------------------------------------

    def forget(self, session: Session) -> None:
        """The agent has it open no more."""
        for server in self._of_session.pop(session, ()):
            self._drop(server)

    def _drop(self, server: Server) -> None:
        self._servers.pop(server.id, None)
        if server.door is not None:
            self.keep(server.door.aclose())
        for end in list(server.ends.values()):
            self.keep(end.hang_up())

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """See something to its end that nobody waits for. Bounded by whoever made it."""
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Let go of everything."""
        for session in list(self._of_session):
            self.forget(session)
        await self._bridge.aclose()
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=1.0)
            for task in late:
                task.cancel()
