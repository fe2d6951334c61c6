"""What the Python clients of agent_communication share: steps from the command line, lines printed, the wire kept.

The clients are `agent_communication_client.py` (acp-sdk 0.0.6), `mcp_tools_client_1.py` and `mcp_tools_client_2.py`
(mcp 1.30.0 and 2.3.0); `agent_communication_client.mjs` has the same steps and prints the same lines. Steps are carried
out in order; unless `--bare` is given, `--do initialize` comes before the first that is no setting.

| step | does |
|---|---|
| `--do WHAT` | `initialize ping list templates tools roots`; `--do "list JSON"` adds params |
| `--run "NAME JSON"` | `agents/run` with that input, and waits for the answer |
| `--start "NAME JSON"` | the same without waiting; `--finish` waits for all that were started |
| `--tool "NAME JSON"`, `--start-tool ...` | `tools/call` with these arguments, likewise |
| `--create "TEMPLATE JSON"`, `--destroy NAME` | |
| `--cancel` | cancels the call that was started last, as the SDK's users do it |
| `--await TEXT` | waits for a line that has TEXT, since the last call and not looked at by an `--await` before |
| `--call "METHOD JSON"`, `--notify "METHOD JSON"` | any request or notification |
| `--level LEVEL` | `logging/setLevel` |
| `--token JSON` | the progress token of the calls that follow; `none`; or `auto`: `"run-N"`, for tools the SDK's own |
| `--meta JSON` | further keys of `_meta` in the calls that follow |
| `--cancel-after N` | the next call is cancelled when its N-th progress notification came |
| `--sampling HOW` | from now on: the text to answer with, or `error` (-32099), or `ignore` |
| `--elicitation HOW` | from now on: `decline`, `cancel`, `error`, `ignore`, or the JSON content to accept with |
| `--within SECONDS` | how long each wait may take from now on (default 60) |

Several conversations, each with its own transport, options and steps, may be given with `+` between them; they are held
one after the other in one process, since starting an SDK is what takes long, and `{"op": "converse"}` is printed before
each.

Options that hold throughout: `--bare`; `--wire FILE` (each message as it was on the wire, one a line, `{"to": "server"
| "client", "message": ...}`); `--header "K: V"` (HTTP).

Each line printed is one JSON object with the seconds since the start as `t`, and the exit code is 0 whenever the script
ran to its end:

- `{"op": METHOD, "result": ...}` or `{"op": METHOD, "error": {"type", "code", "message", "data"}}` for what the client
  asked, with the number of the call as `run` where it was a run or a tool call (from 1); the code is null where it was
  no JSON-RPC error. So too for `await` where nothing came in time, and for `connect`, which ends the script.
- `{"op": METHOD, "told": PARAMS}` for every notification that the SDK hands out.
- `{"op": METHOD, "asked": PARAMS}`, then `{"op": METHOD, "answered": RESULT}` or `{"op": METHOD, "refused": CODE}`, for
  what the server asked.
- `{"op": "stray", "told": TEXT}` for what the SDK complains of, to its user or in its log: answers nobody waits for,
  messages it can't read.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import shlex
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

SETTINGS = ("token", "meta", "cancel_after", "sampling", "elicitation", "within")
STARTED = time.monotonic()


class Output:
    """Prints lines, and lets others wait for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.looked = 0
        self.changed = asyncio.Condition()
        self.waking = set[asyncio.Task[None]]()

    def tell(self, op: str, **said: Any) -> None:
        line = json.dumps({"op": op, **said, "t": round(time.monotonic() - STARTED, 4)}, separators=(",", ":"))
        print(line, flush=True)
        self.lines.append(line)
        task = asyncio.ensure_future(self.wake())
        self.waking.add(task)
        task.add_done_callback(self.waking.discard)

    async def wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def awaited(self, text: str) -> None:
        async with self.changed:
            while True:
                while self.looked < len(self.lines):
                    self.looked += 1
                    if text in self.lines[self.looked - 1]:
                        return
                await self.changed.wait()

    def complain(self, op: str, error: BaseException, **said: Any) -> None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        found = getattr(error, "error", None)
        code, data = getattr(found, "code", None), getattr(found, "data", None)
        message = getattr(found, "message", None) or str(error)
        self.tell(op, error={"type": type(error).__name__, "code": code, "message": message, "data": data}, **said)


class Wire:
    """Sees each message that passes, and keeps it in a file if one is named.

    Prints notifications whose method is `shown` (a client of an SDK that drops them sets that).
    """

    shown = ""

    def __init__(self, out: Output, file: Path | None) -> None:
        self.out, self.file = out, file

    def saw(self, to: str, message: dict[str, Any]) -> None:
        if self.file:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"to": to, "message": message}) + "\n")
        if to == "client" and self.shown and message.get("method", "").startswith(self.shown):
            self.out.tell(message["method"], told=message.get("params"))


class Tapped:
    """One of an SDK's two streams with a `Wire` on it; `dump` gives a message of the SDK's as JSON, or None."""

    def __init__(self, stream: Any, to: str, wire: Wire, dump: Any) -> None:
        self.stream, self.to, self.wire, self.dump = stream, to, wire, dump

    def look(self, message: Any) -> Any:
        found = self.dump(message)
        if found is not None:
            self.wire.saw(self.to, found)
        return message

    async def __aenter__(self) -> "Tapped":
        await self.stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self.stream.__aexit__(*error)

    def __aiter__(self) -> "Tapped":
        return self

    async def __anext__(self) -> Any:
        return self.look(await self.stream.__anext__())

    async def send(self, message: Any) -> None:
        self.look(message)
        await self.stream.send(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Complaints(logging.Handler):
    """Prints what an SDK logs as a warning or worse."""

    def __init__(self, out: Output) -> None:
        super().__init__(logging.WARNING)
        self.out = out

    def emit(self, record: logging.LogRecord) -> None:
        self.out.tell("stray", told=record.getMessage()[:200])


class Conversation:
    """The steps of one connection. A client adds the methods that raise NotImplementedError here."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.out = Output()
        self.wire = Wire(self.out, args.wire)
        self.within = 60.0
        self.sampling, self.elicitation = "hello", "decline"
        self.token, self.meta, self.cancel_after = "auto", dict[str, Any](), 0
        self.runs = 0
        self.running = list[asyncio.Task[Any]]()
        self.current: asyncio.Task[Any] | None = None

    def connected(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Enters the SDK's session and sets what the other methods need."""
        raise NotImplementedError

    def perform(self, method: str, params: dict[str, Any]) -> Awaitable[Any]:
        """One request through the SDK, by its own method for it where it has one; the result as JSON."""
        raise NotImplementedError

    async def cancel_last(self) -> None:
        """Cancels the call that was started last, as the SDK's users do it."""
        raise NotImplementedError

    async def send_notification(self, method: str, params: dict[str, Any]) -> None:
        raise NotImplementedError

    async def run(self, steps: list[tuple[str, str]]) -> None:
        """The whole script."""
        begun = False
        logging.getLogger().handlers = [Complaints(self.out)]
        try:
            async with self.connected():
                begun = True
                settings = next((n for n, (name, _) in enumerate(steps) if name not in SETTINGS), len(steps))
                opening = [] if self.args.bare else [("do", "initialize")]
                for step in [*steps[:settings], *opening, *steps[settings:]]:
                    await self.step(*step)
                for task in self.running:
                    task.cancel()
        except Exception as error:  # the whole point is to report whatever the SDK raises
            self.out.complain("disconnect" if begun else "connect", error)

    async def step(self, name: str, value: str) -> None:
        try:
            await getattr(self, f"on_{name}")(value)
        except Exception as error:  # as above
            self.out.complain(name, error)

    async def ask(self, op: str, params: dict[str, Any], **said: Any) -> Any:
        """Awaits one request and prints what came of it; the result, or None where it failed."""
        try:
            result = await asyncio.wait_for(self.perform(op, params), self.within)
        except (Exception, asyncio.CancelledError) as error:  # as above
            self.out.complain(op, error, **said)
            return None
        self.out.tell(op, result=result, **said)
        return result

    def called(self, op: str, what: str, key: str) -> Awaitable[Any]:
        self.out.looked = len(self.out.lines)
        self.runs += 1
        name, params = split(what)
        meta = dict(self.meta)
        if self.token != "none":
            meta["progressToken"] = f"run-{self.runs}" if self.token == "auto" else json.loads(self.token)
        asked = {"name": name, key: params, **({"_meta": meta} if meta else {})}
        return self.watched(op, asked, self.runs)

    async def watched(self, op: str, asked: dict[str, Any], run: int) -> Any:
        after, self.cancel_after = self.cancel_after, 0
        task = self.current = asyncio.ensure_future(self.ask(op, asked, run=run))
        if after:
            cancelling = asyncio.ensure_future(self.cancelled(after, self.progress(op, run, asked)))
            await asyncio.wait({task, cancelling}, return_when=asyncio.FIRST_COMPLETED)
            cancelling.cancel()
        return await task

    def progress(self, op: str, run: int, asked: dict[str, Any]) -> str:
        """What every line has that tells progress of this call."""
        return f'"progressToken":{json.dumps(asked["_meta"]["progressToken"])}'

    async def cancelled(self, after: int, text: str) -> None:
        for _ in range(after):
            await self.out.awaited(text)
        await self.cancel_last()

    async def on_run(self, what: str) -> None:
        await self.called("agents/run", what, "input")

    async def on_tool(self, what: str) -> None:
        await self.called("tools/call", what, "arguments")

    async def on_start(self, what: str) -> None:
        await self.begin(self.called("agents/run", what, "input"))

    async def on_start_tool(self, what: str) -> None:
        await self.begin(self.called("tools/call", what, "arguments"))

    async def begin(self, call: Awaitable[Any]) -> None:
        self.running.append(asyncio.ensure_future(call))
        # so that it is sent before the next step
        for _ in range(3):
            await asyncio.sleep(0)

    async def on_finish(self, _: str) -> None:
        await asyncio.gather(*self.running)
        self.running.clear()

    async def on_cancel(self, _: str) -> None:
        await self.cancel_last()

    async def on_await(self, text: str) -> None:
        try:
            await asyncio.wait_for(self.out.awaited(text), self.within)
        except TimeoutError:
            self.out.tell("await", error={"type": "TimeoutError", "code": None, "message": text, "data": None})

    async def on_do(self, what: str) -> None:
        name, params = split(what)
        methods = {"list": "agents/list", "templates": "agents/templates/list", "tools": "tools/list"}
        if name == "roots":
            await self.send_notification("notifications/roots/list_changed", params)
        else:
            await self.ask(methods.get(name, name), params)

    async def on_create(self, what: str) -> None:
        name, config = split(what)
        await self.ask("agents/create", {"templateName": name, "config": config})

    async def on_destroy(self, name: str) -> None:
        await self.ask("agents/destroy", {"name": name})

    async def on_call(self, what: str) -> None:
        await self.ask(*split(what))

    async def on_notify(self, what: str) -> None:
        await self.send_notification(*split(what))

    async def on_level(self, level: str) -> None:
        await self.ask("logging/setLevel", {"level": level})

    async def on_token(self, token: str) -> None:
        self.token = token

    async def on_meta(self, meta: str) -> None:
        self.meta = json.loads(meta)

    async def on_cancel_after(self, count: str) -> None:
        self.cancel_after = int(count)

    async def on_sampling(self, how: str) -> None:
        self.sampling = how

    async def on_elicitation(self, how: str) -> None:
        self.elicitation = how

    async def on_within(self, seconds: str) -> None:
        self.within = float(seconds)


def split(what: str) -> tuple[str, dict[str, Any]]:
    """`NAME JSON`, where the JSON may be missing."""
    name, _, params = what.partition(" ")
    return name, json.loads(params or "{}")


FLAGS = ("finish", "cancel")
VALUES = (
    *("do", "run", "start", "tool", "start-tool", "create", "destroy", "await", "call", "notify", "level"),
    *("token", "meta", "cancel-after", "sampling", "elicitation", "within"),
)


def converse(
    kind: type[Conversation], transports: tuple[str, ...], more: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> None:
    """The program: all conversations on the command line, with the options named here besides those that all have."""
    conversations: list[list[str]] = [[]]
    for word in sys.argv[1:]:
        if word == "+":
            conversations.append([])
        else:
            conversations[-1].append(word)
    for words in conversations:
        args, steps = parse(words, transports, more, flags)
        conversation = kind(args)
        if len(conversations) > 1:
            print(json.dumps({"op": "converse"}), flush=True)
        asyncio.run(conversation.run(steps))


def parse(
    own: list[str], transports: tuple[str, ...], more: tuple[str, ...], flags: tuple[str, ...]
) -> tuple[argparse.Namespace, list[tuple[str, str]]]:
    """One conversation's options and its steps in their order; `transports` are the options that take a URL."""

    class Step(argparse.Action):
        def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
            name = (option_string or "").lstrip("-").replace("-", "_")
            namespace.steps.append((name, "" if values == [] else values))

    command = list[str]()
    if "--" in own:
        own, command = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in (*transports, *more):
        parser.add_argument(f"--{name}")
    for name in ("bare", *flags):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--wire", type=Path)
    parser.add_argument("--header", action="append", default=[])
    for name in FLAGS:
        parser.add_argument(f"--{name}", action=Step, nargs=0, dest="steps")
    for name in VALUES:
        parser.add_argument(f"--{name}", action=Step, dest="steps")
    parser.set_defaults(steps=[])
    args = parser.parse_args(own)
    args.command = command
    if not command and not any(getattr(args, name) for name in transports):
        parser.error(f"name a transport, or a command after --: {shlex.join(own)}")
    return args, args.steps
