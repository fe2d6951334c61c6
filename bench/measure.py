"""The measurements, one after the other. Each returns a plain dict that goes into the JSON as it is. Those of editors
are in agent_client/measure.py, those of callers in agent_communication/measure.py.

`direct` is the load at the agent, `through` the same load at the gateway in front of the same agent, `bare` the same at
a proxy of well-known libraries that does nothing (bare.py), `lean` at a translator that does nothing else (lean.py),
and `rows` at that one with two rows a run. All are taken in every round; figures are medians over the rounds, `added`
is the median of the rounds' differences to `direct`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from bench import growth, peers, workers
from bench.agent import stream_body, wait_body
from bench.agent_client.measure import measure as measure_editors
from bench.agent_communication.measure import measure as measure_callers
from bench.rounds import Figures, added, core, cores, in_rounds, medians, micros, turns
from bench.sizes import MANY, Sizes
from bench.stage import PREFIX, PROXIES, Broken, Child, Gateway, Stage
from bench.stamp import CHUNK

WAYS = ("direct", *PROXIES, "through")
HELD_CHUNKS = 10
MEGABYTE = 1e6
PARTS = ("agent_connect", "agent_client", "agent_communication", "growth", "workers", "peers")


def measure(
    sizes: Sizes, told: Callable[[str], None], *, fsync: bool = True, parts: Collection[str] = PARTS
) -> Figures:
    """The named parts. `told` hears what is measured next. Without `fsync` the store does not wait for the disk."""
    figures: Figures = {"fsync": fsync}
    with Stage(sizes.whole, fsync=fsync) as stage:
        figures["sync_ms"] = stage.sync_ms()
        if "agent_connect" in parts:
            figures |= measure_requests(stage, sizes, told)
        if "agent_client" in parts:
            figures["agent_client"] = measure_editors(stage, sizes, told)
        if "agent_communication" in parts:
            figures["agent_communication"] = measure_callers(stage, sizes, told)
        if "growth" in parts:
            figures["growth"] = growth.measure(stage, sizes.growth, told)
        if "workers" in parts:
            figures["workers"] = workers.measure(stage, sizes.workers, told)
        if "peers" in parts:
            figures["peers"] = peers.measure(stage, sizes.peers, told)
    return figures


def measure_requests(stage: Stage, sizes: Sizes, told: Callable[[str], None]) -> Figures:
    """Agent Connect in and out, and an example agent's large answer."""
    figures: Figures = {}
    starts: list[Gateway] = []
    stage.compare()
    until = time.monotonic() + sizes.limit
    told("start-up and memory of open streams")
    for _ in range(sizes.starts):
        with stage.gateway() as started:
            starts.append(started)
    with stage.gateway() as started:
        starts.append(started)
        gateway = started.child
        streams = open_streams(stage, gateway, sizes)
        figures["idle_cores"] = gateway.at_rest()
        bench = Rounds(stage, sizes, until)
        told("requests, one after the other")
        figures["wait_1"] = bench.requests(1, sizes.one_seconds)
        told(f"requests, {MANY} at once")
        figures["wait_many"] = bench.requests(MANY, sizes.many_seconds)
        for count in sizes.streams:
            told(f"{count} paced streams")
            figures[f"stream_{count}"] = bench.streams(count)
        told("streams as fast as they go")
        figures["saturate"] = bench.saturate()
        told("a large answer from deltas")
        figures["whole"] = whole(stage, sizes, until)
    told("memory of idle threads")
    with stage.gateway() as started:
        starts.append(started)
        figures["memory"] = streams | idle_threads(stage, started.child, sizes)
    known = [one.cpu for one in starts if one.cpu is not None]
    figures["start"] = {
        "seconds": statistics.median(one.seconds for one in starts),
        "cpu": statistics.median(known) if known else None,
        "imports": statistics.median(_imports() for _ in starts),
    }
    return figures


def _imports() -> float:
    """Seconds of processor time that an interpreter takes which imports what a minimal server needs."""
    program = "import time, starlette, uvicorn, aiohttp, pydantic; print(time.process_time())"
    return float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)


def warm(stage: Stage, seconds: float) -> None:
    """Connections, caches and code paths of both ends, before anything counts."""
    for place in stage.places.values():
        job = {"kind": "requests", "port": place.port, "path": f"{place.prefix}/runs/wait", "body": wait_body()}
        stage.do(**job, connections=4, seconds=seconds)
        path, body = f"{place.prefix}/runs/stream", stream_body(20, 0.0)
        stage.do(kind="streams", port=place.port, path=path, body=body, streams=4, chunks=20)


class Rounds:
    """What is measured each way, in turns."""

    def __init__(self, stage: Stage, sizes: Sizes, until: float) -> None:
        """`until`: when (time.monotonic) no further rounds are begun."""
        self._until = until
        self._stage = stage
        self._sizes = sizes

    def requests(self, connections: int, seconds: float) -> Figures:
        """`/runs/wait`: ms and requests a second."""
        rounds = self._rounds("/runs/wait", kind="requests", body=wait_body(), connections=connections, seconds=seconds)
        for turn in turns(rounds):
            turn["per_second"] = turn["count"] / turn["seconds"]
        return {
            **medians(rounds, ("p50", "p99", "per_second")),
            "added_ms": {way: added(rounds, "p50", way) for way in WAYS[1:]},
            **self._costs(rounds, "count"),
        }

    def streams(self, count: int) -> Figures:
        """Paced streams: ms from the agent's write to the client's read, a chunk."""
        sizes = self._sizes
        rounds = self._rounds(
            "/runs/stream",
            kind="streams",
            body=stream_body(sizes.stream_chunks, sizes.pace),
            streams=count,
            chunks=sizes.stream_chunks,
        )
        return {
            **medians(rounds, ("p50", "p99", "first", "snapshots", "chunks")),
            "added_ms": {way: added(rounds, "p50", way) for way in WAYS[1:]},
            **self._costs(rounds, "chunks"),
        }

    def saturate(self) -> Figures:
        """Chunks a second with as many as come. Counted in chunks of the agent's that have arrived in a snapshot."""
        sizes = self._sizes
        rounds = self._rounds(
            "/runs/stream",
            kind="saturate",
            body=stream_body(sizes.saturate_chunks, 0.0),
            streams=sizes.saturate_streams,
            seconds=sizes.saturate_seconds,
        )
        for turn in turns(rounds):
            turn["per_second"] = turn["chunks"] / turn["seconds"]
            turn["snapshots_per_second"] = turn["snapshots"] / turn["seconds"]
            turn["megabytes_per_second"] = turn["bytes"] / turn["seconds"] / MEGABYTE
        names = ("per_second", "snapshots_per_second", "megabytes_per_second")
        return {**medians(rounds, names), **self._costs(rounds, "chunks")}

    def _rounds(self, path: str, **job: Any) -> list[Figures]:
        return in_rounds(WAYS, self._sizes.rounds, self._until, lambda way: self._turn(way, path, job))

    def _turn(self, way: str, path: str, job: Figures) -> Figures:
        place, agent = self._stage.places[way], self._stage.places["direct"]
        processes = {"agent": agent.child, "between": place.child}
        before = {name: child.cpu() for name, child in processes.items()}
        result = self._stage.do(port=place.port, path=place.prefix + path, **job)
        after = {name: child.cpu() for name, child in processes.items()}
        return {**result, "cores": cores(before, after, result["wall"])}

    def _costs(self, rounds: list[Figures], unit: str) -> Figures:
        """Who took how much of a core with the gateway, and what one unit cost what is between, in CPU time."""
        through = [one["through"] for one in rounds]
        taken: Figures = {"load": statistics.median(turn["cpu"] / turn["wall"] for turn in through)}
        return {
            "cores": taken | {"agent": core("agent", through), "gateway": core("between", through)},
            "cpu_us": {way: micros("between", [one[way] for one in rounds], unit) for way in WAYS[1:]},
            "rounds": rounds,
        }


def whole(stage: Stage, sizes: Sizes, until: float) -> Figures:
    """An example agent's answer in 20-byte deltas, read as `values`; beside it the agent read directly."""
    rounds: list[Figures] = []
    for _ in range(sizes.whole_rounds):
        if rounds and time.monotonic() > until:
            break
        took: Figures = {}
        for size in sizes.whole:
            direct = stage.do(kind="whole", port=stage.agent_port, path=f"/example/{size}", body="{}")
            body = {"agent_id": f"example{size}", "input": {"message": "Go on"}, "stream_mode": "values"}
            text = msgspec.json.encode(body).decode()
            through = stage.do(kind="whole", port=stage.port, path=f"{PREFIX}/runs/stream", body=text)
            if through["last"] != size // CHUNK * CHUNK:
                raise Broken(f"the answer of {size} bytes came with {through['last']}")
            took[str(size)] = {"direct": direct, "through": through}
        rounds.append(took)
    figures: Figures = {}
    for name in map(str, sizes.whole):
        figures[name] = {
            "seconds": statistics.median(one[name]["through"]["seconds"] for one in rounds),
            "direct_seconds": statistics.median(one[name]["direct"]["seconds"] for one in rounds),
            "bytes": statistics.median(one[name]["through"]["bytes"] for one in rounds),
            "direct_bytes": statistics.median(one[name]["direct"]["bytes"] for one in rounds),
            "events": statistics.median(one[name]["through"]["events"] for one in rounds),
        }
    small, large = (figures[str(size)] for size in sizes.whole)
    growth = sizes.whole[1] / sizes.whole[0]
    return {
        "sizes": figures,
        "growth": growth,
        "time_growth": large["seconds"] / small["seconds"],
        "bytes_growth": large["bytes"] / small["bytes"],
        "rounds": rounds,
    }


def open_streams(stage: Stage, gateway: Child, sizes: Sizes) -> Figures:
    """Resident memory of a gateway that has just started, has served a few, and has that many streams open."""
    fresh = gateway.rss()
    warm(stage, sizes.warm_seconds)
    idle = gateway.rss()
    path, body = f"{PREFIX}/runs/stream", stream_body(100_000, 0.1)
    stage.do(kind="hold", port=stage.port, path=path, body=body, streams=sizes.held, chunks=HELD_CHUNKS)
    held = gateway.rss()
    stage.do(kind="release")
    return {
        "fresh_mb": fresh / MEGABYTE,
        "idle_mb": idle / MEGABYTE,
        "streams": sizes.held,
        "open_mb": held / MEGABYTE,
        "above_idle_mb": (held - idle) / MEGABYTE,
        "per_stream_kb": (held - idle) / sizes.held / 1e3,
    }


def idle_threads(stage: Stage, gateway: Child, sizes: Sizes) -> Figures:
    """What is left in memory of a thread that has had a turn."""
    warm(stage, sizes.warm_seconds)
    job = {"kind": "turns", "port": stage.port, "prefix": PREFIX, "body": wait_body(), "connections": 8}
    stage.do(**job, threads=sizes.threads)  # what is bounded fills up
    before = gateway.rss()
    stage.do(**job, threads=sizes.threads)
    return {"threads": sizes.threads, "per_thread_kb": (gateway.rss() - before) / sizes.threads / 1e3}
