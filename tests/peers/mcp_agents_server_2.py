"""A server made with the low-level half of the official Python SDK `mcp` 2.3.0, which declares `agents`.

Agents, tools and options are those of `mcp_agents_server_1.py`; it speaks 2024-11-05 to 2025-11-25 and 2026-07-28. In
the latter nothing can be asked in mid-call: `elicit` ends with `input_required`, as an agent too, and goes on when it
is called again with the answer.

What the SDK does of its own accord: it takes what it does not know out of capabilities and of all results of MCP's own
methods. A request that was cancelled it answers over HTTP, with -32800 `Request cancelled`, and on stdio never. An
unknown method is -32601 with its name as data (`ping`, `logging/setLevel` and all notifications are unknown in
2026-07-28), wrong params are -32602; what a tool raises is an error of that code, and arguments are not held against
the tool's schema. In 2026-07-28 it puts `resultType` and the server's name in `_meta` into every result, serves logs
only where the request's `_meta` asks for them, and takes the revision of the first request on stdio for that of the
connection.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_agents_entries import PERSON, PROMPT, TOOLS, page
from mcp_types.version import MODERN_PROTOCOL_VERSIONS


class RunAgentParams(types.InputResponseRequestParams):
    name: str
    input: dict[str, Any]


@dataclass
class Run:
    """One call, as agent or as tool, and what it may send meanwhile."""

    context: Any
    params: Any
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
        token = (self.context.meta or {}).get("progress_token")
        if token is None:
            return
        self.said += 1
        if self.as_tool:
            await self.session.report_progress(self.said, message=text)
        else:
            params = {"progressToken": token, "delta": {"text": text}}
            told: Any = types.Notification[Any, Any](method="notifications/agents/run/progress", params=params)
            await self.session.send_notification(told, self.id)

    async def asked(self, name: str, request: Any, ask: Callable[[], Awaitable[Any]]) -> str:
        """Asks the client in the way of the revision; the answer as JSON."""
        if self.context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return json.dumps(dump(await ask()))
        found = (self.params.input_responses or {}).get(name)
        if found is None:
            raise InputRequired(name, request)
        return json.dumps({**dump(found), "state": self.params.request_state})


class InputRequired(Exception):
    """The call ends here, and goes on when it comes again with the answer."""

    def __init__(self, name: str, request: Any) -> None:
        super().__init__(name)
        self.result = types.InputRequiredResult(input_requests={name: request}, request_state=f"at {name}")


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
    form = types.ElicitRequestFormParams(message="Who are you?", requested_schema=PERSON)
    ask = run.session.elicit_form
    return await run.asked(
        "who", types.ElicitRequest(params=form), lambda: ask(form.message, PERSON, related_request_id=run.id)
    )


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
    raise MCPError(code=-32050, message="boom", data={"why": "told to"})


async def big(run: Run) -> str:
    chunk = "x" * run.input["size"]
    for _ in range(run.input["chunks"]):
        await run.delta(chunk)
    return chunk * int(run.input["chunks"])


AGENTS: dict[str, Callable[[Run], Awaitable[str]]] = {
    one.__name__: one for one in (echo, stream, elicit, slow, fail, big)
}


def dump(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def declared(context: Any, call_next: Any) -> Any:
    """A middleware that adds `agents` to the capabilities, which the SDK would take out of what a handler returns."""
    result = await call_next(context)
    if context.method in ("initialize", "server/discover"):
        result["capabilities"]["agents"] = {"listChanged": False}
    return result


def build(tell: Callable[[str], None]) -> Server[Any]:
    async def listed(context: Any, params: types.PaginatedRequestParams) -> dict[str, Any]:
        found = page(params.cursor)
        if found is None:
            raise MCPError(code=types.INVALID_PARAMS, message="no such cursor")
        return found

    async def ran(context: Any, params: RunAgentParams) -> Any:
        if params.name not in AGENTS:
            raise MCPError(code=types.INVALID_PARAMS, message=f"no such agent: {params.name}")
        try:
            text = await AGENTS[params.name](Run(context, params, params.input, False, tell))
        except InputRequired as question:
            return question.result
        return {"output": {"text": text}}

    async def tools(context: Any, params: Any) -> types.ListToolsResult:
        named = [types.Tool(name=name, description=f"The tool {name}", input_schema=PROMPT) for name in TOOLS]
        return types.ListToolsResult(tools=named)

    async def called(context: Any, params: types.CallToolRequestParams) -> Any:
        try:
            text = await AGENTS[params.name](Run(context, params, params.arguments or {}, True, tell))
        except InputRequired as question:
            return question.result
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    async def level(context: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
        tell(f"level {params.level}")
        return types.EmptyResult()

    server: Server[Any] = Server(
        "rig-mcp-2-agents",
        version="0.1",
        instructions="Agents to test with.",
        on_list_tools=tools,
        on_call_tool=called,
        on_set_logging_level=level,
        on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()),
    )
    server.middleware.append(declared)
    server.add_request_handler("agents/list", types.PaginatedRequestParams, listed)
    server.add_request_handler("agents/run", RunAgentParams, ran)
    return server


def main() -> None:
    warnings.simplefilter("ignore")  # of what 2026-07-28 deprecates, which is meant here
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
    app = server.streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=args.http, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
