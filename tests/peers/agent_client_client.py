"""A client made with the official Python SDK `agent-client-protocol` 0.12.1, driven from the command line.

`agent_client_client.py STEP... -- COMMAND ARG...` talks to an agent on stdio, `--http URL STEP...` over Streamable
HTTP, `--ws URL STEP...` over WebSocket. Steps are carried out in order; unless `--bare` is given, `initialize` and
`session/new` come before the first that is no setting. `agent_client_client.mjs` has the same steps and prints the same
lines.

| step | does |
|---|---|
| `--say TEXT` | prompts and waits for the answer |
| `--blocks JSON` | prompts with these content blocks and waits for the answer |
| `--start TEXT` | prompts without waiting; `--finish` waits for all that were started |
| `--await TEXT` | waits for a line that has TEXT, since the last `--start` and not looked at by an `--await` before |
| `--do WHAT` | `initialize new load resume close delete list logout cancel`; `--do "new JSON"` adds params |
| `--session ID` | the session of the steps that follow; `@N` is the N-th that was created, from 0 |
| `--set-mode ID`, `--set-option ID=VALUE` | `true` and `false` set a boolean option |
| `--authenticate METHOD` | |
| `--call "METHOD JSON"`, `--notify "METHOD JSON"` | any request or notification, extensions among them |
| `--permission HOW` | from now on: `allow` or `reject` (the first of that kind), an option's id, or HOW below |
| `--elicitation HOW` | from now on: `decline`, the JSON content to accept with, or HOW below |
| `--file NAME=TEXT` | puts a file into the folder that sessions work in and `fs/*` is served from |
| `--reconnect` | closes the connection, opens another and initializes it; loads no session by itself |
| `--capabilities JSON` | what initialize declares (default: files, terminals, elicitation, boolean options) |
| `--within SECONDS` | how long each wait may take from now on (default 60) |
| `--meta JSON` | `_meta` of the prompts from now on (Python only) |

HOW is also `cancelled`, `error` (-32099), `never` (not before `--do cancel`, which the protocol wants answered as
cancelled), `ignore` (not even then).

Several conversations, each with its own transport, options and steps, may be given with `+` between them; they are held
one after the other, since starting the SDK is what takes long, and `{"op": "converse"}` is printed before each.

Options that hold throughout: `--bare`; `--root DIR` (default: a new folder); `--header "K: V"` (HTTP, WebSocket);
`--wire FILE` (each message as it was on the wire, one a line: `{"to": "agent" | "client", "message": ...}`).

Each line printed is one JSON object, and the exit code is 0 whenever the script ran to its end:

- `{"op": METHOD, "result": ...}` or `{"op": METHOD, "error": {"type", "code", "message", "data"}}` for what the client
  asked; the code is null where it was no JSON-RPC error. So too for a notification that could not be sent, for `await`
  where nothing came in time, and for `connect`, which ends the script.
- `{"op": "session/update", "params": ...}`; `{"op": METHOD, "told": PARAMS}` for other notifications.
- `{"op": METHOD, "asked": PARAMS}`, then `{"op": METHOD, "answered": RESULT}` or `{"op": METHOD, "refused": CODE}`, for
  what the agent asked.
- `{"op": "exit", "code": N}` when an agent on stdio has ended after the client closed its input.

Params and results are what the SDK parsed, dumped by alias without nulls.

What the SDK does of its own accord: it answers elicitation, and serves close and resume, only where it was told
`use_unstable_protocol`; has no method for delete and logout; omits defaults from params. Over HTTP it insists on 200
and `Acp-Connection-Id` for initialize, 200 or 202 for every other POST, 200 for a GET (anything else ends the stream
without a word); an error status raises in the caller, and no JSON-RPC error is read from it. It speaks HTTP/1.1 to
plain `http:` addresses and offers HTTP/2 only by ALPN. It names no session on `session/load`, `session/resume`, answers
and extension methods. It opens a session's stream when it first sees the session's id in a result or in params that
came on another stream; so one that is loaded on a new connection has none until then. It never reconnects: the end of
the connection's stream ends the connection.
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

from acp import PROTOCOL_VERSION, connect_to_agent, spawn_agent_process
from acp.schema import Implementation, InitializeRequest, NewSessionRequest, PromptRequest
from agent_client_editor import Editor, Output, dump

CAPABILITIES = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}, "url": {}},
    "session": {"configOptions": {"boolean": {}}},
}

SETTINGS = ("permission", "elicitation", "file", "capabilities_", "within_")


class Unreachable(Exception):
    """There is no connection; the cause is what the SDK raised."""


class Conversation:
    """The steps, on one connection after the other."""

    def __init__(self, args: argparse.Namespace, out: Output, root: Path) -> None:
        self.args, self.out, self.root = args, out, root
        self.editor = Editor(out, root)
        self.capabilities: dict[str, Any] = CAPABILITIES
        self.within = 60.0
        self.meta_said: dict[str, Any] = {}
        self.session, self.created = "none", list[str]()
        self.running = list[asyncio.Task[Any]]()
        self.stack = contextlib.AsyncExitStack()
        self.agent: Any = None

    async def run(self, steps: list[tuple[str, str]]) -> None:
        try:
            await self.connect()
            settings = next((n for n, (name, _) in enumerate(steps) if name not in SETTINGS), len(steps))
            opening = [] if self.args.bare else [("do", "initialize"), ("do", "new")]
            for name, value in [*steps[:settings], *opening, *steps[settings:]]:
                await getattr(self, name.replace("-", "_"))(value)
        except Unreachable as error:
            self.out.complain("connect", error.__cause__ or error)
        finally:
            for task in self.running:
                task.cancel()
            for process in self.editor.terminals.values():
                self.editor.end(process)
            await self.stack.aclose()

    async def connect(self) -> None:
        connection = self.stack.enter_async_context(connected(self.args, self.editor, self.out))
        try:
            self.agent = await asyncio.wait_for(connection, self.within)
        except Exception as error:
            raise Unreachable from error

    async def ask(self, op: str, call: Awaitable[Any]) -> Any:
        """Awaits one request and prints what came of it; the result, or None where it failed."""
        try:
            result = await asyncio.wait_for(call, self.within)
        except Exception as error:  # the whole point is to report whatever the SDK raises
            self.out.complain(op, error)
            return None
        self.out.tell(op, result=dump(result))
        return result

    async def tell(self, op: str, call: Awaitable[None]) -> None:
        """Awaits one notification; prints only what went wrong."""
        try:
            await asyncio.wait_for(call, self.within)
        except Exception as error:  # as above
            self.out.complain(op, error)

    def prompt(self, blocks: Any) -> Awaitable[Any]:
        # parsed, so that the SDK's own method is called with what it would be called with
        asked = PromptRequest.model_validate({"sessionId": self.session, "prompt": blocks})
        call = self.agent.prompt(session_id=asked.session_id, prompt=asked.prompt, **self.meta_said)
        return self.ask("session/prompt", call)

    async def say(self, text: str) -> None:
        await self.prompt([{"type": "text", "text": text}])

    async def blocks(self, blocks: str) -> None:
        await self.prompt(json.loads(blocks))

    async def start(self, text: str) -> None:
        self.out.looked = len(self.out.lines)
        self.running.append(asyncio.ensure_future(self.prompt([{"type": "text", "text": text}])))
        await asyncio.sleep(0)  # it is sent before the next step

    async def finish(self, _: str) -> None:
        await asyncio.gather(*self.running)
        self.running.clear()

    async def await_(self, text: str) -> None:
        try:
            await asyncio.wait_for(self.out.awaited(text), self.within)
        except TimeoutError:
            self.out.tell("await", error={"type": "TimeoutError", "code": None, "message": text, "data": None})

    async def do(self, what: str) -> None:
        name, _, extra = what.partition(" ")
        await getattr(self, f"do_{name}")(json.loads(extra) if extra else {})

    async def do_initialize(self, extra: dict[str, Any]) -> None:
        wanted = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": self.capabilities, **extra}
        asked = InitializeRequest.model_validate(wanted)
        info = Implementation(name="rig-py-client", title="Rig", version="0.1")
        call = self.agent.initialize(
            protocol_version=asked.protocol_version,
            client_capabilities=asked.client_capabilities,
            client_info=info,
            **(asked.field_meta or {}),
        )
        await self.ask("initialize", call)

    async def do_new(self, extra: dict[str, Any]) -> None:
        asked = NewSessionRequest.model_validate({"cwd": str(self.root), "mcpServers": [], **extra})
        call = self.agent.new_session(
            cwd=asked.cwd,
            mcp_servers=asked.mcp_servers,
            additional_directories=asked.additional_directories,
            **(asked.field_meta or {}),
        )
        made = await self.ask("session/new", call)
        if made:
            self.session = made.session_id
            self.created.append(made.session_id)

    async def do_load(self, extra: dict[str, Any]) -> None:
        meta = extra.get("_meta", {})
        call = self.agent.load_session(cwd=str(self.root), session_id=self.session, mcp_servers=[], **meta)
        await self.ask("session/load", call)

    async def do_resume(self, extra: dict[str, Any]) -> None:
        meta = extra.get("_meta", {})
        call = self.agent.resume_session(cwd=str(self.root), session_id=self.session, mcp_servers=[], **meta)
        await self.ask("session/resume", call)

    async def do_close(self, extra: dict[str, Any]) -> None:
        await self.ask("session/close", self.agent.close_session(session_id=self.session))

    async def do_list(self, extra: dict[str, Any]) -> None:
        await self.ask("session/list", self.agent.list_sessions(cwd=extra.get("cwd"), cursor=extra.get("cursor")))

    async def do_delete(self, extra: dict[str, Any]) -> None:
        # the SDK has the models of this and of logout, but no method to send them with
        await self.call(f"session/delete {json.dumps({'sessionId': self.session, **extra})}")

    async def do_logout(self, extra: dict[str, Any]) -> None:
        await self.call(f"logout {json.dumps(extra)}")

    async def do_cancel(self, extra: dict[str, Any]) -> None:
        await self.tell("session/cancel", self.agent.cancel(session_id=self.session))
        self.editor.give_up()

    async def call(self, what: str) -> None:
        method, _, params = what.partition(" ")
        await self.ask(method, self.agent._conn.send_request(method, json.loads(params or "{}")))

    async def notify(self, what: str) -> None:
        method, _, params = what.partition(" ")
        await self.tell(method, self.agent._conn.send_notification(method, json.loads(params or "{}")))

    async def session_(self, which: str) -> None:
        self.session = self.created[int(which[1:])] if which.startswith("@") else which

    async def set_mode(self, mode: str) -> None:
        await self.ask("session/set_mode", self.agent.set_session_mode(session_id=self.session, mode_id=mode))

    async def set_option(self, what: str) -> None:
        name, _, text = what.partition("=")
        value = {"true": True, "false": False}.get(text, text)
        call = self.agent.set_config_option(config_id=name, session_id=self.session, value=value)
        await self.ask("session/set_config_option", call)

    async def authenticate(self, method: str) -> None:
        await self.ask("authenticate", self.agent.authenticate(method_id=method))

    async def permission(self, how: str) -> None:
        self.editor.permission = how

    async def elicitation(self, how: str) -> None:
        self.editor.elicitation = how

    async def meta(self, given: str) -> None:
        self.meta_said = json.loads(given)

    async def file(self, what: str) -> None:
        name, _, text = what.partition("=")
        (self.root / name).write_text(text, encoding="utf-8")

    async def reconnect(self, _: str) -> None:
        await self.stack.aclose()
        await self.connect()
        await self.do("initialize")

    async def capabilities_(self, given: str) -> None:
        self.capabilities = json.loads(given)

    async def within_(self, seconds: str) -> None:
        self.within = float(seconds)


@contextlib.asynccontextmanager
async def connected(args: argparse.Namespace, editor: Editor, out: Output) -> AsyncIterator[Any]:
    """The SDK's connection to the agent, over the transport that the options name; closed at the end of the block."""
    wire = recorder(args.wire, outgoing="agent", incoming="client")
    options: dict[str, Any] = {"use_unstable_protocol": True, "observers": [wire]}
    headers = dict(line.split(": ", 1) for line in args.header)
    if not args.http and not args.ws:
        command, *rest = args.command
        transport: Any = {"stderr": None, "shutdown_timeout": 5.0, "limit": 64 << 20}
        spawned = spawn_agent_process(editor, command, *rest, env=os.environ, transport_kwargs=transport, **options)
        async with spawned as (connection, process):
            yield connection
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


def recorder(file: str | None, *, outgoing: str, incoming: str) -> Any:
    """An observer of the SDK's that keeps each message, with the side it goes to, if a file is named."""

    def record(event: Any) -> None:
        if file:
            towards = outgoing if event.direction.value == "outgoing" else incoming
            with Path(file).open("a", encoding="utf-8") as log:
                log.write(json.dumps({"to": towards, "message": event.message}) + "\n")

    return record


class Step(argparse.Action):
    """Keeps the steps in the order in which they were given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        name = (option_string or "").lstrip("-")
        # these would hide a word of the language, or a field
        name = f"{name}_" if name in ("await", "session", "capabilities", "within") else name
        namespace.steps.append((name, values if isinstance(values, str) else ""))


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--http", "--ws", "--root", "--wire"):
        parser.add_argument(name)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--header", action="append", default=[])
    taking = (
        "say blocks start await do session set-mode set-option authenticate call notify permission elicitation file"
    )
    for name in f"{taking} capabilities within meta".split():
        parser.add_argument(f"--{name}", action=Step)
    for name in ("finish", "reconnect"):
        parser.add_argument(f"--{name}", action=Step, nargs=0)
    parser.set_defaults(steps=[])
    given, command = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    args = parser.parse_args(given)
    if sum(map(bool, (args.http, args.ws, command))) != 1:
        parser.error("name one of --http URL, --ws URL, -- COMMAND")
    args.command = command
    return args


async def converse(args: argparse.Namespace, root: Path) -> None:
    await Conversation(args, Output(), root).run(args.steps)


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
            asyncio.run(converse(args, Path(args.root or made).resolve()))


if __name__ == "__main__":
    main()
