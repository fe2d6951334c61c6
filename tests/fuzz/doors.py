"""The ways into the gateway as bytes: each sends what it is given and hands over every message that comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import IO, Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.processes import PROGRAM, ROOT, environment

WITHIN = 60.0
"""Seconds that anything may take; longer is a hang."""
LIMIT = 64 * 1024 * 1024


class Closed(Exception):
    """The gateway has ended the connection; the next one may go on."""


class Door:
    """One connection. `heard`: what came, as text; None at its end. `statuses`: what HTTP answered, with the body."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.statuses: list[tuple[int, bytes]] = []

    async def open(self) -> None:
        raise NotImplementedError

    async def send(self, data: bytes) -> None:
        """Raises Closed."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class WebSocketDoor(Door):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url.replace("http", "ws", 1)

    async def open(self) -> None:
        self._socket: ClientConnection = await connect(self._url, max_size=None, open_timeout=WITHIN, proxy=None)
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in self._socket:
                self.heard.put_nowait(message.encode() if isinstance(message, str) else message)
        self.heard.put_nowait(None)

    async def send(self, data: bytes) -> None:
        try:
            await self._socket.send(data, text=True)
        except ConnectionClosed:
            raise Closed from None

    async def close(self) -> None:
        await self._socket.close()
        await asyncio.wait_for(self._reader, WITHIN)


class StdioDoor(Door):
    """`interlingua stdio` over a route table; its log is `log`."""

    def __init__(self, log: IO[bytes], *args: str) -> None:
        super().__init__()
        self._args = args
        self._log = log

    async def open(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *PROGRAM, "stdio", *self._args, "--log-level", "info",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._log,
            cwd=ROOT, env=environment(), limit=LIMIT,
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.heard.put_nowait(line)
        self.heard.put_nowait(None)

    async def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data.replace(b"\n", b" ") + b"\n")
        try:
            await self._process.stdin.drain()
        except ConnectionError:
            raise Closed from None

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), WITHIN)
        except TimeoutError:
            self._process.kill()
            raise AssertionError("the gateway on standard input does not end with it") from None
        await asyncio.wait_for(self._reader, WITHIN)


class _HttpDoor(Door):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._http = httpx2.AsyncClient(timeout=WITHIN, trust_env=False)
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(16)

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, url: str, headers: dict[str, str]) -> None:
        """A long GET of server-sent events."""
        timeout = httpx2.Timeout(WITHIN, read=None)
        with contextlib.suppress(httpx2.TransportError):
            async with self._http.stream("GET", url, headers=headers, timeout=timeout) as response:
                if response.status_code == 200:
                    async for data in events(response):
                        self.heard.put_nowait(data)
                else:
                    self.statuses.append((response.status_code, await response.aread()))
        self.heard.put_nowait(None)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()


async def events(response: httpx2.Response) -> AsyncIterator[bytes]:
    """The data of each event, which here is always one line."""
    async for line in response.aiter_lines():
        if line.startswith("data: ") and line != "data: ":
            yield line.removeprefix("data: ").encode()


class McpHttpDoor(_HttpDoor):
    """MCP's Streamable HTTP: the answer of a POST has its messages."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._session: str | None = None

    async def open(self) -> None:
        self._session = None

    async def send(self, data: bytes) -> None:
        if self._session is None:  # the first is the handshake
            await self._post(data)
        else:
            await self._room.acquire()
            self._begin(self._posting(data))

    async def _posting(self, data: bytes) -> None:
        try:
            await self._post(data)
        finally:
            self._room.release()

    async def _post(self, data: bytes) -> None:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self._session is not None:
            headers["mcp-session-id"] = self._session
        modern = b'"io.modelcontextprotocol/protocolVersion": "2026-07-28"' in data.replace(b'":"', b'": "')
        if modern:
            headers |= {"mcp-protocol-version": "2026-07-28", **_named(data)}
        async with self._http.stream("POST", self._url, content=data, headers=headers) as response:
            self._session = self._session or response.headers.get("mcp-session-id")
            kind = response.headers.get("content-type", "")
            if kind.startswith("text/event-stream"):
                async for event in events(response):
                    self.heard.put_nowait(event)
                return
            body = await response.aread()
            self.statuses.append((response.status_code, body))
            if kind.startswith("application/json") and body:
                self.heard.put_nowait(body)


def _named(data: bytes) -> dict[str, str]:
    """The headers that say again what a message of 2026-07-28 says, as far as it can be read."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError, TypeError, KeyError):
        message = json.loads(data)
        params = message["params"]
        named = {"mcp-method": message["method"], "mcp-name": params.get("name") or params.get("uri")}
        said = {key: value for key, value in named.items() if isinstance(value, str)}
        if all(value.isascii() and value.isprintable() for value in said.values()):
            return said
    return {}


class McpEventsDoor(_HttpDoor):
    """MCP's HTTP with server-sent events: one GET with everything that comes, POSTs to the address it begins with."""

    async def open(self) -> None:
        self._begin(self._listen(self._url, {"accept": "text/event-stream"}))
        endpoint = await asyncio.wait_for(self.heard.get(), WITHIN)
        assert endpoint is not None, self.statuses
        self._to = str(httpx2.URL(self._url).join(endpoint.decode()))

    async def send(self, data: bytes) -> None:
        response = await self._http.post(self._to, content=data, headers={"content-type": "application/json"})
        self.statuses.append((response.status_code, response.content))


class AgentClientHttpDoor(_HttpDoor):
    """The Agent Client Protocol's Streamable HTTP: answers come on a GET of the connection."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._connection: str | None = None

    async def open(self) -> None:
        self._connection = None

    async def send(self, data: bytes) -> None:
        headers = {"content-type": "application/json"}
        if self._connection is not None:
            headers["acp-connection-id"] = self._connection
            named = _session(data)
            if named is not None:
                headers["acp-session-id"] = named
        response = await self._http.post(self._url, content=data, headers=headers)
        self.statuses.append((response.status_code, response.content))
        if self._connection is None:
            self._connection = response.headers["acp-connection-id"]
            self.heard.put_nowait(response.content)
            accept = {"accept": "text/event-stream", "acp-connection-id": self._connection}
            self._begin(self._listen(self._url, accept))


def _session(data: bytes) -> str | None:
    with contextlib.suppress(ValueError, RecursionError, AttributeError, TypeError, KeyError):
        name = json.loads(data)["params"]["sessionId"]
        if isinstance(name, str) and name.isascii() and name.isprintable() and name == name.strip():
            return name
    return None
