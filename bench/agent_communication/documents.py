"""Large documents through the gateway: what a byte costs, and whether it costs more in a larger one.

| case | the agent | who reads |
|---|---|---|
| `text` | agent_communication, a text in 20-byte deltas | Agent Connect, `values` |
| `list` | agent_communication, a list that gets a 20-byte item with every delta | Agent Connect, `values` |
| `chunks` | example, a text in 20-byte chunks | agent_communication, deltas |
| `snapshots` | Agent Connect, `values` that are 20 bytes larger each | agent_communication, deltas |
| `steps` | Agent Connect, `values` that are 2% larger each | agent_communication, deltas |

Documents that are repeated in snapshots come in more bytes than they have. `received` is what the gateway gets of the
agent for one document: counted where a client reads the same agent directly.

The figures of a size are the least of all rounds: whoever else uses the machine only ever adds to them, and what is
asked here is whether they grow from one size to the next. Time includes the agent's and the client's share of the two
processors; processor time is the gateway's alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from bench.agent_communication.routes import ECHO, LIST, TEXT
from bench.rounds import Figures
from bench.sizes import CallerSizes
from bench.stage import Broken, Child, Stage
from bench.stamp import CHUNK

VALUES = "/agent-connect/runs/stream"
BURST = 50
STEP = 0.02
MOST = 4
"""Documents of one size in a round."""
REST_SECONDS = 0.05
REST_TRIES = 40
REST_SHARE = 0.1


@dataclass(frozen=True)
class Case:
    """One row of the table. `agent`: its route; `growth`: of its snapshots; `per`: bytes of what it is judged by."""

    name: str
    title: str
    agent: str
    per: str
    growth: float = 0.0


CASES = (
    Case("text", "text in 20-byte deltas, to values", TEXT, "document"),
    Case("list", "list in 20-byte deltas, to values", LIST, "document"),
    Case("chunks", "20-byte chunks, to deltas", "example{size}", "document"),
    Case("snapshots", "20-byte snapshots, to deltas", ECHO, "received"),
    Case("steps", "2% snapshots, to deltas", ECHO, "document", STEP),
)


def measure(
    stage: Stage, gateway: Child, sizes: CallerSizes, places: dict[str, Figures], told: Callable[[str], None]
) -> Figures:
    """Every case with its sizes."""
    figures: Figures = {}
    until = time.monotonic() + sizes.documents_limit
    for case in CASES:
        told(f"documents: {case.title}")
        documents = Documents(stage, gateway, places, case)
        of = sizes.snapshots if case.name == "snapshots" else sizes.documents
        figures[case.name] = documents.measure(of, sizes.document_rounds, until)
    return figures


class Documents:
    """One case."""

    def __init__(self, stage: Stage, gateway: Child, places: dict[str, Figures], case: Case) -> None:
        self._stage = stage
        self._gateway = gateway
        self._places = places
        self._case = case

    def measure(self, sizes: tuple[int, ...], count: int, until: float) -> Figures:
        """`sizes`: of the documents, from small to large. Of small ones a round takes several, so that it lasts."""
        direct = {size: self._direct(size) for size in sizes}  # also: code paths and connections are warm
        self._through(sizes[0], 1)
        rounds: list[Figures] = []
        for _ in range(count):
            if rounds and time.monotonic() > until:
                break
            rounds.append({str(size): self._through(size, max(1, min(MOST, sizes[-1] // size))) for size in sizes})
        figures: Figures = {}
        for size in sizes:
            taken = [one[str(size)] for one in rounds]
            each = {name: min(one[name] for one in taken) for name in taken[0]}
            figures[str(size)] = _costs(each, size, direct[size])
        grown = [(figures[str(small)], figures[str(large)]) for small, large in pairwise(sizes)]
        return {
            "per": self._case.per,
            "sizes": figures,
            "growth": {
                name: [large[name] / small[name] for small, large in grown if name in small and name in large]
                for name in (f"ns_{self._case.per}", f"cpu_ns_{self._case.per}")
            },
            "rounds": rounds,
        }

    def _direct(self, size: int) -> Figures:
        """The agent alone: seconds, and bytes that it sends for one document."""
        stage, case = self._stage, self._case
        if case.agent in (TEXT, LIST):
            place, given = self._places["direct"], {"chunks": size // CHUNK, "burst": BURST}
            return stage.do(kind="document", place=place, agent=case.agent, given=given)
        if case.agent == ECHO:
            path, body = "/runs/stream", _body(ECHO, {"message": "Go on"}, self._snapshots(size))
        else:
            path, body = f"/example/{size}", "{}"
        return stage.do(kind="whole", port=stage.agent_port, path=path, body=body)

    def _through(self, size: int, times: int) -> Figures:
        """One document, of so many. What the gateway does after the last one belongs to it."""
        before = self._gateway.cpu()
        took = self._values(size, times) if self._case.agent in (TEXT, LIST) else self._deltas(size, times)
        after = _rested(self._gateway)
        if before is not None and after is not None:
            took["cpu"] = after - before
        return {name: value / times for name, value in took.items()}

    def _deltas(self, size: int, times: int) -> Figures:
        """Read by a client of this protocol."""
        case = self._case
        took = self._stage.do(
            kind="document",
            place=self._places["socket"],
            agent=case.agent.format(size=size),
            given={"message": "Go on"},
            config=self._snapshots(size) if case.agent == ECHO else None,
            length=_length(size),
            times=times,
        )
        return {name: took[name] for name in ("seconds", "bytes", "messages")}

    def _values(self, size: int, times: int) -> Figures:
        """Read by a client of Agent Connect."""
        agent = self._case.agent
        took: Figures = {"seconds": 0.0, "bytes": 0, "messages": 0}
        body = _body(agent, {"chunks": size // CHUNK, "burst": BURST})
        for _ in range(times):
            one = self._stage.do(kind="whole", port=self._stage.port, path=VALUES, body=body)
            if one["largest"] < _length(size) or (agent == TEXT and one["last"] != _length(size)):
                raise Broken(f"a document of {size} bytes came with {one['last']}, in {one['largest']}")
            took["seconds"] += one["seconds"]
            took["bytes"] += one["bytes"]
            took["messages"] += one["events"]
        return took

    def _snapshots(self, size: int) -> Figures:
        return {"chunks": size // CHUNK, "growth": self._case.growth}


def _length(size: int) -> int:
    """Of a document that is asked for in so many bytes."""
    return size // CHUNK * CHUNK


def _costs(each: Figures, size: int, direct: Figures) -> Figures:
    """Of a document of that size, and of its bytes: `document` its own, `received` what the agent sends for it."""
    costs = each | {"direct_seconds": direct["seconds"], "received": direct["bytes"]}
    for unit, count in (("document", size), ("received", direct["bytes"])):
        costs[f"ns_{unit}"] = each["seconds"] / count * 1e9
        if "cpu" in each:
            costs[f"cpu_ns_{unit}"] = each["cpu"] / count * 1e9
    return costs


def _rested(gateway: Child) -> float | None:
    """The processor time that it has taken, once it has nothing left to do; None if that is not known."""
    used = gateway.cpu()
    for _ in range(REST_TRIES):
        if used is None:
            break
        time.sleep(REST_SECONDS)
        before, used = used, gateway.cpu()
        if used is not None and used - before < REST_SHARE * REST_SECONDS:
            break
    return used


def _body(agent: str, given: Figures, config: Figures | None = None) -> str:
    """A streamed run of Agent Connect."""
    body: Figures = {"agent_id": agent, "input": given, "stream_mode": "values"}
    return msgspec.json.encode(body | ({"config": {"configurable": config}} if config else {})).decode()
