"""What is measured each way to an agent, in turns: rounds, and what the processes took for them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from bench.rounds import Figures, added, core, cores, in_rounds, medians, micros, turns
from bench.stage import Child, Stage, processor_seconds


class Ways:
    """A protocol's own fills `pids` (of `agent` and of what is `between`, by way) before the first round."""

    def __init__(self, stage: Stage, ways: Sequence[str], rounds: int, until: float) -> None:
        """`until`: when (time.monotonic) no further rounds are begun."""
        self.stage = stage
        self.pids: dict[str, Figures] = {}
        self._ways = ways
        self._rounds = rounds
        self._until = until

    def bare(self, module: str, name: str, url: str, agent: Sequence[str]) -> Child:
        """Start a proxy that does nothing, at `url`."""
        argv = ["-m", module, "--port", url.rstrip("/").rpartition(":")[2], *agent]
        child = self.stage.start(name, argv)
        child.until_answers(url.replace("ws:", "http:"))
        return child

    def latencies(self, job: Callable[[str], Figures]) -> Figures:
        """Of paced chunks: ms from the agent's write to the client's read, a chunk. `job` is done each way."""
        rounds = self._in_rounds(job)
        return {
            **medians(rounds, ("p50", "p99", "first", "snapshots", "chunks")),
            "added_ms": {way: added(rounds, "p50", way) for way in self._ways[1:]},
            "added_first_ms": {way: added(rounds, "first", way) for way in self._ways[1:]},
            **self._costs(rounds, "chunks"),
        }

    def rates(self, job: Callable[[str], Figures]) -> Figures:
        """Chunks a second with as many as come, that the agent has said and that have arrived in some message."""
        rounds = self._in_rounds(job)
        for turn in turns(rounds):
            turn["per_second"] = turn["chunks"] / turn["seconds"]
            turn["messages_per_second"] = turn["snapshots"] / turn["seconds"]
        return {**medians(rounds, ("per_second", "messages_per_second")), **self._costs(rounds, "all")}

    def _in_rounds(self, job: Callable[[str], Figures]) -> list[Figures]:
        return in_rounds(self._ways, self._rounds, self._until, lambda way: self._turn(way, job))

    def _turn(self, way: str, job: Callable[[str], Figures]) -> Figures:
        """A job, and what its processes took."""
        before = self._seconds(way)
        result = job(way)
        return {**result, "cores": cores(before, self._seconds(way), result["wall"])}

    def _seconds(self, way: str) -> dict[str, float | None]:
        return {who: processor_seconds(pid) if pid else None for who, pid in self.pids[way].items()}

    def _costs(self, rounds: list[Figures], unit: str) -> Figures:
        """Each way: who took how much of a core, and what a chunk cost what is between the ends, in CPU time."""
        costs: Figures = {}
        for way in self._ways:
            taken = [one[way] for one in rounds]
            load = statistics.median(turn["cpu"] / turn["wall"] for turn in taken)
            shares = {"load": load, "agent": core("agent", taken), "between": core("between", taken)}
            costs[way] = {"cores": shares, "cpu_us": micros("between", taken, unit)}
        return {"costs": costs, "rounds": rounds}
