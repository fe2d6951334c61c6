"""A client of version 2 made with the official Python SDK `agent-client-protocol` 1.0.0rc3, for the command line.

`agent_client_v2_client.py STEP... -- COMMAND ARG...` talks to an agent on stdio, `--http URL STEP...` over Streamable
HTTP, `--ws URL STEP...` over WebSocket. Steps are carried out in order, after `initialize` and `session/new` unless
`--bare` is given. `agent_client_v2_client.mjs` has the same steps and prints the same lines.

| step | does |
|---|---|
| `--say TEXT`, `--blocks JSON` | prompts, and waits for the answer and for the idle state that comes after it |
| `--start TEXT` | prompts and waits for the answer alone; `--idle` waits for the idle state |
| `--ask TEXT` | the same as `--start` without waiting for the answer |
| `--await TEXT` | waits for a line that has TEXT and that no `--await` has looked at |
| `--do WHAT` | `initialize new resume replay close delete list cancel logout`; `--do "new JSON"` adds params |
| `--login METHOD` | |
| `--session ID` | the session of the steps that follow; `@N` is the N-th that was created, from 0 |
| `--set-option ID=VALUE` | `true` and `false` set a boolean option |
| `--call "METHOD JSON"`, `--notify "METHOD JSON"` | any extension |
| `--permission HOW` | from now on: `allow` or `reject` (the first of that kind), an option's id, `cancelled`, `never` |
| `--elicitation HOW` | from now on: `decline`, `cancelled`, or the JSON content to accept with |
| `--reconnect` | closes the connection, opens another and initializes it |

`never`: not before `--do cancel`, which wants what still waits answered as cancelled. Options that hold throughout:
`--root DIR` (where sessions work), `--header "K: V"` (HTTP, WebSocket), `--wire FILE` (each message as it was on the
wire). Several conversations may be given with `+` between them; `{"op": "converse"}` is printed before each.

What is printed is what `agent_client_client.py` prints: `{"op": METHOD, "result"|"error"|"params"|"asked"|...}`, and
`{"op": "exit", "code": N}`. Params and results are what the SDK parsed, dumped by alias without what was not set.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

from acp import RequestError
from acp.experimental.v2 import Client, connect_to_agent, schema
from acp.stdio import spawn_stdio_transport
from pydantic import BaseModel

WITHIN = 60.0


def dump(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if isinstance(value, list):
        return [dump(item) for item in value]
    return {key: dump(item) for key, item in value.items()} if isinstance(value, dict) else value


class Output:
    """Prints lines, and lets others wait for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.looked = 0
        self.more = asyncio.Event()

    def tell(self, op: str, **said: Any) -> None:
        line = json.dumps({"op": op, **said})
        print(line, flush=True)
        self.lines.append(line)
        self.more.set()

    def complain(self, op: str, error: BaseException) -> None:
        code, data = getattr(error, "code", None), getattr(error, "data", None)
        self.tell(op, error={"type": type(error).__name__, "code": code, "message": str(error), "data": data})

    async def awaited(self, text: str, seen: int | None = None) -> None:
        """Returns once a line that none looked at before, or that comes after `seen` lines, has the text."""
        looked = self.looked if seen is None else seen
        while True:
            while looked < len(self.lines):
                looked += 1
                if text in self.lines[looked - 1]:
                    self.looked = looked if seen is None else self.looked
                    return
            self.more.clear()
            await self.more.wait()


class Editor(Client):
    """What the program does when the agent tells and asks."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self.permission, self.elicitation = "allow", "decline"
        self.given_up = asyncio.Event()

    def give_up(self) -> None:
        self.given_up.set()
        self.given_up = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        meta = {"_meta": kwargs} if kwargs else {}
        self.out.tell("session/update", params={"sessionId": session_id, "update": dump(update), **meta})

    async def request_permission(
        self, session_id: str, title: str, options: Any, description: Any = None, subject: Any = None, **kwargs: Any
    ) -> Any:
        method = "session/request_permission"
        asked = {"sessionId": session_id, "title": title, "options": dump(options)}
        more = {"description": description, "subject": dump(subject), "_meta": kwargs or None}
        self.out.tell(method, asked={**asked, **{key: value for key, value in more.items() if value is not None}})
        try:
            chosen = await self._choice(options)
        except asyncio.CancelledError:
            self.out.tell(method, refused=-32800)
            raise
        outcome = {"outcome": "cancelled"} if chosen is None else {"outcome": "selected", "optionId": chosen}
        self.out.tell(method, answered={"outcome": outcome})
        return schema.RequestPermissionResponse.model_validate({"outcome": outcome})

    async def _choice(self, options: Any) -> str | None:
        match self.permission:
            case "cancelled":
                return None
            case "never":
                await self.given_up.wait()
                return None
            case "allow" | "reject" as how:
                return next(str(one.option_id) for one in options if str(one.kind).startswith(how))
        return self.permission

    async def create_elicitation(self, message: str, mode: str, **kwargs: Any) -> Any:
        self.out.tell("elicitation/create", asked={"message": message, "mode": mode, **dump(kwargs)})
        if self.elicitation in ("decline", "cancelled"):
            answer: dict[str, Any] = {"action": self.elicitation.removesuffix("led")}
        else:
            answer = {"action": "accept", "content": json.loads(self.elicitation)}
        self.out.tell("elicitation/create", answered=answer)
        kind = {"accept": schema.AcceptElicitationResponse, "decline": schema.DeclineElicitationResponse}
        return kind.get(answer["action"], schema.CancelElicitationResponse).model_validate(answer)

    async def complete_elicitation(self, elicitation_id: str, **kwargs: Any) -> None:
        self.out.tell("elicitation/complete", told={"elicitationId": elicitation_id, **dump(kwargs)})

    async def handle_extension_request(self, method: str, params: Any) -> Any:
        name = f"_{method.removeprefix('_')}"
        self.out.tell(name, asked=params)
        if name != "_rig/ask":
            self.out.tell(name, refused=-32601)
            raise RequestError.method_not_found(name)
        self.out.tell(name, answered={"answer": 42, "params": params})
        return {"answer": 42, "params": params}

    async def handle_extension_notification(self, method: str, params: Any) -> None:
        self.out.tell(f"_{method.removeprefix('_')}", told=params)


class Conversation:
    """The steps, on one connection after the other."""

    def __init__(self, args: argparse.Namespace, out: Output, root: Path) -> None:
        self.args, self.out, self.root = args, out, root
        self.editor = Editor(out)
        self.session, self.created = "none", list[str]()
        self.asked = list[asyncio.Task[Any]]()
        self.seen = 0
        self.stack = contextlib.AsyncExitStack()
        self.agent: Any = None

    async def run(self) -> None:
        try:
            await self.connect()
            opening = [] if self.args.bare else [("do", "initialize"), ("do", "new")]
            for name, value in [*opening, *self.args.steps]:
                await getattr(self, f"on_{name.replace('-', '_')}")(value)
            await asyncio.gather(*self.asked)
        except ConnectionError as error:
            self.out.complain("connect", error.__cause__ or error)
        finally:
            await self.stack.aclose()

    async def connect(self) -> None:
        try:
            opened = self.stack.enter_async_context(connected(self.args, self.editor, self.out))
            self.agent = await asyncio.wait_for(opened, WITHIN)
        except Exception as error:
            raise ConnectionError from error

    async def request(self, op: str, call: Awaitable[Any]) -> Any:
        """Awaits one request and prints what came of it; the result, or None where it failed."""
        try:
            result = await asyncio.wait_for(call, WITHIN)
        except Exception as error:  # the whole point is to report whatever the SDK raises
            self.out.complain(op, error)
            return None
        self.out.tell(op, result=dump(result))
        return result

    async def prompt(self, blocks: Any) -> Any:
        self.seen = self.out.looked = len(self.out.lines)
        asked = schema.PromptRequest.model_validate({"sessionId": self.session, "prompt": blocks})
        call = self.agent.prompt(session_id=asked.session_id, prompt=asked.prompt)
        return await self.request("session/prompt", call)

    async def on_say(self, text: str) -> None:
        await self.on_blocks(json.dumps([{"type": "text", "text": text}]))

    async def on_blocks(self, blocks: str) -> None:
        if await self.prompt(json.loads(blocks)) is not None:
            await self.on_idle("")

    async def on_start(self, text: str) -> None:
        await self.prompt([{"type": "text", "text": text}])

    async def on_ask(self, text: str) -> None:
        self.asked.append(asyncio.ensure_future(self.on_start(text)))
        await asyncio.sleep(0)  # it is sent before the next step

    async def on_idle(self, _: str) -> None:
        await self.bounded("idle", self.out.awaited('"state": "idle"', self.seen))

    async def on_await(self, text: str) -> None:
        await self.bounded("await", self.out.awaited(text))

    async def bounded(self, op: str, waiting: Awaitable[None]) -> None:
        try:
            await asyncio.wait_for(waiting, WITHIN)
        except TimeoutError:
            self.out.tell(op, error={"type": "TimeoutError", "code": None, "message": "not in time", "data": None})

    async def on_do(self, what: str) -> None:
        name, _, extra = what.partition(" ")
        given = json.loads(extra) if extra else {}
        meta = given.pop("_meta", {})
        here = {"session_id": self.session}
        match name:
            case "initialize":
                await self.initialize(given)
            case "new":
                asked = schema.NewSessionRequest.model_validate({"cwd": str(self.root), **given})
                fields = {key: getattr(asked, key) for key in asked.model_fields_set}
                made = await self.request("session/new", self.agent.new_session(**fields, **meta))
                if made:
                    self.session = made.session_id
                    self.created.append(made.session_id)
            case "resume" | "replay":
                start = {"replay_from": schema.ReplayFromStartVariant(type="start")} if name == "replay" else {}
                call = self.agent.resume_session(cwd=str(self.root), **here, **start, **meta)
                await self.request("session/resume", call)
            case "close":
                await self.request("session/close", self.agent.close_session(**here))
            case "delete":
                await self.request("session/delete", self.agent.delete_session(**here))
            case "list":
                await self.request("session/list", self.agent.list_sessions(**given))
            case "logout":
                await self.request("auth/logout", self.agent.logout())
            case "cancel":
                await self.agent.cancel_session(**here)
                self.editor.give_up()

    async def initialize(self, given: dict[str, Any]) -> None:
        capabilities = {"elicitation": {"form": {}, "url": {}}}
        asked = schema.InitializeRequest.model_validate(
            {
                "protocolVersion": 2,
                "info": {"name": "rig-v2-py-client", "title": "Rig", "version": "0.2"},
                "capabilities": capabilities,
                **given,
            }
        )
        call = self.agent.initialize(
            protocol_version=asked.protocol_version, info=asked.info, capabilities=asked.capabilities
        )
        await self.request("initialize", call)

    async def on_login(self, method: str) -> None:
        await self.request("auth/login", self.agent.login(method_id=method))

    async def on_session(self, which: str) -> None:
        self.session = self.created[int(which[1:])] if which.startswith("@") else which

    async def on_set_option(self, what: str) -> None:
        name, _, text = what.partition("=")
        value = {"true": True, "false": False}.get(text, text)
        call = self.agent.set_config_option(config_id=name, session_id=self.session, value=value)
        await self.request("session/set_config_option", call)

    async def on_call(self, what: str) -> None:
        method, _, params = what.partition(" ")
        await self.request(method, self.agent.send_extension_request(method, json.loads(params or "{}")))

    async def on_notify(self, what: str) -> None:
        method, _, params = what.partition(" ")
        await self.agent.send_extension_notification(method, json.loads(params or "{}"))

    async def on_permission(self, how: str) -> None:
        self.editor.permission = how

    async def on_elicitation(self, how: str) -> None:
        self.editor.elicitation = how

    async def on_reconnect(self, _: str) -> None:
        await self.stack.aclose()
        await self.connect()
        await self.initialize({})


@contextlib.asynccontextmanager
async def connected(args: argparse.Namespace, editor: Editor, out: Output) -> AsyncIterator[Any]:
    """The SDK's connection to the agent; closed at the end of the block."""
    options = {"observers": [recorder(args.wire)]}
    headers = dict(line.split(": ", 1) for line in args.header)
    if args.command:
        program, *rest = args.command
        spawned = spawn_stdio_transport(
            program, *rest, env=os.environ, stderr=None, shutdown_timeout=5.0, limit=64 << 20
        )
        async with spawned as (reader, writer, process):
            connection = connect_to_agent(editor, writer, reader, **options)
            try:
                yield connection
            finally:
                await connection.close()
        out.tell("exit", code=process.returncode)
        return
    if args.http:
        from acp.http import create_http_stream

        stream = create_http_stream(args.http, headers=headers)
    else:
        from acp.ws import create_websocket_stream

        stream = await create_websocket_stream(args.ws, headers=headers)
    connection = connect_to_agent(editor, stream, **options)
    try:
        yield connection
    finally:
        await connection.close()
        await stream.close()


def recorder(file: str | None) -> Any:
    """An observer of the SDK's that keeps each message, with the side it goes to, if a file is named."""

    def record(event: Any) -> None:
        if file:
            towards = "agent" if event.direction.value == "outgoing" else "client"
            with Path(file).open("a", encoding="utf-8") as log:
                log.write(json.dumps({"to": towards, "message": event.message}) + "\n")

    return record


class Step(argparse.Action):
    """Keeps the steps in the order in which they were given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.steps.append(((option_string or "").lstrip("-"), values if isinstance(values, str) else ""))


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--http", "--ws", "--root", "--wire"):
        parser.add_argument(name)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--header", action="append", default=[])
    taking = "say blocks start ask await do login session set-option call notify permission elicitation"
    for name in taking.split():
        parser.add_argument(f"--{name}", action=Step)
    for name in ("idle", "reconnect"):
        parser.add_argument(f"--{name}", action=Step, nargs=0)
    parser.set_defaults(steps=[])
    given, command = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    args = parser.parse_args(given)
    args.command = command
    return args


def main() -> None:
    conversations: list[list[str]] = [[]]
    for word in sys.argv[1:]:
        if word == "+":
            conversations.append([])
        else:
            conversations[-1].append(word)
    for words in conversations:
        args = parse(words)
        if len(conversations) > 1:
            print(json.dumps({"op": "converse"}), flush=True)
        with tempfile.TemporaryDirectory() as made:
            asyncio.run(Conversation(args, Output(), Path(args.root or made).resolve()).run())


if __name__ == "__main__":
    main()
