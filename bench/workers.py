"""How workers scale: `serve --workers N` on a store in a file and on one in PostgreSQL, in turns. `--only workers`.

All gateways are up the whole time, and each has its turn in every round. Agent and load take their part of the same
processors, and so does PostgreSQL's server, whose part is counted with the gateway's: *us each* is the processor time
of a request, *cores* what was had of the processors. *limit* is how many requests a second this machine could do at
most, if all of its processors did nothing but what a request takes of them, agent and load included.
"""

from __future__ import annotations

import contextlib
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from bench.agent import stream_body, wait_body
from bench.rounds import Figures, added, in_rounds, medians
from bench.sizes import MANY, WorkerSizes
from bench.stage import PREFIX, Broken, Gateway, Stage, processor_seconds
from bench.tables import number, table

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

DIRECT = "direct"
SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"
ALL_UP_SECONDS = 60.0
LONG_SECONDS = 10.0
STREAMS = 32
CHUNKS = 200


class Workers(NamedTuple):
    """Gateways that are compared: so many workers on a store."""

    gateway: Gateway
    server: int | None
    """The process of the store's server."""

    def cpu(self) -> float:
        """Seconds of processor time of all of its processes, and of the store's server."""
        return sum(_family(self.gateway.child.popen.pid)) + (sum(_family(self.server)) if self.server else 0.0)


def measure(stage: Stage, sizes: WorkerSizes, told: Callable[[str], None]) -> Figures:
    """Requests a second, chunks a second and added ms of each; the processors that each took."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_server())
        ways: dict[str, Workers] = {}
        for store in (SQLITE, POSTGRESQL):
            for count in sizes.workers:
                told(f"workers: {count} on {store} start")
                url = server.database() if store == POSTGRESQL else "sqlite:///bench.db"
                gateway = stack.enter_context(_started(stage, url, count))
                pid = server.process.pid if store == POSTGRESQL else None
                ways[_name(count, store)] = Workers(gateway, pid)
        until = time.monotonic() + sizes.limit

        def turns(path: str, **job: object) -> list[Figures]:
            told(f"workers: {job['kind']}, {job.get('connections', STREAMS)} at once")
            every = (DIRECT, *ways)
            return in_rounds(every, sizes.rounds, until, lambda way: _turn(stage, ways.get(way), path, job))

        many = turns("/runs/wait", kind="requests", body=wait_body(), connections=MANY, seconds=sizes.seconds)
        one = turns("/runs/wait", kind="requests", body=wait_body(), connections=1, seconds=sizes.seconds)
        body = stream_body(CHUNKS, 0.0)
        flood = turns("/runs/stream", kind="saturate", body=body, streams=STREAMS, seconds=sizes.seconds)
    for each in (many, flood):
        for turn in (turn for round in each for turn in round.values()):
            turn["per_second"] = turn.get("chunks", turn.get("count")) / turn["seconds"]
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "workers": list(sizes.workers),
        "rounds": len(many),
        "requests": medians(many, ("per_second", "p50", "p99", "between", "micros", "limit")),
        "one": medians(one, ("p50",)),
        "added_ms": {way: added(one, "p50", way) for way in ways},
        "chunks": medians(flood, ("per_second",)),
    }


def _turn(stage: Stage, way: Workers | None, path: str, job: dict[str, Any]) -> Figures:
    """One measurement of one of them; ten times as long where nothing came, as on a machine with other work.

    Raises Broken if nothing came in a long one either.
    """
    agent = stage.places[DIRECT].child
    port, prefix = (way.gateway.port, PREFIX) if way is not None else (stage.agent_port, "")
    before = (way.cpu() if way is not None else 0.0, agent.cpu() or 0.0)
    result = stage.do(port=port, path=prefix + path, **job)
    done = result["count"] if "count" in result else result["chunks"]
    if not done and job["seconds"] < LONG_SECONDS:
        return _turn(stage, way, path, {**job, "seconds": 10 * job["seconds"]})
    if not done:
        raise Broken(f"nothing of {prefix}{path} came within {job['seconds']} seconds: take larger --sizes")
    between = (way.cpu() if way is not None else 0.0) - before[0]
    ends = (agent.cpu() or 0.0) - before[1] + result["cpu"]
    return {
        **result,
        "between": between / result["wall"],
        "micros": between / done * 1e6,
        "limit": (os.cpu_count() or 1) * done / (between + ends),
    }


@contextlib.contextmanager
def _started(stage: Stage, url: str, count: int) -> Iterator[Gateway]:
    """A gateway all of whose workers are up."""
    with stage.routes(store=url) as routes, stage.served(routes, args=["--workers", str(count)]) as gateway:
        if count > 1:
            until = time.monotonic() + ALL_UP_SECONDS
            while _ready(gateway.port) < count:
                if time.monotonic() > until:
                    raise Broken(f"{count} workers are not up")
                time.sleep(0.05)
        yield gateway


@contextlib.contextmanager
def _server() -> Iterator[PostgresServer]:
    from tests.support.postgres import AS_INSTALLED, PostgresServer

    with PostgresServer(**AS_INSTALLED, max_connections="200") as server:
        yield server


def _ready(port: int) -> int:
    with (
        contextlib.suppress(OSError),  # on a busy machine
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer,
    ):
        ready: int = msgspec.json.decode(answer.read())["workers"]["ready"]
        return ready
    return 0


def _name(count: int, store: str) -> str:
    return f"{count} {'worker' if count == 1 else 'workers'}, {store}"


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _family(pid: int) -> Iterator[float]:
    """The processor time of a process, and of all that came of it."""
    yield processor_seconds(pid) or 0.0
    for child in _children(pid):
        yield from _family(child)


def lines(figures: Figures) -> list[str]:
    """The table, as ratios to one worker on SQLite, and what is wanted of it."""
    requests, chunks, added_ms = figures["requests"], figures["chunks"], figures["added_ms"]
    first = next(iter(added_ms))
    rows, load = [], number(figures["load"])
    for way in added_ms:
        at = requests[way]
        rows.append(
            (
                way,
                number(at["per_second"] / requests[first]["per_second"]),
                number(at["per_second"]),
                number(at["micros"]),
                number(at["limit"]),
                number(chunks[way]["per_second"] / chunks[first]["per_second"]),
                number(chunks[way]["per_second"]),
                number(added_ms[way]),
                number(at["between"]),
            )
        )
    head = ("serve --workers", "ratio", "requests/s", "us each", "limit/s", "ratio", "chunks/s", "ms added", "cores")
    return [
        f"Requests {MANY} at once, {STREAMS} streams as fast as they go, ms added one at a time; load {load}.",
        *table(head, rows),
        *_wanted(figures),
    ]


def _wanted(figures: Figures) -> list[str]:
    requests, added_ms = figures["requests"], figures["added_ms"]
    one, two = _name(1, SQLITE), _name(2, SQLITE)
    server = _name(1, POSTGRESQL)
    if any(way not in requests for way in (one, two, server)):
        return []
    twice = requests[two]["per_second"] / requests[one]["per_second"]
    able = requests[two]["limit"] / min(requests[one]["limit"], 1e6 / requests[one]["micros"])
    beside = requests[server]["per_second"] / requests[one]["per_second"]
    later = added_ms[server] - added_ms[one]
    return [
        f"two workers to one: {twice:.2f} (1.7 wanted where there are cores for them; {able:.2f} at most here)",
        f"PostgreSQL to SQLite, one worker: {beside:.2f} of the requests/s (0.7 wanted), {later:+.2f} ms (1.5 wanted)",
    ]
