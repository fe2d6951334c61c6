"""A server made with the low-level half of the official Python SDK `mcp` 1.30.0, which declares `agents`.

With `--http PORT` over Streamable HTTP (`/mcp`), ready when the port answers. The SDK knows no `agents/*`:
they are added to its union of requests, as one must to extend it. `mcp_agents_server_2.py` is the same with mcp 2.3.0.
As `agents/run` and as tools:

| name | input | what it sends, and what it returns |
|---|---|---|
| `echo` | `{prompt}` | `{text}` |
| `stream` | `{prompt}` | a delta a word, `{text: "word "}`; as a tool, `notifications/progress`, the word its message |
| `elicit` | `{prompt}` | a delta, then `elicitation/create` for `{name, age?}`; `text` is the answer as JSON |
| `slow` | `{prompt}` | a number every 0.05 s until it is cancelled, of which it tells `slow cancelled` |
| `fail` | `{prompt}` | a delta, then an error of code -32050 with data |
| `big` | `{chunks, size}` | so many deltas of so many letters |

All but `big` are tools too. `agents/list` has pages of three; a wrong cursor is -32602. What is told goes to stderr
and, with `--told FILE`, to that file.

What the SDK does of its own accord: it takes the proposed version if it knows it (2024-11-05 to 2025-11-25), else it
answers 2025-11-25, and insists on no `notifications/initialized`. A request that it has no model for, or whose params
are wrong, is -32602 `Invalid request parameters` with data `""`; what a handler of requests raises has code 0, unless
it names one; what a tool raises, and arguments that do not fit its schema, is a result with `isError`. What is
cancelled it answers with code 0 `Request cancelled`. What a handler sends goes to the stream of its request only where
it says so, else to the GET stream. On stdio, the end of its input ends it at once, with what runs.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import uvicorn
from mcp import McpError, types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_agents_entries import PERSON, PROMPT, TOOLS, page
from pydantic import BaseModel, RootModel
from starlette.applications import Starlette
from starlette.routing import Mount


class ListAgentsRequest(types.PaginatedRequest[Literal["agents/list"]]):
    method: Literal["agents/list"] = "agents/list"


class RunAgentParams(types.RequestParams):
    name: str
    input: dict[str, Any]


class RunAgentRequest(types.Request[RunAgentParams, Literal["agents/run"]]):
    method: Literal["agents/run"] = "agents/run"
    params: RunAgentParams


class ExtendedRequest(RootModel[types.ClientRequestType | ListAgentsRequest | RunAgentRequest]):
    """What a client may ask, `agents/*` among it."""


# the SDK's server session and dispatch look the name up here when they read a message
types.ClientRequest = ExtendedRequest  # type: ignore[assignment, misc]


class Anything(BaseModel, extra="allow"):
    """A result or a notification that the SDK has no model for."""


@dataclass
class Run:
    """One call, as agent or as tool, and what it may send meanwhile."""

    context: Any
    input: dict[str, Any]
    as_tool: bool
    tell: Callable[[str], None]
    said: int = 0

    @property
    def session(self) -> Any:
        return self.context.session

    @property
    def id(self) -> Any:
        return self.context.request_id

    async def delta(self, text: str) -> None:
        token = self.context.meta.progressToken if self.context.meta else None
        if token is None:
            return
        self.said += 1
        if self.as_tool:
            await self.session.send_progress_notification(token, self.said, message=text, related_request_id=self.id)
        else:
            params = {"progressToken": token, "delta": {"text": text}}
            told: Any = Anything(method="notifications/agents/run/progress", params=params)
            await self.session.send_notification(told, self.id)


async def echo(run: Run) -> str:
    prompt: str = run.input["prompt"]
    return prompt


async def stream(run: Run) -> str:
    words = [f"{word} " for word in run.input["prompt"].split()]
    for word in words:
        await run.delta(word)
    return "".join(words)


async def elicit(run: Run) -> str:
    await run.delta("asking ")
    answer = await run.session.elicit("Who are you?", PERSON, related_request_id=run.id)
    return json.dumps(dump(answer))


async def slow(run: Run) -> str:
    number = 0
    try:
        while True:
            await run.delta(f"{number} ")
            number += 1
            await anyio.sleep(0.05)
    except anyio.get_cancelled_exc_class():
        run.tell("slow cancelled")
        raise


async def fail(run: Run) -> str:
    await run.delta("so far ")
    raise McpError(types.ErrorData(code=-32050, message="boom", data={"why": "told to"}))


async def big(run: Run) -> str:
    chunk = "x" * run.input["size"]
    for _ in range(run.input["chunks"]):
        await run.delta(chunk)
    return chunk * int(run.input["chunks"])


AGENTS: dict[str, Callable[[Run], Awaitable[str]]] = {
    one.__name__: one for one in (echo, stream, elicit, slow, fail, big)
}


def dump(value: BaseModel) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def build(tell: Callable[[str], None]) -> Server[Any, Any]:
    server: Server[Any, Any] = Server("rig-mcp-1-agents", version="0.1", instructions="Agents to test with.")

    async def listed(request: ListAgentsRequest) -> Any:
        found = page(request.params.cursor if request.params else None)
        if found is None:
            raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message="no such cursor"))
        return Anything(**found)

    async def ran(request: RunAgentRequest) -> Any:
        params = request.params
        if params.name not in AGENTS:
            raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message=f"no such agent: {params.name}"))
        run = Run(server.request_context, params.input, as_tool=False, tell=tell)
        return Anything(output={"text": await AGENTS[params.name](run)})  # type: ignore[call-arg]

    server.request_handlers[ListAgentsRequest] = listed
    server.request_handlers[RunAgentRequest] = ran

    @server.list_tools()  # type: ignore[no-untyped-call, untyped-decorator]
    async def tools() -> list[types.Tool]:
        return [types.Tool(name=name, description=f"The tool {name}", inputSchema=PROMPT) for name in TOOLS]

    @server.call_tool()  # type: ignore[untyped-decorator]
    async def called(name: str, arguments: dict[str, Any]) -> list[types.TextContent]:
        run = Run(server.request_context, arguments, as_tool=True, tell=tell)
        return [types.TextContent(type="text", text=await AGENTS[name](run))]

    @server.set_logging_level()  # type: ignore[no-untyped-call, untyped-decorator]
    async def level(level: types.LoggingLevel) -> None:
        tell(f"level {level}")

    capabilities = server.get_capabilities

    def declared(options: NotificationOptions, experimental: dict[str, dict[str, Any]]) -> types.ServerCapabilities:
        found = capabilities(options, experimental)
        return types.ServerCapabilities.model_validate({**dump(found), "agents": {"listChanged": False}})

    server.get_capabilities = declared  # type: ignore[method-assign]
    return server


def application(server: Server[Any, Any]) -> Starlette:
    manager = StreamableHTTPSessionManager(server)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int, required=True, metavar="PORT")
    parser.add_argument("--told", type=Path)
    args = parser.parse_args()

    def tell(what: str) -> None:
        print(what, file=sys.stderr, flush=True)
        if args.told:
            with args.told.open("a", encoding="utf-8") as file:
                file.write(what + "\n")

    server = build(tell)
    app = application(server)
    uvicorn.run(app, host="127.0.0.1", port=args.http, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
