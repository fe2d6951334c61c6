"""How much of everything is measured. `full` stays below three minutes, `quick` below forty seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """A round is one turn directly, one through the bare proxy, one through the gateway; which is first changes."""

    name: str
    limit: float
    """Seconds after which no more rounds are begun; each measurement has at least one."""
    starts: int
    """Gateways that are started only to see how long it takes; two others are."""
    rounds: int
    one_seconds: float
    """Of each turn of requests one after the other."""
    many_seconds: float
    """Of each turn of requests, `MANY` at once."""
    streams: tuple[int, ...]
    stream_chunks: int
    pace: float
    """Seconds between two chunks of one stream."""
    saturate_streams: int
    saturate_seconds: float
    saturate_chunks: int
    """Of one run; the next follows at once."""
    held: int
    threads: int
    whole_rounds: int
    whole: tuple[int, int]
    """Bytes of the small and of the large plain answer; the second is the target's."""


MANY = 64

FULL = Sizes(
    name="full",
    limit=140.0,
    starts=1,
    rounds=4,
    one_seconds=1.0,
    many_seconds=1.25,
    streams=(1, 32, 200),
    stream_chunks=40,
    pace=0.05,
    saturate_streams=32,
    saturate_seconds=1.25,
    saturate_chunks=200,
    held=100,
    threads=500,
    whole_rounds=3,
    whole=(256 * 1000, 1000 * 1000),
)
QUICK = Sizes(
    name="quick",
    limit=20.0,
    starts=0,
    rounds=2,
    one_seconds=0.4,
    many_seconds=0.5,
    streams=(1, 32, 200),
    stream_chunks=15,
    pace=0.05,
    saturate_streams=32,
    saturate_seconds=0.5,
    saturate_chunks=200,
    held=100,
    threads=50,
    whole_rounds=1,
    whole=(256 * 1000, 1000 * 1000),
)
TINY = Sizes(
    name="tiny",
    limit=1.0,
    starts=0,
    rounds=1,
    one_seconds=0.05,
    many_seconds=0.1,
    streams=(1, 4),
    stream_chunks=5,
    pace=0.005,
    saturate_streams=4,
    saturate_seconds=0.2,
    saturate_chunks=20,
    held=5,
    threads=5,
    whole_rounds=1,
    whole=(5_000, 20_000),
)
"""Shows that everything works; its figures mean nothing."""

ALL = {sizes.name: sizes for sizes in (FULL, QUICK, TINY)}
