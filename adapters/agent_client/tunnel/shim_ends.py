"""Ends of agents that know no MCP over the connection: an MCP server on standard input and output, see shim.py."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from msgspec import Raw

from adapters.agent_client.options import AgentClientTarget
from adapters.agent_client.tunnel import shim
from adapters.agent_client.tunnel.agent_end import AgentEnd, McpPeer, OpenEnds
from adapters.agent_client.tunnel.offers import OfferedServer
from adapters.agent_client.wire import JsonObject
from gateway.core.errors import AgentGone, InterlinguaError
from gateway.transport.pipe import Unreadable
from gateway.wire import jsonrpc, ndjson

log = logging.getLogger(__name__)

HELLO_SECONDS: Final = 10.0
"""For a shim to prove who it is."""
MOST_STRANGERS: Final = 64
"""Connections that have not yet; more are turned away."""
CLOSE_SECONDS: Final = 1.0
"""For a shim to take what is left, before its socket is torn off."""
BLOCK: Final = 64 * 1024
QUEUE_BYTES: Final = 1024 * 1024
PROGRAM: Final = os.path.abspath(shim.__file__)
HERE: Final = ("localhost", "127.0.0.1", "::1")


class ShimSocket:
    """The socket of this machine that the shims of one target's agent connect to, made once it is needed.

    On Linux it has a name and no file, so that nothing is left of a gateway that is killed. Any program may connect;
    only the secret lets it in.
    """

    def __init__(self, find: Callable[[str], OfferedServer | None], ends: OpenEnds, target: AgentClientTarget) -> None:
        """`find` gives the server of an id."""
        self._find = find
        self._ends = ends
        self._limit = target.max_message
        self._listening: asyncio.Server | None = None
        self._place = ""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._starting = asyncio.Lock()
        self._strangers = 0
        self._talks: set[asyncio.Task[None]] = set()
        self.possible = target.url is None or urlsplit(target.url).hostname in HERE
        """Whether the agent is on this machine: a program that it starts finds us then."""

    async def declared(self, server: OfferedServer) -> JsonObject:
        """The server as such an agent is told of it: a program to start (schema: McpServerStdio)."""
        env = {shim.ADDRESS: await self._address(), shim.SERVER: server.id, shim.SECRET: server.secret.hex()}
        entry: JsonObject = {
            "name": server.offered.name,
            "command": sys.executable,
            "args": ["-I", "-S", PROGRAM],
            "env": [{"name": name, "value": value} for name, value in env.items()],
        }
        meta = server.offered.whole.get("_meta")
        return entry if meta is None else {**entry, "_meta": meta}

    async def aclose(self) -> None:
        if self._listening is not None:
            self._listening.close()
        if self._folder is not None:
            self._folder.cleanup()
        for task in self._talks:
            task.cancel()
        if self._talks:
            await asyncio.wait(self._talks, timeout=2 * CLOSE_SECONDS)

    async def _address(self) -> str:
        async with self._starting:
            if self._listening is None:
                name = f"interlingua-mcp-{secrets.token_hex(16)}"
                if sys.platform == "linux":
                    place, self._place = f"\0{name}", f"@{name}"
                else:
                    self._folder = tempfile.TemporaryDirectory(prefix="interlingua-")
                    place = self._place = os.path.join(self._folder.name, "mcp")
                self._listening = await asyncio.start_unix_server(self._called, place, limit=BLOCK)
            return self._place

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        pipe = SocketPipe("an MCP client", reader, writer, self._limit)
        try:
            server = await self._known(reader, writer)
            if server is not None:
                end = ShimEnd(server, self._ends, pipe)
                try:
                    self._ends.check_room(server)
                    self._ends.add(end)
                    await end.talk()
                finally:
                    await end.hang_up()
        except (OSError, EOFError, ValueError, TimeoutError, InterlinguaError) as error:
            log.info("a shim was not served: %s", error)
        finally:
            self._talks.discard(task)
            await pipe.aclose()

    async def _known(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> OfferedServer | None:
        """The server whose secret a shim knows. Both sides prove that they know it, and neither says it."""
        if self._strangers >= MOST_STRANGERS:
            return None
        self._strangers += 1
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                ours = secrets.token_hex(32)
                writer.write(f"{ours}\n".encode())
                id, theirs, proof = (await reader.readline()).decode("ascii").split()
                server = self._find(id)
                if server is None or not hmac.compare_digest(shim.proof(server.secret, "shim", ours, theirs), proof):
                    return None
                writer.write(f"{shim.proof(server.secret, 'gateway', theirs, ours)}\n".encode())
                await writer.drain()
                return server
        finally:
            self._strangers -= 1


class SocketPipe:
    """A `gateway.transport.pipe.Pipe` over a socket, in lines of JSON."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int) -> None:
        self.name = name
        self._reader = reader
        self._writer = writer
        self._splitter = ndjson.Splitter(limit)
        self._closed = False

    async def send(self, messages: Sequence[bytes]) -> None:
        if self._closed:
            raise AgentGone(f"the connection to {self.name} is closed")
        try:
            self._writer.write(ndjson.frame(messages))
            await self._writer.drain()
        except OSError as error:
            raise AgentGone(f"{self.name} has gone", detail=str(error)) from error

    async def receive(self) -> Sequence[bytes | Unreadable]:
        while not self._closed:
            try:
                data = await self._reader.read(BLOCK)
            except OSError as error:
                raise AgentGone(f"{self.name} has gone", detail=str(error)) from error
            lines = self._splitter.feed(data) if data else self._splitter.close()
            if lines or not data:
                return lines
        return []

    async def aclose(self) -> None:
        """See `Pipe`. Who does not read is not waited for."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()


class ShimEnd(AgentEnd):
    """An MCP client at the other end of a shim."""

    def __init__(self, server: OfferedServer, ends: OpenEnds, pipe: SocketPipe) -> None:
        super().__init__(server, ends)
        self._mcp = McpPeer(
            pipe, self.ask, self.tell, errors=_said, queue_bytes=QUEUE_BYTES, batches=True, grace=CLOSE_SECONDS
        )

    async def talk(self) -> None:
        await self._mcp.peer.run()

    async def hang_up(self) -> None:
        await self._mcp.peer.aclose()
        await super().hang_up()

    async def asked(self, message: Raw) -> Raw:
        return await self._mcp.ask(message)

    async def told(self, message: Raw) -> None:
        await self._mcp.peer.drain()
        self._mcp.tell(message)


def _said(error: Exception) -> jsonrpc.ErrorObject:
    if isinstance(error, InterlinguaError):
        return jsonrpc.ErrorObject(jsonrpc.INTERNAL_ERROR, str(error), {"code": error.code})
    return jsonrpc.internal().error
