"""Agents that say one thing, have it approved, and then say another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentGone
from gateway.core.types import Answer, Interrupt, Json, RunStatus
from gateway.governance.binding import bind
from gateway.governance.enforcing import RouteGovernor
from tests.governance.enforcing.support import ANN, YES, audited, call, documents, house, told, verified
from tests.governance.support import policy
from tests.support.aio import run
from tests.support.scripted import Script, until

ALLOW = {"optionId": "allow"}


def grants(answer: Answer) -> bool:
    return bool(answer.value == ALLOW)


def says(context: RunContext, *events: e.Event, call: str = "c1", pending: bool = False, **words: Any) -> None:
    """As an adapter does with what its agent says of a call."""
    assert context.governed is not None
    context.governed.describe(call, pending=pending, **words)
    context.emit(*events)


async def asks(context: RunContext, tool: str, arguments: Json, number: int = 1) -> Answer | None:
    """As an adapter does whose agent asks for permission."""
    assert context.governed is not None
    question = Interrupt(id=f"permission-{number}", kind="permission", payload={"toolCall": {"toolCallId": "c1"}})
    return await context.governed.permission("c1", tool, arguments, risk=2, question=question, grants=grants)


def over(context: RunContext) -> None:
    context.emit(e.ToolCallEnded(call="c1", failed=True), e.RunFinished())


def scene(tmp_path: Path, script: Script, body: Any) -> None:
    async def play() -> None:
        async with house(tmp_path, script) as at:
            await body(at, await at.start())
        verified(tmp_path)

    run(play())


def test_a_call_that_is_announced_as_one_tool_is_not_permitted_as_another(tmp_path: Path) -> None:
    """The question is about what nobody may approve: it is declined, and nobody is asked."""
    given: list[Answer | None] = []

    async def script(context: RunContext) -> None:
        says(context, e.ToolCallStarted(call="c1", name="send"), tool="send", risk=2, pending=True)
        await until(lambda: context.governed.calls["c1"].phase.name == "ANNOUNCED")  # type: ignore[union-attr]
        given.append(await asks(context, "drop", {}))
        over(context)

    async def body(at: Any, one: Any) -> None:
        await at.ended(one)
        assert given[0] is not None and not grants(given[0])
        assert await at.shown(one) == ["RunFinished"]

    scene(tmp_path, script, body)
    assert "tool.refused drop" in told(tmp_path) and "approval.requested drop" not in told(tmp_path)


def test_a_call_that_turns_out_to_need_no_approval_goes_on_without(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        says(context, e.ToolCallStarted(call="c1", name="send"), tool="send", risk=2, pending=True)
        await until(lambda: context.governed.calls["c1"].phase.name == "ANNOUNCED")  # type: ignore[union-attr]
        assert await asks(context, "write", {}) is None
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())

    async def body(at: Any, one: Any) -> None:
        await at.ended(one)
        assert await at.shown(one) == ["call send", "end c1", "RunFinished"]

    scene(tmp_path, script, body)


def test_what_was_approved_with_some_arguments_is_not_approved_with_others(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        start = e.ToolCallStarted(call="c1", name="send", input={"to": "ann"})
        says(context, start, tool="send", risk=2, pending=True)
        answer = await asks(context, "send", {"to": "ann"})
        assert answer is not None and grants(answer)
        says(context, e.ToolCallUpdated(call="c1", status="in_progress"), arguments={"to": "all"})
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async def body(at: Any, one: Any) -> None:
        await at.asked(one)
        await at.answer(one, ALLOW, ANN)
        await until(lambda: "approval-c1" in {i.id for i in at.engine.live[one.id].run.interrupts})
        [again] = at.engine.live[one.id].run.interrupts
        assert again.payload["arguments"] == {"to": "all"}
        assert "end c1" not in await at.shown(one)
        await at.answer(one, YES, ANN)
        await at.ended(one)

    scene(tmp_path, script, body)
    inputs = [line["input"] for line in audited(tmp_path) if line["action"] == "tool.call"]
    assert inputs == [{"to": "ann"}, {"to": "all"}]


def test_arguments_that_change_while_somebody_is_asked_are_not_what_was_approved(tmp_path: Path) -> None:
    given: list[Answer | None] = []

    async def script(context: RunContext) -> None:
        start = e.ToolCallStarted(call="c1", name="send", input={"to": "ann"})
        says(context, start, tool="send", risk=2, pending=True)
        asking = asyncio.ensure_future(asks(context, "send", {"to": "ann"}))
        await until(lambda: bool(context.run.interrupts))
        says(context, e.ToolCallUpdated(call="c1"), arguments={"to": "all"}, pending=True)
        given.append(await asking)
        over(context)
        await context.drain()

    async def body(at: Any, one: Any) -> None:
        await at.asked(one)
        await until(lambda: bool(at.engine.live[one.id].interceptor.judge.calls["c1"].stale))
        await at.answer(one, ALLOW, ANN)
        await at.ended(one)
        assert given[0] is not None and not grants(given[0])

    scene(tmp_path, script, body)


def test_a_call_that_was_said_to_be_another_before_it_was_decided_is_judged_as_both(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        says(context, e.ToolCallStarted(call="c1", name="drop"), tool="drop", risk=0)
        says(context, e.ToolCallUpdated(call="c1", title="write"), tool="write", risk=0)
        await context.drain()
        context.emit(e.RunFinished())

    async def body(at: Any, one: Any) -> None:
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "denied"
        assert "call drop" not in await at.shown(one)

    scene(tmp_path, script, body)


def test_two_questions_about_one_call_at_once_leave_nobody_waiting(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        says(context, e.ToolCallStarted(call="c1", name="send"), tool="send", risk=2, pending=True)
        first, second = [asyncio.ensure_future(asks(context, "send", {}, number)) for number in (1, 2)]
        assert grants(await first or Answer())
        assert await second is None
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async def body(at: Any, one: Any) -> None:
        await at.asked(one)
        await at.answer(one, ALLOW, ANN)
        await at.ended(one)
        assert (await at.shown(one))[-3:] == ["call send", "end c1", "RunFinished"]

    scene(tmp_path, script, body)


@pytest.mark.parametrize("principal", ["ann", None])
def test_the_log_says_who_had_the_operator_work_and_in_which_protocol(tmp_path: Path, principal: str | None) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.RunFinished())

    async def play() -> None:
        async with house(tmp_path, script) as at:
            await at.ended(await at.start(principal=principal))

    run(play())
    who = {"protocol": "test"} if principal is None else {"protocol": "test", "principal": principal}
    begun = [line["output"] for line in audited(tmp_path) if line["action"] in ("operator.invoked", "operator.running")]
    assert begun == [who, who]


def test_a_call_that_becomes_another_while_it_is_recorded_is_decided_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(context: RunContext) -> None:
        gate: Any = context.governed
        record = gate.session.called

        async def slowly(call: Any, *rest: Any) -> None:
            await record(call, *rest)
            if call.tool == "write":
                says(context, e.ToolCallUpdated(call="c1", title="drop"), tool="drop", risk=0)

        monkeypatch.setattr(gate.session, "called", slowly)
        says(context, e.ToolCallStarted(call="c1", name="write"), tool="write", risk=0)
        await context.drain()
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async def body(at: Any, one: Any) -> None:
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "denied"
        [end] = [event for event in await at.events(one) if isinstance(event, e.ToolCallEnded)]
        assert end.failed, "the run's end is the call's"

    scene(tmp_path, script, body)
    assert "tool.refused drop" in told(tmp_path) and "tool.result drop" not in told(tmp_path)


def test_what_comes_of_a_call_that_has_ended_is_audited_too(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        says(context, e.ToolCallStarted(call="c1", name="write"), tool="write", risk=0)
        context.emit(e.ToolCallEnded(call="c1"))
        context.emit(e.Custom(name="x", data={"toolCallId": "c1", "rawOutput": {"late": 1}, "title": "t"}))
        context.emit(e.RunFinished())
        await context.drain()

    async def body(at: Any, one: Any) -> None:
        await at.ended(one)

    scene(tmp_path, script, body)
    results = [line["output"] for line in audited(tmp_path) if line["action"] == "tool.result"]
    assert results == [{"result": None}, {"result": {"rawOutput": {"late": 1}}}]


@pytest.mark.parametrize("own", [True, False])
def test_what_is_denied_by_now_is_not_approved_though_somebody_was_asked(tmp_path: Path, own: bool) -> None:
    """`own`: it is the agent's question."""
    given: list[Answer | None] = []

    async def script(context: RunContext) -> None:
        says(context, e.ToolCallStarted(call="c1", name="send"), tool="send", risk=2, pending=own)
        if own:
            given.append(await asks(context, "send", {}))
        await context.drain()
        over(context)
        await context.drain()

    async def body(at: Any, one: Any) -> None:
        await at.asked(one)
        governor = at.engine.agents.configured[0].outbound.governor  # type: ignore[attr-defined]
        governor.replaced(RouteGovernor(documents(tmp_path, tools=("read",)), governor.journal))
        await at.answer(one, ALLOW if own else YES, ANN)
        found = await at.ended(one, RunStatus.SUCCESS if own else RunStatus.ERROR)
        assert "call send" not in await at.shown(one)
        assert own or (found.failure and found.failure.code == "denied")
        assert not own or (given[0] is not None and not grants(given[0]))

    scene(tmp_path, script, body)
    assert "approval.granted send" not in told(tmp_path) and "tool.refused send" in told(tmp_path)


def test_a_question_of_before_a_restart_whose_run_cannot_go_on_is_recorded_as_refused(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        await context.set_upstream({"session": "s"})
        await call(context, "send")

    async def attach(context: RunContext) -> None:
        raise AgentGone("it is not there")

    async def play() -> None:
        async with house(tmp_path, script) as at:
            one = await at.start()
            await at.asked(one)
        async with house(tmp_path, script, attach=attach) as at:
            await at.ended(one, RunStatus.ERROR)
        verified(tmp_path)

    run(play())
    assert told(tmp_path)[-2:] == ["tool.refused send", "operator.interrupted"]
    assert told(tmp_path).count("tool.refused send") == 1


def test_a_call_that_was_asked_about_before_a_restart_and_needs_nobody_now_is_not_recorded_as_refused(
    tmp_path: Path,
) -> None:
    async def script(context: RunContext) -> None:
        await context.set_upstream({"session": "s"})
        await call(context, "send")

    async def attach(context: RunContext) -> None:
        await call(context, "send")
        context.emit(e.RunFinished())
        await context.drain()

    async def play() -> None:
        async with house(tmp_path, script) as at:
            one = await at.start()
            await at.asked(one)
        policy(tmp_path, "sends", match={"subject": "send"}, autonomy=3)
        now = bind(tmp_path / "scripted" / "ACP.md", tmp_path)
        async with house(tmp_path, script, attach=attach, binding=now) as at:
            await at.ended(one)
            assert "call send" in await at.shown(one)
        verified(tmp_path)

    run(play())
    assert "tool.refused send" not in told(tmp_path) and "tool.result send" in told(tmp_path)


def test_an_approval_of_what_a_call_was_before_counts_for_nothing_once_it_is_denied(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        says(context, e.ToolCallStarted(call="c1", name="send", input={"to": "ann"}), tool="send", risk=2)
        await until(lambda: context.governed.calls["c1"].allowed)  # type: ignore[union-attr]
        says(context, e.ToolCallUpdated(call="c1", status="in_progress"), arguments={"to": "all"})
        over(context)
        await context.drain()

    async def body(at: Any, one: Any) -> None:
        await at.asked(one)
        await at.answer(one, YES, ANN)
        await until(lambda: "approval-c1#2" in {i.id for i in at.engine.live[one.id].run.interrupts})
        governor = at.engine.agents.configured[0].outbound.governor
        governor.replaced(RouteGovernor(documents(tmp_path, tools=("read",)), governor.journal))
        await at.answer(one, YES, ANN)
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "denied"

    scene(tmp_path, script, body)
    inputs = [line["input"] for line in audited(tmp_path) if line["action"] == "tool.call"]
    assert inputs[0] == {"to": "ann"} and told(tmp_path).count("approval.granted send") == 1
    assert told(tmp_path)[-2:] == ["tool.refused send", "operator.interrupted"]
