"""The inbound half: which client offers which server, and the client's end of each MCP connection."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from msgspec import Raw

from adapters.agent_client import forwarded
from adapters.agent_client.tunnel import mcp_messages
from adapters.agent_client.tunnel.mcp_messages import CONNECT, MESSAGE, Offered
from adapters.agent_client.wire import PROTOCOL
from gateway.contract import Gateway
from gateway.wire import jsonrpc

MOST: Final = 1000
"""MCP connections to one client's servers."""


class Host(Protocol):
    """A connected client that may have MCP servers: see `EditorClient`."""

    @property
    def gateway(self) -> Gateway: ...

    @property
    def flowing(self) -> bool: ...

    async def drained(self) -> None: ...

    async def asking(self, method: str, params: Raw) -> Raw: ...

    def telling(self, method: str, params: Raw) -> None: ...


class Offering(Protocol):
    """A session that a client has open: see `EditorSession`."""

    @property
    def id(self) -> str: ...

    @property
    def agent(self) -> str: ...

    @property
    def client(self) -> Host: ...

    @property
    def servers(self) -> list[Offered]: ...


Opened = Callable[[str], Iterable[Offering]]
"""Id of a session -> the same session as each client has it open."""


@dataclass(eq=False)
class Line:
    """One MCP connection to a server of a client's. `theirs`: the client's name for it; None where it is stateless."""

    id: str
    client: Host
    session: Offering
    server: Offered
    theirs: str | None
    asked: dict[str, str | int | None] = field(default_factory=dict)
    """Requests under way at a stateless client, by the id that it knows: the one that its agent knows."""


class Switchboard:
    """One per gateway process. What agents say comes in by `ask` and `tell`, what clients say by the rest."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._lines: dict[str, Line] = {}
        self._by_client: dict[Host, dict[str, Line]] = {}
        self._stateless: set[Host] = set()
        self._numbers = itertools.count(1)

    # --- from agents ----------------------------------------------------------------------------------------------

    async def ask(self, client: Host, method: str, params: Raw) -> Raw:
        """A request of an agent's to this client, or to another one that has the same session open.

        Raises RpcError with the client's own error or UNAVAILABLE; Unavailable once it has gone.
        """
        if method == CONNECT:
            return await self._connect(client, params)
        line = self._line(mcp_messages.read(params).connection_id)
        if method == MESSAGE:
            return await self._asked(line, params)
        self._drop(line)
        if line.theirs is None:
            return forwarded.NOTHING
        return await line.client.asking(method, jsonrpc.replaced(params, connectionId=line.theirs))

    def tell(self, method: str, params: Raw) -> None:
        """A notification of an agent's. Dropped where nobody takes it: the client reads slowly, or is stateless."""
        line = self._lines.get(mcp_messages.read(params).connection_id or "")
        if line is not None and line.theirs is not None and line.client.flowing:
            line.client.telling(method, jsonrpc.replaced(params, connectionId=line.theirs, requestId=None))

    async def _connect(self, asked: Host, params: Raw) -> Raw:
        wanted = mcp_messages.unpacked(params, mcp_messages.Connect)
        sessions = sorted(self._opened(wanted.session_id), key=lambda session: session.client is not asked)
        session, server = _found(sessions, wanted)
        client = session.client
        theirs = None
        answer = forwarded.NOTHING
        if len(self._by_client.get(client, ())) >= MOST:
            raise mcp_messages.unavailable("too many connections to MCP servers of this client")
        if client not in self._stateless:
            meta = jsonrpc.members(params).get("_meta")
            try:
                answer = await client.asking(CONNECT, jsonrpc.raw(mcp_messages.connecting(server, meta)))
                theirs = mcp_messages.unpacked(answer, mcp_messages.Connected).connection_id
            except jsonrpc.RpcError as error:
                if error.error.code != jsonrpc.METHOD_NOT_FOUND or server.key != "serverId":
                    raise
                self._stateless.add(client)
        line = Line(uuid.uuid4().hex, client, session, server, theirs)
        self._lines[line.id] = line
        self._by_client.setdefault(client, {})[theirs or line.id] = line
        return jsonrpc.replaced(answer, connectionId=line.id, stateless=theirs is None or None)

    async def _asked(self, line: Line, params: Raw) -> Raw:
        await line.client.drained()
        if line.theirs is not None:
            renamed = jsonrpc.replaced(params, connectionId=line.theirs, requestId=None)
            return await line.client.asking(MESSAGE, renamed)
        number = f"{line.id}-{next(self._numbers)}"
        line.asked[number] = mcp_messages.read(params).request_id
        try:
            about: dict[str, Any] = {"connectionId": None, "serverId": line.server.id, "requestId": number}
            return await line.client.asking(MESSAGE, jsonrpc.replaced(params, **about))
        finally:
            del line.asked[number]

    # --- from clients -----------------------------------------------------------------------------------------------

    async def request(self, client: Host, params: Raw) -> Raw:
        """Relay a server's `mcp/message` to its MCP client. Raises RpcError with the agent's error, and the tree's."""
        line = self._line_of(client, mcp_messages.read(params).connection_id)
        if line is None:
            raise mcp_messages.unavailable("there is no such connection")
        return await line.client.gateway.backchannel.relay(
            line.session.agent,
            PROTOCOL,
            MESSAGE,
            jsonrpc.replaced(params, connectionId=line.id),
            thread=line.session.id,
        )

    async def notification(self, client: Host, params: Raw) -> None:
        """Relay a server's notification. Raises what `request` does."""
        said = mcp_messages.read(params)
        about: dict[str, Any] = {}
        line = self._line_of(client, said.connection_id)
        if line is None:
            line = self._asking(client, said.request_id)
            about = {"serverId": None, "requestId": line.asked[str(said.request_id)]} if line is not None else {}
        if line is None:
            raise mcp_messages.unavailable("there is no such connection")
        about["connectionId"] = line.id
        await line.client.gateway.backchannel.forward(
            line.session.agent, PROTOCOL, MESSAGE, jsonrpc.replaced(params, **about), thread=line.session.id
        )

    def left(self, client: Host) -> None:
        """A client has gone, and its servers with it: an agent's next message finds out."""
        self._stateless.discard(client)
        for line in self._by_client.pop(client, {}).values():
            self._lines.pop(line.id, None)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _line(self, id: str | None) -> Line:
        line = self._lines.get(id or "")
        if line is None:
            raise mcp_messages.unavailable("its client has gone")
        return line

    def _line_of(self, client: Host, theirs: str | None) -> Line | None:
        return self._by_client.get(client, {}).get(theirs) if theirs is not None else None

    def _asking(self, client: Host, request: str | int | None) -> Line | None:
        return next((each for each in self._by_client.get(client, {}).values() if request in each.asked), None)

    def _drop(self, line: Line) -> None:
        self._lines.pop(line.id, None)
        there = self._by_client.get(line.client, {})
        there.pop(line.theirs or line.id, None)
        if not there:
            self._by_client.pop(line.client, None)


def _found(sessions: Iterable[Offering], wanted: mcp_messages.Connect) -> tuple[Offering, Offered]:
    """Find who offers it under its id; else under its name, since a client that comes back may give new ids."""
    offers = [(session, server) for session in sessions for server in session.servers]
    for session, server in offers:
        if server.id == wanted.server:
            return session, server
    for session, server in offers:
        if server.name and server.name == wanted.name:
            return session, server
    raise mcp_messages.unavailable(wanted.name or wanted.server)
