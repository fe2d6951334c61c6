"""Figures of editors to text."""

from __future__ import annotations

from bench.rounds import Figures
from bench.tables import number, table

WAYS = {"direct": "direct", "bare": "bare proxy", "socket": "WebSocket", "stdio": "stdio", "values": "values"}
STEPS = {"initialized": "initialized", "made": "session", "chunk": "first chunk"}
FIRSTS = {"direct": "direct", "socket": "WebSocket", "again": "WebSocket, agent up", "stdio": "stdio"}


def _named(figures: Figures, prefix: str) -> list[tuple[str, Figures]]:
    editors = figures["agent_client"]
    return [(name.removeprefix(prefix), one) for name, one in editors.items() if name.startswith(prefix)]


def lines(figures: Figures) -> list[str]:
    """What a person reads."""
    editors = figures["agent_client"]
    said = table(("editor, agent on stdio", *WAYS.values()), _rows(figures))
    said += ["", *table(("processor time", *WAYS.values()), _costs(figures)), ""]
    head = ("first prompt of an editor, ms to", *FIRSTS.values())
    rows = [(title, *(number(editors["first"][way][step]) for way in FIRSTS)) for step, title in STEPS.items()]
    memory = editors["memory"]
    said += [
        *table(head, rows),
        "",
        f"memory: {memory['idle_mb']:.0f} MB idle; with {memory['sessions']} open sessions {memory['open_mb']:.0f} MB "
        f"({memory['per_session_kb']:.0f} KB each), and as many in mid-prompt {memory['busy_mb']:.0f} MB "
        f"({memory['per_prompt_kb']:.0f} KB each)",
    ]
    return said


def _rows(figures: Figures) -> list[tuple[str, ...]]:
    rows = []
    for count, one in _named(figures, "paced_"):
        rows.append(_each(f"chunk, {count} sessions, ms p50", one, "p50"))
        rows.append(("  added", "-", *(number(one["added_ms"].get(way)) for way in list(WAYS)[1:])))
        rows.append(_each("  p99", one, "p99"))
        rows.append(_each("  to the first chunk", one, "first"))
    for count, one in _named(figures, "flood_"):
        rows.append(_each(f"chunks/s (in), {count} sessions", one, "per_second"))
        rows.append(_each("  messages/s (out)", one, "messages_per_second"))
    return rows


def _each(title: str, one: Figures, name: str) -> tuple[str, ...]:
    return title, *(number(one[way][name]) for way in WAYS)


def _costs(figures: Figures) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for prefix in ("paced_", "flood_"):
        for count, one in _named(figures, prefix):
            costs = one["costs"]
            rows.append((f"{prefix}{count}, us a chunk", *(number(costs[way]["cpu_us"]) for way in WAYS)))
            for who, title in (("between", "  cores, gateway"), ("agent", "  agent"), ("load", "  editors")):
                rows.append((title, *(number(costs[way]["cores"][who]) for way in WAYS)))
    return rows
