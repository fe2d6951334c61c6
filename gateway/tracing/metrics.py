"""The gateway's own counters, and their text form for `/metrics` (Prometheus exposition format 0.0.4).

Plain dictionaries, changed on the event loop only: a count costs a fraction of a microsecond. They belong to the
process, start at zero with it, and are kept whether anything is traced or not. Where metrics go over OTLP, too, it is
these that are read (otel.py). Workers of one gateway send each other theirs (`sent`) and add them up (`merged`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MOST_AGENTS = 1000
"""The most agents counted by name: anybody may register under any name."""
MOST_KINDS = 100
"""The most kinds of questions counted by name: agents may use any."""
MOST_CODES = 100
"""The most codes of JSON-RPC errors counted by number: agents may use any."""
OTHERS = "(others)"
OK, CANCELLED = "ok", "cancelled"
"""The status of a JSON-RPC request that was answered with a result, and of one that was given up."""
AGENT, KIND, TARGET = "agent", "kind", "target"
"""The labels that have agents' names, agents' own words, and where agents are."""

Named = Callable[[str], bool]
"""Whether the reader may see an agent's name."""

How = Literal["sum", "max", "min"]
"""What several processes' values of one metric come to."""


class Family(Struct, frozen=True, kw_only=True):
    """A metric of one process, for another one. `values` and `counts` are by labels; `counts` are of a histogram."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    how: How
    values: list[tuple[tuple[str, ...], float]]
    bounds: tuple[float, ...] = ()
    counts: list[tuple[tuple[str, ...], list[int]]] = []


class Labels:
    """Limits how many different values a label has that others choose."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: set[str] = set()

    def label(self, word: str) -> str:
        """Return the word, or OTHERS after too many."""
        if word not in self._known:
            if len(self._known) >= self.most:
                return OTHERS
            self._known.add(word)
        return word

    def clear(self) -> None:
        """Forget all words."""
        self._known.clear()


_agents, _kinds, _codes = Labels(MOST_AGENTS), Labels(MOST_KINDS), Labels(MOST_CODES)


class Metric:
    """A family of values, one for each combination of labels."""

    kind = "untyped"
    bounds: tuple[float, ...] = ()

    def __init__(self, name: str, help_text: str, *labels: str, how: How = "sum") -> None:
        self.name, self.help, self.labels, self.how = name, help_text, labels, how
        self.values: defaultdict[tuple[str, ...], float] = defaultdict(float)
        """By labels. What every run and request counts is counted here, without a call."""

    def value(self, *labels: str) -> float:
        """Return the value for these labels, 0 if it was never set."""
        return self.values.get(labels, 0.0)

    def clear(self) -> None:
        """Forget everything."""
        self.values.clear()

    def total(self, *first: str) -> float:
        """The sum of the values whose labels begin with these."""
        return sum(value for labels, value in self.values.items() if labels[: len(first)] == first)

    def sent(self) -> Family:
        """All of it, for another process."""
        values = list(self.values.items())
        return Family(name=self.name, kind=self.kind, help=self.help, labels=self.labels, how=self.how, values=values)

    def take(self, family: Family) -> None:
        """Add what another process counted. A family of another shape is of another version, and is left out."""
        if (family.kind, family.labels, family.bounds) == (self.kind, self.labels, self.bounds):
            for labels, value in family.values:
                self.values[labels] = _one(self.how, self.values[labels], value) if labels in self.values else value
            for labels, counts in family.counts:
                self._take_counts(labels, counts)

    def _take_counts(self, labels: tuple[str, ...], counts: list[int]) -> None:
        """Add the counts of a histogram."""

    def samples(self, named: Named) -> Iterator[str]:
        """The family's lines."""
        told: dict[tuple[str, ...], float] = {}
        for labels, value in self.values.items():
            shown = self._shown(labels, named)
            told[shown] = told.get(shown, 0.0) + value
        for labels, value in sorted(told.items()):
            yield f"{self.name}{_labelled(self.labels, labels)} {_number(value)}"

    def _shown(self, labels: tuple[str, ...], named: Named) -> tuple[str, ...]:
        """Return the labels, with OTHERS in place of a hidden agent's name and words."""
        if AGENT not in self.labels or named(labels[self.labels.index(AGENT)]):
            return labels
        pairs = zip(self.labels, labels, strict=True)
        return tuple(OTHERS if label in (AGENT, KIND, TARGET) else value for label, value in pairs)


class Counter(Metric):
    """A counter, which only grows."""

    kind = "counter"

    def add(self, count: float, *labels: str) -> None:
        self.values[labels] += count


class Gauge(Counter):
    """A gauge, which goes up and down."""

    kind = "gauge"

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value


class Histogram(Metric):
    """A histogram: how many observations were at most each bound."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...], *labels: str) -> None:
        super().__init__(name, help_text, *labels)
        self.bounds = bounds
        self._listener: Callable[[float, tuple[str, ...]], None] | None = None
        self.counts: dict[tuple[str, ...], list[int]] = {}

    def listen(self, listener: Callable[[float, tuple[str, ...]], None] | None) -> None:
        """Tell `listener`, if given, each observation with its labels' values from now on."""
        self._listener = listener

    def sent(self) -> Family:
        """All of it, for another process."""
        return replace(super().sent(), bounds=self.bounds, counts=list(self.counts.items()))

    def _take_counts(self, labels: tuple[str, ...], counts: list[int]) -> None:
        before = self.counts.get(labels, [0] * len(counts))
        self.counts[labels] = [sum(pair) for pair in zip(before, counts, strict=True)]

    def observe(self, value: float, *labels: str) -> None:
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.bounds) + 1)
        counts[bisect_left(self.bounds, value)] += 1
        self.values[labels] += value
        if self._listener is not None:
            self._listener(value, labels)

    def quantile(self, share: float, *first: str) -> float | None:
        """About how large a share of the observations is at most, of all whose labels begin with these; None without
        observations. Those beyond the last bound count as that bound.
        """
        counts: list[int] = [sum(of_bound) for of_bound in zip(*self._beginning(first), strict=True)]
        wanted = share * sum(counts)
        below, least = 0, 0.0
        for bound, count in zip(self.bounds, counts, strict=False):
            if count and below + count >= wanted:
                return least + (bound - least) * max(0.0, wanted - below) / count
            below, least = below + count, bound
        return least if counts else None

    def _beginning(self, first: tuple[str, ...]) -> Iterator[list[int]]:
        return (counts for labels, counts in self.counts.items() if labels[: len(first)] == first)

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self.counts.clear()

    def samples(self, named: Named) -> Iterator[str]:
        """The family's lines."""
        told: dict[tuple[str, ...], tuple[list[int], float]] = {}
        for labels, counts in self.counts.items():
            shown = self._shown(labels, named)
            before, spent = told.get(shown, ([0] * len(counts), 0.0))
            told[shown] = [sum(pair) for pair in zip(before, counts, strict=True)], spent + self.values[labels]
        for labels, (counts, spent) in sorted(told.items()):
            total = 0
            for bound, count in zip((*map(_number, self.bounds), "+Inf"), counts, strict=True):
                total += count
                yield f"{self.name}_bucket{_labelled((*self.labels, 'le'), (*labels, bound))} {total}"
            yield f"{self.name}_sum{_labelled(self.labels, labels)} {_number(spent)}"
            yield f"{self.name}_count{_labelled(self.labels, labels)} {total}"


runs_started = Counter("interlingua_runs_started_total", "Runs started.", "agent", "protocol")
runs_ended = Counter("interlingua_runs_ended_total", "Runs ended, by how.", "agent", "protocol", "status")
runs_active = Gauge("interlingua_runs_active", "Runs in progress, waiting for an answer included.", "agent", "protocol")
run_seconds = Histogram(
    "interlingua_run_duration_seconds",
    "How long ended runs took.",
    (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
    "agent",
    "status",
)
interrupts = Counter("interlingua_interrupts_total", "Questions that agents asked in mid-run.", "agent", "kind")
losses = Counter("interlingua_losses_total", "What could not be said to the other side.", "agent", "protocol", "what")
events = Counter("interlingua_events_total", "Events appended to run logs.", "agent")
watchers = Gauge("interlingua_watchers", "Clients that follow a run at the moment.", "protocol")
tokens = Counter("interlingua_tokens_total", "Tokens as agents reported them.", "agent", "direction")
conduct = Counter(
    "interlingua_agent_conduct_total", "Agents' requests, refusals and failures, and unusual ones.", "agent", "what"
)
requests = Counter(
    "interlingua_requests_total",
    "Client requests over HTTP and JSON-RPC, by protocol and answer.",
    "protocol",
    "status",
)
limited = Counter("interlingua_limited_total", "What was refused since it was too much, by limit.", "door", "limit")
target_state = Gauge(
    "interlingua_target_state",
    "0: the target gets runs; 1: it is tried; 2: it is ejected.",
    "agent",
    "target",
    how="max",
)
target_ejections = Counter("interlingua_target_ejections_total", "Times that a target was ejected.", "agent", "target")
failovers = Counter(
    "interlingua_failovers_total", "Runs that one target took nothing of, and that went to another.", "agent"
)
retries = Counter("interlingua_retries_total", "Runs that no target took, and that were sent again.", "agent")
reloads = Counter("interlingua_reloads_total", "Reloads of the route table.", "result")
routes_current = Gauge(
    "interlingua_routes_current", "1; 0 once the newest route table was refused, until one is taken.", how="min"
)

families: Sequence[Metric] = [each for each in tuple(globals().values()) if isinstance(each, Metric)]
"""Every metric of this process, in the order in which they are defined."""
_KINDS = {made.kind: made for made in (Counter, Gauge)}


agent = _agents.label
"""Returns the label of an agent: its name, or OTHERS after too many."""
kind = _kinds.label
"""Returns the label of a kind of question: its name, or OTHERS after too many."""


def code(number: int) -> str:
    """Return the label of a JSON-RPC error code: its number, or OTHERS after too many."""
    return _codes.label(str(number))


def merged(processes: Iterable[Iterable[Family]]) -> Sequence[Metric]:
    """What several processes have counted together. Where two have a family of the same name and another shape, the
    first counts.
    """
    found: dict[str, Metric] = {}
    for sent in processes:
        for family in sent:
            if family.name not in found:
                found[family.name] = _made(family)
            found[family.name].take(family)
    return tuple(found.values())


def _made(family: Family) -> Metric:
    if family.kind == Histogram.kind:
        return Histogram(family.name, family.help, family.bounds, *family.labels)
    return _KINDS.get(family.kind, Metric)(family.name, family.help, *family.labels, how=family.how)


def _one(how: How, one: float, other: float) -> float:
    return one + other if how == "sum" else max(one, other) if how == "max" else min(one, other)


def render(named: Named | None, shown: Iterable[Metric] = families, remarks: Iterable[str] = ()) -> str:
    """Metrics as text, families that were never touched included, with remarks before them. Agents that are not
    `named` (None: no agent is) are counted together as OTHERS, so that all is counted for everybody.
    """
    lines = [f"# {remark}" for remark in remarks]
    if named is None:
        lines.append("# Agents are not named here: see telemetry.monitors of routes.yaml.")
        named = _nobody
    for metric in shown:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}", *metric.samples(named)]
    return "\n".join(lines) + "\n"


def _nobody(agent: str) -> bool:
    return False


def clear() -> None:
    """Forget everything; for tests."""
    _agents.clear()
    _kinds.clear()
    _codes.clear()
    for metric in families:
        metric.clear()


def _labelled(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
