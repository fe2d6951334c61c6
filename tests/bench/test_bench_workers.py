"""Workers are compared on both stores, and all figures of the table are there. How fast they are is not asked here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from bench import workers
from bench.stage import Broken
from tests.bench.conftest import Benchmark

WAYS = {"1 worker, SQLite", "2 workers, SQLite", "1 worker, PostgreSQL", "2 workers, PostgreSQL"}


def test_workers_are_compared_on_both_stores(benchmark: Benchmark) -> None:
    told, text = benchmark("workers")
    figures = told["figures"]["workers"]
    assert set(figures["added_ms"]) == WAYS
    for way in WAYS:
        assert figures["requests"][way]["per_second"] > 0 and figures["chunks"][way]["per_second"] > 0
        assert figures["requests"][way]["between"] > 0 and figures["requests"][way]["limit"] > 0
        assert any(line.startswith(way) for line in text.splitlines())
    assert "two workers to one: " in text and "PostgreSQL to SQLite, one worker: " in text


def test_the_measured_postgresql_keeps_what_it_is_told_as_it_does_where_it_is_installed() -> None:
    costs = "name ~ '^(fsync|synchronous_commit|full_page_writes|wal_sync_method|autovacuum.*|.*_wal_size)$'"
    with workers._server() as server:
        assert server.sql(f"SELECT name FROM pg_settings WHERE setting <> boot_val AND {costs}") == []


class Slow:
    """A stage whose load is answered after so many seconds."""

    agent_port = 1
    places: ClassVar = {"direct": SimpleNamespace(child=SimpleNamespace(cpu=lambda: 0.0))}

    def __init__(self, after: float) -> None:
        self._after = after

    def do(self, *, seconds: float, **_: object) -> dict[str, float]:
        return {"chunks": int(seconds > self._after), "seconds": seconds, "wall": seconds, "cpu": 0.1}


def test_a_turn_in_which_nothing_came_is_longer_and_at_last_says_so() -> None:
    job = {"kind": "saturate", "seconds": 0.5}
    assert workers._turn(cast("Any", Slow(3.0)), None, "/runs/stream", job)["seconds"] == 5
    with pytest.raises(Broken, match=r"nothing of /runs/stream came within 50\.0 seconds"):
        workers._turn(cast("Any", Slow(100.0)), None, "/runs/stream", job)
