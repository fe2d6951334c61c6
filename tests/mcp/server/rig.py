"""What the tests of the MCP server's end talk to and with: a service of words, a server for it, clients made by hand.

| tool (and agent) | does |
|---|---|
| `say {"words": "A B"}` | a progress notification for each word (if there is a token), then the words |
| `tell {"words": ..., "level": ...}` | a `notifications/message` instead, if the client wants that level |
| `ask {"question": ...}` | elicitation, and says the answer; in 2026-07-28 by way of `input_required` |
| `wait` | a progress notification, then waits for `Words.go`; notes that it was cancelled |
| `flood {"count": N, "size": N}` | that many notifications, with `drain` after each |
| `lose` | a progress notification, ends the response that carries it (Streamable HTTP), another, and the answer |
| `news` | tells everybody that the list of tools has changed |
| `boom` | fails |
| `gone` | NotFound |

`agents/run` has the same by its `name` and `input`, and answers `{"output": {"text": ...}}`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import httpx2
import jsonschema
from msgspec import Raw
from starlette.applications import Starlette
from starlette.routing import Mount

from gateway.core.errors import InterlinguaError, NotFound
from gateway.mcp import versions, wire
from gateway.mcp.options import McpServeOptions
from gateway.mcp.server import InputRequired, McpCall, McpServer, McpSession, ServerIdentity
from gateway.mcp.server.http.streams import ResponseOut
from gateway.routing import FixedPaths
from gateway.wire import jsonrpc, sse
from gateway.wire.jsonrpc import RpcError
from tests.support.scripted import until
from tests.support.serving import serving

WITHIN = 30.0
MOUNT = "/rig"
ROOT = "/root"
INFO = {"name": "rig", "version": "1"}
TOOLS = ("say", "tell", "ask", "wait", "flood", "lose", "news", "boom", "gone")
SESSION, VERSION = wire.SESSION_HEADER, wire.VERSION_HEADER
QUESTION = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
SPECS = Path(__file__).parents[2] / "specs" / "mcp"


class Words:
    """A Service. `seen` is what happened, in order; `go` lets `wait` end. `capabilities` is what it declares."""

    methods: Sequence[str] = ("tools/list", "tools/call", "agents/list", "agents/run")

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.calls: list[McpCall] = []
        self.go = asyncio.Event()
        self.flooded = 0
        self.server: McpServer
        self.told: list[McpSession] = []
        self.capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "agents": {"listChanged": True}}

    def identity(self, session: McpSession) -> ServerIdentity:
        if session.agent not in (None, "say"):
            raise NotFound(f"no agent {session.agent}")
        return ServerIdentity({**self.capabilities, "logging": {}}, INFO, "Say words.")

    async def request(self, call: McpCall) -> Any:
        self.calls.append(call)
        params = jsonrpc.unpack(call.params)
        if call.method == "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
        if call.method == "agents/list":
            schemas = {"inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
            return {"agents": [{"name": name, "description": name, **schemas} for name in TOOLS]}
        run = call.method == "agents/run"
        given = params.get("input" if run else "arguments") or {}
        try:
            text = await getattr(self, params["name"])(call, given, params)
        except asyncio.CancelledError:
            self.seen.append(f"cancelled {call.id}")
            raise
        if run:
            return {"output": {"text": text}}
        return {"content": [{"type": "text", "text": text}]}

    def error(self, call: McpCall, error: Exception) -> RpcError:
        if isinstance(error, InterlinguaError):
            return RpcError(-32002, str(error), {"method": call.method})
        return RpcError(jsonrpc.INTERNAL_ERROR, "it failed")

    def notification(self, session: McpSession, method: str, params: Raw) -> None:
        self.seen.append(f"{method} {bytes(params).decode()}")
        self.told.append(session)

    def joined(self, session: McpSession) -> None:
        self.seen.append("joined")

    def left(self, session: McpSession) -> None:
        self.seen.append("left")

    def progress(self, call: McpCall, number: int, text: str) -> None:
        if call.progress_token is not None:
            told: dict[str, Any] = {"progressToken": call.progress_token, "progress": number}
            if versions.has_progress_message(call.client.version):
                told["message"] = text
            call.notify("notifications/progress", told)

    async def say(self, call: McpCall, given: Any, params: Any) -> str:
        words = given.get("words", "")
        for number, word in enumerate(words.split(), 1):
            self.progress(call, number, word)
            await asyncio.sleep(0)
        return str(words)

    async def tell(self, call: McpCall, given: Any, params: Any) -> str:
        if call.log_level is not None and wire.LEVELS.index(given["level"]) >= wire.LEVELS.index(call.log_level):
            call.notify("notifications/message", {"level": given["level"], "data": given["words"]})
        return str(given["words"])

    async def ask(self, call: McpCall, given: Any, params: Any) -> str:
        question = {"message": given.get("question", "?"), "requestedSchema": QUESTION}
        if call.can_ask:
            answer = jsonrpc.unpack(await call.ask("elicitation/create", question, timeout=WITHIN))
        elif "inputResponses" in params:
            assert params["requestState"] == "asked once"
            answer = params["inputResponses"]["q"]
        else:
            asked = {"method": "elicitation/create", "params": {"mode": "form", **question}}
            raise InputRequired({"q": asked}, "asked once")
        return f"{answer['action']} {(answer.get('content') or {}).get('answer')}"

    async def wait(self, call: McpCall, given: Any, params: Any) -> str:
        self.progress(call, 1, "waiting")
        self.seen.append(f"waits {call.id}")
        await self.go.wait()
        return "waited"

    async def flood(self, call: McpCall, given: Any, params: Any) -> str:
        for number in range(1, given["count"] + 1):
            self.progress(call, number, "x" * given["size"])
            self.flooded = number
            await call.drain()
        return "flooded"

    async def lose(self, call: McpCall, given: Any, params: Any) -> str:
        out = call._out
        assert isinstance(out, ResponseOut)
        self.progress(call, 1, "before")
        await until(lambda: out.answer.stream.read and out.answer.stream.empty)
        await out.answer.stream.vacate()
        self.progress(call, 2, "after")
        return "found"

    async def news(self, call: McpCall, given: Any, params: Any) -> str:
        for session in self.server.sessions:
            session.tell("notifications/tools/list_changed")
        return "told"

    async def boom(self, call: McpCall, given: Any, params: Any) -> str:
        raise ValueError("private")

    async def gone(self, call: McpCall, given: Any, params: Any) -> str:
        raise NotFound("no such thing")


class Rig:
    """A server on a real socket, and its service."""

    def __init__(self, words: Words, server: McpServer, url: str) -> None:
        self.words = words
        self.server = server
        self.url = url + MOUNT
        self.mcp = f"{url}{MOUNT}/mcp"
        self.root = url + ROOT

    async def session(self, within: float = WITHIN) -> McpSession:
        """The only one, once it can be asked."""
        await until(lambda: [each.can_ask for each in self.server.sessions] == [True], within)
        (session,) = self.server.sessions
        return session

    async def saw(self, *what: str) -> None:
        """Wait until all of that has happened."""
        async with asyncio.timeout(WITHIN):
            await until(lambda: all(one in self.words.seen for one in what))


@contextlib.asynccontextmanager
async def rig(
    gateway: Any = None,
    *,
    dialects: Mapping[str, str] = MappingProxyType({}),
    client: Callable[[McpSession], str | None] | None = None,
    **options: Any,
) -> AsyncIterator[Rig]:
    """A server with these options, while the block lasts. Nothing of it is left behind."""
    words = Words()
    words.server = server = McpServer(
        words, McpServeOptions(**options), gateway, "words", dialects=dialects, client=client
    )
    before, failures = asyncio.all_tasks(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    mounts = [Mount(MOUNT, routes=list(server.routes())), Mount(ROOT, routes=list(server.at()))]
    async with serving(FixedPaths(Starlette(routes=mounts), mounts), interface="asgi3") as url:
        try:
            yield Rig(words, server, url)
        finally:
            await server.aclose()
    left = asyncio.all_tasks() - before
    if left:  # uvicorn does not wait for what it was about to end
        await asyncio.wait(left, timeout=30)
    assert not server.sessions and all(task.done() for task in left) and not failures, (left, failures)


class Events:
    """An open stream. `ids` are those of the events so far, `comments` counts the comment lines."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.ids: list[str] = []
        self.comments = 0
        self._decoder = sse.SseDecoder()
        self._frames: list[sse.Frame] = []
        self._chunks = response.aiter_bytes()

    async def frame(self) -> sse.Frame | None:
        """The next event; None at the end of the stream."""
        async with asyncio.timeout(WITHIN):
            while not self._frames:
                try:
                    chunk = await anext(self._chunks)
                except StopAsyncIteration:
                    return None
                self.comments += sum(line.startswith(b":") for line in chunk.splitlines())
                self._frames += self._decoder.feed(chunk)
        frame = self._frames.pop(0)
        if frame.id is not None:
            self.ids.append(frame.id)
        return frame

    async def next(self) -> Any:
        """The next message; None at the end. A primer is passed over."""
        while (frame := await self.frame()) is not None:
            if frame.data:
                assert frame.event == "message"
                return json.loads(frame.data)
        return None

    async def rest(self) -> list[Any]:
        """All messages up to the end."""
        found = []
        while (message := await self.next()) is not None:
            found.append(message)
        return found


class Client:
    """Speaks Streamable HTTP by hand, in one session. Every message is held against the revision's schema."""

    def __init__(self, http: httpx2.AsyncClient, url: str, version: str, session: str | None = None) -> None:
        self.http = http
        self.url = url
        self.version = version
        self.session = session
        self._id = 0

    def headers(self, **more: str | None) -> dict[str, str]:
        said = {
            "Accept": "application/json, text/event-stream",
            SESSION: self.session,
            VERSION: self.version if self.session or versions.modern(self.version) else None,
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        return {name: value for name, value in said.items() if value is not None}

    def named(self, message: Any) -> dict[str, str | None]:
        """Headers that a message calls for."""
        return {}

    def request(self, method: str, params: Any = None, *, id: Any = None) -> dict[str, Any]:
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id if id is None else id, "method": method}
        return message if params is None else {**message, "params": params}

    async def post(self, message: Any, **headers: str | None) -> httpx2.Response:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        sent = {"Content-Type": "application/json", **self.headers(**{**self.named(message), **headers})}
        return await self.http.post(self.url, content=content, headers=sent)

    async def ask(self, method: str, params: Any = None) -> Any:
        """A request that is answered as JSON; the whole answer."""
        answer = await self.post(self.request(method, params))
        assert answer.headers["content-type"] == "application/json", answer.text
        return valid(answer.json(), self.version)

    async def notify(self, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
        answer = await self.post(message)
        assert (answer.status_code, answer.content) == (202, b""), answer.text

    @contextlib.asynccontextmanager
    async def stream(self, message: Any, **headers: str | None) -> AsyncIterator[Events]:
        """A POST that is answered as a stream."""
        sent = self.headers(**{**self.named(message), **headers})
        async with self.http.stream("POST", self.url, json=message, headers=sent) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream", await response.aread()
            yield Events(response)

    @contextlib.asynccontextmanager
    async def listen(self, after: str | None = None) -> AsyncIterator[Events]:
        """A GET."""
        sent = self.headers(Accept="text/event-stream", Last_Event_ID=after)
        async with self.http.stream("GET", self.url, headers=sent) as response:
            assert response.status_code == 200, await response.aread()
            yield Events(response)


@contextlib.asynccontextmanager
async def raw(
    method: str, url: str, headers: dict[str, str], message: Any = None
) -> AsyncIterator[asyncio.StreamReader]:
    """A request over a socket that nobody reads of its own accord; the head of its answer is read."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=4096)
    body = b"" if message is None else json.dumps(message).encode()
    sent = {"Host": "x", "Content-Length": str(len(body)), "Content-Type": "application/json", **headers}
    lines = [f"{method} {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    try:
        async with asyncio.timeout(WITHIN):
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        yield reader
    finally:
        writer.transport.abort()


async def stalled(count: Callable[[], int]) -> int:
    """What it has come to once it does not grow any more."""
    seen: list[int] = []

    def still() -> bool:
        seen.append(count())
        return len(seen) > 20 and seen[-20] == seen[-1] > 10

    await until(still)
    return seen[-1]


def initialize(version: str = versions.V2025_11_25, capabilities: Any = None) -> dict[str, Any]:
    """The first request."""
    info = {"name": "by hand", "version": "0"}
    params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


@contextlib.asynccontextmanager
async def client(url: str, version: str = versions.V2025_11_25, *, capabilities: Any = None) -> AsyncIterator[Client]:
    """An initialized session. It is not ended in good order."""
    async with httpx2.AsyncClient(timeout=WITHIN, verify=False) as http:
        made = Client(http, url, version)
        answer = await made.post(initialize(version, capabilities))
        assert answer.status_code == 200, answer.text
        assert valid(answer.json(), version)["result"]["protocolVersion"] == version
        made.session = answer.headers[SESSION]
        await made.notify("notifications/initialized")
        yield made


def tool(name: str, token: Any = None, **arguments: Any) -> dict[str, Any]:
    """Params of `tools/call`."""
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return {"name": name, "arguments": arguments, **meta}


@cache
def _validator(version: str, name: str) -> Any:
    schema = json.loads((SPECS / f"{version}.schema.json").read_text())
    kind = "$defs" if "$defs" in schema else "definitions"
    return jsonschema.validators.validator_for(schema)({**schema, "$ref": f"#/{kind}/{name}"})


KINDS = {
    "notifications/progress": "ProgressNotification",
    "notifications/message": "LoggingMessageNotification",
    "notifications/tools/list_changed": "ToolListChangedNotification",
    "notifications/cancelled": "CancelledNotification",
    "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "elicitation/create": "ElicitRequest",
    "sampling/createMessage": "CreateMessageRequest",
}


RESULTS = {
    "protocolVersion": "InitializeResult",
    "supportedVersions": "DiscoverResult",
    "tools": "ListToolsResult",
    "content": "CallToolResult",
}


def valid(message: Any, version: str) -> Any:
    """The message, or each of those in an array, held against the schema of a revision."""
    if isinstance(message, list):
        return [valid(one, version) for one in message]
    if message.get("id", 0) is not None:  # an error that belongs to nothing has no id there, but null in JSON-RPC
        _validator(version, "JSONRPCMessage").validate(message)
    if message.get("method") in KINDS:
        _validator(version, KINDS[message["method"]]).validate(message)
    if "result" in message:
        found = message["result"]
        kind = next((RESULTS[key] for key in RESULTS if key in found), "Result")
        if found.get("resultType") == "input_required":
            kind = "InputRequiredResult"
        _validator(version, kind).validate(found)
    return message


# --- 2026-07-28 -------------------------------------------------------------------------------------------------------


def stated(*, version: Any = versions.V2026_07_28, capabilities: Any = None, **more: Any) -> dict[str, Any]:
    """Params with what every request of that revision says of its client."""
    said = {
        wire.META_VERSION: version,
        wire.META_CAPABILITIES: {} if capabilities is None else capabilities,
        wire.META_CLIENT: {"name": "by hand", "version": "0"},
    }
    return {"_meta": {**said, **more}}


def modern_tool(name: str, token: Any = None, **arguments: Any) -> dict[str, Any]:
    """Params of `tools/call`."""
    more = {} if token is None else {"progressToken": token}
    return {**stated(**more), "name": name, "arguments": arguments}


class ModernClient(Client):
    """Sends the headers that its messages call for."""

    def named(self, message: Any) -> dict[str, str | None]:
        if not isinstance(message, dict):
            return {}
        named = (message.get("params") or {}).get("name")
        return {"Mcp_Method": message.get("method"), "Mcp_Name": named}


@contextlib.asynccontextmanager
async def modern_client(url: str) -> AsyncIterator[ModernClient]:
    """A client of that revision."""
    async with httpx2.AsyncClient(timeout=WITHIN, verify=False) as http:
        yield ModernClient(http, url, versions.V2026_07_28)
