"""Rounds of turns: what is measured one way is measured the other ways too, in the same round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Figures = dict[str, Any]


def in_rounds(ways: Sequence[str], count: int, until: float, turn: Callable[[str], Figures]) -> list[Figures]:
    """Up to `count` rounds of one turn each way; which is first changes. None is begun after `until` but the first."""
    rounds: list[Figures] = []
    for number in range(count):
        if rounds and time.monotonic() > until:
            break
        first = number % len(ways)
        rounds.append({way: turn(way) for way in (*ways[first:], *ways[:first])})
    return rounds


def turns(rounds: Iterable[Figures]) -> list[Figures]:
    """All of them."""
    return [turn for one in rounds for turn in one.values()]


def medians(rounds: Sequence[Figures], names: Sequence[str]) -> Figures:
    """Of each way, over the rounds."""
    ways = rounds[0]
    return {way: {name: statistics.median(one[way][name] for one in rounds) for name in names} for way in ways}


def added(rounds: Sequence[Figures], name: str, way: str = "through") -> float:
    """What that way has more than the direct one: the median of the rounds' differences."""
    return float(statistics.median(one[way][name] - one["direct"][name] for one in rounds))


def cores(before: dict[str, float | None], after: dict[str, float | None], wall: float) -> Figures:
    """How much of a core each process took, from its processor time before and after; None where it is not known."""
    return {name: _share(before[name], used, wall) for name, used in after.items()}


def _share(before: float | None, after: float | None, wall: float) -> float | None:
    return None if after is None or before is None else (after - before) / wall


def core(name: str, turns: Sequence[Figures]) -> float | None:
    """How much of a core that process took, the median; None if unknown."""
    shares = [turn["cores"].get(name) for turn in turns]
    return None if None in shares else float(statistics.median(shares))


def micros(name: str, turns: Sequence[Figures], unit: str) -> float | None:
    """Microseconds of that process's processor time for each `unit`; None if unknown."""
    shares = [turn["cores"].get(name) for turn in turns]
    if None in shares:
        return None
    spent = sum(share * turn["wall"] for share, turn in zip(shares, turns, strict=True))
    return float(spent / max(1, sum(turn[unit] for turn in turns)) * 1e6)
