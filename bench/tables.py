"""What reports are made of: targets, tables, numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.rounds import Figures


@dataclass(frozen=True)
class Target:
    """One promise. `measured` takes it from the figures, `good` says whether it is kept."""

    name: str
    wanted: str
    measured: Callable[[Figures], float]
    good: Callable[[float], bool]
    unit: str

    def judged(self, figures: Figures) -> Figures:
        """Whether it is hit."""
        measured = self.measured(figures)
        told: Figures = {"name": self.name, "target": self.wanted, "measured": measured, "unit": self.unit}
        return told | {"hit": self.good(measured)}


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Lines of columns, the first to the left."""
    rows = list(rows)
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width) for at, (cell, width) in enumerate(pairs)
        ).rstrip()
        for pairs in (list(zip(row, widths, strict=True)) for row in [head, *rows])
    ]


def hits(targets: Sequence[Figures]) -> list[str]:
    """The table of what was judged."""
    rows = [
        (one["name"], one["target"], f"{number(one['measured'])} {one['unit']}", "hit" if one["hit"] else "missed")
        for one in targets
    ]
    return table(("target", "wanted", "measured", ""), rows)


def number(value: float | None) -> str:
    """With three digits that count, or as many as a whole number has."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 1 else f"{value:.3f}"
