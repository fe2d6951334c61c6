"""The benchmark of requests works: every figure is there, every answer came whole. How fast is not asked here."""

from __future__ import annotations

from typing import Any

import pytest

from bench import sizes
from bench.chunks import Snapshots, Stamps, steady
from bench.peers import GATEWAY
from bench.wanted import WANTED, judged
from tests.bench.conftest import Benchmark

LATENCIES = ("wait_1", "wait_many", *(f"stream_{count}" for count in sizes.TINY.streams))


@pytest.fixture(scope="module")
def ran(benchmark: Benchmark) -> tuple[dict[str, Any], str]:
    return benchmark("agent_connect")


def test_every_figure_is_measured_directly_and_through_the_gateway(ran: tuple[dict[str, Any], str]) -> None:
    figures = ran[0]["figures"]
    for name in LATENCIES:
        assert figures[name]["direct"]["p50"] > 0, name
        assert figures[name]["through"]["p50"] > 0, name
        assert isinstance(figures[name]["added_ms"]["through"], float)
    for way in ("direct", "bare", "lean", "rows", "through"):
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


def test_the_summary_is_the_last_twelve_lines(ran: tuple[dict[str, Any], str]) -> None:
    told, text = ran
    last = text.splitlines()[-12:]
    for line, one, wanted in zip(last, told["targets"], WANTED, strict=True):
        assert line.startswith(wanted.title)
        assert one["title"] == wanted.title
    measured = [one["title"] for one in told["targets"] if one["measured"] and None not in one["measured"]]
    assert len(measured) >= 4, "those of requests and of the flood"
    assert all(one["hit"] is None for one in told["targets"] if not one["measured"])


def figures_of(through: float, rate: float) -> dict[str, Any]:
    """The gateway has so many times what the bare proxy has, and the lean translator and its rows half as much."""
    costs = {"bare": 10.0, "through": 10.0 * through, "rows": 5.0 * through, "lean": 5.0 * through}
    ways = {way: {"p99": cost, "per_second": 100 * rate if way == "through" else 100.0} for way, cost in costs.items()}
    one = {"cpu_us": costs, "added_ms": costs, **ways}
    names = ("wait_1", "wait_many", "stream_1", "stream_32", "stream_200", "saturate")
    return dict.fromkeys(names, one)


def test_a_line_is_hit_at_its_limit_and_missed_beyond_it() -> None:
    assert [one["hit"] for one in judged(figures_of(1.1, 0.95))][:6] == [True] * 6
    assert [one["hit"] for one in judged(figures_of(2.01, 0.94))][:6] == [False] * 6
    assert judged(figures_of(2.01, 0.94))[0]["floor"] == [pytest.approx(1.005)]


def test_a_peer_that_is_ahead_in_one_group_is_seen() -> None:
    def group(ours: float, theirs: float) -> dict[str, Any]:
        rounds = [{"direct": {"p50": 1.0}, GATEWAY: {"p50": 2.0, "rate": ours}, "peer": {"p50": 2.0, "rate": theirs}}]
        return {"one": rounds, "many": rounds, "flood": rounds}

    told = {"peers": {"groups": {"prompt": group(30.0, 10.0), "socket": group(5.0, 10.0)}}}
    (line,) = (one for one in judged(told) if one["title"].startswith("requests/s, chunks/s"))
    assert (line["measured"], line["hit"]) == ([0.5, 0.5], False)


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


def test_chunks_of_any_form_are_counted_once_wherever_they_are_cut() -> None:
    told = b'data: {"delta": "%019d "}\n\ndata: {"delta": "%019d "}\n\nall of it: %019d %019d \n' % (7, 8, 7, 8)
    for size in (1, 9, len(told)):
        reader = Stamps()
        for at in range(0, len(told), size):
            reader.feed(told[at : at + size])
        assert reader.sent == [7, 8]
