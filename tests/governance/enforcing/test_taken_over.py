"""What a process that has died left in its audit log: another goes on with it there, and lets go of it then."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import time
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.core.errors import Unavailable
from gateway.governance.audit import AuditEvent, AuditLog, LogTaken, aip44
from gateway.governance.audit import log as log_module
from gateway.governance.audit.aip44 import State
from gateway.governance.audit.files import LogFiles, log_numbers, log_path
from gateway.governance.enforcing import journal as journal_module
from gateway.governance.enforcing.journal import Journal
from gateway.governance.enforcing.restoring import UnfinishedSession, read
from tests.governance.enforcing.support import verified
from tests.governance.support import spends_nothing
from tests.support.aio import run
from tests.support.scripted import until


def moved(session: str, after: State) -> AuditEvent:
    return aip44.transition(operator="o", session=session, before=None, after=after)


def called(session: str, call: str = "c1", **more: Any) -> AuditEvent:
    return aip44.tool_call(operator="o", session=session, tool="t", call=call, arguments={}, **more)


def result(session: str, call: str = "c1") -> AuditEvent:
    return aip44.tool_result(operator="o", session=session, tool="t", call=call, result=1)


class Folder:
    """A folder of logs, and which of them this process has made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made: list[int] = []

    def journal(self) -> Journal:
        return Journal(self._make, self._known, spend=spends_nothing)

    async def _make(self, number: int) -> AuditLog:
        self.made.append(number)
        return AuditLog(log_path(self.path, number))

    async def _known(self) -> Collection[int]:
        return log_numbers(self.path)

    async def died(self, number: int, *events: AuditEvent) -> None:
        """A process wrote this into a log, and is no more. It knew what the others had written before."""
        paths = [log_path(self.path, each) for each in log_numbers(self.path)]
        async with AuditLog(log_path(self.path, number)) as log:
            log.follow(*read(paths, time.time()).newest.values())
            await asyncio.gather(*map(log.append, events))

    def free(self, number: int) -> bool:
        """Whether nobody writes a log."""
        try:
            os.close(LogFiles(log_path(self.path, number)).lock())
        except LogTaken:
            return False
        return True

    def told(self, number: int) -> list[str]:
        """A log in short: what was done, in which session."""
        file = log_path(self.path, number)
        lines = [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []
        return [f"{line['action']} {line['metadata']['aip44']['audit']['session']}" for line in lines]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def nobody(session: str) -> bool:
    return False


BEGUN = ["operator.running s", "tool.call s"]
OVER = ["tool.result s", "operator.interrupted s"]


def test_what_no_run_goes_on_with_is_ended_in_the_log_that_it_began_in_and_that_log_is_let_go(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, journal_module.__name__)

    async def story() -> None:
        await folder.died(2, moved("s", "running"), called("s"))
        journal = folder.journal()
        await journal.open()
        assert folder.free(2) and not journal.left("s") and journal.state("s") is None, "its run is not claimed yet"
        await journal.inherit()
        assert not folder.free(2) and journal.state("s") == "interrupted"
        assert (journal.left("s").state, [*journal.left("s").calls]) == ("running", ["c1"])
        assert [record.getMessage() for record in caplog.records] == [
            f"{log_path(folder.path, 2)}: this process goes on with what another left: 1"
        ]
        await journal.settle(nobody)
        assert not journal.left("s")
        await until(lambda: folder.free(2))
        await journal.write("s", moved("s", "running"))
        assert (folder.told(1), folder.told(2)) == (["operator.running s"], [*BEGUN, *OVER])
        await journal.aclose()
        assert folder.free(1)

    run(story())
    verified(folder.path)


def test_a_run_goes_on_in_the_log_that_it_began_in_until_nothing_of_any_does(folder: Folder) -> None:
    async def story() -> None:
        for number, sessions in ((2, "sab"), (3, "c")):
            await folder.died(number, *[event for each in sessions for event in (moved(each, "running"), called(each))])
        journal = folder.journal()
        await journal.open()
        await journal.inherit()
        for session in "ac":
            journal.goes_on(session, ["c1"])
            assert journal.state(session) == "running" and not journal.left(session)
        await journal.settle(nobody)
        await journal.write("new", moved("new", "running"))
        journal.moved("new", "completed")
        for session in "ac":
            await journal.write(session, result(session), moved(session, "completed"))
        assert not folder.free(2) and not folder.free(3), "their runs go on"
        journal.moved("c", "completed")
        await until(lambda: folder.free(3))
        assert not folder.free(2)
        journal.moved("a", None)
        await until(lambda: folder.free(2))
        await journal.write("a", moved("a", "running"))
        await journal.aclose()

    run(story())
    begun = [line.replace(" s", f" {session}") for session in "sab" for line in BEGUN]
    told = folder.told(2)
    assert told[: len(begun)] == begun
    assert sorted(told[len(begun) : -2]) == sorted([*OVER, "tool.result b", "operator.interrupted b"])
    assert told[-2:] == ["tool.result a", "operator.completed a"]
    assert folder.told(3)[2:] == ["tool.result c", "operator.completed c"]
    assert folder.told(1) == ["operator.running new", "operator.running a"]
    verified(folder.path)


def test_a_log_is_not_let_go_while_a_call_of_it_that_no_run_goes_on_with_is_open(folder: Folder) -> None:
    async def story() -> None:
        await folder.died(2, moved("s", "running"), called("s", "c1"), called("s", "c2"))
        journal = folder.journal()
        await journal.open()
        await journal.inherit()
        journal.goes_on("s", ["c2"])
        assert [*journal.left("s").calls] == ["c1"]
        journal.moved("s", "completed")
        await journal.settle(nobody)
        await until(lambda: folder.free(2))
        assert folder.told(2)[3:] == ["tool.result s"]
        await journal.aclose()

    run(story())
    verified(folder.path)


def test_a_log_that_a_living_process_writes_is_left_to_it_and_those_after_it_are_taken_over(folder: Folder) -> None:
    async def story() -> None:
        begun = moved("s", "running"), called("s")
        await folder.died(3, moved("t", "running"))
        async with AuditLog(log_path(folder.path, 2)) as living:
            await asyncio.gather(*map(living.append, begun))
            journal = folder.journal()
            await journal.open()
            await journal.inherit()
            assert not journal.left("s") and journal.state("s") is None
            assert journal.left("t") and not folder.free(3)
        folder.made.clear()
        await journal.inherit()
        assert folder.made == [2], "its own, and those that it has, are not opened again"
        assert journal.left("s") and journal.left("t") and not folder.free(2)
        await journal.aclose()
        assert all(map(folder.free, (1, 2, 3)))
        assert (folder.told(2), folder.told(3)) == (BEGUN, ["operator.running t"]), "it is for the next process"

    run(story())
    verified(folder.path)


async def test_a_log_in_which_nothing_was_left_is_let_go_at_once_and_its_sessions_are_known(folder: Folder) -> None:
    await folder.died(2, moved("s", "running"), moved("s", "completed"))
    await folder.died(3, moved("t", "suspended"))
    journal = folder.journal()
    await journal.open()
    await journal.inherit()
    assert folder.free(2) and not folder.free(3)
    assert (journal.state("s"), journal.state("t")) == ("completed", "interrupted")
    assert not journal.left("s") and journal.left("t")
    await journal.aclose()


async def test_of_a_session_that_this_process_goes_on_with_another_log_says_nothing(folder: Folder) -> None:
    await folder.died(2, moved("s", "suspended"), called("s", "c2"), moved("t", "running"))
    await folder.died(3, moved("s", "resumed"))
    journal = folder.journal()
    await journal.open()
    journal.moved("s", "running")
    await journal.inherit()
    assert not journal.left("s") and journal.state("s") == "running"
    assert journal.left("t") and journal.state("t") == "interrupted"
    assert not folder.free(2) and folder.free(3)
    await journal.write("s", moved("s", "completed"))
    assert folder.told(1)[-1] == "operator.completed s"
    await journal.aclose()


async def test_a_log_that_cannot_be_read_is_let_go_and_can_be_taken_over_later(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(paths: list[Path], now: float) -> Any:
        raise OSError("the disk is gone")

    await folder.died(2, moved("s", "running"))
    journal = folder.journal()
    await journal.open()
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "read", broken)
        with pytest.raises(Unavailable, match="cannot be read") as refused:
            await journal.inherit()
    assert str(log_path(folder.path, 2)) in str(refused.value) and refused.value.detail == "the disk is gone"
    assert folder.free(2) and not journal.left("s")
    await journal.inherit()
    assert journal.left("s")
    await journal.aclose()
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "read", broken)
        with pytest.raises(Unavailable, match="cannot be read"):
            await folder.journal().open()
    assert folder.free(1)


async def test_a_process_takes_the_first_log_that_nobody_writes_and_alone_it_makes_no_other(folder: Folder) -> None:
    async with AuditLog(log_path(folder.path, 1)):
        journal = folder.journal()
        await journal.inherit()
        assert folder.made == [], "it is not open"
        await journal.open()
        await journal.write("s", moved("s", "running"))
        await journal.aclose()
    assert folder.told(2) == ["operator.running s"]
    folder.made.clear()
    alone = Journal(folder._make, spend=spends_nothing)
    await alone.open()
    await alone.open()
    assert folder.made == [1]
    await alone.aclose()
    nothing = Journal(None, spend=spends_nothing)
    await nothing.open()
    await nothing.inherit()
    await nothing.write("s", moved("s", "running"))
    await nothing.aclose()


async def test_a_journal_is_closed_when_the_logs_that_it_lets_go_of_are_and_keeps_nothing_of_these(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    aclose, slow = AuditLog.aclose, log_path(folder.path, 3)

    def closings() -> list[object]:
        tasks = [one for one in gc.get_objects() if issubclass(type(one), asyncio.Task)]
        return [one for one in tasks if "of_these.<locals>.closed" in repr(one)]

    go = asyncio.Event()

    async def closed(log: AuditLog) -> None:
        if log.path == slow:
            await go.wait()
        await aclose(log)

    monkeypatch.setattr(AuditLog, "aclose", closed)
    await folder.died(2, moved("s", "running"))
    go.set()
    await folder.died(3, moved("t", "running"))
    go.clear()
    journal = folder.journal()
    await journal.open()
    await journal.inherit()
    for session in "st":
        journal.goes_on(session, [])
        journal.moved(session, None)
    await until(lambda: folder.free(2) and len(closings()) == 1)
    closing = asyncio.ensure_future(journal.aclose())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(closing), 0.1)
    go.set()
    await closing
    assert all(map(folder.free, (1, 2, 3)))


def test_what_another_process_goes_on_with_is_not_ended_here(folder: Folder) -> None:
    async def by_another(session: str) -> bool:
        return session == "s"

    async def story() -> None:
        await folder.died(2, moved("s", "running"), called("s"))
        journal = folder.journal()
        await journal.open()
        await journal.inherit()
        await journal.settle(by_another)
        await until(lambda: folder.free(2))
        assert folder.told(2) == BEGUN and journal.left("s") == UnfinishedSession() and journal.state("s") is None
        await journal.aclose()

    run(story())
    verified(folder.path)


@pytest.mark.parametrize("set_back", [0, 3600])
def test_what_another_process_has_ended_in_its_own_log_is_not_ended_here_at_this_start_and_the_next(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, set_back: int
) -> None:
    async def story() -> None:
        await folder.died(2, moved("t", "running"), moved("t", "completed"))
        await folder.died(1, moved("s", "running"), called("s"), moved("t", "running"))
        monkeypatch.setattr(log_module, "time", SimpleNamespace(time=lambda: time.time() - set_back))
        replacement, neighbour = folder.journal(), folder.journal()
        await replacement.open()
        await neighbour.open()
        await neighbour.inherit({"s"})
        assert neighbour.left("s") and not neighbour.left("t"), "the log is its replacement's; the run is not"
        await neighbour.settle(nobody)
        assert folder.told(2)[2:] == OVER
        await replacement.settle(nobody)
        assert not replacement.left("s") and replacement.state("s") is None
        assert folder.told(1) == [*BEGUN, "operator.running t", "operator.interrupted t"]
        for journal in (replacement, neighbour):
            await journal.aclose()
        after = folder.journal()
        await after.open()
        await after.settle(nobody)
        assert folder.told(1)[4:] == [] and not after.left("s")
        await after.aclose()

    run(story())
    verified(folder.path)


@pytest.mark.parametrize("last", [1, 2])
def test_of_logs_that_are_held_the_last_word_of_a_session_says_what_was_left_in_it(folder: Folder, last: int) -> None:
    async def story() -> None:
        await folder.died(3 - last, moved("s", "running"), called("s", "c1"))
        await folder.died(last, moved("s", "suspended"), called("s", "c2"))
        held = [folder.journal(), folder.journal()]
        for journal in held:
            await journal.open()
        neighbour = folder.journal()
        await neighbour.open()
        await neighbour.inherit({"s", "unknown"})
        assert [*neighbour.left("s").calls] == ["c1", "c2"]
        assert neighbour.left("s").state == "suspended"
        await neighbour.write("s", moved("s", "running"))
        neighbour.moved("s", None)
        await neighbour.inherit({"s"})
        assert not neighbour.left("s"), "what this process has recorded since is what there is"
        assert folder.told(3) == ["tool.result s", *OVER, "operator.running s"]
        for journal in (*held, neighbour):
            await journal.aclose()

    run(story())
    verified(folder.path)


HELD = ["own free", "own held", "free held", "held free", "free free", "held held"]


@pytest.mark.parametrize("held", HELD)
def test_what_is_told_of_a_session_in_several_logs_is_one_story_and_each_call_of_it_has_one_end(
    folder: Folder, held: str
) -> None:
    async def story() -> None:
        await folder.died(1, moved("s", "running"), called("s", "c1"), called("s", "c2"))
        await folder.died(2, result("s", "c1"), called("s", "c3"), moved("s", "suspended"))
        others = [AuditLog(log_path(folder.path, number)) for number in (1, 2)]
        first, second = held.split()
        if first != "own":
            await others[0].open()
            await others[1].open()
        elif second == "held":
            await others[1].open()
        journal = folder.journal()
        await journal.open()
        for log, place in zip(others, (first, second), strict=True):
            if place == "free":
                await log.aclose()
        await journal.inherit({"s"})
        assert [*journal.left("s").calls] == ["c2", "c3"] and journal.left("s").ended == {"c1"}
        assert journal.state("s") == "interrupted"
        await journal.settle(nobody)
        await journal.inherit({"s"})
        assert not journal.left("s")
        for log in (*others, journal):
            await log.aclose()
        told = [line for number in (1, 2, 3) for line in folder.told(number)]
        assert told.count("tool.result s") == 3 and told.count("operator.interrupted s") == 1

    run(story())
    verified(folder.path)


def test_a_session_that_another_log_says_is_over_is_not_gone_on_with_and_the_log_that_it_began_in_is_let_go(
    folder: Folder,
) -> None:
    async def story() -> None:
        await folder.died(2, moved("s", "running"), called("s", "c1"))
        await folder.died(3, result("s", "c1"), moved("s", "completed"), aip44.closed(operator="o", session="s"))
        journal = folder.journal()
        await journal.open()
        await journal.inherit({"s"})
        assert not journal.left("s") and journal.state("s") is None
        await until(lambda: folder.free(2) and folder.free(3))
        await journal.aclose()
        assert folder.told(2) == BEGUN

    run(story())
    verified(folder.path)


def test_a_session_that_is_over_in_a_log_that_others_keep_open_begins_anew_behind_that_end(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0
    monkeypatch.setattr(log_module, "time", SimpleNamespace(time=lambda: time.time() + ahead))

    async def story() -> None:
        nonlocal ahead
        await folder.died(2, moved("s", "running"), moved("t", "running"))
        journal = folder.journal()
        await journal.open()
        await journal.inherit({"s", "t"})
        for session in "st":
            journal.goes_on(session, [])
        ahead = 3600
        await journal.write("s", moved("s", "completed"))
        journal.moved("s", "completed")
        ahead = 0
        await journal.write("s", moved("s", "running"))
        assert not folder.free(2) and folder.told(1) == ["operator.running s"]
        await journal.aclose()
        after = folder.journal()
        await after.open()
        assert after.left("s").state == "running"
        await after.aclose()

    run(story())
    verified(folder.path)
