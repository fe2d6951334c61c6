"""Other gateways beside this one, in front of the same echo agents on stdio: `make bench BENCH_ARGS="--only peers"`.

Each runs as its documentation starts it, with its log in a file, in an environment of its own that `python -m
bench.peers` makes from the lock beside this file (`make test` makes none). One whose environment is not there is named
and left out. What they are asked is what they are for: a prompt through HTTP or WebSocket, or a tool call of MCP; the
gateway and the agent itself are asked the same, in turns. `direct` is the agent on the load's own pipes, `lean` a
translator without anything else (lean.py of bench/agent_client and bench/agent_communication), `lean, 2 rows` the same
with what the gateway promises.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.agent_client.editor import asking
from bench.rounds import Figures, in_rounds
from bench.sizes import PeerSizes
from bench.stage import EDITORS_AGENT, PREFIX, ROOT, Broken, Stage, Tree, free_port, processor_seconds
from bench.tables import number, table
from tests.support.peers import made

GATEWAY, STATELESS = "interlingua", "interlingua, stateless"
LEAN, ROWS = "lean", "lean, 2 rows"
HERE = Path(__file__).parent
MANY = 32
FLOOD_CHUNKS = 1000
FLOODS = 8
MICRO = 1e6
TOOLS_AGENT = [sys.executable, "-m", "bench.agent_communication.agent"]
TOOL: Figures = {"name": "text", "arguments": {"chunks": 1}}
GROUPS = {"prompt": "a prompt through HTTP", "socket": "a prompt through WebSocket", "tool": "a tool call of MCP"}
ROUTES = """\
routes:
  - name: editor
    target: {{protocol: agent_client, command: {editor}, cwd: {root}}}
  - name: text
    target: {{protocol: agent_communication, command: {text}, cwd: {root}, agent: text}}
"""
_encode = msgspec.json.encode

Job = Callable[[int, float], Figures]
"""The load's, of so many at once, for so many seconds."""


@dataclass(frozen=True)
class Contestant:
    """Who is asked. `flood`: a stream of many chunks, if it streams; `pid`: of what is between client and agent."""

    name: str
    group: str
    ask: Job
    flood: Job | None = None
    pid: int | None = None


@dataclass(frozen=True)
class Peer:
    """Another gateway. `argv`: what its interpreter runs, at a port; `ready`: the path that answers 200 when it is."""

    name: str
    argv: Callable[[int], list[str]]
    ready: str
    contestant: Callable[[int, int], Contestant]
    env: Callable[[int], dict[str, str]] = lambda port: {}

    @property
    def version(self) -> str:
        """As its lock has it."""
        lines = lock(self).read_text(encoding="utf-8").splitlines()
        return next(line.partition("==")[2] for line in lines if line.startswith(f"{self.name}=="))


def _posts(port: int, path: str, body: object) -> Job:
    text = _encode(body).decode()

    def job(count: int, seconds: float) -> Figures:
        return {"kind": "requests", "port": port, "path": path, "body": text, "connections": count, "seconds": seconds}

    return job


def _floods(port: int, path: str, body: object, reader: str) -> Job:
    text = _encode(body).decode()

    def job(count: int, seconds: float) -> Figures:
        told: Figures = {"kind": "saturate", "port": port, "path": path, "body": text}
        return told | {"streams": count, "seconds": seconds, "reader": reader}

    return job


def _editors(place: Figures) -> tuple[Job, Job]:
    def ask(count: int, seconds: float) -> Figures:
        return {"kind": "asks", "place": place, "sessions": count, "seconds": seconds}

    def flood(count: int, seconds: float) -> Figures:
        return {"kind": "flood", "place": place, "sessions": count, "chunks": FLOOD_CHUNKS, "seconds": seconds}

    return ask, flood


def _tools(url: str, *, session: bool) -> Job:
    def job(count: int, seconds: float) -> Figures:
        return {"kind": "tools", "url": url, **TOOL, "connections": count, "seconds": seconds, "session": session}

    return job


def _piped(count: int, seconds: float) -> Figures:
    place = {"command": TOOLS_AGENT, "cwd": str(ROOT)}
    return {"kind": "piped", "place": place, **TOOL, "calls": count, "seconds": seconds}


def _acpbox(port: int, pid: int) -> Contestant:
    ask = _posts(port, "/v1/responses", {"model": "bench", "input": asking(1, 0.0)})
    message = {"role": "user", "content": asking(FLOOD_CHUNKS, 0.0)}
    body = {"model": "bench", "stream": True, "messages": [message]}
    return Contestant("acpbox", "prompt", ask, _floods(port, "/v1/chat/completions", body, "stamps"), pid)


def _a2acode(port: int, pid: int) -> Contestant:
    def body(method: str, chunks: int) -> Figures:
        parts = [{"kind": "text", "text": asking(chunks, 0.0)}]
        message = {"role": "user", "kind": "message", "messageId": "1", "parts": parts}
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}

    flood = _floods(port, "/", body("message/stream", FLOOD_CHUNKS), "stamps")
    return Contestant("a2acode", "prompt", _posts(port, "/", body("message/send", 1)), flood, pid)


def _acpremote(port: int, pid: int) -> Contestant:
    return Contestant("acpremote", "socket", *_editors({"url": f"ws://127.0.0.1:{port}/acp/ws"}), pid)


def _mcp_proxy(port: int, pid: int) -> Contestant:
    return Contestant("mcp-proxy", "tool", _tools(f"http://127.0.0.1:{port}/mcp", session=True), None, pid)


_A2A = "import sys; from a2acode.cli import app; sys.argv[0] = 'a2acode'; app()"
_EDITOR = " ".join(EDITORS_AGENT)
PEERS = (
    Peer(
        "acpbox",
        lambda port: ["-m", "acpbox.main"],
        "/openapi.json",
        _acpbox,
        lambda port: {
            "ACPBOX_ACP_COMMAND": _encode(EDITORS_AGENT).decode(),
            "ACPBOX_ACP_WORKSPACE": str(ROOT),
            "ACPBOX_GATEWAY_HOST": "127.0.0.1",
            "ACPBOX_GATEWAY_PORT": str(port),
        },
    ),
    Peer(
        "a2acode",
        lambda port: ["-c", _A2A, "serve", "--agent-command", _EDITOR, "--cwd", str(ROOT), "--port", str(port)],
        "/.well-known/agent-card.json",
        _a2acode,
    ),
    Peer(
        "acpremote",
        lambda port: ["-m", "acpremote", "expose", "--port", str(port), "--cwd", str(ROOT), "--", *EDITORS_AGENT],
        "/healthz",
        _acpremote,
    ),
    Peer(
        "mcp-proxy",
        lambda port: ["-m", "mcp_proxy", "--port", str(port), "--cwd", str(ROOT), "--", *TOOLS_AGENT],
        "/status",
        _mcp_proxy,
    ),
)
OUT = {"acp-openai-gateway 0.1.0": "it is for agents that serve HTTP, and has no way to one on stdio"}
"""Those that stand in front of other agents."""


def lock(peer: Peer) -> Path:
    """Its lock."""
    return HERE / f"{peer.name}.txt"


def measure(stage: Stage, sizes: PeerSizes, told: Callable[[str], None]) -> Figures:
    """Everybody whose environment is there. `left`: why others were not asked."""
    left = dict(OUT)
    with contextlib.ExitStack() as stack:
        contestants = [*_own(stack, stage)]
        for peer in PEERS:
            python = made(lock(peer))
            if python is None:
                left[f"{peer.name} {peer.version}"] = "its environment is not there: python -m bench.peers"
                continue
            try:
                contestants.append(_started(stage, peer, python))
            except Broken as error:
                left[f"{peer.name} {peer.version}"] = str(error).partition("\n")[0]
        figures: Figures = {"left": left, "versions": {peer.name: peer.version for peer in PEERS}, "groups": {}}
        for group, title in GROUPS.items():
            told(f"peers: {title}")
            of = [one for one in contestants if one.group == group]
            figures["groups"][group] = _contest(stage, of, sizes, left)
        return figures


def _own(stack: contextlib.ExitStack, stage: Stage) -> Iterator[Contestant]:
    """The agents themselves, and the gateway."""
    editor, text, root = (_encode(it).decode() for it in (EDITORS_AGENT, TOOLS_AGENT, str(ROOT)))
    started = stack.enter_context(stage.gateway(table=ROUTES.format(editor=editor, text=text, root=root)))
    port, pid = started.port, started.child.popen.pid
    pipes: Figures = {"command": EDITORS_AGENT, "cwd": str(ROOT)}
    wait = {"agent_id": "editor", "input": {"message": asking(1, 0.0)}}
    stream = {"agent_id": "editor", "input": {"message": asking(FLOOD_CHUNKS, 0.0)}, "stream_mode": "values"}
    waits = _posts(port, f"{PREFIX}/runs/wait", wait)
    streams = _floods(port, f"{PREFIX}/runs/stream", stream, "snapshots")
    yield Contestant("direct", "prompt", *_editors(pipes))
    yield Contestant(GATEWAY, "prompt", waits, streams, pid)
    yield Contestant("direct", "socket", *_editors(pipes))
    yield Contestant(GATEWAY, "socket", *_editors({"url": f"ws://127.0.0.1:{port}/agent-client/editor"}), pid)
    for name in (LEAN, ROWS):
        place = _lean(stage, name, "agent_client", EDITORS_AGENT)
        yield Contestant(name, "socket", *_editors({"url": f"ws://127.0.0.1:{place[0]}/"}), place[1])
    url = f"http://127.0.0.1:{port}/agent-communication/mcp"
    yield Contestant("direct", "tool", _piped)
    yield Contestant(GATEWAY, "tool", _tools(url, session=True), None, pid)
    yield Contestant(STATELESS, "tool", _tools(url, session=False), None, pid)
    for name in (LEAN, ROWS):
        place = _lean(stage, name, "agent_communication", TOOLS_AGENT)
        yield Contestant(name, "tool", _tools(f"http://127.0.0.1:{place[0]}/mcp", session=True), None, place[1])


def _lean(stage: Stage, name: str, of: str, agent: list[str]) -> tuple[int, int]:
    """Its port and its process."""
    port, rows = free_port(), ["--rows", str(stage.directory / f"{of}.db")] if name == ROWS else []
    child = stage.start(f"{name} {of}", ["-m", f"bench.{of}.lean", "--port", str(port), *rows, *agent])
    child.until_answers(f"http://127.0.0.1:{port}/")
    return port, child.popen.pid


def _started(stage: Stage, peer: Peer, python: Path) -> Contestant:
    port = free_port()
    child = stage.start(peer.name, peer.argv(port), tree=Tree(ROOT, str(python)), env=peer.env(port))
    child.until_answers(f"http://127.0.0.1:{port}{peer.ready}")
    return peer.contestant(port, child.popen.pid)


def _contest(stage: Stage, contestants: list[Contestant], sizes: PeerSizes, left: dict[str, str]) -> Figures:
    """One at a time, many at once, and streams, each in turns."""

    def turn(one: Contestant, job: Figures) -> Figures:
        before = processor_seconds(one.pid) if one.pid else None
        result = stage.do(**job)
        after = processor_seconds(one.pid) if one.pid else None
        count = result["chunks"] if "chunks" in result else result["count"]
        cpu = None if before is None or after is None else (after - before) / max(1, count) * MICRO
        return {"p50": result.get("p50"), "rate": count / result["seconds"], "cpu": cpu}

    by_name = {}
    for one in contestants:
        try:
            turn(one, one.ask(MANY, sizes.seconds))  # warms both ends up
            by_name[one.name] = one
        except Broken as error:
            left[one.name] = str(error)
    figures: Figures = {}
    for kind, count in (("one", 1), ("many", MANY)):
        asked = {name: one.ask(count, sizes.seconds) for name, one in by_name.items()}
        figures[kind] = _rounds(asked, by_name, sizes.rounds, turn)
    flooded = {name: one.flood(FLOODS, sizes.flood_seconds) for name, one in by_name.items() if one.flood is not None}
    if flooded:
        figures["flood"] = _rounds(flooded, by_name, sizes.rounds, turn)
    return figures


def _rounds(
    asked: dict[str, Figures], whom: dict[str, Contestant], count: int, turn: Callable[[Contestant, Figures], Figures]
) -> list[Figures]:
    return in_rounds([*asked], count, float("inf"), lambda way: turn(whom[way], asked[way]))


def median(rounds: list[Figures], name: str, what: str) -> float | None:
    """Of that contestant over the rounds; None if it is not known."""
    values = [one[name][what] for one in rounds]
    return None if None in values else float(statistics.median(values))


def added(rounds: list[Figures], name: str) -> float:
    """Ms one at a time, more than the agent itself: the median of the rounds' differences."""
    return float(statistics.median(one[name]["p50"] - one["direct"]["p50"] for one in rounds))


def lines(figures: Figures) -> list[str]:
    """What a person reads."""
    told = []
    for group, title in GROUPS.items():
        of = figures["groups"][group]
        rows = []
        for name in of["one"][0]:
            flood = median(of["flood"], name, "rate") if name in of.get("flood", [{}])[0] else None
            titled = f"{name} {figures['versions'].get(name, '')}".rstrip()
            more = number(added(of["one"], name)) if name != "direct" else "-"
            known = (median(of["one"], name, "cpu"), median(of["many"], name, "rate"), flood)
            rows.append((titled, more, *map(number, known)))
        told += [*table((title, "ms added", "us CPU", f"{MANY} at once, /s", "chunks/s"), rows), ""]
    return told + [f"not measured: {name}: {why}" for name, why in figures["left"].items()]
