"""The measurements, one after the other. Each returns a plain dict that goes into the JSON as it is.

`direct` is the load at the agent, `through` the same load at the gateway in front of the same agent, `bare` the same at
a proxy of the gateway's own libraries that does nothing (bare.py). All three are taken in every round; figures are
medians over the rounds, `added` is the median of the rounds' differences between `through` and `direct`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from bench.agent import CHUNK
from bench.sizes import MANY, Sizes
from bench.stage import Broken, Child, Stage

Figures = dict[str, Any]
PREFIX = "/agent-connect"
WAYS = ("direct", "bare", "through")
WARM_SECONDS = 0.5
HELD_CHUNKS = 10
MEGABYTE = 1e6


def measure(sizes: Sizes, told: Callable[[str], None], *, fsync: bool = True) -> Figures:
    """Everything. `told` hears what is measured next. Without `fsync` the store does not wait for the disk."""
    figures: Figures = {"fsync": fsync}
    starts: list[float] = []
    until = time.monotonic() + sizes.limit
    with Stage(sizes.whole, fsync=fsync) as stage:
        told("start-up and memory of open streams")
        for _ in range(sizes.starts):
            with stage.gateway() as (_, seconds):
                starts.append(seconds)
        with stage.gateway() as (gateway, seconds):
            starts.append(seconds)
            streams = open_streams(stage, gateway, sizes)
            figures["idle_cores"] = gateway.at_rest()
            figures["sync_ms"] = stage.sync_ms()
            bench = Rounds(stage, gateway, sizes, until)
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
        with stage.gateway() as (gateway, seconds):
            starts.append(seconds)
            figures["memory"] = streams | idle_threads(stage, gateway, sizes)
    figures["start"] = {"seconds": statistics.median(starts), "rounds": starts}
    return figures


def warm(stage: Stage) -> None:
    """Connections, caches and code paths of both ends, before anything counts."""
    for port, prefix in ((stage.agent_port, ""), (stage.bare_port, ""), (stage.port, PREFIX)):
        job = {"kind": "requests", "port": port, "path": f"{prefix}/runs/wait", "body": wait_body()}
        stage.do(**job, connections=4, seconds=WARM_SECONDS)
        path, body = f"{prefix}/runs/stream", stream_body(20, 0.0)
        stage.do(kind="streams", port=port, path=path, body=body, streams=4, chunks=20)


def wait_body() -> str:
    """A run as clients ask for it. The agent's id may be its name here."""
    return msgspec.json.encode({"agent_id": "echo", "input": {"message": "What is the time in Lisbon?"}}).decode()


def stream_body(chunks: int, pace: float) -> str:
    """A streamed run of so many chunks."""
    config = {"configurable": {"chunks": chunks, "pace": pace}}
    body = {"agent_id": "echo", "input": {"message": "Go on"}, "config": config, "stream_mode": "values"}
    return msgspec.json.encode(body).decode()


class Rounds:
    """What is measured directly, through the bare proxy and through the gateway, in turns."""

    def __init__(self, stage: Stage, gateway: Child, sizes: Sizes, until: float) -> None:
        """`until`: when (time.monotonic) no further rounds are begun."""
        self._until = until
        self._stage = stage
        self._gateway = gateway
        self._sizes = sizes

    def requests(self, connections: int, seconds: float) -> Figures:
        """`/runs/wait`: ms and requests a second."""
        rounds = self._rounds("/runs/wait", kind="requests", body=wait_body(), connections=connections, seconds=seconds)
        for turn in _turns(rounds):
            turn["per_second"] = turn["count"] / turn["seconds"]
        return {
            **_medians(rounds, ("p50", "p99", "per_second")),
            "added_ms": _added(rounds, "p50"),
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
            **_medians(rounds, ("p50", "p99", "first", "snapshots", "chunks")),
            "added_ms": _added(rounds, "p50"),
            "added_first_ms": _added(rounds, "first"),
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
        for turn in _turns(rounds):
            turn["per_second"] = turn["chunks"] / turn["seconds"]
            turn["snapshots_per_second"] = turn["snapshots"] / turn["seconds"]
            turn["megabytes_per_second"] = turn["bytes"] / turn["seconds"] / MEGABYTE
        names = ("per_second", "snapshots_per_second", "megabytes_per_second")
        return {**_medians(rounds, names), **self._costs(rounds, "chunks")}

    def _rounds(self, path: str, **job: Any) -> list[Figures]:
        rounds: list[Figures] = []
        for number in range(self._sizes.rounds):
            if rounds and time.monotonic() > self._until:
                break
            first = number % len(WAYS)
            rounds.append({way: self._turn(way, path, job) for way in (*WAYS[first:], *WAYS[:first])})
        return rounds

    def _turn(self, way: str, path: str, job: Figures) -> Figures:
        stage = self._stage
        port = {"direct": stage.agent_port, "bare": stage.bare_port, "through": stage.port}[way]
        processes = {"agent": stage.agent, "bare": stage.bare, "gateway": self._gateway}
        before = {name: child.cpu() for name, child in processes.items()}
        result = stage.do(port=port, path=PREFIX + path if way == "through" else path, **job)
        used = {name: _less(child.cpu(), before[name]) for name, child in processes.items()}
        return {**result, "cores": {name: _share(seconds, result["wall"]) for name, seconds in used.items()}}

    def _costs(self, rounds: list[Figures], unit: str) -> Figures:
        """Who took how much of a core with the gateway, and what one unit cost it and the bare proxy in CPU time."""
        turns = [turn["through"] for turn in rounds]
        cores: Figures = {"load": statistics.median(turn["cpu"] / turn["wall"] for turn in turns)}
        for name in ("agent", "gateway"):
            shares = [turn["cores"][name] for turn in turns]
            cores[name] = None if None in shares else statistics.median(shares)
        return {
            "cores": cores,
            "gateway_cpu_us": _micros("gateway", turns, unit),
            "bare_cpu_us": _micros("bare", [turn["bare"] for turn in rounds], unit),
            "rounds": rounds,
        }


def whole(stage: Stage, sizes: Sizes, until: float) -> Figures:
    """A plain agent's answer in 20-byte deltas, read as `values`; beside it the agent read directly."""
    rounds: list[Figures] = []
    for _ in range(sizes.whole_rounds):
        if rounds and time.monotonic() > until:
            break
        took: Figures = {}
        for size in sizes.whole:
            direct = stage.do(kind="whole", port=stage.agent_port, path=f"/plain/{size}", body="{}")
            body = {"agent_id": f"plain{size}", "input": {"message": "Go on"}, "stream_mode": "values"}
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
    warm(stage)
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
    warm(stage)
    job = {"kind": "turns", "port": stage.port, "prefix": PREFIX, "body": wait_body(), "connections": 8}
    stage.do(**job, threads=sizes.threads)  # what is bounded fills up
    before = gateway.rss()
    stage.do(**job, threads=sizes.threads)
    return {"threads": sizes.threads, "per_thread_kb": (gateway.rss() - before) / sizes.threads / 1e3}


def _turns(rounds: list[Figures]) -> list[Figures]:
    return [turn for one in rounds for turn in one.values()]


def _medians(rounds: list[Figures], names: tuple[str, ...]) -> Figures:
    return {way: {name: statistics.median(pair[way][name] for pair in rounds) for name in names} for way in WAYS}


def _micros(name: str, turns: list[Figures], unit: str) -> float | None:
    """Microseconds of that process's processor time for each `unit`."""
    shares = [turn["cores"][name] for turn in turns]
    if None in shares:
        return None
    spent = sum(share * turn["wall"] for share, turn in zip(shares, turns, strict=True))
    return float(spent / max(1, sum(turn[unit] for turn in turns)) * 1e6)


def _added(rounds: list[Figures], name: str) -> float:
    return float(statistics.median(pair["through"][name] - pair["direct"][name] for pair in rounds))


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _share(seconds: float | None, wall: float) -> float | None:
    return None if seconds is None else seconds / wall
