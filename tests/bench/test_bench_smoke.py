"""The benchmark of requests works: every figure is there, every answer came whole. How fast is not asked here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import report, sizes
from bench.chunks import Snapshots, steady
from bench.stage import ROOT

LATENCIES = ("wait_1", "wait_many", *(f"stream_{count}" for count in sizes.TINY.streams))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The JSON and the text of one run of tiny sizes."""
    file: Path = tmp_path_factory.mktemp("bench") / "figures.json"
    argv = [sys.executable, "-m", "bench", "--sizes", "tiny", "--only", "agent_connect", "--json", str(file)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def test_every_figure_is_measured_directly_and_through_the_gateway(ran: tuple[dict[str, Any], str]) -> None:
    figures = ran[0]["figures"]
    for name in LATENCIES:
        assert figures[name]["direct"]["p50"] > 0, name
        assert figures[name]["through"]["p50"] > 0, name
        assert isinstance(figures[name]["added_ms"], float)
    for way in ("direct", "bare", "through"):
        assert figures["wait_many"][way]["per_second"] > 0
        # on a slow machine nothing may have come in time, but then later
        assert isinstance(figures["saturate"][way]["per_second"], float)
        assert isinstance(figures["saturate"][way]["snapshots_per_second"], float)
        assert all(turns[way]["all"] > 0 for turns in figures["saturate"]["rounds"])
    assert figures["start"]["seconds"] > 0
    assert figures["sync_ms"] > 0
    assert figures["memory"]["fresh_mb"] > 10


def test_every_chunk_of_every_stream_came(ran: tuple[dict[str, Any], str]) -> None:
    for count in sizes.TINY.streams:
        for pair in ran[0]["figures"][f"stream_{count}"]["rounds"]:
            for half in pair.values():
                assert half["chunks"] == count * sizes.TINY.stream_chunks


def test_the_large_answer_came_whole_as_snapshots(ran: tuple[dict[str, Any], str]) -> None:
    whole = ran[0]["figures"]["whole"]
    for size in map(str, sizes.TINY.whole):
        for took in whole["rounds"]:
            assert took[size]["through"]["last"] == int(size)
            assert took[size]["through"]["largest"] > int(size)
            assert took[size]["through"]["events"] > 1


def test_each_target_is_said_to_be_hit_or_missed(ran: tuple[dict[str, Any], str]) -> None:
    told, text = ran
    assert [one["name"] for one in told["targets"]] == [target.name for target in report.TARGETS]
    for one in told["targets"]:
        assert isinstance(one["hit"], bool)
        assert one["name"] in text
    assert sum(line.endswith(("  hit", "  missed")) for line in text.splitlines()) == len(report.TARGETS)


def test_a_target_is_missed_by_a_figure_beyond_it() -> None:
    streams = {"stream_1": {"added_ms": 0.05}, "stream_200": {"added_ms": 0.11}}
    figures: dict[str, Any] = {
        **streams,
        "wait_1": {"added_ms": 1.01},
        "wait_many": {"through": {"per_second": 2999}},
        "saturate": {"through": {"per_second": 29_999}},
        "memory": {"per_stream_kb": 501},
        "whole": {"growth": 4, "time_growth": 16, "bytes_growth": 4},
    }
    assert not any(one["hit"] for one in report.judged(figures))


def test_a_target_is_hit_by_a_figure_at_it() -> None:
    figures: dict[str, Any] = {
        "stream_1": {"added_ms": 0.1},
        "wait_1": {"added_ms": 1.0},
        "wait_many": {"through": {"per_second": 3000}},
        "saturate": {"through": {"per_second": 30_000}},
        "memory": {"per_stream_kb": 500},
        "whole": {"growth": 4, "time_growth": 4, "bytes_growth": 4},
    }
    assert all(one["hit"] for one in report.judged(figures))


def event(*sent: int) -> bytes:
    text = b"".join(b"%019d " % ns for ns in sent)
    return b'id: 1\ndata: {"type":"values","values":{"message":"%b"}}\n\n' % text


def test_chunks_that_come_in_one_snapshot_are_counted_one_by_one() -> None:
    reader = Snapshots()
    whole = event(1000) + event(1000, 2000, 3000)
    for at in range(len(whole)):
        reader.feed(whole[at : at + 1])
    assert reader.sent == [1000, 2000, 3000]
    assert (reader.snapshots, reader.bytes) == (2, len(whole))


def test_only_chunks_sent_while_every_stream_was_open_count_as_steady() -> None:
    early, late = Snapshots(), Snapshots()
    early.sent, early.latency, early.first_at = [10, 20, 30], [1.0, 2.0, 3.0], 11
    late.sent, late.latency, late.first_at = [18, 28, 40], [4.0, 5.0, 6.0], 19
    assert steady([early, late]) == [2.0, 3.0, 5.0]
