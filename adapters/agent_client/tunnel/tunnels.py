"""The outbound half: the servers that each session of an agent was offered, and the agent's ends of connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from adapters.agent_client import forwarded
from adapters.agent_client.codec import errors
from adapters.agent_client.inbound.client import EditorClient
from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.tunnel import mcp_messages
from adapters.agent_client.tunnel.agent_end import (
    AgentEnd,
    Asked,
    ConnectedEnd,
    McpTranslation,
    OpenEnds,
    StatelessEnd,
    Told,
)
from adapters.agent_client.tunnel.http_doors import HttpDoor
from adapters.agent_client.tunnel.mcp_messages import CONNECT, DISCONNECT, MESSAGE, SERVERS, TYPE, McpMessage, Offered
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.tunnel.shim_ends import ShimSocket
from adapters.agent_client.wire import LOST_SERVERS, JsonObject
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

if TYPE_CHECKING:  # the outbound half is made with the tunnel's
    from adapters.agent_client.outbound.connection import AgentConnection
    from adapters.agent_client.outbound.session import AgentSession

log = logging.getLogger(__name__)

MOST_SERVERS: Final = 100
"""Of one session; an older one makes room."""


class Tunnels:
    """One per target. `declared` is called for every session that is opened, `forget` when it is closed."""

    def __init__(self, target: AgentClientTarget) -> None:
        self._started = target.url is None
        self._servers: dict[str, OfferedServer] = {}
        self._of_session: dict[AgentSession, list[OfferedServer]] = {}
        self._stateless_ends: dict[tuple[OfferedServer, AgentConnection], StatelessEnd] = {}
        self._doors: dict[OfferedServer, HttpDoor] = {}
        self.ends = OpenEnds(target.request_timeout, self._translate)
        self._shims = ShimSocket(self._servers.get, self.ends, target)
        self._closing = TaskSet()

    async def declared(self, session: AgentSession, connection: AgentConnection, params: Raw) -> tuple[Raw, list[str]]:
        """The params that open a session, as its agent is to get them; and what of them it cannot have, by its loss."""
        if b'"%s"' % TYPE.encode() not in bytes(params):
            return params, []
        servers = jsonrpc.members(params).get(SERVERS)
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
                lost = [LOST_SERVERS]
            else:
                told.append(entry)
        return jsonrpc.replaced(params, **{SERVERS: told}), lost

    async def _declared(self, session: AgentSession, connection: AgentConnection, offer: Offered) -> JsonObject | None:
        server = OfferedServer(session, offer)
        if connection.offers("mcpCapabilities", TYPE):
            entry = mcp_messages.declared(offer, server.id)
        elif (door := self._door(server, connection)) is not None:
            entry = door.entry
        elif self._shims.possible:
            entry = await self._shims.declared(server)
        else:
            return None
        self._servers[server.id] = server
        there = self._of_session.setdefault(session, [])
        there.append(server)
        if len(there) > MOST_SERVERS:
            self._drop(there.pop(0))
        return entry

    def possible(self, connection: AgentConnection) -> bool:
        """Whether an agent can have servers that a client offers: itself, by HTTP, or by a program that it starts."""
        return self._shims.possible or any(connection.offers("mcpCapabilities", how) for how in (TYPE, "http"))

    def _door(self, server: OfferedServer, connection: AgentConnection) -> HttpDoor | None:
        """A way in for an agent that we did not start and that goes by HTTP."""
        context = server.session.context
        caller = context.caller if context is not None else None
        if self._started or not connection.offers("mcpCapabilities", "http") or not isinstance(caller, EditorClient):
            return None
        door = caller.clients.doors.open(server, self.ends)
        if door is not None:
            self._doors[server] = door
        return door

    # --- from the agent -------------------------------------------------------------------------------------------

    async def answer(self, connection: AgentConnection, method: str, params: Raw) -> Raw:
        """A request of an agent that speaks this itself. Raises RpcError and errors of the tree."""
        if not self._servers:
            raise errors.unknown(method)
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
        return forwarded.NOTHING

    async def tell(self, connection: AgentConnection, method: str, params: Raw) -> None:
        """A notification of such an agent. Dropped if there is no such connection."""
        if method == MESSAGE:
            with contextlib.suppress(jsonrpc.RpcError):
                await self._end(connection, mcp_messages.read(params).connection_id).tell(params)

    async def _connect(self, connection: AgentConnection, params: Raw) -> Raw:
        server = self._offered(connection, mcp_messages.unpacked(params, mcp_messages.Connect).server)
        self.ends.check_room(server)
        end = ConnectedEnd(server, self.ends, connection)
        client = await end.connected(jsonrpc.members(params).get("_meta"))
        self.ends.add(end)
        return jsonrpc.replaced(client.answer, connectionId=end.id, stateless=None)

    def _offered(self, connection: AgentConnection, id: str) -> OfferedServer:
        server = self._servers.get(id)
        if server is None or server.session.connection not in (connection, None):
            raise mcp_messages.unavailable(f"nobody offers {id}")
        return server

    def _stateless(self, connection: AgentConnection, id: str) -> StatelessEnd:
        server = self._offered(connection, id)
        end = self._stateless_ends.get((server, connection))
        if end is None:
            self.ends.check_room(server)
            end = self._stateless_ends[server, connection] = StatelessEnd(server, self.ends, connection)
            self.ends.add(end)
        return end

    def _end(self, connection: AgentConnection, id: str | None) -> ConnectedEnd:
        end = self.ends.find(id or "")
        if not isinstance(end, ConnectedEnd) or end.connection is not connection:
            raise mcp_messages.unavailable(f"there is no connection {id}")
        return end

    # --- from the client ------------------------------------------------------------------------------------------

    async def relay(self, method: str, params: Raw) -> Raw:
        """Relay a request of a client's MCP server. Raises the agent's error, RpcError for an unknown connection."""
        return await self._reached(method, params).asked(params)

    async def forward(self, method: str, params: Raw) -> None:
        await self._reached(method, params).told(params)

    def _reached(self, method: str, params: Raw) -> AgentEnd:
        end = self.ends.reached_by(mcp_messages.read(params).connection_id or "")
        if method != MESSAGE or end is None:
            raise mcp_messages.unavailable("there is no such connection")
        return end

    # --- the end --------------------------------------------------------------------------------------------------

    def forget(self, session: AgentSession) -> None:
        for server in self._of_session.pop(session, ()):
            self._drop(server)

    def _drop(self, server: OfferedServer) -> None:
        self._servers.pop(server.id, None)
        for key in [key for key in self._stateless_ends if key[0] is server]:
            del self._stateless_ends[key]
        door = self._doors.pop(server, None)
        if door is not None:
            self._keep(door.aclose())
        for end in self.ends.of(server):
            self._keep(end.hang_up())

    async def _translate(self, server: OfferedServer, first: McpMessage, asked: Asked, told: Told) -> McpTranslation:
        from adapters.agent_client.tunnel.translation import begun

        return await begun(self.ends, server, first, asked, told)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        """See something to its end that nobody waits for. Bounded by whoever made it."""
        self._closing.start(work)

    async def aclose(self) -> None:
        for session in list(self._of_session):
            self.forget(session)
        await self._shims.aclose()
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=1.0)
            for task in late:
                task.cancel()
