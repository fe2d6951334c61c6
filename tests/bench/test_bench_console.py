"""The program that shows what open consoles cost works, and what it is to show holds: none of them holds much."""

from __future__ import annotations

import pytest

from bench import console

MOST = 45e6
"""Bytes that twenty consoles may take; each is read for by a quarter of a megabyte of the log at a time."""


def test_what_consoles_cost_is_told(forked: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.main(["--consoles", "0", "2", "--chunks", "2000", "--runs", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        [n, "consoles", how] for n, how in (("0", "open"), ("2", "open"), ("2", "asleep"))
    ]


def test_twenty_consoles_of_a_busy_gateway_that_read_or_sleep_take_little_memory(forked: None) -> None:
    closed, reading, asleep = console.measure([0, 20], 20_000, 2)
    assert closed.most is not None and reading.most is not None and asleep.most is not None, "Linux tells it"
    assert reading.read > 20 * 2 * 20_000 * 20, "each has read each run"
    assert reading.most - closed.most < MOST and asleep.most - closed.most < MOST, (closed, reading, asleep)
