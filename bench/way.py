"""The files that a chunk, a request and a prompt pass: `python -m bench.way`.

Runs the gateway in a process that notes every call of a function of its own, and prints the files in the order in which
they are first called: for one chunk of an agent on standard output to a client that streams `values`, for one
`/runs/wait` of an agent over HTTP on a new connection, for its streams of two and of four chunks on one that is kept,
for a `/runs/wait` of an agent on standard output, for a `session/new` of an editor, for its prompt to an agent on
standard output, through a WebSocket and through `interlingua stdio`, and for a `tools/call` with a session of MCP and
without. A file counts once. What runs meanwhile
by chance (timers, what is written a moment later) is left out: only what is called for each of several chunks or
requests counts. Below them stands how many calls each room had, of the chunk or request with the fewest: a profile by
room that is the same on every machine. What a stream of four chunks has beyond one of two is two chunks, and the rest
of either its start and end: they stand last. `--calls` prints its functions, in the order of their calls. `--bytecodes`
counts instructions of Python's interpreter instead of calls, those of the libraries included: what the work takes of a
processor, but for C.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bench.agent import stream_body
from bench.agent_client.editor import Editor
from bench.peers import TOOLS_AGENT
from bench.stage import EDITORS_AGENT, ROOT, free_port
from bench.stamp import CHUNK

CHUNKS = 12
PACE = 0.3
STREAM_PACE = 0.06
"""A stream is over before its text is due to be written, and not before its timers are kept."""
REQUESTS = 8
CALL, STATELESS = "a tools/call", "a stateless tools/call"
SHORT, LONGER = "a stream of 2 chunks", "a stream of 4 chunks"
WARM = 3
"""Requests that are not counted: the first ones make what is kept."""
REST_SECONDS = 0.3
TAIL_SECONDS = 0.03
"""A stream's end goes on when its client has read all of it."""
_JSON = {"content-type": "application/json"}
ROUTES = """\
routes:
  - name: editor
    target: {{protocol: agent_client, command: {command}, cwd: {root}}}
  - name: echo
    target: {{protocol: agent_connect, url: "http://127.0.0.1:{agent}"}}
  - name: text
    target: {{protocol: agent_communication, command: {tools}, cwd: {root}, agent: text}}
store: {{url: "sqlite:///bench.db"}}
"""

TRACED = """
import atexit, json, sys, time
sys.path.insert(0, root := sys.argv.pop(1))
bytecodes = sys.argv.pop(1) == "bytecodes"
calls, names = [], {}
def named(code):
    file = code.co_filename.removeprefix(root + "/")
    if code.co_name == "<module>" or not (bytecodes or file.startswith(("gateway/", "adapters/"))):
        return ""
    if not file.startswith(("gateway/", "adapters/")):
        file = "libraries/" + file.rpartition("/site-packages/")[2].rpartition("/lib/")[2]
    return file + ":" + code.co_qualname
def note(frame, event, _):
    if event != "call":
        return
    name = names.get(frame.f_code)
    if name is None:
        name = names[frame.f_code] = named(frame.f_code)
    if not name:
        return
    call = [time.monotonic_ns(), name, 1]
    calls.append(call)
    if bytecodes:
        call[2], frame.f_trace_opcodes, frame.f_trace_lines = 0, True, False
        def step(frame, event, _):
            call[2] += event == "opcode"
            return step
        return step
def told():
    sys.setprofile(None)
    sys.settrace(None)
    with open("calls.json", "w") as file:
        json.dump(calls, file)
atexit.register(told)
from gateway.cli import main
(sys.settrace if bytecodes else sys.setprofile)(note)
main()
"""


def _ask(port: int, path: str, body: dict[str, Any], more: dict[str, str] | None = None) -> Any:
    head = _JSON | (more or {})
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), head)
    return urllib.request.urlopen(request, timeout=60)


@contextlib.contextmanager
def _process(arguments: list[str], folder: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=env, stdout=quiet, stderr=quiet)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _ready(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise TimeoutError("the gateway is not ready")


def _file(name: str) -> str:
    return name.partition(":")[0]


def _room(name: str) -> str:
    first, _, rest = _file(name).partition("/")
    return f"{first}/{rest.partition('/')[0].removesuffix('.py')}"


Windows = list[tuple[int, int]]
"""When each was under way."""


class Call(NamedTuple):
    """A function that was called, and what it is counted for."""

    name: str
    """FILE:FUNCTION."""
    steps: int


class Calls:
    """Functions called in one process, with their times."""

    def __init__(self, folder: str) -> None:
        """Of the process that has ended in that folder."""
        self._calls = json.loads((Path(folder) / "calls.json").read_text(encoding="utf-8"))

    def within(self, window: tuple[int, int]) -> list[Call]:
        start, end = window
        return [Call(name, steps) for at, name, steps in self._calls if start <= at < end]


class Way(NamedTuple):
    """The files that every one of its kind passes, in order. Of the one with the fewest calls, since chance only adds
    some: how many each room has (or bytecodes), and the calls.
    """

    files: list[str]
    rooms: Counter[str]
    calls: list[str]


def _way(calls: Calls, windows: Windows) -> Way:
    found = [calls.within(window) for window in windows]
    files = [dict.fromkeys(_file(call.name) for call in called) for called in found]
    fewest = min(found, key=lambda called: sum(call.steps for call in called))
    rooms: Counter[str] = Counter()
    for call in fewest:
        rooms[_room(call.name)] += call.steps
    names = [name for name in files[-1] if all(name in each for each in files)]
    return Way(names, rooms, [call.name for call in fewest])


def measure(counted: str = "calls") -> dict[str, Way]:
    """By what passes. counted: `calls` or `bytecodes`."""
    port, agent = free_port(), free_port()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    traced = ["-c", TRACED, str(ROOT), counted]
    with tempfile.TemporaryDirectory() as folder, _process(["-m", "bench.agent", "--port", str(agent)], folder, env):
        command, tools, root = (json.dumps(it) for it in (EDITORS_AGENT, TOOLS_AGENT, str(ROOT)))
        routes = ROUTES.format(command=command, tools=tools, root=root, agent=agent)
        (Path(folder) / "routes.yaml").write_text(routes, encoding="utf-8")
        with _process([*traced, "serve", "routes.yaml", "--port", str(port)], folder, env) as gateway:
            _ready(port, gateway)
            each = {"a chunk": _chunks(port), "/runs/wait": _requests(port), **_calls(port)}
            each[SHORT], each[LONGER] = _streams(port, 2), _streams(port, 4)
            each["a prompt through HTTP"] = _requests(port, "editor")
            socket = {"url": f"ws://127.0.0.1:{port}/agent-client/editor"}
            each["session/new"], each["a prompt"] = asyncio.run(_prompts(socket))
        calls = Calls(folder)
        found = {what: _way(calls, windows) for what, windows in each.items()}
        own = [sys.executable, *traced, "stdio", "editor", "--routes", "routes.yaml"]
        _, windows = asyncio.run(_prompts({"command": own, "cwd": folder}))
        return {**found, "a prompt through stdio": _way(Calls(folder), windows)}


def _chunks(port: int) -> Windows:
    """Not the first ones, nor the last."""
    prompt = json.dumps({"chunks": CHUNKS, "pace": PACE})
    body = {"agent_id": "editor", "input": {"message": prompt}, "stream_mode": "values"}
    windows = []
    with _ask(port, "/agent-connect/runs/stream", body) as stream:
        for line in stream:
            if line.startswith(b"data:"):
                sent = json.loads(line[5:])["values"]["message"][-CHUNK:]
                windows.append((int(sent), time.monotonic_ns()))
    return windows[WARM : CHUNKS - 2]


def _requests(port: int, agent: str = "echo") -> Windows:
    return _repeated(port, "/agent-connect/runs/wait", {"agent_id": agent, "input": {"message": "hello"}})


def _streams(port: int, chunks: int) -> Windows:
    """On one connection. Only those whose client was answered before the first chunk was sent, as it is of a model, and
    was told of each chunk alone.
    """
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    usual = []

    def stream() -> bytes:
        client.request("POST", "/agent-connect/runs/stream", stream_body(chunks, STREAM_PACE), _JSON)
        answer = client.getresponse()
        heard, said = time.monotonic_ns(), answer.read()
        time.sleep(TAIL_SECONDS)
        first = json.loads(said.partition(b"data:")[2].partition(b"\n")[0])
        usual.append(heard < int(first["values"]["message"][:CHUNK]) and said.count(b"data:") > chunks)
        return said

    with contextlib.closing(client):
        windows = _times(stream)
    return list(compress(windows, usual[WARM:])) or windows


def _calls(port: int) -> dict[str, Windows]:
    """Both kinds of `tools/call`, as `bench.agent_communication.tools` has them."""
    path, client = "/agent-communication/mcp", {"name": "bench", "version": "1.0.0"}
    head = {"accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    with _ask(port, path, _message("initialize", hello), head) as answer:
        session = head | {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    params: dict[str, Any] = {"name": "text", "arguments": {"chunks": 1}}
    with_session = _repeated(port, path, _message("tools/call", params), session)
    meta = {"protocolVersion": "2026-07-28", "clientCapabilities": {}, "clientInfo": client}
    params["_meta"] = {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}
    head |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "text"}
    return {CALL: with_session, STATELESS: _repeated(port, path, _message("tools/call", params), head)}


def _message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _repeated(port: int, path: str, body: dict[str, Any], head: dict[str, str] | None = None) -> Windows:
    return _times(lambda: _ask(port, path, body, head).read())


def _times(ask: Callable[[], bytes]) -> Windows:
    windows = []
    for _ in range(REQUESTS):
        start = time.monotonic_ns()
        answer = ask()
        windows.append((start, time.monotonic_ns()))
        assert b'"error"' not in answer and b'"isError":true' not in answer, answer
        time.sleep(REST_SECONDS)
    assert all(a[1] <= b[0] for a, b in pairwise(windows))
    return windows[WARM:]


async def _prompts(place: dict[str, Any]) -> tuple[Windows, Windows]:
    """Sessions that are opened, and prompts of one chunk in the last of them. `place`: see `bench.rpc.wires`."""
    opened, prompted = [], []
    editor = await Editor.open(place)
    try:
        for _ in range(REQUESTS):
            start = time.monotonic_ns()
            session = await editor.session()
            opened.append((start, time.monotonic_ns()))
            await asyncio.sleep(REST_SECONDS)
        for _ in range(REQUESTS):
            start = time.monotonic_ns()
            await session.ask()
            prompted.append((start, time.monotonic_ns()))
            await asyncio.sleep(REST_SECONDS)
    finally:
        await editor.close()
    return opened[WARM:], prompted[WARM:]


def parts(short: Way, longer: Way) -> dict[str, Counter[str]]:
    """How many each room has of a stream's start and end, and of each of its chunks."""
    two, rest = Counter(longer.rooms), Counter(short.rooms)
    two.subtract(short.rooms)
    rest.subtract(two)
    chunk = Counter({room: count // 2 for room, count in two.items()})
    return {"a stream's start and end": rest, "a stream's chunk": chunk}


if __name__ == "__main__":
    counted = "bytecodes" if "--bytecodes" in sys.argv else "calls"
    told = "calls of functions of our own" if counted == "calls" else "bytecodes"

    def tell(what: str, rooms: Counter[str]) -> None:
        print(f"{what}: {rooms.total()} {told}")
        for room, count in rooms.most_common():
            print(f"  {room} {count}")

    ways = measure(counted)
    for what, found in ways.items():
        if counted == "calls":
            print(f"{what}: {len(found.files)} files")
            for file in found.files:
                print(f"  {file}")
        tell(what, found.rooms)
        if "--calls" in sys.argv:
            print("\n".join(f"    {name}" for name in found.calls))
    for what, rooms in parts(ways[SHORT], ways[LONGER]).items():
        tell(what, rooms)
