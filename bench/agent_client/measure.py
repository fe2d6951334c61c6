"""What is measured with editors. Figures are plain dicts, as in bench/measure.py.

The ways: `direct` an editor at the agent, which it has started; `bare` through a proxy that does nothing (bare.py);
`socket` through the gateway over WebSocket, a connection a session; `stdio` through `interlingua stdio`, one for all
sessions; `values` the same prompts as streamed runs of Agent Connect. Whatever the number of sessions, it is one
process of the agent that answers them. All ways are taken in every round.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from bench.agent_client.editor import asking
from bench.rounds import Figures, medians
from bench.rpc.ways import Ways
from bench.sizes import Sizes
from bench.stage import EDITORS_AGENT, ROOT, Child, Stage, free_port

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
    with stage.gateway(editors=True) as started, _places(stage) as places:
        gateway = started.child
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


class Editors(Ways):
    """What is measured each way."""

    def __init__(self, stage: Stage, gateway: Child, sizes: Sizes, places: dict[str, Figures], until: float) -> None:
        self._sizes = sizes.editors
        super().__init__(stage, WAYS, self._sizes.rounds, until)
        self._places = places
        bare = self.bare("bench.agent_client.bare", "bare proxy of editors", places["bare"]["url"], EDITORS_AGENT)
        most = max(*self._sizes.sessions, *(count for count, _ in self._sizes.floods))
        for way in EDITOR_WAYS:
            pids = stage.do(kind="seat", place=places[way], sessions=most)
            between = {"direct": None, "bare": bare.popen.pid, "socket": gateway.popen.pid, "stdio": pids["pid"]}
            self.pids[way] = {"agent": pids["agent"], "between": between[way]}
        self.pids["values"] = {"agent": None, "between": gateway.popen.pid}
        for way in WAYS:
            self._paced(way, 4, WARM_CHUNKS, 0.0)

    def paced(self, count: int) -> Figures:
        """Paced prompts."""
        sizes = self._sizes
        return self.latencies(lambda way: self._paced(way, count, sizes.chunks, sizes.pace))

    def flood(self, count: int, chunks: int) -> Figures:
        """Prompts as fast as they go."""
        return self.rates(lambda way: self._flood(way, count, chunks))

    def _paced(self, way: str, count: int, chunks: int, pace: float) -> Figures:
        if way == "values":
            body = values_body(chunks, pace)
            return self.stage.do(
                kind="streams", port=self.stage.port, path=VALUES, body=body, streams=count, chunks=chunks
            )
        return self.stage.do(kind="prompts", place=self._places[way], sessions=count, chunks=chunks, pace=pace)

    def _flood(self, way: str, count: int, chunks: int) -> Figures:
        stage, job = self.stage, {"seconds": self._sizes.flood_seconds}
        if way == "values":
            body = values_body(chunks, 0.0)
            return stage.do(kind="saturate", port=stage.port, path=VALUES, body=body, streams=count, **job)
        return stage.do(kind="flood", place=self._places[way], sessions=count, chunks=chunks, **job)


def values_body(chunks: int, pace: float) -> str:
    """The prompt as a streamed run of Agent Connect."""
    body = {"agent_id": NAME, "input": {"message": asking(chunks, pace)}, "stream_mode": "values"}
    return msgspec.json.encode(body).decode()
