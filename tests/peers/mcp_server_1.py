"""An MCP server made with the official `mcp` 1.30.0 (low level), with most transports it has, for tests of MCP clients.

`mcp_server_1.py stdio`, or `mcp_server_1.py PORT` for all others in one process: `/mcp` (Streamable HTTP, sessions),
`/json` (answers as JSON), `/stateless`, `/resume` (an event store, streams to be opened again after 20 ms), `/sse` with
`/messages/`, `/ws`. `DELETE /forget/mcp` has the first forget all its sessions, as a restart would.

| tool | arguments | what it does |
|---|---|---|
| `count` | `{upto}` | so many progress notifications, each with its number as message |
| `astray` | `{upto}` | the same on the stream that belongs to no call |
| `ask` | `{about}` | `elicitation/create`; the text is the answer as JSON |
| `ask_astray` | `{about}` | the same on the stream that belongs to no call |
| `ask_late` | `{about}` | asks, and returns at once: nobody waits for the answer |
| `slow` | `{}` | waits until it is cancelled |
| `seen` | `{}` | the text is what was begun and what was cancelled so far, as JSON |
| `drop` | `{upto}` | counts, and its stream is closed after every number |
| `news` | `{}` | `notifications/tools/list_changed` |
| `sum` | `{numbers}` | `{"sum": ...}`, structured; an image and a link beside it |
| `fail` | `{}` | an error |
| `sample` | `{about}` | `sampling/createMessage`; the text is what was sampled |

`tools/list` has four pages.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import uvicorn
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.websocket import websocket_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

TOOLS = ("count", "astray", "ask", "ask_astray", "ask_late", "slow", "seen", "drop", "news", "sum", "fail", "sample")
FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
server: Server[Any] = Server("tests-mcp-1")
seen: list[str] = []
begun: list[str] = []
late: set[asyncio.Task[Any]] = set()


@server.list_tools()  # type: ignore[no-untyped-call, untyped-decorator]
async def tools(request: types.ListToolsRequest) -> types.ListToolsResult:
    params = request.params if request is not None else None  # the SDK itself asks so, for what it does not know yet
    start = int((params and params.cursor) or 0)
    page = [
        types.Tool(name=name, inputSchema={"type": "object"}, outputSchema=SUM if name == "sum" else None)
        for name in TOOLS[start : start + 3]
    ]
    return types.ListToolsResult(tools=page, nextCursor=str(start + 3) if start + 3 < len(TOOLS) else None)


@server.call_tool(validate_input=False)
async def call(name: str, arguments: dict[str, Any]) -> Any:
    context = server.request_context
    session, id = context.session, context.request_id
    token = context.meta.progressToken if context.meta else None
    about = arguments.get("about", "")
    text = ""
    if name in ("count", "astray", "drop"):
        related = None if name == "astray" else id
        for number in range(1, arguments["upto"] + 1):
            if token is not None:
                await session.send_progress_notification(token, number, None, str(number), related_request_id=related)
            if name == "drop" and context.close_sse_stream is not None:
                await context.close_sse_stream()
                await reopened(context)
        text = str(arguments["upto"])
    elif name in ("ask", "ask_astray"):
        answer = await session.elicit(about, FORM, related_request_id=id if name == "ask" else None)
        text = answer.model_dump_json(exclude_none=True)
    elif name == "ask_late":
        late.add(asyncio.ensure_future(session.elicit(about, FORM, related_request_id=id)))
        await anyio.sleep(0.05)
    elif name == "slow":
        begun.append(name)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            seen.append(name)
            raise
    elif name == "seen":
        text = json.dumps({"begun": begun, "cancelled": seen})
    elif name == "sum":
        structured = {"sum": sum(arguments["numbers"])}
        image = types.ImageContent(type="image", data="iVBORw==", mimeType="image/png")
        link = types.ResourceLink(type="resource_link", uri="http://example.org/sum", name="sum")
        return [types.TextContent(type="text", text=json.dumps(structured)), image, link], structured
    elif name == "fail":
        raise ValueError("it does not work")
    elif name == "sample":
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=about))
        sampled = await session.create_message([message], max_tokens=9, related_request_id=id)
        text = getattr(sampled.content, "text", "")
    elif name == "news":
        await session.send_tool_list_changed()
    return [types.TextContent(type="text", text=text)]


async def reopened(context: Any) -> None:
    """The stream of the request is open again: what is stored while it is being opened, the SDK does not send."""
    transport = managers["/resume"]._server_instances[context.request.headers["mcp-session-id"]]
    while str(context.request_id) not in transport._request_streams:  # noqa: ASYNC110 - the SDK tells nobody
        await anyio.sleep(0.005)


class Events(EventStore):
    """Every event of every stream."""

    def __init__(self) -> None:
        self.events: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        last = int(last_event_id)
        stream = self.events[last - 1][0]
        for number, (of, message) in enumerate(self.events[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


options = server.create_initialization_options(NotificationOptions(tools_changed=True))
server.create_initialization_options = lambda *args, **more: options  # type: ignore[method-assign]


managers = {
    "/mcp": StreamableHTTPSessionManager(server),
    "/json": StreamableHTTPSessionManager(server, json_response=True),
    "/stateless": StreamableHTTPSessionManager(server, stateless=True),
    "/resume": StreamableHTTPSessionManager(server, event_store=Events(), retry_interval=20),
}


def app() -> Starlette:
    sse = SseServerTransport("/messages/")

    async def events(request: Request) -> Response:
        async with sse.connect_sse(request.scope, request.receive, request._send) as streams:
            await server.run(*streams, options)
        return Response()

    async def socket(websocket: WebSocket) -> None:
        async with websocket_server(websocket.scope, websocket.receive, websocket.send) as streams:
            await server.run(*streams, options)

    async def forget(request: Request) -> Response:
        for transport in list(managers["/mcp"]._server_instances.values()):
            await transport.terminate()
        managers["/mcp"]._server_instances.clear()
        return Response()

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for manager in managers.values():
                await stack.enter_async_context(manager.run())
            yield

    routes: list[Any] = [Mount(path, manager.handle_request) for path, manager in managers.items()]
    routes += [
        Route("/sse", events),
        WebSocketRoute("/ws", socket),
        Mount("/messages/", sse.handle_post_message),
        Route("/forget/mcp", forget, methods=["DELETE"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def stdio() -> None:
    async with stdio_server() as streams:
        await server.run(*streams, options)


if sys.argv[1] == "stdio":
    asyncio.run(stdio())
else:
    uvicorn.run(app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=1)
