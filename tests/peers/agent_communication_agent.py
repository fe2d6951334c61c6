"""A server made with the official Python SDK `acp-sdk` 0.0.6 (pre-alpha; it installs the module `acp`).

On stdio, or with `--http PORT` over HTTP+SSE (`/sse`, `/messages/`) and WebSocket (`/ws`) of one process, ready when
the port answers. `agent_communication_agent.mjs` has the same agents, made with the TypeScript SDK.

| agent | input | what it sends, and what it returns |
|---|---|---|
| `echo` | `{prompt}` | no delta; `{text, logs: []}` |
| `stream` | `{prompt}` | a delta a word, `{text: "word ", logs: [null, {message: word}]}` |
| `count` | `{upto}` | a delta a number, `{total: 1, half: 0.5}`, which add up |
| `nested` | `{prompt}` | two deltas a word into objects in objects: a list's next item, then more of its last one |
| `defaults` | `{prompt}` | a delta a word; a number of its model that is 1 unless set is in each of them |
| `chat` | `{messages: [{role, content}]}` | no delta; how many messages there were, and what was said |
| `ask` | `{prompt}` | asks the client `sampling/createMessage` and `roots/list`; `text` is what came back, as JSON |
| `fail` | `{prompt}` | one delta, then it raises `boom` |
| `slow` | `{prompt}` | a number every 0.05 s until it is cancelled, of which it tells `slow cancelled` |
| `big` | `{chunks, size}` | so many deltas of so many letters |
| `die` | `{prompt}` | one delta, then the process ends with code 3 |

What is told goes to stderr and, with `--told FILE`, as lines to that file. The agents have keys beyond the protocol's
(`provider`, `framework`, `tags`, `ui`), and the template `maker` is listed.

What the SDK does of its own accord: it always answers 2024-11-05, whatever was proposed, and lists everything in one
page. It answers every error with code 0 and no data, and a cancelled request with `Request cancelled`; sends no delta
for a token that is false (0, ""); dumps whole models, so that what was not set rides along in deltas. A request that it
has no model for ends the session, with all that runs there; so does one that comes before `notifications/initialized`,
of which there must be another after each further `initialize`. On stdio the process then stays until its input has
another line or ends, and takes no more; the end of its input while something runs is a traceback and exit code 1. Over
HTTP+SSE it does not notice that a client has gone: what runs there is not cancelled. It never creates an agent, since
it checks the config against its own model of a template, and destroys none.
"""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Literal

import uvicorn
from acp.server.highlevel import Context, Server
from acp.server.highlevel.agents import Agent
from acp.server.sse import SseServerTransport
from acp.server.websocket import websocket_server
from acp.types import SamplingMessage, TextContent
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

EXTRA: dict[str, Any] = {
    "provider": "https://example.com/rig",
    "framework": "none",
    "tags": ["rig", "test"],
    "ui": {"type": "hands-off", "userGreeting": "Hello!"},
}


class Prompt(BaseModel):
    prompt: str


class Message(BaseModel):
    role: Literal["user", "assistant"]
    content: str


class Chat(BaseModel):
    messages: list[Message]


class Log(BaseModel):
    message: str


class Text(BaseModel):
    text: str = ""
    logs: list[Log | None] = []


class Scored(Text):
    score: int = 1


class Limit(BaseModel):
    upto: int


class Total(BaseModel):
    total: int = 0
    half: float = 0.0


class Line(BaseModel):
    text: str = ""


class Answer(BaseModel):
    title: str = ""
    lines: list[Line | None] = []


class Nested(BaseModel):
    answer: Answer = Answer()
    usage: dict[str, int] = {}


class Size(BaseModel):
    chunks: int
    size: int


class Config(BaseModel):
    greeting: str = "hello"


def add_speakers(server: Server) -> None:
    """The agents that say what they were given, each in deltas of another shape."""

    @server.agent("echo", "Says what it is told", input=Prompt, output=Text, **EXTRA)
    async def echo(input: Prompt, ctx: Context) -> Text:
        return Text(text=input.prompt)

    @server.agent("chat", "Says what was said", input=Chat, output=Text)
    async def chat(input: Chat, ctx: Context) -> Text:
        said = " / ".join(f"{one.role}: {one.content}" for one in input.messages)
        return Text(text=f"{len(input.messages)} ({said})")

    @server.agent("stream", "Says it word by word", input=Prompt, output=Text, **EXTRA)
    async def stream(input: Prompt, ctx: Context) -> Text:
        output = Text()
        for word in input.prompt.split():
            delta = Text(text=f"{word} ", logs=[None, Log(message=word)])
            await ctx.report_agent_run_progress(delta)
            output.text += delta.text
            output.logs += delta.logs[1:]
        return output

    @server.agent("defaults", "Has a number in every delta", input=Prompt, output=Scored)
    async def defaults(input: Prompt, ctx: Context) -> Scored:
        for word in input.prompt.split():
            await ctx.report_agent_run_progress(Scored(text=f"{word} "))
        return Scored(text="".join(f"{word} " for word in input.prompt.split()))

    @server.agent("count", "Counts", input=Limit, output=Total)
    async def count(input: Limit, ctx: Context) -> Total:
        for _ in range(input.upto):
            await ctx.report_agent_run_progress(Total(total=1, half=0.5))
        return Total(total=input.upto, half=input.upto / 2)

    @server.agent("nested", "Objects in objects", input=Prompt, output=Nested)
    async def nested(input: Prompt, ctx: Context) -> Nested:
        words = input.prompt.split()
        for word in words:
            opened = Answer(title=f"{word} ", lines=[None, Line(text=word)])
            await ctx.report_agent_run_progress(Nested(answer=opened, usage={"tokens": 1}))
            await ctx.report_agent_run_progress(Nested(answer=Answer(lines=[Line(text="!")])))
        lines: list[Line | None] = [Line(text=f"{word}!") for word in words]
        title = "".join(f"{word} " for word in words)
        return Nested(answer=Answer(title=title, lines=lines), usage={"tokens": len(words)})


def add_users_of_the_client(server: Server) -> None:
    """The agents that tell their client more than deltas, or ask it something."""

    @server.agent("ask", "Asks its client", input=Prompt, output=Text)
    async def ask(input: Prompt, ctx: Context) -> Text:
        content = TextContent(type="text", text=input.prompt)
        question = SamplingMessage(role="user", content=content)
        found: dict[str, Any] = {}
        for name, asked in (
            ("sampling", lambda: ctx.session.create_message([question], max_tokens=100)),
            ("roots", ctx.session.list_roots),
        ):
            try:
                found[name] = (await asked()).model_dump(mode="json", by_alias=True, exclude_none=True)
            except Exception as error:  # the whole point is to report what the client answered
                found[name] = str(error)
        return Text(text=json.dumps(found))


def add_troubles(server: Server, told: Path | None) -> None:
    """The agents that end badly, late or never; what they tell goes to the file too, if one is named."""

    def tell(what: str) -> None:
        print(what, file=sys.stderr, flush=True)
        if told:
            with told.open("a", encoding="utf-8") as file:
                file.write(what + "\n")

    @server.agent("fail", "Raises", input=Prompt, output=Text)
    async def fail(input: Prompt, ctx: Context) -> Text:
        await ctx.report_agent_run_progress(Text(text="so far "))
        raise ValueError("boom")

    @server.agent("slow", "Counts until it is cancelled", input=Prompt, output=Text, **EXTRA)
    async def slow(input: Prompt, ctx: Context) -> Text:
        number = 0
        try:
            while True:
                await ctx.report_agent_run_progress(Text(text=f"{number} "))
                number += 1
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            tell("slow cancelled")
            raise

    @server.agent("big", "Says much", input=Size, output=Text)
    async def big(input: Size, ctx: Context) -> Text:
        delta = Text(text="x" * input.size)
        for _ in range(input.chunks):
            await ctx.report_agent_run_progress(delta)
        return Text(text="x" * input.size * input.chunks)

    @server.agent("die", "Ends the process", input=Prompt, output=Text)
    async def die(input: Prompt, ctx: Context) -> Text:
        await ctx.report_agent_run_progress(Text(text="bye "))
        await ctx.request_context.session.send_ping()  # whose answer says that what was sent before has come
        os._exit(3)


def add_template(server: Server) -> None:
    """The template; what it would make is never made, see above."""

    @server.agent_template("maker", "Makes agents", config=Config, input=Prompt, output=Text, **EXTRA)
    async def maker(config: Config, ctx: Context) -> Agent:
        async def greet(input: Prompt, ctx: Context) -> Text:
            return Text(text=f"{config.greeting} {input.prompt}")

        return Agent(name="made", description="Greets", input=Prompt, output=Text, run_fn=greet, destroy_fn=None)


def application(server: Server) -> Starlette:
    """All three ways into the server, as the SDK's documentation puts them together."""
    sse = SseServerTransport("/messages/")
    lowlevel = server._mcp_server

    async def streamed(request: Request) -> Response:
        async with sse.connect_sse(request.scope, request.receive, request._send) as streams:
            await lowlevel.run(*streams, lowlevel.create_initialization_options())
        return Response()

    async def socket(websocket: WebSocket) -> None:
        async with websocket_server(websocket.scope, websocket.receive, websocket.send) as streams:
            await lowlevel.run(*streams, lowlevel.create_initialization_options())

    return Starlette(
        routes=[
            Route("/sse", endpoint=streamed),
            Mount("/messages/", app=sse.handle_post_message),
            WebSocketRoute("/ws", endpoint=socket),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int, metavar="PORT")
    parser.add_argument("--told", type=Path)
    args = parser.parse_args()
    server = Server("rig-py-agents", instructions="Agents to test with.", log_level="WARNING")
    add_speakers(server)
    add_users_of_the_client(server)
    add_troubles(server, args.told)
    add_template(server)
    if args.http:
        uvicorn.run(
            application(server), host="127.0.0.1", port=args.http, log_level="warning", timeout_graceful_shutdown=1
        )
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
