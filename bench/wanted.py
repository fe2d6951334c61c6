"""The twelve lines at the end of `make bench`: what is wanted, what was measured, and the floor where it is missed.

Each is a ratio of two figures of one run, but memory. The floor is what the lean translator has (lean.py), or the same
with the two rows a run that the gateway promises: no gateway in Python that keeps its promises goes below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench import peers
from bench.rounds import Figures
from bench.tables import number, table

STREAMS = ("stream_1", "stream_32", "stream_200")
Values = Sequence[float | None]


@dataclass(frozen=True)
class Wanted:
    """One line. `limits`: at most these (at least, if `least`), one for each value of `measured` (None: not known)."""

    title: str
    limits: tuple[float, ...]
    measured: Callable[[Figures], Values]
    floor: Callable[[Figures], Values] | None = None
    unit: str = ""
    least: bool = False

    def judged(self, figures: Figures) -> Figures:
        """With `hit`: None where something was not measured."""
        values = _known(self.measured, figures)
        good = [self._good(value, limit) for value, limit in zip(values, self.limits, strict=False)]
        hit = None if not values or None in values else all(good)
        floor = _known(self.floor, figures) if self.floor is not None else []
        told = {"title": self.title, "limits": self.limits, "measured": values, "floor": floor}
        return told | {"hit": hit, "unit": self.unit, "least": self.least}

    def _good(self, value: float | None, limit: float) -> bool:
        return value is not None and (value >= limit if self.least else value <= limit)


def _known(take: Callable[[Figures], Values], figures: Figures) -> list[float | None]:
    try:
        return list(take(figures))
    except KeyError:
        return []


def _ratio(of: float | None, to: float | None) -> float | None:
    return None if of is None or not to or to < 0 else of / to


def _cpu(name: str, way: str) -> Callable[[Figures], Values]:
    return lambda figures: [_ratio(figures[name]["cpu_us"][way], figures[name]["cpu_us"]["bare"])]


def _rate(way: str) -> Callable[[Figures], Values]:
    return lambda figures: [_ratio(figures["wait_many"][way]["per_second"], figures["wait_many"]["bare"]["per_second"])]


def _added(names: Sequence[str], way: str) -> Callable[[Figures], Values]:
    return lambda figures: [_ratio(figures[name]["added_ms"][way], figures[name]["added_ms"]["bare"]) for name in names]


def _tail(way: str) -> Callable[[Figures], Values]:
    return lambda figures: [_ratio(figures["stream_200"][way]["p99"], figures["stream_200"]["bare"]["p99"])]


def _beside(group: str, peer: str, who: str = peers.GATEWAY) -> Callable[[Figures], Values]:
    def take(figures: Figures) -> Values:
        rounds = figures["peers"]["groups"][group]["one"]
        return [_ratio(peers.added(rounds, who), peers.added(rounds, peer))]

    return take


def _stateless(figures: Figures) -> Values:
    rounds = figures["peers"]["groups"]["tool"]["many"]
    rates = [peers.median(rounds, name, "rate") for name in (peers.STATELESS, peers.GATEWAY)]
    return [_ratio(*rates)]


def _ahead(figures: Figures) -> Values:
    """Our requests/s, and chunks/s, to the best peer's: the worst of the groups."""
    found: dict[str, list[float]] = {"many": [], "flood": []}
    for of in figures["peers"]["groups"].values():
        for kind in found.keys() & of:
            own = {peers.GATEWAY, peers.STATELESS, peers.LEAN, peers.ROWS, "direct"}
            rates = [peers.median(of[kind], name, "rate") for name in of[kind][0] if name not in own]
            ours = peers.median(of[kind], peers.GATEWAY, "rate")
            found[kind] += [ours / rate for rate in rates if rate and ours is not None]
    return [min(found[kind], default=None) for kind in ("many", "flood")]


def _memory(figures: Figures) -> Values:
    memory = figures["memory"]
    return [memory["fresh_mb"], memory["per_stream_kb"], figures["agent_client"]["memory"]["per_session_kb"]]


WANTED = (
    Wanted("processor time a request at 64, of bare", (1.1,), _cpu("wait_many", "through"), _cpu("wait_many", "rows")),
    Wanted("requests/s at 64, of bare", (0.95,), _rate("through"), _rate("rows"), least=True),
    Wanted("added to /runs/wait, of what bare adds", (1.5,), _added(["wait_1"], "through"), _added(["wait_1"], "rows")),
    Wanted(
        "added to a chunk at 1, 32, 200, of what bare adds",
        (1.3, 1.3, 1.3),
        _added(STREAMS, "through"),
        _added(STREAMS, "lean"),
    ),
    Wanted("p99 of a chunk at 200 streams, of bare's", (2.0,), _tail("through"), _tail("lean")),
    Wanted("processor time a flooded chunk, of bare's", (1.5,), _cpu("saturate", "through"), _cpu("saturate", "lean")),
    Wanted(
        "prompt through WebSocket, added, of acpremote's",
        (3.0,),
        _beside("socket", "acpremote"),
        _beside("socket", "acpremote", peers.ROWS),
    ),
    Wanted(
        "tools/call with a session, added, of mcp-proxy's",
        (1.0,),
        _beside("tool", "mcp-proxy"),
        _beside("tool", "mcp-proxy", peers.ROWS),
    ),
    Wanted("stateless tools/call a second, of those with a session", (0.9,), _stateless, least=True),
    Wanted("requests/s, chunks/s, of the best peer's", (1.0, 1.0), _ahead, least=True),
    Wanted(
        "processor time to ready, of a minimal server's imports",
        (1.5,),
        lambda figures: [_ratio(figures["start"]["cpu"], figures["start"]["imports"])],
    ),
    Wanted("memory: fresh MB; a stream, an idle session, KB", (55.0, 40.0, 20.0), _memory),
)


def judged(figures: Figures) -> list[Figures]:
    """Every line."""
    return [one.judged(figures) for one in WANTED]


def lines(figures: Figures) -> list[str]:
    """The summary, below its head."""
    rows = []
    for one in judged(figures):
        sign = ">= " if one["least"] else "<= "
        said = {True: "hit", False: "missed", None: "not measured"}[one["hit"]]
        floor = _said(one["floor"]) if one["hit"] is False and one["floor"] else ""
        rows.append((one["title"], sign + _said(one["limits"]), _said(one["measured"]), said, floor))
    return table(("wanted", "", "measured", "", "floor"), rows)


def _said(values: Values) -> str:
    return ", ".join(number(value) for value in values) or "-"
