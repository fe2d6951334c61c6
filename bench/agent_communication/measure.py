"""What is measured with callers. Figures are plain dicts, as in bench/measure.py. Large documents are in documents.py.

The ways: `direct` a client at the agent, which it has started; `bare` through a proxy that does nothing (bare.py), over
WebSocket; `socket`, `http` and `stdio` through the gateway: over WebSocket, a connection a call; over Streamable HTTP,
a session for all calls; through `interlingua stdio`, one for all calls. Whatever the number of calls, it is one process
of the agent that answers them, on stdio. All ways are taken in every round.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.agent_communication import routes
from bench.agent_communication.documents import measure as measure_documents
from bench.agent_communication.routes import AGENT, TEXT
from bench.rounds import Figures
from bench.rpc.ways import Ways
from bench.sizes import Sizes
from bench.stage import ROOT, Child, Stage, free_port

WAYS = ("direct", "bare", "socket", "http", "stdio")
PREFIX = "/agent-communication"
WARM_CHUNKS = 200
WARM_CALLS = 4


def measure(stage: Stage, sizes: Sizes, told: Callable[[str], None]) -> Figures:
    """Everything of callers."""
    figures: Figures = {}
    until = time.monotonic() + sizes.callers.limit
    table = routes.table(stage.agent_port, sizes.callers.documents)
    with stage.gateway(table=table) as started, _places(stage, table) as places:
        gateway = started.child
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


class Calls(Ways):
    """What is measured each way."""

    def __init__(self, stage: Stage, gateway: Child, sizes: Sizes, places: dict[str, Figures], until: float) -> None:
        self._sizes = sizes.callers
        super().__init__(stage, WAYS, self._sizes.rounds, until)
        self._places = places
        bare = self.bare("bench.agent_communication.bare", "bare proxy of callers", places["bare"]["url"], AGENT)
        most = max(*self._sizes.calls, *(count for count, _ in self._sizes.rushes))
        for way in WAYS:
            pids = stage.do(kind="join", place=places[way], name=TEXT, calls=most)
            between = {"direct": None, "bare": bare.popen.pid, "stdio": pids["pid"]}.get(way, gateway.popen.pid)
            self.pids[way] = {"agent": pids["agent"], "between": between}
            self._do(way, WARM_CALLS, kind="calls", chunks=WARM_CHUNKS, pace=0.0)

    def paced(self, count: int) -> Figures:
        """Paced calls."""
        sizes = self._sizes
        return self.latencies(lambda way: self._do(way, count, kind="calls", chunks=sizes.chunks, pace=sizes.pace))

    def rush(self, count: int, chunks: int) -> Figures:
        """Calls as fast as they go."""
        seconds = self._sizes.rush_seconds
        return self.rates(lambda way: self._do(way, count, kind="rush", chunks=chunks, seconds=seconds))

    def _do(self, way: str, count: int, **job: Any) -> Figures:
        return self.stage.do(place=self._places[way], name=TEXT, calls=count, **job)
