"""Many at once, drawn as growth: what one costs beside few others, and beside many. `--only growth`.

A line is *steeper than the work* if one of many costs more than LIMIT times what one of few does. Processor time is the
gateway's. Stores with many runs are not made run by run: one run is made by the gateway, and its row is copied.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.agent import stream_body, wait_body
from bench.agent_client.editor import asking
from bench.rounds import Figures
from bench.sizes import GrowthSizes
from bench.stage import EDITORS, EDITORS_AGENT, PREFIX, ROOT, Gateway, Place, Stage
from bench.tables import number, table

LIMIT = 1.5
"""Two turns of the same on a busy machine differ by a third."""
MICRO = 1e6
KILO = 1e3
CHUNKS_PER_SECOND = 2000
MANY_SESSIONS = """\
inbound:
  agent_connect: {}
  agent_client: {max_connections: 20000, max_sessions: 20000}
  agent_communication: {max_sessions: 20000}
"""
Told = Callable[[str], None]


class Line:
    """One thing that there may be many of. `points`: by how many there are, what one costs, by name (with its unit)."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.points: dict[int, dict[str, float | None]] = {}

    def growth(self, name: str) -> float | None:
        """What one of the most costs, to what one of the fewest does; None if it is not known."""
        known = [self.points[count].get(name) for count in sorted(self.points)]
        return None if len(known) < 2 or not known[0] or known[-1] is None else known[-1] / known[0]

    def told(self) -> Figures:
        """For the JSON."""
        names = list(next(iter(self.points.values()))) if self.points else []
        return {"title": self.title, "points": self.points, "growth": {name: self.growth(name) for name in names}}


def measure(stage: Stage, sizes: GrowthSizes, told: Told) -> list[Figures]:
    """Every line."""
    lines = []
    for title, counts, one in (
        ("streams at once, 2,000 chunks/s in all", sizes.streams, _streams),
        ("idle editors, a WebSocket each", sizes.editors, _editors),
        ("sessions on one WebSocket", sizes.sessions, _sessions),
        ("idle sessions of MCP", sizes.mcp, _mcp),
        ("agents in the route table", sizes.routes, _routes),
        ("runs on the thread", sizes.thread, _thread),
        ("runs in the store", sizes.store, _store),
    ):
        line = Line(title)
        for count in counts:
            told(f"growth: {count} {title}")
            line.points[count] = one(stage, sizes, count)
        lines.append(line.told())
    return lines


def table_of(stage: Stage) -> str:
    command, root = (msgspec.json.encode(it).decode() for it in (EDITORS_AGENT, str(ROOT)))
    routes = EDITORS.format(command=command, root=root, fsync="true").partition("store:")[0]
    return MANY_SESSIONS + routes + f"  - name: echo\n    target: {{protocol: agent_connect, url: {_url(stage)}}}\n"


def _url(stage: Stage) -> str:
    return f'"http://127.0.0.1:{stage.agent_port}"'


@contextlib.contextmanager
def _cost(gateway: Gateway, into: dict[str, float | None], name: str, count: int) -> Iterator[None]:
    """Note the processor time of the block, in us for each of so many."""
    before = gateway.child.cpu()
    yield
    after = gateway.child.cpu()
    into[name] = None if before is None or after is None else (after - before) / count * MICRO


def _waits(
    stage: Stage,
    gateway: Gateway,
    sizes: GrowthSizes,
    into: dict[str, float | None],
    *,
    prefix: str = PREFIX,
    body: str = "",
) -> None:
    """What a request costs now: the better of two turns, behind one that does not count."""
    job: Figures = {"kind": "requests", "port": gateway.port, "path": f"{prefix}/runs/wait", "connections": 1}
    taken = []
    for _ in range(3):
        before = gateway.child.cpu()
        result = stage.do(**job, body=body or wait_body(), seconds=sizes.seconds)
        after = gateway.child.cpu()
        taken.append(None if before is None or after is None else (after - before) / result["count"] * MICRO)
    known = [cost for cost in taken[1:] if cost is not None]
    into["us a request"] = min(known, default=None)


def _pages(
    stage: Stage,
    gateway: Gateway,
    sizes: GrowthSizes,
    into: dict[str, float | None],
    *,
    each: int = 0,
    **paths: tuple[str, str, object],
) -> None:
    """What an answer costs: the median time of several, in ms; or in us for `each` of so many that are in it."""
    for name, (method, path, body) in paths.items():
        text = msgspec.json.encode(body).decode() if body is not None else ""
        job = {"kind": "requests", "port": gateway.port, "path": PREFIX + path, "body": text, "method": method}
        stage.do(**job, connections=1, seconds=0.0)  # what is kept from then on
        result = stage.do(**job, connections=1, seconds=sizes.seconds)
        into[name.replace("_", " ")] = result["p50"] * (KILO / each if each else 1.0)


def _streams(stage: Stage, sizes: GrowthSizes, count: int) -> dict[str, float | None]:
    """What a chunk costs without the beginning and the end of its stream: short streams are taken off longer ones."""
    found: dict[str, float | None] = {}
    with stage.gateway(table=table_of(stage)) as gateway:
        pace = count / CHUNKS_PER_SECOND
        job: Figures = {"kind": "streams", "port": gateway.port, "path": f"{PREFIX}/runs/stream", "streams": count}
        more = max(3, int(sizes.stream_seconds / pace))
        taken: dict[int, float | None] = {}
        for chunks in (2, 2, 2 + more):  # the first does not count
            before = gateway.child.cpu()
            result = stage.do(**job, body=stream_body(chunks, pace), chunks=chunks)
            after = gateway.child.cpu()
            taken[chunks] = None if before is None or after is None else after - before
            found["ms p99"] = result["p99"]
        short, long = taken[2], taken[2 + more]
        found["us a chunk"] = None if short is None or long is None else (long - short) / (count * more) * MICRO
    return found


def _editors(stage: Stage, sizes: GrowthSizes, count: int) -> dict[str, float | None]:
    return _idle(stage, sizes, count, lambda gateway: {"kind": "occupy", "place": _socket(gateway), "sessions": count})


def _sessions(stage: Stage, sizes: GrowthSizes, count: int) -> dict[str, float | None]:
    def job(gateway: Gateway) -> Figures:
        return {"kind": "occupy", "place": _socket(gateway) | {"shared": True}, "sessions": count}

    return _idle(stage, sizes, count, job)


def _mcp(stage: Stage, sizes: GrowthSizes, count: int) -> dict[str, float | None]:
    def job(gateway: Gateway) -> Figures:
        return {"kind": "sit", "url": f"http://127.0.0.1:{gateway.port}/agent-communication/mcp", "sessions": count}

    return _idle(stage, sizes, count, job)


def _socket(gateway: Gateway) -> Figures:
    return {"url": f"ws://127.0.0.1:{gateway.port}/agent-client/editor"}


def _idle(stage: Stage, sizes: GrowthSizes, count: int, job: Callable[[Gateway], Figures]) -> dict[str, float | None]:
    """Opening them, having them, and what a request costs beside them."""
    found: dict[str, float | None] = {}
    with stage.gateway(table=table_of(stage)) as gateway:
        _waits(stage, gateway, sizes, {})
        asked = job(gateway)
        stage.do(**asked | {"sessions": 10})  # code paths, and the agent is up
        stage.do(kind="vacate")
        before = gateway.child.rss()
        with _cost(gateway, found, "us to open", count):
            stage.do(**asked)
        found["KB each"] = (gateway.child.rss() - before) / count / KILO
        found["cores at rest"] = gateway.child.at_rest()
        _waits(stage, gateway, sizes, found)
        stage.do(kind="vacate")
    return found


def _routes(stage: Stage, sizes: GrowthSizes, count: int) -> dict[str, float | None]:
    route = f"  - name: agent{{number}}\n    target: {{{{protocol: agent_connect, url: {_url(stage)}}}}}\n"
    text = "routes:\n" + "".join(route.format(number=number) for number in range(count))
    body = wait_body().replace('"echo"', f'"agent{count - 1}"')
    found: dict[str, float | None] = {}
    with stage.gateway(table=text) as gateway:
        found["us of the start, each"] = None if gateway.cpu is None else gateway.cpu / count * MICRO
        found["KB each"] = gateway.rss / count / KILO
        _waits(stage, gateway, sizes, found, body=body)
        _pages(
            stage,
            gateway,
            sizes,
            found,
            each=count,
            us_to_find_agents_for_each=("POST", "/agents/search", {"limit": 10}),
        )
    return found


def _thread(stage: Stage, sizes: GrowthSizes, count: int) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    with _full(stage, count, threaded=True) as (gateway, thread):
        _waits(stage, gateway, sizes, found, prefix=f"{PREFIX}/threads/{thread}", body=_prompt())
        pages: dict[str, Any] = {
            "us_the_thread_with_its_state_a_run": ("GET", f"/threads/{thread}", None),
            "us_ten_states_a_run": ("GET", f"/threads/{thread}/history?limit=10", None),
        }
        _pages(stage, gateway, sizes, found, ms_a_page_of_runs=("GET", f"/threads/{thread}/runs?limit=10", None))
        _pages(stage, gateway, sizes, found, each=count, **pages)
    return found


def _store(stage: Stage, sizes: GrowthSizes, count: int) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    with _full(stage, count, threaded=False) as (gateway, _):
        found["s of the start"] = gateway.cpu
        _waits(stage, gateway, sizes, found)
        pages: dict[str, Any] = {
            "ms_the_newest_runs": ("POST", "/runs/search", {"limit": 10}),
            "ms_runs_of_an_agent": ("POST", "/runs/search", {"agent_id": "editor", "limit": 10}),
            "ms_runs_that_failed": ("POST", "/runs/search", {"status": "error", "limit": 10}),
            "ms_threads": ("POST", "/threads/search", {"limit": 10}),
        }
        _pages(stage, gateway, sizes, found, **pages)
        found["MB"] = gateway.child.rss() / MICRO
    return found


def _prompt() -> str:
    """A run of the editors' agent, of whose threads the gateway keeps the history."""
    return msgspec.json.encode({"agent_id": "editor", "input": {"message": asking(1, 0.0)}}).decode()


@contextlib.contextmanager
def _full(stage: Stage, count: int, *, threaded: bool) -> Iterator[tuple[Gateway, str]]:
    """A gateway on a store with so many runs, on one thread or on none, and the thread's id."""
    with stage.routes(table=table_of(stage)) as routes:
        thread = ""
        with stage.served(routes) as gateway:
            prefix = PREFIX
            if threaded:
                thread = stage.do(kind="thread", port=gateway.port, prefix=PREFIX)["thread"]
                prefix = f"{PREFIX}/threads/{thread}"
            body = _prompt() if threaded else wait_body()
            job = {"kind": "posts", "port": gateway.port, "path": f"{prefix}/runs/wait", "body": body}
            stage.do(**job, connections=1, count=1)
        copy_runs(routes.parent / "bench.db", count - 1)
        with stage.served(routes) as gateway:
            stage.places["through"] = Place(gateway.child, gateway.port, PREFIX)
            yield gateway, thread


def copy_runs(file: Path, count: int) -> None:
    """Copy the one run in a store, and its thread's checkpoint, so many times, each with an id of its own and a little
    older than the one before."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        for table_name in ("runs", "checkpoints"):
            _copy(database, table_name, count)
        database.execute("COMMIT")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _copy(database: sqlite3.Connection, name: str, count: int) -> None:
    found = database.execute(f"SELECT seq, id FROM {name} ORDER BY seq DESC LIMIT 1").fetchone()
    if found is None:
        return
    seq, own = found
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({name})") if row[1] != "seq"]
    fresh = "printf('%08x-0000-4000-8000-%012x', n, n)"
    changed = {
        "id": fresh,
        "created_at": "created_at - n * 0.001",
        "record": f"CAST(replace(CAST(record AS TEXT), :own, {fresh}) AS BLOB)",
    }
    database.execute(
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count) "
        f"INSERT INTO {name} ({', '.join(columns)}) "
        f"SELECT {', '.join(changed.get(column, column) for column in columns)} FROM numbers, {name} "
        "WHERE seq = :seq AND :count > 0",
        {"count": count, "own": own, "seq": seq},
    )


def lines(figures: list[Figures]) -> list[str]:
    """What a person reads: the growth first, then what one costs at each size."""
    rows = []
    for line in figures:
        rows.append((line["title"], *[""] * 2, *map(str, line["points"]), *[""] * (3 - len(line["points"]))))
        for name, growth in line["growth"].items():
            steep = "" if growth is None or name in TOLD_ONLY else "steeper" if growth > LIMIT else "flat"
            values = [number(point.get(name)) for point in line["points"].values()]
            rows.append((f"  {name}", number(growth), steep, *values, *[""] * (3 - len(values))))
    return table(("many at once", "growth", "", "few", "", "many"), rows)


TOLD_ONLY = ("ms p99", "cores at rest")
"""Told, not judged."""


def steep(figures: list[Figures]) -> list[str]:
    """What costs more beside many than beside few."""
    return [
        f"{line['title']}: {name}"
        for line in figures
        for name, growth in line["growth"].items()
        if growth is not None and growth > LIMIT and name not in TOLD_ONLY
    ]
