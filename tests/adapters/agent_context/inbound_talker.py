"""A client of the protocol made by hand: over a WebSocket, or over Streamable HTTP. It checks all that it is told.

Every message of the gateway's is held against the schema of the MCP revision that is spoken, as far as that has one for
it, and against the protocol's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from gateway.mcp.versions import V2025_11_25
from gateway.mcp.wire import SESSION_HEADER, VERSION_HEADER
from gateway.wire import sse
from tests.adapters.agent_context.wire_schema import check_answer, check_said

WITHIN = 30.0
AGENT = {"agent": {"messages": True}}
"""Capabilities of a client that is an agent."""

Handler = Callable[[dict[str, Any]], Awaitable[Any]]


class Refused(Exception):
    """A request was answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']} {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Talker:
    """One connection. `told` are the notifications so far; `on[method]` answers a request of the gateway's.

    `send` brings a message out; what comes in goes through `take`.
    """

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]], version: str) -> None:
        self.version = version
        self.told: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.on: dict[str, Handler] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.broken: AssertionError | None = None
        self._send = send
        self._ids = itertools.count(1)
        self._waiting: dict[Any, tuple[str, dict[str, Any], asyncio.Future[Any]]] = {}

    # --- out --------------------------------------------------------------------------------------------------

    async def ask(self, method: str, *, id: Any = None, **params: Any) -> Any:
        """A request; its result. Raises Refused. A parameter `meta` is the `_meta`."""
        async with asyncio.timeout(WITHIN):
            return await (await self.begin(method, id=id, **params))

    async def begin(self, method: str, *, id: Any = None, **params: Any) -> asyncio.Future[Any]:
        """The same, sent: what is returned is done with its answer."""
        if "meta" in params:
            params["_meta"] = params.pop("meta")
        number = next(self._ids) if id is None else id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (method, params, future)
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        future.number = number  # type: ignore[attr-defined]
        await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return future

    async def tell(self, method: str, **params: Any) -> None:
        """A notification."""
        if "meta" in params:
            params["_meta"] = params.pop("meta")
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def cancel(self, asked: asyncio.Future[Any]) -> None:
        """Take a request back."""
        await self.tell("notifications/cancelled", requestId=asked.number)  # type: ignore[attr-defined]

    async def initialize(self, capabilities: dict[str, Any] | None = None, proposed: str | None = None) -> Any:
        """Shake hands."""
        info = {"name": "by hand", "version": "0"}
        found = await self.ask(
            "initialize", protocolVersion=proposed or self.version, capabilities=capabilities or {}, clientInfo=info
        )
        await self.tell("notifications/initialized")
        return found

    async def register(self, id: str = "painter", *specializations: str, **more: Any) -> Any:
        """`agent/register`."""
        return await self.ask("agent/register", agent=record(id, *specializations, **more))

    async def message(self, target: str, text: str = "hello", **more: Any) -> Any:
        """`agent/message` of type request with a text; its result."""
        return await self.ask("agent/message", target=target, content=request(text), **more)

    # --- in ---------------------------------------------------------------------------------------------------

    def take(self, message: dict[str, Any]) -> None:
        """What has come. Whoever waits for something learns of what fits no schema."""
        try:
            self._take(message)
        except AssertionError as error:
            self.broken = error
            for _, _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)
            raise

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            method, params, future = self._waiting[message["id"]]
            check_answer(message, self.version, method, params)
            del self._waiting[message["id"]]
            if not future.done():
                if "error" in message:
                    future.set_exception(Refused(message["error"]))
                else:
                    future.set_result(message["result"])
            return
        check_said(message, self.version)
        if "id" in message:
            self.asked.append(message)
            task = asyncio.create_task(self._answer(message))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            self.told.append(message)

    async def _answer(self, message: dict[str, Any]) -> None:
        handler = self.on.get(message["method"])
        if handler is None:
            error = {"code": -32601, "message": "no such method"}
            return await self._send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        try:
            result = await handler(message["params"])
        except Refused as refused:
            error = {"code": refused.code, "message": refused.message}
            return await self._send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        if result is not None:
            await self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def params_of(self, method: str) -> list[dict[str, Any]]:
        """The params of every notification of a method so far."""
        return [each.get("params", {}) for each in self.told if each["method"] == method]

    async def hears(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """The params of its notifications, once there are as many."""
        async with asyncio.timeout(WITHIN):
            while len(found := self.params_of(method)) < count:
                if self.broken is not None:
                    raise self.broken
                await asyncio.sleep(0.002)
        return found


def record(id: str = "painter", *specializations: str, **more: Any) -> dict[str, Any]:
    """An agent that may register."""
    capabilities = {"tools": [], "models": [], "specializations": list(specializations), "protocols": ["ACP-0.1"]}
    return {"id": id, "name": id.title(), "capabilities": capabilities, **more}


def request(text: str = "hello", **more: Any) -> dict[str, Any]:
    """Content that asks with a text."""
    return {"type": "request", "payload": {"messages": [{"text": text}], **more}}


def response(text: str) -> dict[str, Any]:
    """The answer to a message with a text."""
    return {"content": {"type": "response", "payload": {"messages": [{"text": text}]}}}


def text_of(result: dict[str, Any]) -> str:
    """The text of such an answer."""
    return "\n".join(each["text"] for each in result["content"]["payload"]["messages"])


def in_seconds(seconds: float) -> str:
    """A time from now, as the protocol writes it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


async def refused(asked: Awaitable[Any]) -> Refused:
    """The error that a request is answered with."""
    try:
        found = await asked
    except Refused as error:
        return error
    raise AssertionError(f"it was not refused: {found}")


async def entry_in(client: Talker, agent: str) -> dict[str, Any] | None:
    """What the directory says of an agent."""
    found = await client.ask("resources/read", uri="agent://directory")
    entries = json.loads(found["contents"][0]["text"])["agents"]
    return next((each for each in entries if each["id"] == agent), None)


@contextlib.asynccontextmanager
async def over_socket(
    url: str, *, version: str = V2025_11_25, token: str | None = None, hello: dict[str, Any] | None = None
) -> AsyncIterator[Talker]:
    """One over a WebSocket; `hello`: the capabilities it shakes hands with, None for a client that does not."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    socket: ClientConnection
    async with connect(
        url, additional_headers=headers, subprotocols=[Subprotocol("mcp")], max_size=None, close_timeout=1
    ) as socket:

        async def send(message: dict[str, Any]) -> None:
            await socket.send(json.dumps(message))

        talker = Talker(send, version)

        async def listen() -> None:
            async for data in socket:
                talker.take(json.loads(data))

        listening = asyncio.create_task(listen())
        try:
            if hello is not None:
                await talker.initialize(hello)
            yield talker
        finally:
            for task in (listening, *talker.tasks):
                task.cancel()
            done = await asyncio.gather(listening, return_exceptions=True)
    if isinstance(done[0], AssertionError):
        raise done[0]


@contextlib.asynccontextmanager
async def over_http(
    url: str, *, version: str = V2025_11_25, token: str | None = None, hello: dict[str, Any] | None = None,
    listens: bool = False,
) -> AsyncIterator[Talker]:  # fmt: skip
    """One over Streamable HTTP; `listens`: with a GET open."""
    said = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    if token is not None:
        said["Authorization"] = f"Bearer {token}"
    tasks: set[asyncio.Task[None]] = set()
    async with httpx2.AsyncClient(timeout=None) as http:

        async def read(response: httpx2.Response) -> None:
            session = response.headers.get(SESSION_HEADER)
            if session is not None:
                said[SESSION_HEADER], said[VERSION_HEADER] = session, version
            if response.headers.get("content-type", "").startswith("application/json"):
                talker.take(json.loads(await response.aread()))
                return
            decoder = sse.SseDecoder()
            async for chunk in response.aiter_bytes():
                for frame in decoder.feed(chunk):
                    if frame.data:
                        talker.take(json.loads(frame.data))

        async def post(message: dict[str, Any]) -> None:
            async with http.stream("POST", url, json=message, headers=said) as response:
                await read(response)

        async def send(message: dict[str, Any]) -> None:
            task = asyncio.create_task(post(message))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if "id" not in message or message.get("method") == "initialize":
                await task

        async def listen() -> None:
            headers = {**said, "Accept": "text/event-stream"}
            async with http.stream("GET", url, headers=headers) as response:
                ready.set()
                await read(response)

        talker = Talker(send, version)
        ready = asyncio.Event()
        try:
            if hello is not None:
                await talker.initialize(hello)
            if listens:
                task = asyncio.create_task(listen())
                tasks.add(task)
                await asyncio.wait_for(ready.wait(), WITHIN)
            yield talker
        finally:
            for task in (*tasks, *talker.tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
