"""Tool calls of a governed run: decided, audited and asked about before anybody is shown them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.contract import RunContext
from gateway.contract.governing import APPROVAL, governor_named
from gateway.core import events as e
from gateway.core.errors import Conflict, Denied
from gateway.core.types import Answer, IfBusy, Outcome, RunStatus, Thread
from gateway.governance.enforcing import gate
from tests.governance.enforcing.support import ANN, BOB, CAT, NO, YES, audited, call, calling, house, told, verified
from tests.support.scripted import until


async def test_a_call_that_is_allowed_is_audited_and_shown(tmp_path: Path) -> None:
    async with house(tmp_path, calling("read", "write")) as at:
        one = await at.start()
        await at.ended(one)
        shown = await at.shown(one)
        assert shown == ["read?", "call read", "end c1", "write?", "call write", "end c2", "done", "RunFinished"]
    assert told(tmp_path) == [
        "operator.invoked",
        "operator.running",
        "tool.call read",
        "tool.result read",
        "tool.call write",
        "tool.result write",
        "operator.completed",
    ]
    verified(tmp_path)


async def test_a_record_says_who_did_what_and_by_which_policy(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        await call(context, "write", path="a.txt")
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.ended(one)
    wanted, result = (line for line in audited(tmp_path) if line["action"].startswith("tool."))
    assert wanted["input"] == {"path": "a.txt"} and wanted["actor"] == {"id": "coder", "role": "operator"}
    assert wanted["policy"] == {"ref": "writes", "decision": "allow"}
    record = wanted["metadata"]["aip44"]["audit"]
    assert record["session"] == one.id and record["operator"] == "coder" and record["approval"] == "auto"
    assert record["budgets"] == ["writes"] and record["call"] == "c1"
    assert result["output"] == {"result": {"done": "write"}}


async def test_nobody_is_shown_a_call_before_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house(tmp_path, calling("read", "write")) as at:
        orders: list[tuple[str, list[str]]] = []
        one = await at.start()
        live = at.engine.live[one.id]
        emit = live.emit

        def spied(*events: e.Event) -> None:
            for event in events:
                if isinstance(event, e.ToolCallStarted | e.ToolCallEnded):
                    orders.append((type(event).__name__, told(tmp_path)[-1:]))
            emit(*events)

        monkeypatch.setattr(live, "emit", spied)
        await at.ended(one)
        assert orders == [
            ("ToolCallStarted", ["tool.call read"]),
            ("ToolCallEnded", ["tool.result read"]),
            ("ToolCallStarted", ["tool.call write"]),
            ("ToolCallEnded", ["tool.result write"]),
        ]


@pytest.mark.parametrize(("tool", "why"), [("drop", "policy drops"), ("spend", "coder has no tool spend")])
async def test_a_call_that_is_denied_is_never_shown_and_its_agent_is_stopped(
    tmp_path: Path, tool: str, why: str
) -> None:
    async with house(tmp_path, calling("read", tool, "write")) as at:
        one = await at.start()
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "denied"
        assert tool in found.failure.message and why in found.failure.message
        assert at.outbound.cancels == 1 and found.losses["tool_refused"] == 1
        assert not [text for text in await at.shown(one) if tool in text and text != f"{tool}?"]
    assert told(tmp_path)[-2:] == [f"tool.refused {tool}", "operator.interrupted"]
    assert "tool.call " + tool not in told(tmp_path)


async def test_a_call_that_needs_approval_waits_for_it_and_what_follows_waits_behind(tmp_path: Path) -> None:
    async with house(tmp_path, calling("send", "read")) as at:
        one = await at.start()
        asked = await at.asked(one)
        (question,) = asked.interrupts
        assert question.kind == APPROVAL and question.payload["tool"] == "send"
        assert question.payload["approvers"] == ["editor"] and question.payload["policy"] == "sends"
        assert await at.shown(one) == ["send?", "? approval-c1"]
        assert told(tmp_path)[-3:] == ["tool.call send", "approval.requested send", "operator.suspended"]
        await at.answer(one, YES)
        await at.ended(one)
        assert await at.shown(one) == [
            "send?", "? approval-c1", "! approval-c1 answered", "call send", "end c1", "read?", "call read",
            "end c2", "done", "RunFinished",
        ]  # fmt: skip
    assert told(tmp_path)[2:] == [
        "tool.call send",
        "approval.requested send",
        "operator.suspended",
        "approval.granted send",
        "operator.resumed",
        "tool.result send",
        "tool.call read",
        "tool.result read",
        "operator.completed",
    ]
    result = next(line for line in audited(tmp_path) if line["action"] == "tool.result")
    assert result["metadata"]["aip44"]["audit"]["approval"] == "ann"
    verified(tmp_path)


async def test_who_may_not_approve_is_told_so_and_the_question_stays_open(tmp_path: Path) -> None:
    async with house(tmp_path, calling("send")) as at:
        one = await at.start()
        await at.asked(one)
        with pytest.raises(Denied, match="bob may not approve send: it takes editor"):
            await at.answer(one, YES, BOB)
        with pytest.raises(Denied, match="not authenticated"):
            await at.answer(one, YES, None)
        assert (await at.engine.runs.get(one.id)).status is RunStatus.INTERRUPTED
        assert "call send" not in await at.shown(one) and "approval.granted send" not in told(tmp_path)
        await at.answer(one, YES, ANN)
        await at.ended(one)
        assert "call send" in await at.shown(one)


@pytest.mark.parametrize("by", [ANN, BOB, None])
async def test_a_call_that_is_rejected_ends_the_run_whoever_rejects_it(tmp_path: Path, by: object) -> None:
    async with house(tmp_path, calling("send")) as at:
        one = await at.start()
        await at.asked(one)
        await at.answer(one, NO, by)  # type: ignore[arg-type]
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and "send was not approved" in found.failure.message
        assert "call send" not in await at.shown(one) and at.outbound.cancels == 1
    assert told(tmp_path)[-4:] == [
        "approval.rejected send",
        "operator.resumed",
        "tool.refused send",
        "operator.interrupted",
    ]


async def test_a_run_that_is_cancelled_while_it_waits_shows_nothing_of_the_call(tmp_path: Path) -> None:
    async with house(tmp_path, calling("send")) as at:
        one = await at.start()
        await at.asked(one)
        await at.engine.runs.cancel(one.id, wait=True)
        assert (await at.engine.runs.get(one.id)).status is RunStatus.CANCELLED
        assert "call send" not in await at.shown(one)
    assert told(tmp_path)[-2:] == ["tool.refused send", "operator.interrupted"]
    assert "approval.granted send" not in told(tmp_path)


async def test_two_have_to_approve_where_the_policy_has_a_quorum(tmp_path: Path) -> None:
    async with house(tmp_path, calling("send"), quorum=2) as at:
        one = await at.start()
        await at.asked(one)
        for _ in range(2):  # one person is one, however often
            still = await at.answer(one, YES, ANN)
            assert still.status is RunStatus.INTERRUPTED and [i.id for i in still.interrupts] == ["approval-c1"]
        assert "call send" not in await at.shown(one)
        await at.answer(one, YES, CAT)
        await at.ended(one)
        assert "call send" in await at.shown(one)
    assert told(tmp_path).count("approval.granted send") == 3


async def test_a_session_is_invoked_once_and_runs_again(tmp_path: Path) -> None:
    async with house(tmp_path, calling("read")) as at:
        await at.engine.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        governor = governor_named(at.engine.agents, "scripted", "test")
        assert governor is not None
        await governor.opened("t1")
        await governor.opened("t1")
        assert told(tmp_path) == ["operator.invoked"]
        for _ in range(2):
            await at.ended(await at.start(thread="t1"))
        await governor.closed("t1")
    kinds = [kind for kind in told(tmp_path) if kind.startswith(("operator", "audit"))]
    turn = ["operator.running", "operator.completed"]
    assert kinds == ["operator.invoked", *turn, *turn, "audit.closed"]
    sessions = {line["metadata"]["aip44"]["audit"]["session"] for line in audited(tmp_path)}
    assert sessions == {"t1"}


async def test_text_is_not_delayed_unless_it_stands_behind_a_call(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="before"))
        context.emit(e.ToolCallStarted(call="c1", name="send"), e.PartDelta(part="text", delta="behind"))
        await context.drain()  # does not wait for a person
        context.emit()
        context.emit(e.PartDelta(part="text", delta="more"))
        await context.drain()
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.asked(one)
        assert await at.shown(one) == ["before", "? approval-c1"]
        await at.answer(one, YES)
        await at.ended(one)
        shown = "".join(text for text in await at.shown(one) if not text.startswith(("?", "!", "call", "end")))
        assert shown == "beforebehindmoreRunFinished"


async def test_an_agent_that_says_too_much_behind_a_call_that_waits_is_slowed_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "MOST_HELD", 3)
    drained: list[str] = []

    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="send"))
        for text in ("a", "b", "c", "d"):
            await context.drain()
            drained.append(text)
            context.emit(e.PartDelta(part="text", delta=text))
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.asked(one)
        await until(lambda: drained == ["a", "b", "c"])
        for _ in range(100):
            await asyncio.sleep(0)
        assert drained == ["a", "b", "c"], "four events stand behind the question"
        await at.answer(one, YES)
        await at.ended(one)
        assert drained == ["a", "b", "c", "d"]


async def test_an_answer_that_is_declined_is_a_rejection(tmp_path: Path) -> None:
    async with house(tmp_path, calling("send")) as at:
        one = await at.start()
        await at.asked(one)
        await at.engine.runs.answer(one.id, Answer(outcome=Outcome.DECLINED, by=CAT))
        await at.ended(one, RunStatus.ERROR)
        assert "approval.rejected send" in told(tmp_path) and "call send" not in await at.shown(one)


async def test_many_calls_at_once_keep_their_order(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        for index in range(50):
            context.emit(
                e.ToolCallStarted(call=f"c{index}", name="read" if index % 2 else "write"),
                e.PartDelta(part="text", delta=f"{index},"),
                e.ToolCallUpdated(call=f"c{index}", status="in_progress"),
                e.ToolCallEnded(call=f"c{index}"),
            )
        context.emit(e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.ended(one)
        shown = await at.shown(one)
        assert shown == [
            text
            for index in range(50)
            for text in (f"call {'read' if index % 2 else 'write'}", f"{index},", f"end c{index}")
        ] + ["RunFinished"]
        await until(lambda: not at.engine.live)
    verified(tmp_path)


async def test_a_run_that_is_refused_because_its_session_is_busy_changes_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, calling("send")) as at:
        await at.engine.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        one = await at.start(thread="t1")
        await at.asked(one)
        before = told(tmp_path)
        with pytest.raises(Conflict):
            await at.start(thread="t1")
        assert told(tmp_path) == before
        await at.answer(one, YES)
        await at.ended(one)
    assert told(tmp_path)[-1] == "operator.completed"
    assert audited(tmp_path)[-1]["metadata"]["aip44"]["audit"]["from"] == "resumed"


async def test_a_run_that_waits_for_its_turn_is_audited_when_it_has_it(tmp_path: Path) -> None:
    async with house(tmp_path, calling("send")) as at:
        await at.engine.threads.create(Thread(id="t1", created_at=0, updated_at=0))
        runs = [await at.start(thread="t1", if_busy=IfBusy.ENQUEUE) for _ in range(3)]
        await at.asked(runs[0])
        await at.engine.runs.cancel(runs[2].id, wait=True)
        assert told(tmp_path).count("operator.running") == 1 and "operator.interrupted" not in told(tmp_path)
        for one in runs[:2]:
            await at.asked(one)
            await at.answer(one, YES)
            await at.ended(one)
    assert told(tmp_path).count("operator.running") == told(tmp_path).count("operator.completed") == 2
