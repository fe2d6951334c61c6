"""Agents of the Agent Context Protocol that are a server, made with the official `mcp` 1.30.0 (there is no SDK of the
protocol itself): `agent_context_server.py stdio`, or `agent_context_server.py PORT` for `/mcp` and `/ws`.

| agent | what it does with an `agent/message` of type request |
|---|---|
| `echo` | an update a word, and the whole in the response |
| `later` | acknowledges at once; an update, progress and the response come in messages |
| `erring` | acknowledges at once; an update, and an `agent/error` |
| `fail` | an update, then an error answer of code -32008 |
| `ask` | an update, then a message of type request for `{name}`; the response says the answer as JSON |
| `slow` | an update every 0.05 s until it is cancelled |

It declares the capability `agent`, and has `agent://directory` with a record of each. All messages carry the
correlation id. What is cancelled it remembers: the message `cancelled?` to `echo` is answered with the correlation ids
of those; `files?` with the parts of the payload that are binary (name, media type, size), `picture?` with a picture.
"""

import asyncio
import base64
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import uvicorn
from mcp import McpError, types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.websocket import websocket_server
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel, RootModel
from starlette.applications import Starlette
from starlette.routing import Mount, WebSocketRoute
from starlette.websockets import WebSocket

ANSWER = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NAMES = ("echo", "later", "erring", "fail", "ask", "slow")
cancelled: list[str] = []
background: set[asyncio.Task[None]] = set()


class MessageParams(types.RequestParams, extra="allow"):
    source: str
    target: str
    content: dict[str, Any]


class MessageRequest(types.Request[MessageParams, Literal["agent/message"]]):
    method: Literal["agent/message"] = "agent/message"
    params: MessageParams


class ExtendedRequest(RootModel[types.ClientRequestType | MessageRequest]):
    """What a client may ask, messages to agents among it."""


# the SDK's server session and dispatch look the name up here when they read a message
types.ClientRequest = ExtendedRequest  # type: ignore[assignment, misc]


class Anything(BaseModel, extra="allow"):
    """A result or a message that the SDK has no model for."""


@dataclass
class Work:
    """One message that an agent works on."""

    context: Any
    params: MessageParams

    @property
    def text(self) -> str:
        return " ".join(each["text"] for each in self.params.content["payload"]["messages"])

    @property
    def meta(self) -> dict[str, Any]:
        return {"correlationId": self.context.meta.correlationId}

    def message(self, kind: str, payload: Any) -> dict[str, Any]:
        """Params of a message about it."""
        head = {"source": self.params.target, "target": self.params.source}
        return {**head, "content": {"type": kind, "payload": payload}, "_meta": self.meta}

    async def tell(self, method: str, params: dict[str, Any], *, related: bool = True) -> None:
        told: Any = Anything(method=method, params=params)
        await self.context.session.send_notification(told, self.context.request_id if related else None)

    async def update(self, text: str, *, related: bool = True) -> None:
        await self.tell("agent/message", self.message("update", says(text)), related=related)


def says(text: str) -> dict[str, Any]:
    return {"messages": [{"text": text}]}


def answer(text: str) -> Any:
    return Anything(content={"type": "response", "payload": says(text)})  # type: ignore[call-arg]


async def afterwards(work: Work) -> None:
    """What comes after the acknowledgement."""
    token = work.context.meta.progressToken
    await work.update("so far ", related=False)
    if work.params.target == "later":
        await work.context.session.send_progress_notification(token, 1, 2, "half")
        await work.tell("agent/message", work.message("response", says(work.text)), related=False)
    else:
        error = {"code": -32008, "message": "it failed on purpose", "details": {"why": "told to"}}
        await work.tell("agent/error", {"error": error, "_meta": work.meta}, related=False)


async def done(work: Work) -> Any:
    name = work.params.target
    if name == "echo" and work.text == "cancelled?":
        return answer(json.dumps(cancelled))
    if name == "echo" and work.text == "files?":
        parts = work.params.content["payload"].get("submessages", [])
        sizes = [(each["label"], each["subformat"], len(base64.b64decode(each["content"]))) for each in parts]
        return answer(" ".join(f"{name} {media} {size}" for name, media, size in sizes) or "none")
    if name == "echo" and work.text == "picture?":
        image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
        return Anything(content={"type": "response", "payload": {"messages": [{"text": "here"}, image]}})  # type: ignore[call-arg]
    if name == "echo":
        for word in work.text.split():
            await work.update(f"{word} ")
        return answer(work.text + " ")
    if name in ("later", "erring"):
        task = asyncio.create_task(afterwards(work))
        background.add(task)
        task.add_done_callback(background.discard)
        return Anything(status="accepted")  # type: ignore[call-arg]
    if name == "fail":
        await work.update("so far ")
        raise McpError(types.ErrorData(code=-32008, message="it failed on purpose", data={"why": "told to"}))
    if name == "ask":
        await work.update("asking ")
        payload = {**says("Who are you?"), "answerSchema": ANSWER}
        asked: Any = Anything(method="agent/message", params=work.message("request", payload))
        metadata = ServerMessageMetadata(related_request_id=work.context.request_id)
        found: Any = await work.context.session.send_request(asked, Anything, metadata=metadata)
        return answer("asking " + json.dumps(found.content["payload"]))
    if name == "slow":
        try:
            while True:
                await work.update(". ")
                await anyio.sleep(0.05)
        except anyio.get_cancelled_exc_class():
            cancelled.append(work.meta["correlationId"])
            raise
    raise McpError(types.ErrorData(code=-32002, message=f"no agent {name}"))


def record(name: str) -> dict[str, Any]:
    offered = {"tools": [], "models": [], "specializations": [name], "protocols": ["ACP-0.1"]}
    return {"id": name, "name": f"The agent {name}", "capabilities": offered, "status": "active"}


def build() -> Server[Any, Any]:
    server: Server[Any, Any] = Server("tests-agent-context")

    async def message(request: MessageRequest) -> Any:
        return await done(Work(server.request_context, request.params))

    async def read(request: types.ReadResourceRequest) -> Any:
        text = json.dumps({"agents": [record(name) for name in NAMES]})
        found = types.TextResourceContents(uri=request.params.uri, mimeType="application/json", text=text)
        return types.ServerResult(types.ReadResourceResult(contents=[found]))

    server.request_handlers[MessageRequest] = message
    server.request_handlers[types.ReadResourceRequest] = read
    capabilities = server.get_capabilities

    def declared(options: NotificationOptions, experimental: dict[str, dict[str, Any]]) -> types.ServerCapabilities:
        found = capabilities(options, experimental).model_dump(exclude_none=True)
        return types.ServerCapabilities.model_validate({**found, "agent": {"discovery": True}, "resources": {}})

    server.get_capabilities = declared  # type: ignore[method-assign]
    return server


server = build()


def application() -> Starlette:
    manager = StreamableHTTPSessionManager(server)

    async def socket(websocket: WebSocket) -> None:
        async with websocket_server(websocket.scope, websocket.receive, websocket.send) as streams:
            await server.run(*streams, server.create_initialization_options())

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    routes = [Mount("/mcp", app=manager.handle_request), WebSocketRoute("/ws", socket)]
    return Starlette(routes=routes, lifespan=lifespan)


async def stdio() -> None:
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())


if sys.argv[1] == "stdio":
    asyncio.run(stdio())
else:
    uvicorn.run(
        application(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=1
    )
