"""How much of everything is measured. `full` stays below five minutes, `quick` below a minute and a half, on a quiet
machine; `agent_communication` below three minutes and one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EditorSizes:
    """Of what is measured with editors (agent_client/measure.py). A round is one turn each way."""

    limit: float
    """As below, for these measurements alone."""
    rounds: int
    sessions: tuple[int, ...]
    """At once, paced."""
    chunks: int
    """Of a paced prompt."""
    pace: float
    floods: tuple[tuple[int, int], ...]
    """Sessions that are kept busy, and chunks of one prompt; the next follows at once."""
    flood_seconds: float
    firsts: int
    held: int
    """Sessions, for their memory."""


@dataclass(frozen=True)
class CallerSizes:
    """Of what is measured with callers (agent_communication/measure.py and documents.py)."""

    limit: float
    """As below, for calls."""
    rounds: int
    calls: tuple[int, ...]
    """At once, paced."""
    chunks: int
    """Of a paced call."""
    pace: float
    rushes: tuple[tuple[int, int], ...]
    """Calls that are kept under way, and chunks of one; the next follows at once."""
    rush_seconds: float
    documents_limit: float
    """As `limit`, for documents."""
    document_rounds: int
    documents: tuple[int, ...]
    """Bytes, from small to large."""
    snapshots: tuple[int, ...]
    """The same, of documents that come in snapshots which are 20 bytes larger each."""


@dataclass(frozen=True)
class CompareSizes:
    """Of a comparison of two versions (compare.py). A round is one turn of each."""

    rounds: int
    starts: int
    seconds: float
    """Of a turn that has no end of its own."""
    chunks: int
    """Of a paced stream or prompt."""
    pace: float


@dataclass(frozen=True)
class PeerSizes:
    """Of what is measured beside other gateways (peers/). A round is one turn of each."""

    rounds: int
    seconds: float
    flood_seconds: float


@dataclass(frozen=True)
class WorkerSizes:
    """Of what is measured with several workers (workers.py). A round is one turn of each."""

    limit: float
    rounds: int
    seconds: float
    """Of a turn."""
    workers: tuple[int, ...]
    """How many of a gateway, from one on."""


@dataclass(frozen=True)
class GrowthSizes:
    """Of what is drawn as growth (growth.py): how many there are, from few to many."""

    seconds: float
    """Of a turn of requests."""
    stream_seconds: float
    streams: tuple[int, ...]
    editors: tuple[int, ...]
    sessions: tuple[int, ...]
    mcp: tuple[int, ...]
    routes: tuple[int, ...]
    thread: tuple[int, ...]
    store: tuple[int, ...]


@dataclass(frozen=True)
class Sizes:
    """A round is one turn directly, one through the bare proxy, one through the gateway; which is first changes."""

    name: str
    limit: float
    """Seconds after which no more rounds are begun; each measurement has at least one."""
    starts: int
    """Gateways that are started only to see how long it takes; two others are."""
    rounds: int
    warm_seconds: float
    """Of requests that do not count, each way, before those that do."""
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
    """Bytes of the small and of the large example answer; the second is the target's."""
    editors: EditorSizes
    callers: CallerSizes
    compare: CompareSizes
    peers: PeerSizes
    growth: GrowthSizes
    workers: WorkerSizes


MANY = 64

FULL = Sizes(
    name="full",
    limit=140.0,
    starts=1,
    rounds=4,
    warm_seconds=0.5,
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
    editors=EditorSizes(
        limit=110.0,
        rounds=3,
        sessions=(1, 32),
        chunks=30,
        pace=0.05,
        floods=((1, 2000), (32, 200)),
        flood_seconds=1.0,
        firsts=3,
        held=50,
    ),
    callers=CallerSizes(
        limit=110.0,
        rounds=3,
        calls=(1, 32),
        chunks=30,
        pace=0.05,
        rushes=((1, 2000), (32, 200)),
        rush_seconds=1.0,
        documents_limit=170.0,
        document_rounds=3,
        documents=(64_000, 256_000, 1_000_000),
        snapshots=(16_000, 64_000),
    ),
    compare=CompareSizes(rounds=8, starts=5, seconds=0.4, chunks=10, pace=0.05),
    peers=PeerSizes(rounds=5, seconds=0.5, flood_seconds=1.0),
    growth=GrowthSizes(
        seconds=0.5,
        stream_seconds=4.0,
        streams=(50, 200, 1000),
        editors=(100, 1000, 10_000),
        sessions=(50, 500, 5000),
        mcp=(100, 1000, 10_000),
        routes=(100, 1000, 10_000),
        thread=(100, 1000, 10_000),
        store=(1000, 100_000, 1_000_000),
    ),
    workers=WorkerSizes(limit=150.0, rounds=4, seconds=1.25, workers=(1, 2, 4)),
)
QUICK = Sizes(
    name="quick",
    limit=20.0,
    starts=0,
    rounds=2,
    warm_seconds=0.5,
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
    editors=EditorSizes(
        limit=20.0,
        rounds=2,
        sessions=(1, 32),
        chunks=12,
        pace=0.05,
        floods=((1, 2000), (32, 200)),
        flood_seconds=0.4,
        firsts=1,
        held=30,
    ),
    callers=CallerSizes(
        limit=10.0,
        rounds=2,
        calls=(1, 32),
        chunks=10,
        pace=0.05,
        rushes=((1, 2000), (32, 200)),
        rush_seconds=0.3,
        documents_limit=12.0,
        document_rounds=2,
        documents=(64_000, 256_000, 1_000_000),
        snapshots=(16_000, 64_000),
    ),
    compare=CompareSizes(rounds=4, starts=3, seconds=0.3, chunks=10, pace=0.05),
    peers=PeerSizes(rounds=2, seconds=0.3, flood_seconds=0.5),
    growth=GrowthSizes(
        seconds=0.2,
        stream_seconds=2.0,
        streams=(50, 200, 1000),
        editors=(100, 1000),
        sessions=(50, 500),
        mcp=(100, 1000),
        routes=(100, 1000),
        thread=(100, 10_000),
        store=(1000, 100_000),
    ),
    workers=WorkerSizes(limit=40.0, rounds=2, seconds=0.75, workers=(1, 2, 4)),
)
TINY = Sizes(
    name="tiny",
    limit=1.0,
    starts=0,
    rounds=1,
    warm_seconds=0.02,
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
    editors=EditorSizes(
        limit=1.0,
        rounds=1,
        sessions=(1, 3),
        chunks=5,
        pace=0.005,
        floods=((1, 50), (3, 20)),
        flood_seconds=0.1,
        firsts=1,
        held=3,
    ),
    callers=CallerSizes(
        limit=1.0,
        rounds=1,
        calls=(1, 3),
        chunks=5,
        pace=0.005,
        rushes=((1, 50), (3, 20)),
        rush_seconds=0.1,
        documents_limit=1.0,
        document_rounds=1,
        documents=(2_000, 8_000),
        snapshots=(1_000, 4_000),
    ),
    compare=CompareSizes(rounds=1, starts=1, seconds=0.05, chunks=3, pace=0.005),
    peers=PeerSizes(rounds=1, seconds=0.05, flood_seconds=0.2),
    growth=GrowthSizes(
        seconds=0.05,
        stream_seconds=0.1,
        streams=(2, 4),
        editors=(2, 12),
        sessions=(2, 12),
        mcp=(2, 12),
        routes=(2, 20),
        thread=(2, 20),
        store=(2, 20),
    ),
    workers=WorkerSizes(limit=1.0, rounds=1, seconds=0.05, workers=(1, 2)),
)
"""Shows that everything works; its figures mean nothing."""

ALL = {sizes.name: sizes for sizes in (FULL, QUICK, TINY)}
