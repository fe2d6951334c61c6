"""What is measured with callers. Figures are plain dicts, as in bench/measure.py. Large documents are in documents.py.

The ways: `direct` a client at the agent, which it has started; `bare` through a proxy that does nothing (bare.py), over
WebSocket; `socket`, `http` and `stdio` through the gateway: over WebSocket, a connection a call; over Streamable HTTP,
a session for all calls; through `interlingua stdio`, one for all calls. Whatever the number of calls, it is one process
of the agent that answers them, on stdio. All ways are taken in every round.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.agent_communication import routes
from bench.agent_communication.documents import measure as measure_documents
from bench.agent_communication.routes import AGENT, TEXT
from bench.rounds import Figures, added, core, cores, in_rounds, medians, micros, turns
from bench.sizes import Sizes
from bench.stage import ROOT, Child, Stage, free_port, processor_seconds

WAYS = ("direct", "bare", "socket", "http", "stdio")
PREFIX = "/agent-communication"
WARM_CHUNKS = 200
WARM_CALLS = 4


def measure(stage: Stage, sizes: Sizes, told: Callable[[str], None]) -> Figures:
    """Everything of callers."""
    figures: Figures = {}
    until = time.monotonic() + sizes.callers.limit
    table = routes.table(stage.agent_port, sizes.callers.documents)
    with stage.gateway(table=table) as (gateway, _), _places(stage, table) as places:
        calls = Calls(stage, gateway, sizes, places, until)
        for count in sizes.callers.calls:
            told(f"calls: {count} paced")
            figures[f"paced_{count}"] = calls.paced(count)
        for count, chunks in sizes.callers.rushes:
            told(f"calls: {count} as fast as they go")
            figures[f"rush_{count}"] = calls.rush(count, chunks)
        figures["documents"] = measure_documents(stage, gateway, sizes.callers, places, told)
    return figures


@contextmanager
def _places(stage: Stage, table: str) -> Iterator[dict[str, Figures]]:
    """Where callers connect to, each way, while the stage's gateway is theirs. Left after the block."""
    with stage.routes(table=table) as file:
        own = [sys.executable, "-m", "gateway", "stdio", TEXT]
        own += ["--protocol", "agent_communication", "--routes", str(file)]
        places: dict[str, Figures] = {
            "direct": {"command": AGENT, "cwd": str(ROOT)},
            "bare": {"url": f"ws://127.0.0.1:{free_port()}/"},
            "socket": {"url": f"ws://127.0.0.1:{stage.port}{PREFIX}/ws"},
            "http": {"url": f"http://127.0.0.1:{stage.port}{PREFIX}/mcp"},
            "stdio": {"command": own, "cwd": str(ROOT)},
        }
        yield places
        for place in places.values():
            stage.do(kind="part", place=place)


class Calls:
    """What is measured each way, in turns."""

    def __init__(self, stage: Stage, gateway: Child, sizes: Sizes, places: dict[str, Figures], until: float) -> None:
        """`until`: when (time.monotonic) no further rounds are begun."""
        self._stage = stage
        self._sizes = sizes.callers
        self._places = places
        self._until = until
        bare = self._bare()
        most = max(*self._sizes.calls, *(count for count, _ in self._sizes.rushes))
        self._pids: dict[str, Figures] = {}
        for way in WAYS:
            pids = stage.do(kind="join", place=places[way], name=TEXT, calls=most)
            between = {"direct": None, "bare": bare.popen.pid, "stdio": pids["pid"]}.get(way, gateway.popen.pid)
            self._pids[way] = {"agent": pids["agent"], "between": between}
            self._paced(way, WARM_CALLS, WARM_CHUNKS, 0.0)

    def paced(self, count: int) -> Figures:
        """Paced calls: ms from the agent's write to the client's read, a chunk."""
        sizes = self._sizes
        rounds = self._rounds(lambda way: self._paced(way, count, sizes.chunks, sizes.pace))
        return {
            **medians(rounds, ("p50", "p99", "first", "snapshots", "chunks")),
            "added_ms": {way: added(rounds, "p50", way) for way in WAYS[1:]},
            "added_first_ms": {way: added(rounds, "first", way) for way in WAYS[1:]},
            **_costs(rounds, "chunks"),
        }

    def rush(self, count: int, chunks: int) -> Figures:
        """Chunks a second with as many as come, that the agent has said and that have arrived in some delta."""
        seconds = self._sizes.rush_seconds
        rounds = self._rounds(
            lambda way: self._stage.do(
                kind="rush", place=self._places[way], name=TEXT, calls=count, chunks=chunks, seconds=seconds
            )
        )
        for turn in turns(rounds):
            turn["per_second"] = turn["chunks"] / turn["seconds"]
            turn["messages_per_second"] = turn["snapshots"] / turn["seconds"]
        return {**medians(rounds, ("per_second", "messages_per_second")), **_costs(rounds, "all")}

    def _bare(self) -> Child:
        url = self._places["bare"]["url"]
        argv = ["-m", "bench.agent_communication.bare", "--port", url.rstrip("/").rpartition(":")[2], *AGENT]
        child = self._stage.start("bare proxy of callers", argv)
        child.until_answers(url.replace("ws:", "http:"))
        return child

    def _paced(self, way: str, count: int, chunks: int, pace: float) -> Figures:
        place = self._places[way]
        return self._stage.do(kind="calls", place=place, name=TEXT, calls=count, chunks=chunks, pace=pace)

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
    """Each way: who took how much of a core, and what a chunk cost what is between agent and client, in CPU time."""
    costs: Figures = {}
    for way in WAYS:
        taken = [one[way] for one in rounds]
        load = statistics.median(turn["cpu"] / turn["wall"] for turn in taken)
        shares = {"load": load, "agent": core("agent", taken), "between": core("between", taken)}
        costs[way] = {"cores": shares, "cpu_us": micros("between", taken, unit)}
    return {"costs": costs, "rounds": rounds}
