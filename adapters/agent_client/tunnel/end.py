"""The agent's end of one MCP connection, whatever the agent speaks there."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from adapters.agent_client.tunnel import mcp_messages, rules
from adapters.agent_client.tunnel.mcp_messages import CONNECT, DISCONNECT, MESSAGE
from adapters.agent_client.wire import PROTOCOL
from gateway.contract import Caller
from gateway.core.errors import AgentTimeout, InterlinguaError, Unavailable
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

if TYPE_CHECKING:
    from adapters.agent_client.tunnel.translation import Translation
    from adapters.agent_client.tunnel.tunnels import Server

log = logging.getLogger(__name__)

INITIALIZE: Final = "initialize"
INITIALIZED: Final = "notifications/initialized"
CANCELLED: Final = "notifications/cancelled"
MODERN_ONLY: Final = frozenset((-32022, jsonrpc.METHOD_NOT_FOUND))
"""What a server that has no handshake answers to it."""


@dataclass(frozen=True, eq=False)
class Line:
    """The client's end, as the switchboard calls it. See `words` for `stateless`."""

    caller: Caller
    id: str
    stateless: bool
    answer: Raw


class End:
    """Base of the kinds of ends. `ask` and `tell` are called by who hears the agent; `asked` and `told` reach it.

    The client's end is connected when it is first needed. A client that was away and is back, with a server of the same
    name, is connected anew and told the handshake again: an agent sets its MCP clients up but once.
    """

    def __init__(self, server: Server) -> None:
        self.id = uuid.uuid4().hex
        self.server = server
        self._line: Line | None = None
        self._connecting = asyncio.Lock()
        self._hello: Raw | None = None
        self._initialized: Raw | None = None
        self._closed = False
        self._translating = asyncio.Lock()
        self._translation: Translation | None = None

    # --- from the agent -------------------------------------------------------------------------------------------

    async def connected(self, meta: Raw | None = None) -> Line:
        """The client's end. Raises RpcError with the client's error or UNAVAILABLE, and the errors of the tree."""
        async with self._connecting:
            if self._closed:
                raise mcp_messages.unavailable("the session was closed")
            if self._line is None:
                line = await self._connect(meta)
                self.server.tunnels.lines[line.id] = self
                self._line = line
                if self._hello is not None and not line.stateless:
                    await self._greet(line, self._hello)
            return self._line

    async def ask(self, message: Raw) -> Raw:
        """A request of the agent's: the params of a `mcp/message`. Returns the MCP server's result.

        Raises RpcError with its error, Unavailable if the client goes in mid-call.
        """
        said = mcp_messages.read(message)
        if self._translation is None and await self._strange(said):
            await self._translate(said)
        if self._translation is not None:
            return await self._translation.link.ask(message)
        try:
            return await self._asked(said, message)
        except RpcError as error:
            if said.method != INITIALIZE or error.error.code not in MODERN_ONLY:
                raise
        return await (await self._translate(said)).link.ask(message)

    async def _asked(self, said: mcp_messages.Message, message: Raw) -> Raw:
        result = await rules.asked(self.server, said.method, said.params, lambda: self._unwrapped(message))
        if said.method == INITIALIZE:
            self._hello = message.copy()
        return result

    def tell(self, message: Raw) -> None:
        """A notification of the agent's. Dropped where nobody is there for it."""
        if mcp_messages.read(message).method == INITIALIZED:
            self._initialized = message.copy()
        line = self._line
        if self._translation is not None:
            self._translation.link.tell(message)
        elif line is not None:
            line.caller.tell(MESSAGE, mcp_messages.replaced(message, connectionId=line.id))

    async def send(self, message: Raw) -> tuple[Line, Raw]:
        """The message, to the client; who it was, and its answer as it came. Not governed."""
        line = await self.connected()
        try:
            return line, await self._sent(line, message)
        except RpcError as error:
            if error.error.code != mcp_messages.UNAVAILABLE or self._line is line:
                raise
        line = await self.connected()  # the client had gone before: it may be back
        return line, await self._sent(line, message)

    async def hang_up(self) -> None:
        """The agent needs it no more: the client is told."""
        self.forget()
        translation, self._translation = self._translation, None
        if translation is not None:
            await translation.aclose()
        await self._disconnect()

    async def _disconnect(self) -> None:
        line, self._line = self._line, None
        if line is None:
            return
        self.server.tunnels.lines.pop(line.id, None)
        try:
            async with asyncio.timeout(self.server.tunnels.patience):
                await line.caller.ask(DISCONNECT, mcp_messages.encoded({"connectionId": line.id}))
        except (InterlinguaError, TimeoutError) as error:
            log.debug("%s: %s", DISCONNECT, error)

    def forget(self) -> None:
        """It is over: nothing of the agent's is taken any more."""
        self._closed = True
        self.server.ends.pop(self.id, None)
        self.server.tunnels.ends.pop(self.id, None)

    # --- to the agent ---------------------------------------------------------------------------------------------

    async def asked(self, message: Raw) -> Raw:
        """A request of the MCP server's. Raises what the agent answers."""
        raise NotImplementedError

    async def told(self, message: Raw) -> None:
        """A notification of the MCP server's; waits while the agent reads slowly."""
        raise NotImplementedError

    # --- between revisions ------------------------------------------------------------------------------------------

    async def _strange(self, said: mcp_messages.Message) -> bool:
        """Whether the agent begins in a way that the client's server cannot know: a handshake with a stateless one."""
        return said.method == INITIALIZE and (await self.connected()).stateless

    async def _translate(self, said: mcp_messages.Message) -> Translation:
        """From now on both speak their own revision. `said` is the agent's first request."""
        from adapters.agent_client.tunnel.translation import begun

        async with self._translating:
            if self._translation is None:
                await self._disconnect()
                self._translation = await begun(self.server, said, self.asked, self.told)
            return self._translation

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _unwrapped(self, message: Raw) -> Raw:
        line, answer = await self.send(message)
        return mcp_messages.unwrapped(answer) if line.stateless else answer

    async def _sent(self, line: Line, message: Raw) -> Raw:
        try:
            return await line.caller.ask(MESSAGE, mcp_messages.replaced(message, connectionId=line.id))
        except Unavailable:
            self._lost(line)
            raise
        except RpcError as error:
            if error.error.code == mcp_messages.UNAVAILABLE:
                self._lost(line)
            raise

    def _lost(self, line: Line) -> None:
        if self._line is line:
            self._line = None
        self.server.tunnels.lines.pop(line.id, None)

    async def _connect(self, meta: Raw | None) -> Line:
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
            async with asyncio.timeout(server.tunnels.patience):
                answer = await caller.ask(CONNECT, mcp_messages.encoded(asked))
        except TimeoutError:
            raise AgentTimeout(f"the client did not connect MCP server {server.offered.name}") from None
        found = mcp_messages.unpacked(answer, mcp_messages.Connected)
        return Line(caller, found.connection_id, found.stateless, answer)

    async def _greet(self, line: Line, hello: Raw) -> None:
        """The handshake again. The agent has its answer: what a newer one says is not told."""
        await self._sent(line, hello)
        if self._initialized is not None:
            line.caller.tell(MESSAGE, mcp_messages.replaced(self._initialized, connectionId=line.id))
