"""What is drawn as growth: every line is measured, and one that is steeper than the work is seen."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from bench import growth, sizes
from bench.growth import Line, copy_runs
from gateway.store.sqlite.schema import connect_writer
from tests.bench.conftest import Benchmark


def test_every_line_is_measured_at_each_size(benchmark: Benchmark) -> None:
    lines = benchmark("growth")[0]["figures"]["growth"]
    counts = {name: list(getattr(sizes.TINY.growth, name)) for name in ("streams", "editors", "sessions", "mcp")}
    assert [[int(count) for count in line["points"]] for line in lines][:4] == list(counts.values())
    assert len(lines) == 7
    for line in lines:
        assert line["growth"], line["title"]
        for point in line["points"].values():
            assert all(value is not None for value in point.values()), line


def test_what_costs_more_beside_many_is_steeper_than_the_work() -> None:
    line = Line("runs in the store")
    line.points = {10: {"us a request": 100.0, "ms p99": 1.0}, 1000: {"us a request": 200.0, "ms p99": 9.0}}
    assert line.growth("us a request") == 2.0
    assert growth.steep([line.told()]) == ["runs in the store: us a request"]
    line.points[1000]["us a request"] = 140.0
    assert growth.steep([line.told()]) == []


def test_a_run_is_copied_with_an_id_of_its_own_in_its_row_and_its_record(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    with connect_writer(file) as database:
        database.execute(
            "INSERT INTO runs (id, owner, place, status, agent, thread, protocol, created_at, updated_at, reserved, "
            "record) VALUES ('one', 'o', 2, 'success', 'a', NULL, 'p', 100.0, 100.0, 0, ?)",
            (bytearray(b'{"id":"one"}'),),
        )
    database.close()
    copy_runs(file, 5)
    with sqlite3.connect(file) as read:
        rows = read.execute("SELECT id, record, created_at FROM runs ORDER BY seq").fetchall()
    read.close()
    assert len({row[0] for row in rows}) == len(rows) == 6
    assert [json.loads(record)["id"] for _, record, _ in rows] == [row[0] for row in rows]
    assert [created for _, _, created in rows] == sorted((row[2] for row in rows), reverse=True)
