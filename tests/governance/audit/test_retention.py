"""A log that does not keep everything: what is too old goes, and what is left is found to be right, or not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.governance.audit import (
    AuditBroken,
    AuditLog,
    EntrySigner,
    LogHead,
    Terms,
    appender,
    log,
    retention,
    verify,
)
from gateway.governance.audit.files import log_path
from gateway.governance.audit.retention import DAY
from tests.governance.audit.support import event, files_of
from tests.governance.audit.test_keys import KEY, ring
from tests.support.aio import Clock as LoopClock
from tests.support.aio import later, run

START = 1_750_000_000.0


class Clock:
    """The time that logs go by."""

    def __init__(self) -> None:
        self.now = START

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    found = Clock()
    for module in (log, retention):
        monkeypatch.setattr(module, "time", found)
    yield found


async def write(opened: AuditLog, count: int) -> LogHead:
    return [await opened.append(event(number)) for number in range(count)][-1].head


def names(folder: Path) -> list[str]:
    return [path.name for path in files_of(folder)]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the log tells nobody when it has removed something
        await asyncio.sleep(0.01)


async def gone(folder: Path, count: int) -> None:
    """Until that many files are left."""
    await until(lambda: len(names(folder)) == count)


async def days_of(folder: Path, clock: Clock, days: int, *, signer: EntrySigner | None = None) -> LogHead:
    """A log that was written to once a day; its newest entry."""
    async with AuditLog(log_path(folder, 1), signer=signer) as opened:
        opened.keep(Terms(days=days * 10))
        for _ in range(days):
            head = await write(opened, 2)
            clock.now += DAY
    return head


def test_a_file_is_a_day_and_what_is_too_old_is_removed_after_the_log_has_said_so(tmp_path: Path, clock: Clock) -> None:
    async def scenario() -> None:
        await days_of(tmp_path, clock, 6, signer=EntrySigner(KEY))
        assert len(names(tmp_path)) == 6
        torn = [tmp_path / f"audit-log.{number:012d}.0123abcd.torn" for number in (5, 6)]
        for each in torn:
            each.write_bytes(b"{")
        async with AuditLog(log_path(tmp_path, 1), signer=EntrySigner(KEY)) as opened:
            opened.keep(Terms(days=3))
            await until(lambda: not torn[0].exists())
            assert len(names(tmp_path)) == 4 and torn[1].exists()
        assert names(tmp_path)[0] == "audit-log.000000000006.jsonl"

    run(scenario())
    keys = ring(tmp_path, EntrySigner(KEY))
    report = verify(files_of(tmp_path), keyring=keys)
    assert report.mistakes == [] and report.removed is not None and report.removed.seq == 5
    assert verify(files_of(tmp_path), head=report.head, keyring=keys).mistakes == []


def test_what_was_removed_without_a_word_is_missing(tmp_path: Path, clock: Clock) -> None:
    run(days_of(tmp_path, clock, 4))
    (tmp_path / names(tmp_path)[0]).unlink()
    (mistake,) = verify(files_of(tmp_path)).mistakes
    assert (mistake.line, mistake.code) == (1, "chain.seq_gap") and mistake.file.endswith("000000000002.jsonl")
    assert mistake.what == "entries 0 to 1 are missing before entry 2"


def test_more_than_was_said_to_be_removed_is_missing(tmp_path: Path, clock: Clock) -> None:
    async def scenario() -> None:
        await days_of(tmp_path, clock, 6)
        async with AuditLog(log_path(tmp_path, 1)) as opened:
            opened.keep(Terms(days=3))
            await gone(tmp_path, 4)

    run(scenario())
    (tmp_path / names(tmp_path)[0]).unlink()
    (mistake,) = verify(files_of(tmp_path)).mistakes
    assert mistake.code == "chain.seq_gap" and "before entry 8" in mistake.what


async def test_a_file_that_cannot_be_read_stays_and_those_after_it_do(tmp_path: Path, clock: Clock) -> None:
    await days_of(tmp_path, clock, 6)
    first, second = files_of(tmp_path)[:2]
    second.write_bytes(second.read_bytes().replace(b'"n":1', b'"n":7'))
    assert first.name not in await tidied(tmp_path, clock, 2)
    assert names(tmp_path)[0] == second.name and len(names(tmp_path)) >= 5


def test_an_entry_that_is_known_and_older_than_the_log_cannot_be_vouched_for(tmp_path: Path, clock: Clock) -> None:
    async def scenario() -> None:
        await days_of(tmp_path, clock, 3)
        async with AuditLog(log_path(tmp_path, 1)) as opened:
            opened.keep(Terms(days=1))
            await gone(tmp_path, 2)

    run(scenario())
    removed = verify(files_of(tmp_path)).removed
    assert removed is not None and removed.seq == 3
    assert verify(files_of(tmp_path), head=removed).mistakes == []
    for known in (1, removed.seq):
        (mistake,) = verify(files_of(tmp_path), head=LogHead(known, "0" * 64)).mistakes
        assert mistake.code == "chain.truncated" and "the log begins with entry 4" in mistake.what


async def test_a_log_that_nothing_was_written_to_for_long_is_emptied_too_and_opens_again(
    tmp_path: Path, clock: Clock
) -> None:
    async with AuditLog(log_path(tmp_path, 1)) as opened:
        opened.keep(Terms(days=1))
        last = await write(opened, 3)
    clock.now += 30 * DAY
    async with AuditLog(log_path(tmp_path, 1), head=last) as opened:
        opened.keep(Terms(days=1))
        await until(lambda: opened.head is not None and opened.head.seq == 3)
    clock.now += DAY / 2
    async with AuditLog(log_path(tmp_path, 1), head=last) as opened:
        opened.keep(Terms(days=1))
        await until(lambda: opened.head is not None and opened.head.seq == 4)
        await gone(tmp_path, 1)
    (left,) = files_of(tmp_path)
    assert b'"n":' not in left.read_bytes()
    async with AuditLog(log_path(tmp_path, 1)) as opened:
        assert opened.head is not None and opened.head.seq == 4
        assert (await opened.append(event())).seq == 5
    report = verify([left])
    assert report.mistakes == [] and report.removed == last
    left.write_bytes(b"".join(left.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(AuditBroken, match=r"jsonl#L1:.* entries 0 to 2 are missing before entry 3"):
        await AuditLog(log_path(tmp_path, 1)).open()


async def test_nothing_goes_before_the_entry_that_says_so_is_known_elsewhere(tmp_path: Path, clock: Clock) -> None:
    await days_of(tmp_path, clock, 4)
    there, kept, go = len(names(tmp_path)), list[int](), asyncio.Event()

    async def on_head(seq: int, _value: str) -> None:
        if seq > 7:
            await go.wait()
        kept.append(seq)

    opened = AuditLog(log_path(tmp_path, 1), on_head=on_head)
    await opened.open()
    opened.keep(Terms(days=2))
    await until(lambda: opened.head is not None and opened.head.seq == 8)
    assert len(names(tmp_path)) >= there and max(kept, default=0) <= 7
    go.set()
    await gone(tmp_path, there - 1)
    assert kept[-1] >= 8
    await opened.aclose()


async def tidied(folder: Path, clock: Clock, days: int) -> list[str]:
    """The files that are left once somebody has looked for what is too old."""
    async with AuditLog(log_path(folder, 1)) as opened:
        opened.keep(Terms(days=100_000))
        await opened._upkeep.tidy(days, clock.now)
    return names(folder)


@pytest.mark.parametrize("days", [1, 2, 30])
@pytest.mark.parametrize("busy", [True, False])
def test_a_clock_that_was_set_far_ahead_removes_nothing_for_a_day_and_says_so(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, days: int, busy: bool
) -> None:
    async def scenario() -> None:
        await days_of(tmp_path, clock, 4)
        before = names(tmp_path)
        clock.now += 4000 * DAY
        end = clock.now + (DAY if days > 1 else DAY / 2)
        while clock.now < end:
            assert (await tidied(tmp_path, clock, days))[: len(before) - 1] == before[:-1]
            if busy:
                async with AuditLog(log_path(tmp_path, 1)) as opened:
                    opened.keep(Terms(days=100_000))
                    await write(opened, 1)
            clock.now += DAY / 4
        assert "entries up to 7 are older than" in caplog.text and "clock" in caplog.text
        assert not set(before[:-1]) & set(await tidied(tmp_path, clock, days))

    run(scenario())
    report = verify(files_of(tmp_path))
    assert report.mistakes == [] and report.removed is not None and report.removed.seq == 7


async def test_a_clock_that_was_ahead_for_an_hour_has_removed_nothing_and_what_is_old_goes_once_it_is_right(
    tmp_path: Path, clock: Clock
) -> None:
    await days_of(tmp_path, clock, 4)
    before = names(tmp_path)
    clock.now += 4000 * DAY
    await tidied(tmp_path, clock, 30)
    clock.now -= 4000 * DAY
    assert (await tidied(tmp_path, clock, 30))[: len(before) - 1] == before[:-1]
    assert names(tmp_path)[0] == before[0]
    clock.now += 40 * DAY
    assert before[0] not in await tidied(tmp_path, clock, 30)


def test_what_is_too_old_is_looked_for_every_hour(tmp_path: Path, clock: Clock) -> None:
    async def scenario() -> None:
        await days_of(tmp_path, clock, 6)
        async with AuditLog(log_path(tmp_path, 1)) as opened:
            opened.keep(Terms(days=3))
            await gone(tmp_path, 4)
            oldest = names(tmp_path)[0]
            clock.now += DAY
            await write(opened, 20)
            assert names(tmp_path)[0] == oldest
            await later(retention.EVERY_SECONDS)
            await until(lambda: names(tmp_path)[0] != oldest)

    run(scenario(), 2 * retention.EVERY_SECONDS, loop_factory=LoopClock)


async def test_a_term_that_is_taken_back_removes_nothing(tmp_path: Path, clock: Clock) -> None:
    await days_of(tmp_path, clock, 6)
    async with AuditLog(log_path(tmp_path, 1)) as opened:
        before = asyncio.all_tasks()
        opened.keep(Terms(days=3))
        left = asyncio.all_tasks() - before
        opened.keep(Terms())
        assert left and not (await asyncio.wait(left, timeout=60))[1]
    assert len(names(tmp_path)) == 6


async def test_without_a_term_nothing_goes_and_files_are_as_long_as_they_may_be(tmp_path: Path, clock: Clock) -> None:
    async with AuditLog(log_path(tmp_path, 1)) as opened:
        for _ in range(5):
            await write(opened, 1)
            clock.now += 100 * DAY
    assert names(tmp_path) == ["audit-log.jsonl"]


async def test_a_crash_at_any_file_leaves_a_log_that_is_right(tmp_path: Path, clock: Clock) -> None:
    await days_of(tmp_path, clock, 6)
    there = files_of(tmp_path)
    data = {path: path.read_bytes() for path in there}
    async with AuditLog(log_path(tmp_path, 1)) as opened:
        opened.keep(Terms(days=2))
        await gone(tmp_path, 3)
    for left in itertools.count():
        removed = [path for path in there if not path.exists()]
        assert verify(files_of(tmp_path)).mistakes == [], left
        async with AuditLog(log_path(tmp_path, 1)):
            pass
        if not removed:
            return
        removed[-1].write_bytes(data[removed[-1]])


def test_a_day_is_what_a_file_holds(tmp_path: Path, clock: Clock) -> None:
    assert appender.FILE_SECONDS == DAY
    run(days_of(tmp_path, clock, 3))
    assert names(tmp_path) == ["audit-log.000000000000.jsonl", "audit-log.000000000002.jsonl", "audit-log.jsonl"]
