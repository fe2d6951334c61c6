"""The agent's ends of MCP connections, whatever it speaks there; and those of agents that speak it themselves."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Raw, Struct

from adapters.agent_client import forwarded
from adapters.agent_client.tunnel import mcp_messages, tool_rules
from adapters.agent_client.tunnel.mcp_messages import CONNECT, DISCONNECT, MESSAGE
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.contract import Caller
from gateway.core.errors import AgentTimeout, InterlinguaError, Unavailable
from gateway.mcp import wire
from gateway.transport.pipe import Pipe, Unreadable
from gateway.transport.rpc import Peer
from gateway.wire import jsonrpc

if TYPE_CHECKING:  # the outbound half is made with the tunnel's
    from adapters.agent_client.outbound.connection import AgentConnection

log = logging.getLogger(__name__)

MODERN_ONLY: Final = frozenset((wire.UNSUPPORTED_VERSION, jsonrpc.METHOD_NOT_FOUND))
"""Errors of a server that knows no handshake."""
MOST_ENDS: Final = 100
"""Connections of an agent's to one server."""
Asked: TypeAlias = Callable[[Raw], Awaitable[Raw]]
Told: TypeAlias = Callable[[Raw], Awaitable[None]]
OUTER: Final = frozenset((mcp_messages.UNAVAILABLE, mcp_messages.BROKEN, jsonrpc.REQUEST_CANCELLED))
"""Errors that are not the MCP server's."""


class McpTranslation(Protocol):
    """A translation between an agent and a server of another revision, see `translation.py`."""

    async def ask(self, message: Raw) -> Raw:
        """A request of the agent's. Raises RpcError with its error."""

    def tell(self, message: Raw) -> None:
        """A notification of the agent's."""

    async def aclose(self) -> None:
        """End it, and tell the client."""


Translate: TypeAlias = Callable[[OfferedServer, mcp_messages.McpMessage, Asked, Told], Awaitable[McpTranslation]]
"""Begins a translation: the server, the agent's first request, and what reaches the agent, as in `AgentEnd`."""


class ClientEnd(Struct, frozen=True, eq=False):
    """The client's end, named by the switchboard. `stateless`: the client opens no connections, see `mcp_messages`."""

    caller: Caller
    id: str
    stateless: bool
    answer: Raw


class OpenEnds:
    """All ends of one target's agent, and the clients' ends that they are connected to.

    patience: seconds that a client may take to connect one of its servers.
    """

    def __init__(self, patience: float, translate: Translate) -> None:
        self.patience = patience
        self.translate = translate
        self._ends: dict[str, AgentEnd] = {}
        self._of_server: dict[OfferedServer, list[AgentEnd]] = {}
        self._of_client: dict[str, AgentEnd] = {}

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def connected(self) -> int:
        return len(self._of_client)

    def check_room(self, server: OfferedServer) -> None:
        """Raises RpcError if the server has as many connections as it may."""
        if len(self._of_server.get(server, ())) >= MOST_ENDS:
            raise mcp_messages.unavailable(f"too many connections to {server.offered.name}")

    def add(self, end: AgentEnd) -> None:
        self._ends[end.id] = end
        self._of_server.setdefault(end.server, []).append(end)

    def remove(self, end: AgentEnd) -> None:
        if self._ends.pop(end.id, None) is not None:
            ends = self._of_server[end.server]
            ends.remove(end)
            if not ends:
                del self._of_server[end.server]

    def find(self, id: str) -> AgentEnd | None:
        return self._ends.get(id)

    def of(self, server: OfferedServer) -> list[AgentEnd]:
        return list(self._of_server.get(server, ()))

    def connect(self, client: ClientEnd, end: AgentEnd) -> None:
        self._of_client[client.id] = end

    def disconnect(self, client: ClientEnd) -> None:
        self._of_client.pop(client.id, None)

    def reached_by(self, client: str) -> AgentEnd | None:
        """The agent's end that a client's end, by its id, is connected to."""
        return self._of_client.get(client)


class AgentEnd:
    """Base of the kinds of ends. `ask` and `tell` take what the agent says; `asked` and `told` reach the agent.

    The client's end is connected when it is first needed. A client that was away and is back, with a server of the same
    name, is connected anew and told the handshake again: an agent sets its MCP clients up but once.
    """

    def __init__(self, server: OfferedServer, ends: OpenEnds) -> None:
        self.id = uuid.uuid4().hex
        self.server = server
        self._ends = ends
        self._client: ClientEnd | None = None
        self._connecting = asyncio.Lock()
        self._hello: Raw | None = None
        self._initialized: Raw | None = None
        self._closed = False
        self._translating = asyncio.Lock()
        self._translation: McpTranslation | None = None

    # --- from the agent -------------------------------------------------------------------------------------------

    async def connected(self, meta: Raw | None = None) -> ClientEnd:
        """The client's end. Raises RpcError with the client's error or UNAVAILABLE, and the errors of the tree."""
        await self.server.session.shown()
        async with self._connecting:
            if self._closed:
                raise mcp_messages.unavailable("the session was closed")
            if self._client is None:
                client = await self._connect(meta)
                self._ends.connect(client, self)
                self._client = client
                if self._hello is not None and not client.stateless:
                    await self._greet(client, self._hello)
            return self._client

    async def ask(self, message: Raw) -> Raw:
        """A request of the agent's: the params of a `mcp/message`. Returns the MCP server's result.

        Raises RpcError with its error, Unavailable if the client goes in mid-call.
        """
        said = mcp_messages.read(message)
        if self._translation is None and await self._strange(said):
            await self._translate(said)
        if self._translation is not None:
            return await self._translation.ask(message)
        try:
            return await self._asked(said, message)
        except jsonrpc.RpcError as error:
            if said.method != wire.INITIALIZE or error.error.code not in MODERN_ONLY:
                raise
        return await (await self._translate(said)).ask(message)

    async def _asked(self, said: mcp_messages.McpMessage, message: Raw) -> Raw:
        result = await tool_rules.asked(self.server, said.method, said.params, lambda: self._unwrapped(message))
        if said.method == wire.INITIALIZE:
            self._hello = message.copy()
        return result

    async def tell(self, message: Raw) -> None:
        """A notification of the agent's. Dropped where nobody is there for it."""
        await self.server.session.shown()
        if mcp_messages.read(message).method == wire.INITIALIZED:
            self._initialized = message.copy()
        client = self._client
        if self._translation is not None:
            self._translation.tell(message)
        elif client is not None:
            client.caller.tell(MESSAGE, jsonrpc.replaced(message, connectionId=client.id))

    async def send(self, message: Raw) -> tuple[ClientEnd, Raw]:
        """Send a message to the client, past the rules. Returns the client's end, and the answer as it came."""
        client = await self.connected()
        try:
            return client, await self._sent(client, message)
        except jsonrpc.RpcError as error:
            if error.error.code != mcp_messages.UNAVAILABLE or self._client is client:
                raise
        client = await self.connected()  # the client had gone before: it may be back
        return client, await self._sent(client, message)

    async def hang_up(self) -> None:
        """The agent needs it no more: the client is told."""
        self.forget()
        translation, self._translation = self._translation, None
        if translation is not None:
            await translation.aclose()
        await self._disconnect()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        self._ends.disconnect(client)
        try:
            async with asyncio.timeout(self._ends.patience):
                await self.server.session.shown()
                await client.caller.ask(DISCONNECT, jsonrpc.raw({"connectionId": client.id}))
        except (InterlinguaError, TimeoutError) as error:
            log.debug("%s: %s", DISCONNECT, error)

    def forget(self) -> None:
        self._closed = True
        self._ends.remove(self)

    # --- to the agent ---------------------------------------------------------------------------------------------

    async def asked(self, message: Raw) -> Raw:
        """A request of the MCP server's. Raises what the agent answers."""
        raise NotImplementedError

    async def told(self, message: Raw) -> None:
        """A notification of the MCP server's; waits while the agent reads slowly."""
        raise NotImplementedError

    # --- between revisions ------------------------------------------------------------------------------------------

    async def _strange(self, said: mcp_messages.McpMessage) -> bool:
        """Whether the agent begins in a way that the client's server cannot know: a handshake with a stateless one."""
        return said.method == wire.INITIALIZE and (await self.connected()).stateless

    async def _translate(self, said: mcp_messages.McpMessage) -> McpTranslation:
        """From now on both speak their own revision. `said` is the agent's first request."""
        async with self._translating:
            if self._translation is None:
                await self._disconnect()
                self._translation = await self._ends.translate(self.server, said, self.asked, self.told)
            return self._translation

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _unwrapped(self, message: Raw) -> Raw:
        client, answer = await self.send(message)
        return mcp_messages.unwrapped(answer) if client.stateless else answer

    async def _sent(self, client: ClientEnd, message: Raw) -> Raw:
        try:
            return await client.caller.ask(MESSAGE, jsonrpc.replaced(message, connectionId=client.id))
        except Unavailable:
            self._lost(client)
            raise
        except jsonrpc.RpcError as error:
            if error.error.code == mcp_messages.UNAVAILABLE:
                self._lost(client)
            raise

    def _lost(self, client: ClientEnd) -> None:
        if self._client is client:
            self._client = None
        self._ends.disconnect(client)

    async def _connect(self, meta: Raw | None) -> ClientEnd:
        server = self.server
        context = server.session.context
        caller = context.caller if context is not None else None
        if caller is None or caller.protocol != PROTOCOL:
            raise mcp_messages.unavailable(f"{server.offered.name}: its client is not there")
        asked: dict[str, Any] = {"serverId": server.offered.id, "name": server.offered.name}
        asked["sessionId"] = server.session.thread
        if meta:
            asked["_meta"] = meta
        try:
            async with asyncio.timeout(self._ends.patience):
                answer = await caller.ask(CONNECT, jsonrpc.raw(asked))
        except TimeoutError:
            raise AgentTimeout(f"the client did not connect MCP server {server.offered.name}") from None
        found = mcp_messages.unpacked(answer, mcp_messages.Connected)
        return ClientEnd(caller, found.connection_id, found.stateless, answer)

    async def _greet(self, client: ClientEnd, hello: Raw) -> None:
        """Shake hands again. The agent has its answer already: a newer one is not passed on."""
        await self._sent(client, hello)
        if self._initialized is not None:
            client.caller.tell(MESSAGE, jsonrpc.replaced(self._initialized, connectionId=client.id))


# --- ends of agents that speak MCP over the connection themselves ---------------------------------------------------


class ConnectedEnd(AgentEnd):
    """A connection that the agent has opened with `mcp/connect`; its name there is `id`."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, connection: AgentConnection) -> None:
        super().__init__(server, ends)
        self.connection = connection

    async def asked(self, message: Raw) -> Raw:
        return await self.connection.ask(MESSAGE, jsonrpc.replaced(message, connectionId=self.id, requestId=None))

    async def told(self, message: Raw) -> None:
        await self.connection.drain()
        self.connection.tell(MESSAGE, jsonrpc.replaced(message, connectionId=self.id, requestId=None))


class _Meta(Struct, gc=False):
    progressToken: Any = None


class _Params(Struct, gc=False):
    meta: _Meta | None = msgspec.field(name="_meta", default=None)
    progressToken: Any = None


class StatelessEnd(AgentEnd):
    """All that a stateless agent sends to one server."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, connection: AgentConnection) -> None:
        super().__init__(server, ends)
        self.connection = connection
        self._under_way: dict[str | int, tuple[str, Any]] = {}
        self._known = False

    async def request(self, message: Raw) -> Raw:
        """A `mcp/message`; in the answer is `result` or `error`. Raises RpcError where it is no MCP server's error."""
        said = mcp_messages.read(message)
        if said.request_id is None or said.request_id in self._under_way:
            raise jsonrpc.RpcError(
                jsonrpc.INVALID_PARAMS, f"requestId {said.request_id!r} is none, or under way already"
            )
        self._under_way[said.request_id] = (said.method, _token(said.params))
        try:
            if not tool_rules.decides(self.server, said.method) and not await self._strange(said):
                client, answer = await self.send(message)
                return answer if client.stateless else mcp_messages.wrapped(answer)
            return mcp_messages.wrapped(await self.ask(message))
        except jsonrpc.RpcError as error:
            if error.error.code in OUTER:
                raise
            return mcp_messages.refused(error.error)
        except (Unavailable, AgentTimeout) as error:
            raise mcp_messages.unavailable(str(error)) from error
        finally:
            del self._under_way[said.request_id]

    async def _strange(self, said: mcp_messages.McpMessage) -> bool:
        """Whether the server knows only revisions with a handshake, which such an agent does not: it is asked once."""
        if self._translation is None and not self._known:
            client = await self.connected()
            if not client.stateless:
                meta = jsonrpc.members(said.params).get("_meta")
                try:
                    await self._unwrapped(jsonrpc.raw({"method": wire.DISCOVER, "params": {"_meta": meta or {}}}))
                except jsonrpc.RpcError as error:
                    if error.error.code in OUTER:
                        raise
                    return True
            self._known = True
        return self._translation is not None

    async def asked(self, message: Raw) -> Raw:
        """See `AgentEnd`. There is no way to ask such an agent."""
        method = mcp_messages.read(message).method
        raise jsonrpc.RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}")

    async def told(self, message: Raw) -> None:
        """See `AgentEnd`. It belongs to one of the agent's requests, or is dropped."""
        said = mcp_messages.read(message)
        request = said.request_id if said.request_id is not None else self._owner(said.params)
        if request not in self._under_way:
            return
        await self.connection.drain()
        about: dict[str, Any] = {"connectionId": None, "serverId": self.server.id, "requestId": request}
        self.connection.tell(MESSAGE, jsonrpc.replaced(message, **about))

    def _owner(self, params: Raw) -> str | int | None:
        """The request of a notification that names none: by progress token, else a subscription, or the only one."""
        token = _token(params)
        found = [id for id, (_, its) in self._under_way.items() if token is not None and its == token]
        if not found and token is None:
            found = [id for id, (method, _) in self._under_way.items() if method == wire.LISTEN]
            found = found or (list(self._under_way) if len(self._under_way) == 1 else [])
        return found[0] if found else None


def _token(params: Raw) -> Any:
    try:
        found = msgspec.json.decode(params or b"{}", type=_Params)
    except (ValueError, RecursionError):
        return None
    return found.progressToken if found.meta is None else found.meta.progressToken


class McpPeer:
    """An MCP client or server at the other end of a pipe, in the words of `mcp/message`; a Handler of its Peer.

    A cancellation is not passed on, as ids are each side's own: the call that it is about is cancelled.
    """

    def __init__(self, pipe: Pipe, asked: Asked, told: Callable[[Raw], Awaitable[None] | None], **options: Any) -> None:
        """`asked` and `told` take its requests and notifications, `options` are the Peer's."""
        self.peer = Peer(pipe, self, **options)
        self._asked = asked
        self._told = told

    async def ask(self, message: Raw) -> Raw:
        """Send a request. Raises what it answers, and AgentGone."""
        said = mcp_messages.read(message)
        await self.peer.drain()
        return await self.peer.request(said.method, _params(said.params), cancel=_no_longer_wanted)

    def tell(self, message: Raw) -> None:
        """Send a notification. Raises AgentGone."""
        said = mcp_messages.read(message)
        if said.method != wire.CANCELLED:
            self.peer.notify(said.method, _params(said.params))

    # --- gateway.transport.rpc.Handler ------------------------------------------------------------------------------

    async def request(self, method: str, params: Raw, id: jsonrpc.Id) -> Any:
        return await self._asked(mcp_messages.message(method, params))

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if method == wire.CANCELLED:
            self.peer.cancel_incoming(forwarded.request_of(params))
            return None
        return self._told(mcp_messages.message(method, params))

    def unreadable(self, what: Unreadable | jsonrpc.Malformed) -> None:
        log.info("an MCP client of an agent sends what is no message: %s", what.reason)


def _params(params: Raw) -> Raw | None:
    return params if params and bytes(params) != b"null" else None


def _no_longer_wanted(id: jsonrpc.Id) -> tuple[str, JsonObject]:
    return wire.CANCELLED, {"requestId": id, "reason": "nobody waits for it any more"}
