"""What is measured with editors. Figures are plain dicts, as in bench/measure.py.

The ways: `direct` an editor at the agent, which it has started; `bare` through a proxy that does nothing (bare.py);
`socket` through the gateway over WebSocket, a connection a session; `stdio` through `interlingua stdio`, one for all
sessions; `values` the same prompts as streamed runs of Agent Connect. Whatever the number of sessions, it is one
process of the agent that answers them. All ways are taken in every round.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from bench.agent_client.editor import asking
from bench.rounds import Figures, added, core, cores, in_rounds, medians, micros, turns
from bench.sizes import Sizes
from bench.stage import EDITORS_AGENT, ROOT, Child, Stage, free_port, processor_seconds

WAYS = ("direct", "bare", "socket", "stdio", "values")
EDITOR_WAYS = WAYS[:-1]
NAME = "editor"
VALUES = "/agent-connect/runs/stream"
STEPS = ("initialized", "made", "chunk")
WARM_CHUNKS = 200
HELD_CHUNKS = 10
MEGABYTE = 1e6


def measure(stage: Stage, sizes: Sizes, told: Callable[[str], None]) -> Figures:
    """Everything of editors."""
    figures: Figures = {}
    until = time.monotonic() + sizes.editors.limit
    told("editors: the first prompt, and memory of open sessions")
    firsts: list[Figures] = []
    for _ in range(sizes.editors.firsts - 1):
        with stage.gateway(editors=True), _places(stage) as places:
            firsts.append(first(stage, places))
    with stage.gateway(editors=True) as (gateway, _), _places(stage) as places:
        firsts.append(first(stage, places))
        figures["first"] = medians(firsts, STEPS) | {"rounds": firsts}
        figures["memory"] = open_sessions(stage, gateway, sizes, places["socket"])
        bench = Editors(stage, gateway, sizes, places, until)
        for count in sizes.editors.sessions:
            told(f"editors: {count} paced sessions")
            figures[f"paced_{count}"] = bench.paced(count)
        for count, chunks in sizes.editors.floods:
            told(f"editors: {count} sessions as fast as they go")
            figures[f"flood_{count}"] = bench.flood(count, chunks)
    return figures


@contextmanager
def _places(stage: Stage) -> Iterator[dict[str, Figures]]:
    """Where editors connect to, each way, while the stage's gateway is that of editors. Left after the block."""
    with stage.routes(editors=True) as routes:
        own = [sys.executable, "-m", "gateway", "stdio", NAME, "--routes", str(routes)]
        places: dict[str, Figures] = {
            "direct": {"command": EDITORS_AGENT, "cwd": str(ROOT)},
            "bare": {"url": f"ws://127.0.0.1:{free_port()}/"},
            "socket": {"url": f"ws://127.0.0.1:{stage.port}/agent-client/{NAME}"},
            "stdio": {"command": own, "cwd": str(ROOT)},
        }
        yield places
        for place in places.values():
            stage.do(kind="leave", place=place)


def first(stage: Stage, places: dict[str, Figures]) -> Figures:
    """Ms until a first prompt is answered, of an editor that has just been opened.

    direct, stdio: of a program that it starts. socket: of a gateway that has not started the agent; again: that has.
    """
    took = {way: stage.do(kind="first", place=places[way]) for way in ("direct", "socket", "stdio")}
    return took | {"again": stage.do(kind="first", place=places["socket"])}


def open_sessions(stage: Stage, gateway: Child, sizes: Sizes, place: Figures) -> Figures:
    """Resident memory of a gateway that has served a few, has so many sessions open, and then as many more that are
    in the middle of a prompt. Each has a connection of its own."""
    held = sizes.editors.held
    stage.do(kind="prompts", place=place, sessions=4, chunks=WARM_CHUNKS, pace=0.0)
    idle = gateway.rss()
    stage.do(kind="occupy", place=place, sessions=held)
    opened = gateway.rss()
    stage.do(kind="occupy", place=place, sessions=held, chunks=HELD_CHUNKS)
    busy = gateway.rss()
    stage.do(kind="vacate")
    return {
        "sessions": held,
        "idle_mb": idle / MEGABYTE,
        "open_mb": opened / MEGABYTE,
        "busy_mb": busy / MEGABYTE,
        "per_session_kb": (opened - idle) / held / 1e3,
        "per_prompt_kb": (busy - opened) / held / 1e3,
    }


class Editors:
    """What is measured each way, in turns."""

    def __init__(self, stage: Stage, gateway: Child, sizes: Sizes, places: dict[str, Figures], until: float) -> None:
        """`until`: when (time.monotonic) no further rounds are begun."""
        self._stage = stage
        self._sizes = sizes.editors
        self._places = places
        self._until = until
        bare = self._bare()
        most = max(*self._sizes.sessions, *(count for count, _ in self._sizes.floods))
        self._pids: dict[str, Figures] = {}
        for way in EDITOR_WAYS:
            pids = stage.do(kind="seat", place=places[way], sessions=most)
            between = {"direct": None, "bare": bare.popen.pid, "socket": gateway.popen.pid, "stdio": pids["pid"]}
            self._pids[way] = {"agent": pids["agent"], "between": between[way]}
        self._pids["values"] = {"agent": None, "between": gateway.popen.pid}
        for way in WAYS:
            self._paced(way, 4, WARM_CHUNKS, 0.0)

    def paced(self, count: int) -> Figures:
        """Paced prompts: ms from the agent's write to the editor's read, a chunk."""
        sizes = self._sizes
        rounds = self._rounds(lambda way: self._paced(way, count, sizes.chunks, sizes.pace))
        return {
            **medians(rounds, ("p50", "p99", "first", "snapshots", "chunks")),
            "added_ms": {way: added(rounds, "p50", way) for way in WAYS[1:]},
            "added_first_ms": {way: added(rounds, "first", way) for way in WAYS[1:]},
            **_costs(rounds, "chunks"),
        }

    def flood(self, count: int, chunks: int) -> Figures:
        """Chunks a second with as many as come, that the agent has said and that have arrived in some message."""
        rounds = self._rounds(lambda way: self._flood(way, count, chunks))
        for turn in turns(rounds):
            turn["per_second"] = turn["chunks"] / turn["seconds"]
            turn["messages_per_second"] = turn["snapshots"] / turn["seconds"]
        return {**medians(rounds, ("per_second", "messages_per_second")), **_costs(rounds, "all")}

    def _bare(self) -> Child:
        url = self._places["bare"]["url"]
        argv = ["-m", "bench.agent_client.bare", "--port", url.rstrip("/").rpartition(":")[2], *EDITORS_AGENT]
        child = self._stage.start("bare proxy of editors", argv)
        child.until_answers(url.replace("ws:", "http:"))
        return child

    def _paced(self, way: str, count: int, chunks: int, pace: float) -> Figures:
        if way == "values":
            body = values_body(chunks, pace)
            return self._stage.do(
                kind="streams", port=self._stage.port, path=VALUES, body=body, streams=count, chunks=chunks
            )
        return self._stage.do(kind="prompts", place=self._places[way], sessions=count, chunks=chunks, pace=pace)

    def _flood(self, way: str, count: int, chunks: int) -> Figures:
        stage, job = self._stage, {"seconds": self._sizes.flood_seconds}
        if way == "values":
            body = values_body(chunks, 0.0)
            return stage.do(kind="saturate", port=stage.port, path=VALUES, body=body, streams=count, **job)
        return stage.do(kind="flood", place=self._places[way], sessions=count, chunks=chunks, **job)

    def _rounds(self, job: Callable[[str], Figures]) -> list[Figures]:
        return in_rounds(WAYS, self._sizes.rounds, self._until, lambda way: self._turn(way, job))

    def _turn(self, way: str, job: Callable[[str], Figures]) -> Figures:
        """A job, and what its processes took."""
        before = self._seconds(way)
        result = job(way)
        return {**result, "cores": cores(before, self._seconds(way), result["wall"])}

    def _seconds(self, way: str) -> dict[str, float | None]:
        return {who: processor_seconds(pid) if pid else None for who, pid in self._pids[way].items()}


def _costs(rounds: list[Figures], unit: str) -> Figures:
    """Each way: who took how much of a core, and what a chunk cost what is between agent and editor, in CPU time."""
    costs: Figures = {}
    for way in WAYS:
        taken = [one[way] for one in rounds]
        load = statistics.median(turn["cpu"] / turn["wall"] for turn in taken)
        shares = {"load": load, "agent": core("agent", taken), "between": core("between", taken)}
        costs[way] = {"cores": shares, "cpu_us": micros("between", taken, unit)}
    return {"costs": costs, "rounds": rounds}


def values_body(chunks: int, pace: float) -> str:
    """The prompt as a streamed run of Agent Connect."""
    body = {"agent_id": NAME, "input": {"message": asking(chunks, pace)}, "stream_mode": "values"}
    return msgspec.json.encode(body).decode()
