"""What a gateway that is started again goes on with, and what it records as over."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.contract.governing import APPROVAL, governor_named
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import Interrupt, Run, RunStatus, Thread
from gateway.governance.audit import AuditEvent, AuditLog, LogTaken, aip44, files
from gateway.governance.audit import log as audit_log
from gateway.governance.audit.files import log_path
from gateway.governance.budgets import DAY
from gateway.governance.enforcing import Enforcement, restoring
from gateway.governance.enforcing.governed_run import GovernedRun
from gateway.governance.enforcing.restoring import UNKNOWN
from gateway.runs.live import LiveRun
from gateway.runs.run_record import RunRecord
from gateway.store import RunChange
from gateway.store.sqlite import SqliteStore
from tests.governance.enforcing.support import NO, YES, audited, call, calling, documents, house, told, verified
from tests.support.aio import run
from tests.support.lapsing import lapsing
from tests.support.scripted import Script, until

TURN = "operator.turn"
WAITING = ["operator.invoked", "operator.running", f"approval.requested {TURN}", "operator.suspended"]


@pytest.mark.parametrize("approved", [True, False])
async def test_a_turn_that_waits_for_somebodys_word_waits_over_a_restart(tmp_path: Path, approved: bool) -> None:
    async with house(tmp_path, calling(), autonomy="gated") as at:
        one = await at.start()
        question = (await at.asked(one)).interrupts
    async with house(tmp_path, calling(), autonomy="gated") as at:
        assert (await at.asked(one)).interrupts == question
        assert not at.outbound.contexts
        await at.answer(one, YES if approved else NO)
        found = await at.ended(one, RunStatus.SUCCESS if approved else RunStatus.ERROR)
        assert len(at.outbound.contexts) == approved
        assert found.failure is None or "the turn was not approved" in found.failure.message
    yes = [f"approval.granted {TURN}", "operator.resumed", "operator.completed"]
    no = [f"approval.rejected {TURN}", "operator.resumed", "operator.interrupted"]
    assert told(tmp_path) == [*WAITING, *(yes if approved else no)]
    verified(tmp_path)


async def test_a_turn_is_approved_with_its_whole_input_and_both_questions_outlive_a_restart(tmp_path: Path) -> None:
    async with house(tmp_path, calling(), autonomy="gated") as at:
        one = await at.start(input={}, prompt="")
        assert [asked.kind for asked in (await at.asked(one)).interrupts] == ["input"]
    async with house(tmp_path, calling(), autonomy="gated") as at:
        await at.asked(one)
        await at.answer(one, {"message": "Hello"})
        await until(lambda: [asked.kind for asked in at.engine.live[one.id].run.interrupts] == [APPROVAL])
        assert not at.outbound.contexts
    async with house(tmp_path, calling(), autonomy="gated") as at:
        assert [asked.kind for asked in (await at.asked(one)).interrupts] == [APPROVAL]
        await at.answer(one, YES)
        found = await at.ended(one, RunStatus.SUCCESS)
        assert (found.request.input, len(at.outbound.contexts)) == ({"message": "Hello"}, 1)
    verified(tmp_path)


def test_a_turn_that_waits_for_its_input_only_is_nothing_to_approve(tmp_path: Path) -> None:
    async def scene() -> None:
        async with house(tmp_path, calling()) as at:
            one = await at.start(input={}, prompt="")
            await at.asked(one)
            await at.answer(one, {"message": "Hello"})
            await at.ended(one)

    run(scene())
    assert [line for line in told(tmp_path) if line.endswith(TURN)] == []


@pytest.mark.parametrize("approved", [True, False])
async def test_the_word_that_was_given_before_a_restart_counts(
    tmp_path: Path, approved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for of, last in ((LiveRun, "_sent"), (RunRecord, "conclude")):
            patch.setattr(of, last, _dies)  # the gateway does, before
        async with house(tmp_path, calling(), autonomy="gated") as at:
            one = await at.start()
            await at.asked(one)
            await at.answer(one, YES if approved else NO)
    async with house(tmp_path, calling(), autonomy="gated") as at:
        await at.ended(one, RunStatus.SUCCESS if approved else RunStatus.ERROR)
        assert len(at.outbound.contexts) == approved
    assert [line for line in told(tmp_path) if line.endswith(TURN)] == [
        f"approval.requested {TURN}", f"approval.{'granted' if approved else 'rejected'} {TURN}",
    ]  # fmt: skip


def taken(folder: Path) -> bool:
    """Whether somebody writes the first log."""
    try:
        os.close(files.LogFiles(log_path(folder, 1)).lock())
    except LogTaken:
        return True
    return False


async def _never(*_: object) -> None:
    await asyncio.Event().wait()


async def _dies(*_: object) -> None:
    raise asyncio.CancelledError


async def test_a_turn_that_was_sent_before_the_gateway_stopped_is_not_sent_again(tmp_path: Path) -> None:
    async with house(tmp_path, _never, autonomy="gated") as at:
        one = await at.start()
        await at.asked(one)
        await at.answer(one, YES)
        await until(lambda: bool(at.outbound.contexts))
    async with house(tmp_path, calling(), autonomy="gated") as at:
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "outcome_unknown"
        assert not at.outbound.contexts


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_turn_that_is_cancelled_while_it_waits_is_never_sent(tmp_path: Path, restarted: bool) -> None:
    async with house(tmp_path, calling(), autonomy="gated") as at:
        one = await at.start()
        await at.asked(one)
        if not restarted:
            await at.engine.runs.cancel(one.id, wait=True)
    async with house(tmp_path, calling(), autonomy="gated") as at:
        if restarted:
            await at.engine.runs.cancel(one.id, wait=True)
        await at.ended(one, RunStatus.CANCELLED)
        assert not at.outbound.contexts and not at.outbound.cancels
    assert audited(tmp_path)[-1]["action"] == "operator.interrupted"
    assert not [each for each in told(tmp_path) if each.startswith("tool.")], "a turn is no tool call"


# --- what was begun and has no end ---------------------------------------------------------------------------------


async def acting(context: RunContext) -> None:
    """An agent that does something by way of the gateway, and is never done with it."""
    assert context.governed is not None
    await context.governed.act("fs.read", {"path": "/a"}, risk=0)
    await asyncio.Event().wait()


async def starting(context: RunContext) -> None:
    """An agent that never ends its call."""
    context.emit(e.ToolCallStarted(call="c1", name="read", kind="read"))
    await context.drain()
    await asyncio.Event().wait()


async def ending(context: RunContext) -> None:
    """An agent whose call has ended, and which goes on."""
    await call(context, "read")
    await asyncio.Event().wait()


def hidden(kind: type[e.Event]) -> Callable[..., None]:
    """As if the gateway were killed after the audit, before events of a kind are written."""
    emit = LiveRun.emit

    def shown(self: LiveRun, *events: e.Event) -> None:
        emit(self, *[event for event in events if type(event) is not kind])

    return shown


async def killed(folder: Path, script: Script, audit: list[str], *, shown: bool = False, **fields: Any) -> Run:
    """A run of a gateway that stopped when its log was that, and (`shown`) clients had seen what it is about."""
    async with house(folder, script) as at:
        if "thread" in fields:
            await at.engine.threads.create(Thread(id=fields["thread"], created_at=1.0, updated_at=1.0))
        one = await at.start(**fields)
        await until(lambda: told(folder) == audit)
        if shown:
            live = at.engine.live[one.id]
            assert isinstance(live.interceptor, GovernedRun)
            await live.interceptor.gate.settled()
    return one


def forget_runs(folder: Path) -> None:
    """Of its runs the gateway knows nothing any more."""
    for file in folder.glob("runs.db*"):
        file.unlink()


BEGUN = ["operator.invoked", "operator.running"]


@pytest.mark.parametrize(
    ("script", "lost", "before", "after"),
    [
        (acting, e.RunFinished, ["tool.call fs.read"], ["tool.result fs.read"]),
        (starting, e.RunFinished, ["tool.call read"], ["tool.result read"]),
        (starting, e.ToolCallStarted, ["tool.call read"], ["tool.result read"]),
        (ending, e.ToolCallEnded, ["tool.call read", "tool.result read"], []),
    ],
)
async def test_a_call_that_was_open_is_recorded_as_over_once_and_its_outcome_as_unknown(
    tmp_path: Path, script: Script, lost: type[e.Event], before: list[str], after: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LiveRun, "emit", hidden(lost))
        one = await killed(tmp_path, script, [*BEGUN, *before], shown=True, thread="t")
    for _ in range(2):
        async with house(tmp_path, calling()) as at:
            await at.ended(one, RunStatus.ERROR)
    assert told(tmp_path) == [*BEGUN, *before, *after, "operator.interrupted"]
    if after:
        line = audited(tmp_path)[-2]
        assert line["output"]["error"]["code"] == "outcome_unknown"
        assert line["metadata"]["aip44"]["audit"]["session"] == "t"
    verified(tmp_path)


@pytest.mark.parametrize("tool", ["read", "send"])
async def test_what_no_run_goes_on_with_is_recorded_as_over_at_the_start(tmp_path: Path, tool: str) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name=tool, kind="edit", input={"to": "ann"}))
        await context.drain()
        await asyncio.Event().wait()

    waits = ["approval.requested send", "operator.suspended"] if tool == "send" else []
    begun = [*BEGUN, f"tool.call {tool}", *waits]
    await killed(tmp_path, agent, begun)
    forget_runs(tmp_path)
    for _ in range(2):
        async with house(tmp_path, calling()):
            pass
    end = f"tool.{'result' if tool == 'read' else 'refused'} {tool}"
    assert told(tmp_path) == [*begun, end, "operator.interrupted"]
    lines = audited(tmp_path)
    assert lines[-2]["input" if tool == "send" else "output"] == (
        {"to": "ann"} if tool == "send" else {"error": UNKNOWN}
    )
    last = lines[-1]["metadata"]["aip44"]["audit"]
    assert (last["from"], last["to"]) == ("suspended" if waits else "running", "interrupted")
    verified(tmp_path)


async def test_a_gateway_that_dies_while_it_records_what_is_over_records_the_rest_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def agent(context: RunContext) -> None:
        assert context.governed is not None
        for path in "abc":
            await context.governed.act("fs.read", {"path": path}, risk=0)
        await asyncio.Event().wait()

    called = [*BEGUN, *3 * ["tool.call fs.read"]]
    await killed(tmp_path, agent, called)
    forget_runs(tmp_path)
    write, left = files.write, 2

    def written(fd: int, data: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(audit_log, "BATCH_EVENTS", 1)
        patch.setattr(files, "write", written)
        async with house(tmp_path, calling()):
            pass
    assert told(tmp_path) == [*called, *2 * ["tool.result fs.read"]]
    async with house(tmp_path, calling()):
        pass
    assert told(tmp_path) == [*called, *3 * ["tool.result fs.read"], "operator.interrupted"]
    ended = [line["metadata"]["aip44"]["audit"]["call"] for line in audited(tmp_path)[5:8]]
    assert len({*ended}) == 3
    verified(tmp_path)


async def test_what_could_not_be_recorded_at_the_start_comes_before_the_sessions_next_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = [*BEGUN, "tool.call fs.read"]
    await killed(tmp_path, acting, called, thread="t")
    forget_runs(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(Enforcement, "settle", _nothing)
            at = await stack.enter_async_context(house(tmp_path, calling()))
        assert told(tmp_path) == called
        await at.engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
        await at.ended(await at.start(thread="t"))
    over = ["tool.result fs.read", "operator.interrupted"]
    assert told(tmp_path) == [*called, *over, "operator.running", "operator.completed"]


async def test_nothing_happens_in_a_session_while_what_was_begun_in_it_cannot_be_recorded_as_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = [*BEGUN, "tool.call fs.read"]
    await killed(tmp_path, acting, called, thread="t")
    forget_runs(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(AuditLog, "append", refusing("tool.result"))
            at = await stack.enter_async_context(house(tmp_path, calling()))
            await at.engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
            with pytest.raises(Unavailable, match="cannot be audited"):
                await at.start(thread="t")
        assert told(tmp_path) == [*called, "operator.interrupted"]
        await at.ended(await at.start(thread="t"))
    works = ["operator.running", "operator.completed"]
    assert told(tmp_path) == [*called, "operator.interrupted", "tool.result fs.read", *works]


def refusing(action: str, session: str = "") -> Callable[[AuditLog, AuditEvent], Any]:
    """A log that refuses some of what it is given, at once."""
    append = AuditLog.append

    def appended(self: AuditLog, event: AuditEvent) -> Any:
        if event.action == action and session in event.metadata["aip44"]["audit"]["session"]:
            raise Unavailable("the audit log cannot keep up")
        return append(self, event)

    return appended


async def test_a_log_that_is_opened_by_a_reload_says_at_once_what_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be recorded is, although the reload fails for the rest."""
    folder = tmp_path / "one"
    before = await two_begun(folder)
    async with house(tmp_path / "two", calling()) as at:
        with monkeypatch.context() as patch:
            patch.setattr(AuditLog, "append", refusing("operator.interrupted", "a"))
            with pytest.raises(Unavailable, match="cannot be audited"):
                await at.enforcement.prepare([documents(folder)])
        ends = ["tool.result fs.read", "tool.result fs.read", "operator.interrupted"]
        assert sorted(told(folder)[before:]) == sorted(ends)
        await at.enforcement.prepare([documents(folder)])
    assert sorted(told(folder)[before:]) == sorted([*ends, "operator.interrupted"])
    verified(folder)


async def two_begun(folder: Path) -> int:
    """Leave the runs of two sessions, `a` and `b`, without an end. The lines of the log until then."""
    async with house(folder, acting) as at:
        for name in "ab":
            await at.engine.threads.create(Thread(id=name, created_at=1.0, updated_at=1.0))
            await at.start(thread=name)
        await until(lambda: told(folder).count("tool.call fs.read") == 2)
    return len(told(folder))


async def test_a_reload_that_fails_for_one_session_waits_until_the_ends_of_others_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "one"
    append, sync = AuditLog.append, files.sync
    syncing, go = threading.Event(), threading.Event()

    def appended(self: AuditLog, event: AuditEvent) -> Any:
        if event.metadata["aip44"]["audit"]["session"] == "a":
            raise Unavailable("the audit log cannot keep up")
        monkeypatch.setattr(files, "sync", synced)
        return append(self, event)

    def synced(fd: int) -> None:
        syncing.set()
        assert go.wait(60)
        sync(fd)

    before = await two_begun(folder)
    async with house(tmp_path / "two", calling()) as at:
        monkeypatch.setattr(AuditLog, "append", appended)
        preparing = asyncio.ensure_future(at.enforcement.prepare([documents(folder)]))
        await asyncio.to_thread(syncing.wait, 60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(preparing), 0.01)
        go.set()
        with pytest.raises(Unavailable, match="cannot be audited"):
            await preparing
        monkeypatch.undo()
        assert told(folder)[before:] == ["tool.result fs.read", "operator.interrupted"]


async def test_what_the_log_refuses_at_once_at_the_start_is_recorded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = [*BEGUN, "tool.call fs.read"]
    await killed(tmp_path, acting, called, thread="t")
    forget_runs(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(AuditLog, "append", _full)
            at = await stack.enter_async_context(house(tmp_path, calling()))
        await at.engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
        await at.ended(await at.start(thread="t"))
    over = ["tool.result fs.read", "operator.interrupted"]
    assert told(tmp_path) == [*called, *over, "operator.running", "operator.completed"]


def _full(*_: object) -> None:
    raise Unavailable("the audit log cannot keep up")


async def test_a_run_without_calls_that_no_run_goes_on_with_is_recorded_as_over(tmp_path: Path) -> None:
    await killed(tmp_path, _never, BEGUN)
    forget_runs(tmp_path)
    async with house(tmp_path, calling()):
        pass
    assert told(tmp_path) == [*BEGUN, "operator.interrupted"]


@pytest.mark.parametrize(("asks", "state"), [(True, "suspended"), (False, "running")])
def test_a_run_goes_on_by_its_own_record_where_the_log_is_another(tmp_path: Path, asks: bool, state: str) -> None:
    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        if asks:
            await context.ask(Interrupt(id="q", kind="input"))
        await asyncio.Event().wait()

    async def attach(context: RunContext) -> None:
        if asks:
            await context.ask(Interrupt(id="q", kind="input"))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            one = await at.start()
            await until(lambda: at.engine.live[one.id].run.upstream is not None)
            if asks:
                await at.asked(one)
        storage = {"storage": f"file://{tmp_path}/moved"}
        async with house(tmp_path, script, attach=attach, audit=storage) as at:
            if asks:
                await at.answer(one, "yes")
            await at.ended(one)

    run(scene())
    last = audited(tmp_path / "moved")[0]["metadata"]["aip44"]["audit"]
    assert (last["from"], last["to"]) == (state, "resumed" if asks else "completed")


def test_a_question_that_could_not_be_stored_suspends_the_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise Unavailable("the store failed")

    async def agent(context: RunContext) -> None:
        with monkeypatch.context() as patch, pytest.raises(Unavailable):
            patch.setattr(SqliteStore, "commit", full)
            await context.ask(Interrupt(id="q", kind="input"))
        await context.ask(Interrupt(id="q", kind="input"))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, agent) as at:
            one = await at.asked(await at.start())
            await at.answer(one, "yes")
            await at.ended(one)

    run(scene())
    assert told(tmp_path) == [*BEGUN, "operator.suspended", "operator.resumed", "operator.completed"]
    suspended, resumed = [line["output"] for line in audited(tmp_path)[2:4]]
    assert suspended == {"interrupt": "q", "kind": "input"}
    assert resumed == {"interrupt": "q", "outcome": "answered"}


def test_a_run_that_could_not_be_stored_is_over_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object, **__: object) -> None:
        raise Unavailable("the store failed")

    async def scene() -> None:
        async with house(tmp_path, calling()) as at:
            await at.engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
            with monkeypatch.context() as patch, pytest.raises(Unavailable):
                patch.setattr(SqliteStore, "create_run", full)
                await at.start(thread="t")
            await at.ended(await at.start(thread="t"))

    run(scene())
    assert told(tmp_path) == [*BEGUN, "operator.interrupted", "operator.running", "operator.completed"]
    assert audited(tmp_path)[2]["output"] == {"error": "the run was not started"}


async def test_a_gateway_that_stops_leaves_nothing_behind_that_waits_for_an_approval(tmp_path: Path) -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="send"))
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    async with house(tmp_path, agent) as at:
        await at.asked(await at.start())
    assert asyncio.all_tasks() == before


async def test_a_call_that_not_enough_people_have_approved_was_refused_and_has_no_result(tmp_path: Path) -> None:
    async with house(tmp_path, calling("send"), quorum=2) as at:
        one = await at.start()
        await at.asked(one)
        await at.answer(one, YES)
        begun = told(tmp_path)
    assert begun[-1] == "approval.granted send"
    forget_runs(tmp_path)
    async with house(tmp_path, calling(), quorum=2):
        pass
    assert told(tmp_path) == [*begun, "tool.refused send", "operator.interrupted"]


async def _nothing(_: object) -> None:
    """Nothing is recorded."""


@pytest.mark.parametrize("closed", [False, True])
async def test_a_session_that_is_known_from_before_a_restart_is_not_invoked_again(tmp_path: Path, closed: bool) -> None:
    async with house(tmp_path, calling()) as at:
        governor = governor_named(at.engine.agents, "scripted", "test")
        assert governor is not None
        await at.engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
        await governor.opened("t", principal="ann", protocol="test")
        await at.ended(await at.start(thread="t"))
        if closed:
            await governor.closed("t")
    async with house(tmp_path, calling()) as at:
        governor = governor_named(at.engine.agents, "scripted", "test")
        assert governor is not None
        await governor.opened("t", principal="ann", protocol="test")
        await at.ended(await at.start(thread="t"))
    again = ["audit.closed", "operator.invoked"] if closed else []
    works = ["operator.running", "operator.completed"]
    assert told(tmp_path) == ["operator.invoked", *works, *again, *works]


async def test_a_log_is_read_back_over_its_files_as_far_as_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AuditLog(log_path(tmp_path, 1), rotate_bytes=1) as audit:  # a file for each line
        await audit.append(aip44.transition(operator="o", session="s", before=None, after="running"))
        for number in range(3):
            who: dict[str, Any] = {"operator": "o", "session": "s", "tool": "t", "call": f"c{number}"}
            await audit.append(aip44.tool_call(**who, arguments={}, budgets=["writes"]))
        await audit.append(aip44.tool_result(**who, result=1))
    found = restoring.read([log_path(tmp_path, 1)], time.time())
    assert found.sessions["s"].state == "running" and [*found.sessions["s"].calls] == ["c0", "c1"]
    assert found.sessions["s"].ended == {"c2"} and len(found.spent) == 3
    monkeypatch.setattr(restoring, "READ_BYTES", 1)
    assert restoring.read([log_path(tmp_path, 1)], time.time()) == found, "all of today is read"
    later = restoring.read([log_path(tmp_path, 1)], time.time() + 2 * DAY)
    assert not later.spent and not later.sessions["s"].calls and later.sessions["s"].state is None


async def test_a_run_whose_end_is_not_stored_is_no_success_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(self: SqliteStore, run_id: str, change: RunChange, **how: object) -> None:
        raise Unavailable("the store failed")

    async def agent(context: RunContext) -> None:
        monkeypatch.setattr(SqliteStore, "commit", full)
        context.emit(e.RunFinished())

    async with house(tmp_path, agent) as at:
        one = await at.start()
        await at.until(one, RunStatus.ERROR)
        monkeypatch.undo()
    assert told(tmp_path) == [*BEGUN, "operator.completed", "operator.interrupted"]
    assert audited(tmp_path)[-1]["output"]["error"]["code"] == "unavailable"


async def test_a_call_whose_run_ended_in_the_log_and_not_in_the_store_when_the_gateway_was_killed_has_one_end(
    tmp_path: Path,
) -> None:
    commit = SqliteStore.commit
    over = [*BEGUN, "tool.call read", "tool.result read", "operator.completed"]

    async def dies(self: SqliteStore, run_id: str, change: RunChange, **how: Any) -> Any:
        if told(tmp_path) == over:
            raise asyncio.CancelledError
        return await commit(self, run_id, change, **how)

    async def agent(context: RunContext) -> None:
        await call(context, "read")
        context.emit(e.RunFinished())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LiveRun, "emit", hidden(e.ToolCallEnded))  # it would be written with the end of the run
        patch.setattr(SqliteStore, "commit", dies)
        one = await killed(tmp_path, agent, over, thread="t")
    async with house(tmp_path, agent) as at:
        await at.ended(one, RunStatus.ERROR)
        assert told(tmp_path) == [*over, "operator.interrupted"]
        await at.ended(await at.start(thread="t"))
    again = ["operator.running", "tool.call read", "tool.result read", "operator.completed"]
    assert told(tmp_path) == [*over, "operator.interrupted", *again], "a call of the next run is another"
    verified(tmp_path)


@pytest.mark.parametrize("another", [False, True], ids=["restarted", "taken over"])
def test_what_was_shown_before_goes_on_as_it_was_approved_and_only_once_where_it_is_restarted_or_taken_over(
    tmp_path: Path, another: bool
) -> None:
    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        await call(context, "send", "c1")
        context.emit(e.ToolCallStarted(call="c2", name="send", kind="edit"))
        await asyncio.Event().wait()

    async def attach(context: RunContext) -> None:
        context.emit(e.ToolCallEnded(call="c2", output="sent"))
        await call(context, "send", "c1")  # another call of the same name
        context.emit(e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            one = await at.start()
            for name in ("c1", "c2"):
                await until(
                    lambda name=name: f"approval-{name}" in {i.id for i in at.engine.live[one.id].run.interrupts}
                )  # type: ignore[misc]
                await at.answer(one, YES)
            await until(lambda: at.engine.live[one.id].interceptor.judge.calls["c2"].allowed)  # type: ignore[attr-defined]
        dying = AuditLog(log_path(tmp_path, 1))  # of a process that has it until the other one has one of its own
        if another:
            await dying.open()
        async with house(tmp_path, script, attach=attach, listed=dying.aclose if another else None) as at:
            await until(lambda: "approval-c1#2" in {i.id for i in at.engine.live[one.id].run.interrupts})
            await at.answer(one, YES)
            await at.ended(one)
            await until(lambda: not another or not taken(tmp_path))
        verified(tmp_path)
        assert (tmp_path / "audit-log-2.jsonl").exists() == another
        assert not another or not (tmp_path / "audit-log-2.jsonl").read_bytes(), "all of it is where it began"

    run(scene())
    results = [line["metadata"]["aip44"]["audit"] for line in audited(tmp_path) if line["action"] == "tool.result"]
    assert [(one["call"], one["approval"]) for one in results] == [("c1", "ann"), ("c2", "ann"), ("c1", "ann")]
    assert told(tmp_path).count("approval.requested send") == 3


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_a_process_that_cannot_extend_its_lease_until_another_has_its_runs_records_nothing_beside_that_one(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str, deleted: bool
) -> None:
    go = asyncio.Event()

    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        context.emit(e.ToolCallStarted(call="c1", name="read", kind="read"))
        await context.drain()
        await go.wait()
        await attach(context)

    async def attach(context: RunContext) -> None:
        context.emit(e.ToolCallEnded(call="c1", output="read"))
        await call(context, "write", "c2")
        context.emit(e.RunFinished())
        await context.drain()

    opened, refuse, _ = lapsing(engine, tmp_path, request)
    store = opened(host="there", lease_seconds=0.5)
    async with house(tmp_path, script, store=store) as slow:
        one = await slow.start()
        await until(lambda: told(tmp_path) == [*BEGUN, "tool.call read"])
        await asyncio.to_thread(refuse)  # it waits for a transaction of this loop
        await until(lambda: store.held_since == math.inf)
        async with house(tmp_path, script, attach=attach, store=opened()) as heir:
            while await heir.engine.store.owner_of(one.id) == store.owner:  # it counts from before it asked
                await heir.engine.adopt()
            await heir.ended(one)
            if deleted:
                await heir.engine.runs.delete(one.id)
            go.set()
            await until(lambda: one.id not in slow.engine.live)
            go.clear()
    assert told(tmp_path) == [*BEGUN, "tool.call read"]
    verified(tmp_path)
    (tmp_path / "audit-log-2.jsonl").replace(tmp_path / "audit-log.jsonl")
    assert told(tmp_path) == ["tool.result read", "tool.call write", "tool.result write", "operator.completed"]


@pytest.mark.parametrize("ts", ["9999-12-31T23:59:59.999Z", "2099-01-01T00:00:00Z", "2026-11-27T10:00:00"])
async def test_a_line_in_a_neighbours_log_that_no_clock_has_dated_neither_stops_this_one_nor_takes_its_time_along(
    tmp_path: Path, ts: str
) -> None:
    async with house(tmp_path, calling("read")) as at:
        await at.ended(await at.start())
    log_path(tmp_path, 2).write_text(f'{{"ts":"{ts}","action":"audit.note"}}\n')
    async with house(tmp_path, calling("read")) as at:
        await at.ended(await at.start())
    assert told(tmp_path).count("operator.completed") == 2
    assert all(line["ts"] < "2099" for line in audited(tmp_path))
