"""An MCP server made with the official `mcp` 2.3.0 (low level), for tests of MCP clients.

`mcp_server_2.py stdio` speaks what the client opens with, `mcp_server_2.py modern` on stdio only 2026-07-28, as a
server would that has dropped the handshake: it answers `initialize` with -32022. `mcp_server_2.py PORT` has both over
HTTP, `/mcp` and `/modern` (there `initialize` is 404 with -32601).

| tool | arguments | what it does |
|---|---|---|
| `count` | `{upto}` | so many progress notifications, each with its number as message |
| `ask` | `{about}` | asks with a form, by a request or by `input_required`; the text is the answer as JSON |
| `ask_twice` | `{about}` | the same (2026-07-28 only): two forms at once, then "come again", then one more form |
| `slow` | `{}` | waits until it is cancelled |
| `seen` | `{}` | the text is what was begun and what was cancelled so far, as JSON |
| `news` | `{}` | `notifications/tools/list_changed`, to those that subscribed |
| `sum` | `{numbers}` | `{"sum": ...}`, structured |
| `fail` | `{}` | a result that says so |
"""

import asyncio
import json
import sys
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from starlette.requests import Request
from starlette.responses import JSONResponse

TOOLS = ("count", "ask", "ask_twice", "slow", "seen", "news", "sum", "fail")
FORM: dict[str, Any] = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
MODERN = "2026-07-28"
bus = InMemorySubscriptionBus()
seen: list[str] = []
begun: list[str] = []

Ctx = ServerRequestContext[Any, Any]


async def tools(ctx: Ctx, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    start = int((params and params.cursor) or 0)
    page = [
        types.Tool(name=name, input_schema={"type": "object"}, output_schema=SUM if name == "sum" else None)
        for name in TOOLS[start : start + 2]
    ]
    return types.ListToolsResult(tools=page, next_cursor=str(start + 2) if start + 2 < len(TOOLS) else None)


def form(about: str) -> types.ElicitRequest:
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=about, requested_schema=FORM))


def said(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: found[key] for key in ("action", "content") if key in found}


async def call(ctx: Ctx, params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
    name, arguments = params.name, params.arguments or {}
    about = arguments.get("about", "")
    modern = ctx.session.protocol_version == MODERN
    answers, state = params.input_responses, params.request_state
    text = ""
    if name == "count":
        for number in range(1, arguments["upto"] + 1):
            await ctx.session.report_progress(number, message=str(number))
        text = str(arguments["upto"])
    elif name == "ask" and not modern:
        text = json.dumps(said(await ctx.session.elicit_form(about, FORM, ctx.request_id)))
    elif name == "ask":
        if not answers:
            return types.InputRequiredResult(input_requests={"one": form(about)}, request_state="asked")
        text = json.dumps(said(answers["one"]) | {"state": state})
    elif name == "ask_twice":
        if state is None:
            asked = {"one": form(f"{about} 1"), "two": form(f"{about} 2")}
            return types.InputRequiredResult(input_requests=asked, request_state="1")
        if state == "1":
            assert answers is not None
            given = json.dumps([said(answers["one"]), said(answers["two"])])
            return types.InputRequiredResult(request_state=given)
        if not answers:
            return types.InputRequiredResult(input_requests={"three": form(f"{about} 3")}, request_state=state)
        text = json.dumps([*json.loads(state), said(answers["three"])])
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
        shown = types.TextContent(type="text", text=json.dumps(structured))
        return types.CallToolResult(content=[shown], structured_content=structured)
    elif name == "fail":
        shown = types.TextContent(type="text", text="it does not work")
        return types.CallToolResult(content=[shown], is_error=True)
    elif name == "news":
        await bus.publish(ToolsListChanged())
    else:
        raise MCPError(code=-32602, message=f"there is no {name}", data={"have": TOOLS})
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


server: Server[Any] = Server(
    "tests-mcp-2", on_list_tools=tools, on_call_tool=call, on_subscriptions_listen=ListenHandler(bus)
)
options = server.create_initialization_options(NotificationOptions(tools_changed=True))
server.create_initialization_options = lambda *args, **more: options  # type: ignore[method-assign]


class NoHandshake:
    """A stream of messages to the server without `initialize`, which is answered on `out`."""

    def __init__(self, stream: Any, out: Any) -> None:
        self.stream, self.out = stream, out

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __aiter__(self) -> "NoHandshake":
        return self

    async def __anext__(self) -> Any:
        while True:
            item = await self.stream.__anext__()
            message = getattr(item, "message", None)
            if getattr(message, "method", "") != "initialize":
                return item
            data = {"supported": [MODERN], "requested": message.params["protocolVersion"]}
            error = types.ErrorData(code=-32022, message="Unsupported protocol version", data=data)
            await self.out.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))


class OnlyModern:
    """The app, with `/modern` in front of `/mcp`: there `initialize` is not known."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/modern":
            scope = {**scope, "path": "/mcp", "raw_path": b"/mcp"}
            body = await Request(scope, receive).body()
            message = json.loads(body or b"{}")
            if message.get("method") == "initialize":
                error = {"code": -32601, "message": "Method not found"}
                answer = JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error}, 404)
                await answer(scope, receive, send)
                return
            first = True

            async def again() -> Any:
                nonlocal first
                if first:
                    first = False
                    return {"type": "http.request", "body": body, "more_body": False}
                return await receive()

            await self.app(scope, again, send)
            return
        await self.app(scope, receive, send)


async def stdio() -> None:
    async with stdio_server() as (stream, out):
        await server.run(NoHandshake(stream, out) if sys.argv[1] == "modern" else stream, out, options)


if sys.argv[1] in ("stdio", "modern"):
    asyncio.run(stdio())
else:
    app = OnlyModern(server.streamable_http_app())
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=1)
