"""Figures of callers and of large documents to text."""

from __future__ import annotations

from bench.agent_communication.documents import CASES
from bench.rounds import Figures
from bench.tables import number, table

WAYS = {"direct": "direct", "bare": "bare proxy", "socket": "WebSocket", "http": "Streamable HTTP", "stdio": "stdio"}
HEAD = ("documents", "direct, s", "s", "CPU, s", "MB in", "MB out", "events", "ns/B", "CPU", "ns/B in", "CPU")
"""`in`: what the agent sends; `ns/B`: time for a byte of the document; `ns/B in`: for a byte that the agent sends."""
_BLANK = ("",) * (len(HEAD) - 1)
GROWTH = ("growth of a byte from one size to the next, the worse", "CPU", "time")


def _named(figures: Figures, prefix: str) -> list[tuple[str, Figures]]:
    callers = figures["agent_communication"]
    return [(name.removeprefix(prefix), one) for name, one in callers.items() if name.startswith(prefix)]


def lines(figures: Figures) -> list[str]:
    """What a person reads."""
    told = table(("calls, agent on stdio", *WAYS.values()), _rows(figures))
    told += ["", *table(("processor time", *WAYS.values()), _costs(figures)), ""]
    return [*told, *table(HEAD, _documents(figures)), "", *table(GROWTH, _growths(figures))]


def _growths(figures: Figures) -> list[tuple[str, ...]]:
    rows = []
    for case in CASES:
        grown = figures["agent_communication"]["documents"][case.name]["growth"]
        worst = [max(grown[f"{what}ns_{case.per}"], default=None) for what in ("cpu_", "")]
        rows.append((case.title, *map(number, worst)))
    return rows


def _rows(figures: Figures) -> list[tuple[str, ...]]:
    rows = []
    for count, one in _named(figures, "paced_"):
        rows.append(_each(f"delta, {count} calls, ms p50", one, "p50"))
        rows.append(("  added", "-", *(number(one["added_ms"].get(way)) for way in list(WAYS)[1:])))
        rows.append(_each("  p99", one, "p99"))
        rows.append(_each("  to the first delta", one, "first"))
    for count, one in _named(figures, "rush_"):
        rows.append(_each(f"chunks/s (in), {count} calls", one, "per_second"))
        rows.append(_each("  deltas/s (out)", one, "messages_per_second"))
    return rows


def _each(title: str, one: Figures, name: str) -> tuple[str, ...]:
    return title, *(number(one[way][name]) for way in WAYS)


def _costs(figures: Figures) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for prefix in ("paced_", "rush_"):
        for count, one in _named(figures, prefix):
            costs = one["costs"]
            rows.append((f"{prefix}{count}, us a chunk", *(number(costs[way]["cpu_us"]) for way in WAYS)))
            for who, title in (("between", "  cores, gateway"), ("agent", "  agent"), ("load", "  clients")):
                rows.append((title, *(number(costs[way]["cores"][who]) for way in WAYS)))
    return rows


def _documents(figures: Figures) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for case in CASES:
        of = figures["agent_communication"]["documents"][case.name]
        rows.append((case.title, *_BLANK))
        for size, one in of["sizes"].items():
            rows.append(
                (
                    f"  {int(size) // 1000} KB",
                    number(one["direct_seconds"]),
                    number(one["seconds"]),
                    number(one.get("cpu")),
                    number(one["received"] / 1e6),
                    number(one["bytes"] / 1e6),
                    number(one["messages"]),
                    number(one["ns_document"]),
                    number(one.get("cpu_ns_document")),
                    number(one["ns_received"]),
                    number(one.get("cpu_ns_received")),
                )
            )
    return rows
