"""How far an approval reaches: which question it answers, which call it releases, and what is recorded of the rest."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Denied, Unavailable
from gateway.core.types import Answer, Interrupt, Outcome, Run, RunStatus
from gateway.store import RunChange
from gateway.store.sqlite import SqliteStore
from tests.governance.enforcing.support import ANN, BOB, CAT, NO, YES, House, audited, call, house, told, verified
from tests.governance.enforcing.test_permissions import ALLOW, announce, grants, permission
from tests.governance.enforcing.test_twins import mail, makes, tells
from tests.support.aio import run
from tests.support.scripted import engine, until


def records(folder: Path, action: str) -> list[dict[str, Any]]:
    """What the log has of each such action, in order."""
    return [line["metadata"]["aip44"]["audit"] for line in audited(folder) if line["action"] == action]


async def asks(at: House, one: Run, *names: str) -> None:
    """Wait until these questions are open, and no others."""
    await until(lambda: [i.id for i in at.engine.live[one.id].run.interrupts] == [*names])


async def forever(context: RunContext) -> None:
    """An agent that can be found again."""
    await context.set_upstream({"id": 1})
    await asyncio.Event().wait()


# --- which call ----------------------------------------------------------------------------------------------------


def test_an_act_is_not_made_if_the_call_that_was_approved_with_it_turns_into_another(tmp_path: Path) -> None:
    made: list[str] = []

    async def script(context: RunContext) -> None:
        tells(context, "send")
        await until(lambda: bool(context.run.interrupts))
        act = asyncio.ensure_future(makes(context, "send"))
        await asyncio.sleep(0)
        assert context.governed is not None
        context.governed.describe("c1", tool="list")
        made.append(await act)
        context.emit(e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script, binding=mail(tmp_path, "send")) as at:
            await at.asked(one := await at.start())
            await at.answer(one, YES, ANN)
            await at.until(one)

    run(scene())
    assert made != ["made"]
    assert "tool.refused list" in told(tmp_path)


def test_the_approvals_of_a_question_that_was_withdrawn_count_and_are_not_enough(tmp_path: Path) -> None:
    """A call that turns out to be riskier is not released by one of the two people that it takes."""
    answers: list[Answer | None] = []

    async def script(context: RunContext) -> None:
        assert context.governed is not None
        announce(context, "send")
        first = asyncio.ensure_future(permission(context, "send"))
        await until(lambda: "approval.granted send" in told(tmp_path))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        question = Interrupt(id="permission-2", kind="permission")
        answers.append(
            await context.governed.permission("c1", "send", {"to": "x"}, risk=3, question=question, grants=grants)
        )
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script, quorum=2) as at:
            await at.asked(one := await at.start())
            await at.answer(one, ALLOW, ANN)
            await asks(at, one, "permission-2")
            assert "call Doing send" not in await at.shown(one)
            await at.answer(one, ALLOW, CAT)
            await at.ended(one)
        verified(tmp_path)

    run(scene())
    assert [answer is not None and grants(answer) for answer in answers] == [True]


def test_an_approval_releases_one_question_and_no_later_one_of_the_same_name(tmp_path: Path) -> None:
    answers: list[Answer | None] = []

    async def script(context: RunContext) -> None:
        for name in ("c1", "c2"):
            answers.append(await permission(context, "send", name))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.asked(one := await at.start())
            await at.answer(one, ALLOW, ANN)
            await asks(at, one, "permission-1#2")
            with pytest.raises(Denied, match="bob may not approve send"):
                await at.answer(one, ALLOW, BOB)
            await at.answer(one, ALLOW, CAT)
            await at.ended(one)
        verified(tmp_path)

    run(scene())
    assert [answer is not None and grants(answer) for answer in answers] == [True, True]
    assert [record["approval"] for record in records(tmp_path, "approval.granted")] == ["ann", "cat"]


def test_arguments_that_come_with_the_question_are_recorded_once(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        context.governed.describe("c1", tool="send", risk=2, pending=True)
        context.emit(e.ToolCallStarted(call="c1", name="Doing send", input={"to": "nobody yet"}))
        await context.drain()
        await permission(context, "send")
        context.emit(e.ToolCallUpdated(call="c1", status="in_progress"), e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.asked(one := await at.start())
            await at.answer(one, ALLOW, ANN)
            await at.ended(one)

    run(scene())
    calls = [line for line in audited(tmp_path) if line["action"] == "tool.call"]
    assert [line["input"] for line in calls] == [{"to": "x"}]


def test_a_call_that_is_told_both_ways_is_paid_once_and_each_line_names_its_policy(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        act = await context.governed.act("write", {"to": "x"}, risk=0, server="mail")
        tells(context, "write")
        await context.drain()
        await context.governed.acted(act, result="made")
        context.emit(e.ToolCallEnded(call="c1", output="made"), e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script, binding=mail(tmp_path, "write")) as at:
            await at.ended(await at.start())

    run(scene())
    found = records(tmp_path, "tool.call")
    assert [record.get("budgets") for record in found] == [["writes"], None]
    policies = [line["policy"] for line in audited(tmp_path) if line["action"] == "tool.call"]
    assert policies[0] == policies[1] and [record["why"] for record in found] == 2 * [found[0]["why"]]


# --- when the run ends -----------------------------------------------------------------------------------------------


def test_a_question_that_is_open_when_the_run_ends_is_answered_cancelled(tmp_path: Path) -> None:
    waits: list[asyncio.Task[Answer | None]] = []

    async def script(context: RunContext) -> None:
        waits.append(asyncio.ensure_future(permission(context, "send")))
        await until(lambda: bool(context.run.interrupts))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.ended(await at.start())
            async with asyncio.timeout(30):
                answer = await waits[0]
            assert answer is not None and answer.outcome is Outcome.CANCELLED

    run(scene())
    assert [record["why"] for record in records(tmp_path, "tool.refused")] == ["the run ended before it was approved"]


def test_a_question_that_is_open_when_the_run_is_stopped_is_cancelled_and_its_call_recorded_as_refused(
    tmp_path: Path,
) -> None:
    waits: list[asyncio.Task[Answer | None]] = []

    async def script(context: RunContext) -> None:
        waits.append(asyncio.ensure_future(permission(context, "send")))
        await until(lambda: bool(context.run.interrupts))
        await call(context, "drop", "c2")

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.until(one := await at.start(), RunStatus.INTERRUPTED, RunStatus.ERROR)
            await at.ended(one, RunStatus.ERROR)
            async with asyncio.timeout(30):
                answer = await waits[0]
            assert answer is not None and not grants(answer)

    run(scene())
    assert told(tmp_path)[-3:] == ["tool.refused drop", "tool.refused send", "operator.interrupted"]


def test_a_call_whose_question_the_store_does_not_take_is_recorded_as_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = SqliteStore.commit

    async def full(self: SqliteStore, run_id: str, change: RunChange, **how: Any) -> None:
        if change.run.status is RunStatus.INTERRUPTED:
            raise Unavailable("the store failed")
        await commit(self, run_id, change, **how)

    async def script(context: RunContext) -> None:
        assert context.governed is not None
        with pytest.raises(Unavailable):
            await context.governed.act("send", {"to": "x"}, risk=2)

    async def scene() -> None:
        monkeypatch.setattr(SqliteStore, "commit", full)
        async with house(tmp_path, script) as at:
            await at.until(one := await at.start(), RunStatus.ERROR)
            await at.ended(one, RunStatus.ERROR)

    run(scene())
    wanted = ["tool.call send", "approval.requested send", "operator.suspended", "tool.refused send"]
    assert told(tmp_path)[2:-1] == wanted


def test_an_act_that_ends_after_its_run_has_one_result(tmp_path: Path) -> None:
    acts: list[str] = []
    contexts: list[RunContext] = []

    async def script(context: RunContext) -> None:
        assert context.governed is not None
        contexts.append(context)
        acts.append(await context.governed.act("fs.read", {"path": "/a"}, risk=0))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.ended(await at.start())
            assert contexts[0].governed is not None
            await contexts[0].governed.acted(acts[0], result="too late")

    run(scene())
    assert [line["output"] for line in audited(tmp_path) if line["action"] == "tool.result"] == [
        {"error": "the run ended"}
    ]


# --- over a restart --------------------------------------------------------------------------------------------------


def test_an_approval_of_before_a_restart_counts_with_those_after_it(tmp_path: Path) -> None:
    goes_on = asyncio.Event()

    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        await call(context, "send")

    async def attach(context: RunContext) -> None:
        await goes_on.wait()
        await call(context, "send")
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script, quorum=2) as at:
            await at.asked(one := await at.start())
        async with house(tmp_path, script, attach=attach, quorum=2) as at:
            await at.answer(one, YES, ANN)  # the agent has not told its call again
            goes_on.set()
            await until(lambda: "c1" in at.engine.live[one.id].interceptor.judge.calls)  # type: ignore[attr-defined]
            await at.answer(one, YES, CAT)
            await at.ended(one)
            assert "call send" in await at.shown(one)
        verified(tmp_path)

    run(scene())
    assert [record["approval"] for record in records(tmp_path, "approval.granted")] == ["ann", "cat"]


def test_a_rejection_after_a_restart_names_the_policy_that_asked(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        await call(context, "send")

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.asked(one := await at.start())
        async with house(tmp_path, script, attach=forever) as at:
            await at.answer(one, NO, ANN)
            await at.engine.runs.cancel(one.id, wait=True)
        verified(tmp_path)

    run(scene())
    lines = {line["action"]: line["policy"] for line in audited(tmp_path) if "policy" in line}
    assert lines["approval.rejected"] == lines["approval.requested"]


@pytest.mark.parametrize("withdrawn", [False, True])
def test_an_answer_to_an_agents_question_of_before_a_restart_approves_nothing(tmp_path: Path, withdrawn: bool) -> None:
    """Neither does one that the agent took back make the run fail."""
    answers: list[Answer | None] = []

    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        asked = asyncio.ensure_future(context.ask(Interrupt(id="permission-1", kind="input")))
        if withdrawn:
            await until(lambda: bool(context.run.interrupts))
            asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await context.ask(Interrupt(id="wait", kind="input"))

    async def attach(context: RunContext) -> None:
        answers.append(await permission(context, "send"))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.asked(one := await at.start())
            if not withdrawn:
                await at.answer(one, ALLOW, BOB)
            await asks(at, one, "wait")
        async with house(tmp_path, script, attach=attach) as at:
            await at.answer(one, {}, ANN)
            if withdrawn or not answers:
                await until(lambda: bool(answers) or len(at.engine.live[one.id].run.interrupts) > 0)
            if not answers:
                await at.answer(one, ALLOW, ANN)
            await at.ended(one)

    run(scene())
    assert (
        "approval.granted send" not in told(tmp_path) or records(tmp_path, "approval.granted")[0]["approval"] == "ann"
    )
    approved = answers[0] is not None and grants(answers[0])
    assert approved is ("approval.granted send" in told(tmp_path))


async def acting(context: RunContext) -> None:
    """An act that needs an approval, is made, and its run goes on; it can be found again."""
    assert context.governed is not None
    await context.set_upstream({"id": 1})
    act = await context.governed.act("send", {"to": "x"}, risk=2)
    await context.governed.acted(act, result="sent")
    await asyncio.Event().wait()


@pytest.mark.parametrize("value", [YES, NO])
def test_an_act_that_was_answered_before_a_restart_is_not_refused_after_it(tmp_path: Path, value: Any) -> None:
    async def script(context: RunContext) -> None:
        try:
            await acting(context)
        except Denied:
            await asyncio.Event().wait()

    async def attach(context: RunContext) -> None:
        context.emit(e.RunFinished())

    last = "tool.result send" if value == YES else "tool.refused send"

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.asked(one := await at.start())
            await at.answer(one, value, ANN)
            await until(lambda: last in told(tmp_path))
        async with house(tmp_path, script, attach=attach) as at:
            await at.ended(one)
        verified(tmp_path)

    run(scene())
    assert told(tmp_path)[-2:] == [last, "operator.completed"] and told(tmp_path).count(last) == 1


def test_an_act_that_was_approved_before_a_restart_has_an_unknown_outcome(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        await context.set_upstream({"id": 1})
        await context.governed.act("send", {"to": "x"}, risk=2)
        await asyncio.Event().wait()

    async def attach(context: RunContext) -> None:
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.asked(one := await at.start())
            await at.answer(one, YES, ANN)
            await until(lambda: "operator.resumed" in told(tmp_path))
        async with house(tmp_path, script, attach=attach) as at:
            await at.ended(one)
        verified(tmp_path)

    run(scene())
    assert "tool.refused send" not in told(tmp_path)
    (line,) = [line for line in audited(tmp_path) if line["action"] == "tool.result"]
    assert line["output"]["error"]["code"] == "outcome_unknown"


def test_an_act_that_the_agent_took_back_before_a_restart_is_refused_once(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        await context.set_upstream({"id": 1})
        act = asyncio.ensure_future(context.governed.act("send", {"to": "x"}, risk=2))
        await until(lambda: bool(context.run.interrupts))
        act.cancel()
        await asyncio.Event().wait()

    async def attach(context: RunContext) -> None:
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            one = await at.start()
            await until(lambda: "operator.resumed" in told(tmp_path))
        async with house(tmp_path, script, attach=attach) as at:
            await at.ended(one)
        verified(tmp_path)

    run(scene())
    assert told(tmp_path).count("tool.refused send") == 1
    assert "operator.completed" in told(tmp_path)


def test_questions_of_one_name_that_are_open_at_once_are_each_for_the_approvers(tmp_path: Path) -> None:
    answers: list[Answer | None] = []

    async def script(context: RunContext) -> None:
        answers.extend(await asyncio.gather(permission(context, "send", "c1"), permission(context, "send", "c2")))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            one = await at.start()
            await asks(at, one, "permission-1", "permission-1#2")
            for name in ("permission-1#2", "permission-1"):
                with pytest.raises(Denied, match="bob may not approve send"):
                    await at.engine.runs.answer(one.id, Answer(value=ALLOW, by=BOB), name)
                await at.engine.runs.answer(one.id, Answer(value=ALLOW, by=ANN), name)
            await at.ended(one)

    run(scene())
    assert [answer is not None and grants(answer) for answer in answers] == [True, True]


def test_an_approval_that_comes_to_another_gateway_process_is_judged_and_recorded_where_the_run_is(
    tmp_path: Path,
) -> None:
    async def script(context: RunContext) -> None:
        assert grants(await permission(context, "send"))
        context.emit(e.RunFinished())

    async def scene() -> None:
        store = SqliteStore(tmp_path / "runs.db", host="here")
        async with (
            house(tmp_path, script, store=store) as at,
            engine(store=SqliteStore(tmp_path / "runs.db", host="there")) as other,
        ):
            await at.asked(one := await at.start())
            with pytest.raises(Denied, match="bob may not approve send"):
                await other.runs.answer(one.id, Answer(value=ALLOW, by=BOB))
            await other.runs.answer(one.id, Answer(value=ALLOW, by=ANN))
            await at.ended(one)
        verified(tmp_path)

    run(scene())
    assert [record["approval"] for record in records(tmp_path, "approval.granted")] == ["ann"]


async def test_a_question_of_before_a_restart_that_is_asked_again_is_the_same_question(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        await permission(context, "send")

    async def attach(context: RunContext) -> None:
        answer = await permission(context, "send")
        assert answer is not None and grants(answer)
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        await at.asked(one := await at.start())
    async with house(tmp_path, script, attach=attach) as at:
        judge = at.engine.live[one.id].interceptor.judge  # type: ignore[union-attr]
        await until(lambda: "permission-1" in judge._asked)
        await asks(at, one, "permission-1")
        await at.answer(one, ALLOW, ANN)
        await at.ended(one)


def test_an_act_that_waits_for_an_agents_question_ends_when_the_run_is_stopped(tmp_path: Path) -> None:
    ends: list[str] = []

    async def script(context: RunContext) -> None:
        assert context.governed is not None
        tells(context, "send", pending=True)
        question = Interrupt(id="permission-1", kind="permission")
        asking = asyncio.ensure_future(
            context.governed.permission(
                "c1", "send", {"to": "x"}, risk=0, server="mail", question=question, grants=grants
            )
        )
        await until(lambda: bool(context.run.interrupts))
        act = asyncio.ensure_future(makes(context, "send"))
        await asyncio.sleep(0)
        context.governed.interrupt(Denied("stopped"))
        async with asyncio.timeout(10):
            ends.append(await act)
            await asking

    async def scene() -> None:
        async with house(tmp_path, script, binding=mail(tmp_path, "send")) as at:
            await at.ended(await at.start(), RunStatus.ERROR)

    run(scene())
    assert ends == ["the run is over"]


def test_a_question_of_before_a_restart_that_was_answered_leaves_its_name_to_no_other(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        await permission(context, "send", "c1")
        context.emit(e.ToolCallEnded(call="c1"))
        await asyncio.Event().wait()

    async def attach(context: RunContext) -> None:
        await permission(context, "send", "c2")
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.asked(one := await at.start())
            await at.answer(one, ALLOW, ANN)
            await until(lambda: "tool.result send" in told(tmp_path))
        async with house(tmp_path, script, attach=attach) as at:
            await asks(at, one, "permission-1#2")
            await at.answer(one, ALLOW, CAT)
            await at.ended(one)

    run(scene())
    assert [record["approval"] for record in records(tmp_path, "approval.granted")] == ["ann", "cat"]
