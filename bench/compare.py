"""Two versions of the gateway, side by side: `make bench BENCH_ARGS="--compare REF"`.

REF is any commit; it is checked out in a temporary folder, and runs with an environment of its own if its requirements
differ. Both gateways stand in front of the same agents and are asked the same in turns, round after round. What counts
is the ratio of two turns of one round (this version to REF): its median over the rounds, and how far it spreads. On a
machine that others use too, believe the processor time first, and nothing whose spread is around 1.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.agent import stream_body, wait_body
from bench.agent_client.editor import asking
from bench.rounds import Figures, in_rounds
from bench.sizes import MANY, CompareSizes
from bench.stage import EDITORS_AGENT, OWN, PREFIX, ROOT, Broken, Gateway, Stage, Tree
from bench.tables import number, table
from tests.support.peers import environment

NOW, BEFORE = "now", "before"
MICRO = 1e6
ROUTES = """\
routes:
  - name: echo
    target: {{protocol: agent_connect, url: "http://127.0.0.1:{agent}"}}
  - name: editor
    target: {{protocol: agent_client, command: {command}, cwd: {root}}}
"""


@dataclass(frozen=True)
class Work:
    """One thing that is asked of both. `job`: the load's, of a gateway; its result counts what `unit` names in
    `count`, or else in `chunks`."""

    title: str
    part: str
    unit: str
    job: Callable[[Gateway, CompareSizes], Figures]


def _waits(connections: int) -> Callable[[Gateway, CompareSizes], Figures]:
    def job(gateway: Gateway, sizes: CompareSizes) -> Figures:
        asked: Figures = {"kind": "requests", "port": gateway.port, "path": f"{PREFIX}/runs/wait", "body": wait_body()}
        return asked | {"connections": connections, "seconds": sizes.seconds}

    return job


def _streams(count: int) -> Callable[[Gateway, CompareSizes], Figures]:
    def job(gateway: Gateway, sizes: CompareSizes) -> Figures:
        asked: Figures = {"kind": "streams", "port": gateway.port, "path": f"{PREFIX}/runs/stream"}
        body = stream_body(sizes.chunks, sizes.pace)
        return asked | {"body": body, "streams": count, "chunks": sizes.chunks}

    return job


def _flood(gateway: Gateway, sizes: CompareSizes) -> Figures:
    asked: Figures = {"kind": "saturate", "port": gateway.port, "path": f"{PREFIX}/runs/stream"}
    return asked | {"body": stream_body(200, 0.0), "streams": 32, "seconds": sizes.seconds}


def _editor(kind: str, **job: Any) -> Callable[[Gateway, CompareSizes], Figures]:
    def asked(gateway: Gateway, sizes: CompareSizes) -> Figures:
        return {"kind": kind, "place": _socket(gateway), "seconds": sizes.seconds, **job}

    return asked


def _paced_prompts(gateway: Gateway, sizes: CompareSizes) -> Figures:
    asked: Figures = {"kind": "prompts", "place": _socket(gateway), "sessions": 32}
    return asked | {"chunks": sizes.chunks, "pace": sizes.pace}


def _socket(gateway: Gateway) -> Figures:
    return {"url": f"ws://127.0.0.1:{gateway.port}/agent-client/editor"}


def _tools(*, session: bool) -> Callable[[Gateway, CompareSizes], Figures]:
    def asked(gateway: Gateway, sizes: CompareSizes) -> Figures:
        called: Figures = {"kind": "tools", "url": f"http://127.0.0.1:{gateway.port}/agent-communication/mcp"}
        arguments = {"message": asking(1, 0.0)}
        called |= {"name": "editor", "arguments": arguments, "connections": 1}
        return called | {"seconds": sizes.seconds, "session": session}

    return asked


WORKS = (
    Work("/runs/wait, one at a time", "agent_connect", "request", _waits(1)),
    Work(f"/runs/wait, {MANY} at once", "agent_connect", "request", _waits(MANY)),
    Work("chunk, 1 paced stream", "agent_connect", "chunk", _streams(1)),
    Work("chunk, 32 paced streams", "agent_connect", "chunk", _streams(32)),
    Work("chunk, 200 paced streams", "agent_connect", "chunk", _streams(200)),
    Work("chunk, 32 streams as fast as they go", "agent_connect", "chunk", _flood),
    Work("prompt through WebSocket, one at a time", "agent_client", "prompt", _editor("asks", sessions=1)),
    Work("prompt through WebSocket, 32 sessions", "agent_client", "prompt", _editor("asks", sessions=32)),
    Work("chunk, 32 paced prompts through WebSocket", "agent_client", "chunk", _paced_prompts),
    Work("chunk, one prompt as fast as it goes", "agent_client", "chunk", _editor("flood", sessions=1, chunks=2000)),
    Work("session/new through WebSocket", "agent_client", "session", _editor("openings")),
    Work("tools/call with a session", "agent_communication", "call", _tools(session=True)),
    Work("tools/call without a session", "agent_communication", "call", _tools(session=False)),
)


def compare(
    ref: str, sizes: CompareSizes, told: Callable[[str], None], parts: Collection[str], *, fsync: bool = True
) -> Figures:
    """Every figure of both, of the named parts. Raises Broken."""
    with checkout(ref) as before, Stage((), fsync=fsync) as stage:
        trees = {NOW: OWN, BEFORE: before}
        command, root = (msgspec.json.encode(it).decode() for it in (EDITORS_AGENT, str(OWN.root)))
        agents = ROUTES.format(agent=stage.agent_port, command=command, root=root)
        told("starts")
        figures: Figures = {"ref": ref, "starts": _starts(stage, agents, trees, sizes), "works": []}
        with contextlib.ExitStack() as stack:
            gateways = {}
            for way, tree in trees.items():
                routes = stack.enter_context(stage.routes(table=agents))
                gateways[way] = stack.enter_context(stage.served(routes, tree))
            for work in WORKS:
                if work.part in parts:
                    told(work.title)
                    figures["works"].append(_measured(stage, gateways, work, sizes))
            for gateway in gateways.values():
                stage.do(kind="leave", place=_socket(gateway))
    return figures


def _starts(stage: Stage, agents: str, trees: dict[str, Tree], sizes: CompareSizes) -> list[Figures]:
    def start(way: str) -> Figures:
        with stage.routes(table=agents) as routes, stage.served(routes, trees[way]) as gateway:
            return {"cpu": gateway.cpu, "seconds": gateway.seconds, "rss": gateway.rss}

    for way in trees:
        start(way)  # writes its bytecode
    return in_rounds((NOW, BEFORE), sizes.starts, float("inf"), start)


def _measured(stage: Stage, gateways: dict[str, Gateway], work: Work, sizes: CompareSizes) -> Figures:
    def turn(way: str) -> Figures:
        gateway = gateways[way]
        before = gateway.child.cpu()
        result = stage.do(**work.job(gateway, sizes))
        after = gateway.child.cpu()
        count = result["all"] if "all" in result else result.get("chunks") or result["count"]
        cpu = None if before is None or after is None else (after - before) / max(1, count) * MICRO
        in_time = result.get("chunks", result.get("count", 0))
        return {"cpu": cpu, "p50": result.get("p50"), "p99": result.get("p99"), "rate": in_time / result["seconds"]}

    for way in gateways:
        turn(way)  # warms both ends up
    rounds = in_rounds((NOW, BEFORE), sizes.rounds, float("inf"), turn)
    return {"title": work.title, "unit": work.unit, "rounds": rounds}


@contextlib.contextmanager
def checkout(ref: str) -> Iterator[Tree]:
    """That commit in a folder of its own, with an interpreter that fits. Raises Broken."""
    with tempfile.TemporaryDirectory(prefix="interlingua-compare-") as folder:
        root = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(root), ref)
        try:
            lock = root / "requirements.txt"
            same = lock.read_bytes() == (ROOT / "requirements.txt").read_bytes()
            yield Tree(root, OWN.python if same else str(environment(lock)))
        finally:
            shutil.rmtree(root, ignore_errors=True)
            _git("worktree", "prune")


def _git(*arguments: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"git {' '.join(arguments)}: {done.stderr.strip()}")


def spread(rounds: Sequence[Figures], name: str) -> tuple[float, float, float] | None:
    """The median, the least and the largest ratio of a round (now to before); None if one of them is not known."""
    pairs = [(one[NOW][name], one[BEFORE][name]) for one in rounds]
    if any(now is None or not before for now, before in pairs):
        return None
    ratios = [now / before for now, before in pairs]
    return statistics.median(ratios), min(ratios), max(ratios)


def text(report: Figures) -> str:
    """What a person reads: processor time first."""
    figures = report["figures"]
    costs, times, rates = [], [], []
    for one in figures["works"]:
        costs.append(_row(f"{one['title']}, us a {one['unit']}", one["rounds"], "cpu"))
        times.append(_row(f"{one['title']}, ms p50", one["rounds"], "p50"))
        if one["title"].endswith(" at a time") or "paced" not in one["title"]:
            rates.append(_row(f"{one['title']}, {one['unit']}s/s", one["rounds"], "rate"))
    starts = figures["starts"]
    costs.append(_row("start to ready, s", starts, "cpu"))
    times.append(_row("start to ready, s", starts, "seconds"))
    memory = [_row("memory when ready, bytes", starts, "rss")]
    whole = []
    for title, rows in (("processor time", costs), ("time", times), ("throughput", rates), ("memory", memory)):
        known = [row for row in rows if row is not None]
        whole += [*table((title, "ratio", "spread", BEFORE, NOW), known), ""]
    told = f"this version to {figures['ref']}: the median of {len(starts)} starts"
    if figures["works"]:
        told += f" and {len(figures['works'][0]['rounds'])} rounds, and its spread"
    load = f"load {number(report['machine']['load'])} before"
    return "\n".join([told, "", *whole, f"{load}, {report['seconds']:.0f} s"])


def _row(title: str, rounds: Sequence[Figures], name: str) -> tuple[str, ...] | None:
    ratios = spread(rounds, name)
    if ratios is None:
        return None
    median, least, most = ratios
    sides = [number(statistics.median(one[way][name] for one in rounds)) for way in (BEFORE, NOW)]
    return title, f"{median:.2f}", f"{least:.2f}-{most:.2f}", *sides
