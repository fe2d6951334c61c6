"""What adapters ask in a governed run: permissions that an agent asks for, acts that no event speaks of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.contract import RunContext
from gateway.contract.governing import APPROVALS, governor_named
from gateway.core import events as e
from gateway.core.errors import Denied
from gateway.core.types import Answer, Failure, Interrupt, Json, Outcome, RunStatus
from tests.governance.enforcing.support import ANN, BOB, NO, YES, audited, call, documents, house, told, verified
from tests.support.scripted import until

ALLOW, REJECT = {"optionId": "allow"}, {"optionId": "reject"}


def grants(answer: Answer) -> bool:
    return bool(answer.value == ALLOW)


async def permission(context: RunContext, tool: str, call: str = "c1", *, risk: int = 2) -> Answer | None:
    """As an adapter does whose agent asks for permission."""
    assert context.governed is not None
    question = Interrupt(id="permission-1", kind="permission", payload={"toolCall": {"toolCallId": call}})
    return await context.governed.permission(call, tool, {"to": "x"}, risk=risk, question=question, grants=grants)


def announce(context: RunContext, tool: str, call: str = "c1", *, risk: int = 2) -> None:
    """A call that has not begun."""
    assert context.governed is not None
    context.governed.describe(call, tool=tool, risk=risk, pending=True)
    context.emit(e.ToolCallStarted(call=call, name=f"Doing {tool}", input={"to": "x"}))


async def asking(context: RunContext, tool: str) -> None:
    """Announces a call, asks whether it may make it, and does so, or says that it did not."""
    announce(context, tool)
    context.emit(e.PartDelta(part="text", delta="behind"))
    await context.drain()
    answer = await permission(context, tool)
    done = answer is None or grants(answer)
    if done:
        context.emit(e.ToolCallUpdated(call="c1", status="in_progress"))
    context.emit(e.ToolCallEnded(call="c1", failed=not done), e.RunFinished())
    await context.drain()


@pytest.mark.parametrize(("status", "own"), [(None, True), ("pending", True), ("in_progress", False)])
async def test_a_call_that_still_waits_is_asked_about_by_its_agent_and_one_that_has_begun_by_the_gateway(
    tmp_path: Path, status: str | None, own: bool
) -> None:
    async def script(context: RunContext) -> None:
        announce(context, "send")
        context.emit(e.ToolCallUpdated(call="c1", status=status, title="Sending"))
        if own:
            await context.drain()
            await permission(context, "send")
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        asked = await at.asked(one := await at.start())
        assert [i.id for i in asked.interrupts] == ["permission-1" if own else "approval-c1"]
        await at.answer(one, ALLOW if own else YES, ANN)
        await at.ended(one)


async def test_the_agents_own_question_is_the_approval(tmp_path: Path) -> None:
    async with house(tmp_path, lambda context: asking(context, "send")) as at:
        one = await at.start()
        asked = await at.asked(one)
        assert [i.id for i in asked.interrupts] == ["permission-1"] and await at.shown(one) == ["? permission-1"]
        with pytest.raises(Denied):
            await at.answer(one, ALLOW, BOB)
        await at.answer(one, ALLOW, ANN)
        await at.ended(one)
        shown = ["? permission-1", "! permission-1 answered", "call Doing send", "behind", "end c1", "RunFinished"]
        assert await at.shown(one) == shown
    wanted = [
        "tool.call send", "approval.requested send", "operator.suspended", "approval.granted send",
        "operator.resumed", "tool.result send", "operator.completed",
    ]  # fmt: skip
    assert told(tmp_path)[2:] == wanted
    verified(tmp_path)


async def test_an_agent_that_is_told_no_goes_on_and_its_call_is_never_shown(tmp_path: Path) -> None:
    async with house(tmp_path, lambda context: asking(context, "send")) as at:
        one = await at.start()
        await at.asked(one)
        await at.answer(one, REJECT, ANN)
        found = await at.ended(one)
        assert await at.shown(one) == ["? permission-1", "! permission-1 answered", "behind", "RunFinished"]
        assert found.losses["tool_refused"] == 1 and at.outbound.cancels == 0
    assert "tool.refused send" in told(tmp_path) and "tool.result send" not in told(tmp_path)


async def test_what_the_rules_deny_is_declined_at_once(tmp_path: Path) -> None:
    async with house(tmp_path, lambda context: asking(context, "drop")) as at:
        one = await at.start()
        await at.ended(one)
        assert await at.shown(one) == ["behind", "RunFinished"]
    assert told(tmp_path).count("tool.refused drop") == 1 and "tool.call drop" not in told(tmp_path)


async def test_what_the_rules_allow_is_left_to_the_routes_own_policy(tmp_path: Path) -> None:
    async with house(tmp_path, lambda context: asking(context, "write")) as at:
        await at.ended(await at.start())
    assert told(tmp_path)[2:-1] == ["tool.call write", "tool.result write"]


@pytest.mark.parametrize("tool", ["drop", "send"])
async def test_an_agent_that_was_told_no_and_does_it_is_stopped(tmp_path: Path, tool: str) -> None:
    async def script(context: RunContext) -> None:
        announce(context, tool)
        answer = await permission(context, tool)
        assert answer is not None and not grants(answer)
        context.emit(e.ToolCallUpdated(call="c1", status="in_progress"))
        await context.drain()
        context.emit(e.PartDelta(part="text", delta="it is done"), e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        if tool == "send":
            await at.asked(one)
            await at.answer(one, REJECT)
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "denied" and tool in found.failure.message
        assert "it is done" not in await at.shown(one) and at.outbound.cancels == 1


async def test_an_agent_that_does_not_ask_is_asked_about(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        announce(context, "send")
        context.emit(e.ToolCallUpdated(call="c1", status="in_progress"))
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        asked = await at.asked(one)
        assert [i.kind for i in asked.interrupts] == ["approval"]
        await at.answer(one, YES)
        await at.ended(one)
        assert (await at.shown(one))[2:] == ["call Doing send", "end c1", "RunFinished"]


async def test_a_call_that_ends_without_having_begun_bothers_nobody(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        announce(context, "send")
        await context.drain()
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.ended(one)
        assert await at.shown(one) == ["RunFinished"]
    assert told(tmp_path)[2:] == ["tool.refused send", "operator.completed"]


async def test_a_call_that_turns_out_to_be_riskier_is_decided_anew(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        context.governed.describe("c1", tool="read", risk=0)
        context.emit(e.ToolCallStarted(call="c1", name="Reading"))
        await context.drain()
        context.governed.describe("c1", risk=3, arguments={"path": "/etc"})
        context.emit(e.ToolCallUpdated(call="c1", content="more"), e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        asked = await at.asked(one)
        assert asked.interrupts[0].payload["risk"] == 3
        assert asked.interrupts[0].payload["arguments"] == {"path": "/etc"}
        await at.answer(one, NO)
        await at.ended(one, RunStatus.ERROR)
        assert (await at.shown(one))[0] == "call Reading" and "end c1" in await at.shown(one)
    assert told(tmp_path).count("tool.call read") == 2


async def test_a_call_that_turns_out_to_be_of_another_tool_is_decided_anew(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        context.governed.describe("c1", tool="read", risk=0)
        context.emit(e.ToolCallStarted(call="c1", name="Reading"))
        context.governed.describe("c1", tool="drop")
        context.emit(e.ToolCallUpdated(call="c1", status="in_progress"))
        await context.drain()
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.ended(one, RunStatus.ERROR)
    assert "tool.refused drop" in told(tmp_path)


async def test_arguments_that_come_later_are_audited_before_they_are_shown(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        context.governed.describe("c1", tool="write", risk=1)
        context.emit(e.ToolCallStarted(call="c1", name="Writing"))
        await context.drain()
        context.governed.describe("c1", arguments={"path": "a"})
        context.emit(e.ToolCallUpdated(call="c1"), e.ToolCallEnded(call="c1", output="ok"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        await at.ended(await at.start())
    calls = [line for line in audited(tmp_path) if line["action"] == "tool.call"]
    assert [line["input"] for line in calls] == [{"value": None}, {"path": "a"}]
    counted = [line["metadata"]["aip44"]["audit"].get("budgets") for line in calls]
    assert counted == [["writes"], None]  # it is one call, and is paid once


async def test_what_core_has_no_event_for_speaks_only_of_calls_that_are_shown(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        for name, tool in (("c1", "read"), ("c2", "drop")):
            announce(context, tool, name, risk=0)
            context.emit(e.Custom(name="wire", data={"toolCallId": name, "text": tool}))
        context.emit(e.Custom(name="wire", data={"toolCallId": ["c2"]}), e.Custom(name="wire", data={"other": 1}))
        context.emit(e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.ended(one)
        shown: list[Json] = [event.data for event in await at.events(one) if isinstance(event, e.Custom)]
        assert shown == [{"toolCallId": "c1", "text": "read"}, {"other": 1}]


async def test_an_act_is_audited_before_it_is_done_and_when_it_was(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        call = await context.governed.act("fs.write", {"path": "/w/a"}, risk=1)
        assert told(tmp_path)[-1] == "tool.call fs.write"
        await context.governed.acted(call, result={})
        await context.governed.acted(await context.governed.act("fs.read", {}, risk=0))
        with pytest.raises(Denied, match=r"coder has no tool terminal\.create"):
            await context.governed.act("terminal.create", {"command": "rm"}, risk=2)
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        found = await at.ended(one)
        assert found.losses["tool_refused"] == 1
    assert told(tmp_path)[2:-1] == [
        "tool.call fs.write", "tool.result fs.write", "tool.call fs.read", "tool.result fs.read",
        "tool.refused terminal.create",
    ]  # fmt: skip
    results = [line["output"] for line in audited(tmp_path) if line["action"] == "tool.result"]
    assert results == [{"result": {}}, {"result": None}]


@pytest.mark.parametrize("first", ["act", "event"])
@pytest.mark.parametrize("done", [True, False])
async def test_an_act_that_events_speak_of_as_well_has_an_end_wherever_it_has_a_beginning(
    tmp_path: Path, first: str, done: bool
) -> None:
    async def script(context: RunContext) -> None:
        governed = context.governed
        assert governed is not None

        async def tell() -> None:
            governed.describe("c1", tool="list", server="github", risk=0)
            context.emit(e.ToolCallStarted(call="c1", name="Listing", kind="read", input={"of": "x"}))
            await context.drain()

        if first == "event":
            await tell()
        act = await governed.act("list", {"of": "x"}, risk=0, server="github")
        if first == "act":
            await tell()
        if done:
            await governed.acted(act, result=[])
            context.emit(e.ToolCallEnded(call="c1", output=[]))
        context.emit(e.RunFinished())
        await context.drain()

    binding = documents(tmp_path, tools=[{"kind": "mcp", "server": "github", "allow": ["list"]}])
    async with house(tmp_path, script, binding=binding) as at:
        await at.ended(await at.start())
    lines = [(line["action"], line["metadata"]["aip44"]["audit"].get("call")) for line in audited(tmp_path)]
    begun = {name for action, name in lines if action == "tool.call"}
    assert len(begun) == (2 if first == "act" else 1)
    assert {name for action, name in lines if action == "tool.result"} == begun


@pytest.mark.parametrize(("value", "done"), [(YES, True), (NO, False)])
async def test_an_act_that_needs_approval_waits_for_it(tmp_path: Path, value: Json, done: bool) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        try:
            call = await context.governed.act("send", {"to": "x"}, risk=2)
        except Denied as error:
            context.emit(e.PartDelta(part="text", delta=str(error)))
        else:
            await context.governed.acted(call, result="sent")
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.asked(one)
        await at.answer(one, value)
        await at.ended(one)
        assert ("send was not approved" in "".join(await at.shown(one))) is not done
    assert ("tool.result send" in told(tmp_path)) is done is ("tool.refused send" not in told(tmp_path))


async def test_an_agent_that_withdraws_its_question_may_ask_again(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        announce(context, "send")
        first = asyncio.create_task(permission(context, "send"))
        while not context.run.interrupts:  # noqa: ASYNC110 - the run's record is changed by the engine
            await asyncio.sleep(0.001)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        question = Interrupt(id="permission-2", kind="permission", payload={})
        answer = await context.governed.permission("c1", "send", {}, risk=2, question=question, grants=grants)
        assert answer is not None and grants(answer)
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        async with asyncio.timeout(30):
            while [i.id for i in (await at.engine.runs.get(one.id)).interrupts] != ["permission-2"]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await at.answer(one, ALLOW)
        await at.ended(one)
        assert "call Doing send" in await at.shown(one)


async def test_a_stray_call_is_audited_as_refused(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        governor = governor_named(at.engine.agents, "scripted", "test")
        assert governor is not None
        await governor.stray("t9", "write", {"path": "a"}, call="c7")
    (line,) = audited(tmp_path)
    record = line["metadata"]["aip44"]["audit"]
    assert line["action"] == "tool.refused" and (record["session"], record["call"]) == ("t9", "c7")
    assert line["input"] == {"path": "a"} and "outside of any run" in record["why"]


async def test_other_questions_of_the_agent_are_anybodys_to_answer(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        answer = await context.ask(Interrupt(id="q1", kind="input"))
        context.emit(e.PartDelta(part="text", delta=str(answer.value)), e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.asked(one)
        await at.engine.runs.answer(one.id, Answer(outcome=Outcome.ANSWERED, value="me"))
        await at.ended(one)
    assert [kind for kind in told(tmp_path) if kind.startswith("operator")] == [
        "operator.invoked", "operator.running", "operator.suspended", "operator.resumed", "operator.completed",
    ]  # fmt: skip


async def test_a_run_that_fails_while_a_call_waits_does_not_wait_for_anybody(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="send"))
        await context.drain()
        while not context.run.interrupts:  # noqa: ASYNC110 - the run's record is changed by the engine
            await asyncio.sleep(0.001)
        context.emit(e.ToolCallEnded(call="c1", failed=True))
        context.emit(e.RunFailed(failure=Failure(code="agent_failed", message="boom")))
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.message == "boom"
        assert await at.shown(one) == ["? approval-c1", "! approval-c1 cancelled", "RunFailed"]
    assert told(tmp_path)[-2:] == ["tool.refused send", "operator.interrupted"]


async def test_a_question_of_the_agents_is_never_taken_for_an_approval(tmp_path: Path) -> None:
    """The agent asks what looks like the gateway's question about a harmless call, and makes another by that name."""

    async def first(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        harmless: Json = {
            "call": "c1",
            "tool": "send",
            "arguments": None,
            "risk": 2,
            "approvers": [],
            "why": "trust me",
        }
        looks = Interrupt(id="approval-c1", kind="approval", payload=harmless, answer_schema=APPROVALS.answer_schema)
        await context.ask(looks)
        await context.ask(Interrupt(id="wait", kind="input"))

    async def again(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="send", kind="other"), e.ToolCallEnded(call="c1"))
        context.emit(e.RunFinished())
        await context.drain()

    async with house(tmp_path, first) as at:
        one = await at.start()
        await at.asked(one)
        await at.answer(one, YES, ANN)
        async with asyncio.timeout(30):
            while [i.id for i in (await at.engine.runs.get(one.id)).interrupts] != ["wait"]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    async with house(tmp_path, first, attach=again) as at:
        async with asyncio.timeout(30):
            while "approval-c1#2" not in [i.id for i in (await at.engine.runs.get(one.id)).interrupts]:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert "call send" not in await at.shown(one)
        await at.engine.runs.cancel(one.id, wait=True)


async def test_an_approval_of_before_a_restart_is_for_the_call_that_was_approved(tmp_path: Path) -> None:
    async def first(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        context.emit(e.ToolCallStarted(call="c1", name="send", input={"to": "a friend"}))
        await context.drain()
        await asyncio.Event().wait()

    async def again(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="send", input={"to": "everybody"}), e.RunFinished())
        await context.drain()

    async with house(tmp_path, first) as at:
        one = await at.start()
        await at.asked(one)
    async with house(tmp_path, first, attach=again) as at:
        await at.answer(one, YES, ANN)
        asked = await at.asked(one)
        assert asked.interrupts[-1].payload["arguments"] == {"to": "everybody"}
        assert "call send" not in await at.shown(one)
        await at.engine.runs.cancel(one.id, wait=True)


async def test_a_run_that_is_over_permits_nothing_and_no_act(tmp_path: Path) -> None:
    contexts: list[RunContext] = []

    async def script(context: RunContext) -> None:
        contexts.append(context)
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        await at.ended(await at.start())
        before = told(tmp_path)
        answer = await permission(contexts[0], "write")
        assert answer is not None and answer.outcome is Outcome.DECLINED
        assert contexts[0].governed is not None
        with pytest.raises(Denied, match="the run is over"):
            await contexts[0].governed.act("fs.write", {}, risk=1)
        await contexts[0].governed.acted("act-1", result="made")
        assert told(tmp_path) == before


async def test_a_tool_that_whoever_asked_for_the_run_may_not_use_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path, lambda context: call(context, "write")) as at:
        one = await at.start(tools=("read",))
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None
        said = "the tool write is refused: whoever asked for the run has no tool write"
        assert (found.failure.code, found.failure.message) == ("denied", said)
        assert "call write" not in await at.shown(one)
    assert told(tmp_path)[2:-1] == ["tool.refused write"]


async def test_a_question_about_a_call_that_was_not_told_yet_announces_it(tmp_path: Path) -> None:
    """An agent that is told no and tells the call then, as one that failed, has not made it."""

    async def script(context: RunContext) -> None:
        answer = await permission(context, "drop")
        assert answer is not None and answer.outcome is Outcome.DECLINED
        context.emit(e.ToolCallStarted(call="c1", name="drop"), e.ToolCallEnded(call="c1", failed=True))
        context.emit(e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.ended(one)
        assert await at.shown(one) == ["RunFinished"]


async def test_a_call_whose_adapter_does_not_say_its_risk_has_that_of_its_kind(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        context.governed.describe("c1", tool="send")
        await call(context, "mail", kind="read")
        context.emit(e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        assert (await at.asked(one)).interrupts[0].payload["risk"] == 0
        await at.answer(one, YES)
        await at.ended(one)


async def test_who_has_approved_a_call_need_not_approve_it_again_because_it_is_riskier(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        announce(context, "send")
        answer = await permission(context, "send")
        assert answer is not None and grants(answer) and context.governed is not None
        context.governed.describe("c1", risk=3)
        context.emit(e.ToolCallUpdated(call="c1", status="in_progress"), e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        one = await at.start()
        await at.asked(one)
        await at.answer(one, ALLOW, ANN)
        await at.ended(one)
        assert (await at.shown(one))[2:] == ["call Doing send", "end c1", "RunFinished"]
    assert told(tmp_path).count("approval.requested send") == 1
    calls = [line["metadata"]["aip44"]["audit"] for line in audited(tmp_path) if line["action"] == "tool.call"]
    assert [call.get("approval") for call in calls] == [None, "ann"]


async def test_a_call_that_nobody_was_asked_about_when_the_run_ended_is_recorded_as_refused(tmp_path: Path) -> None:
    ready = asyncio.Event()

    async def script(context: RunContext) -> None:
        announce(context, "send")
        await until(lambda: context.governed.calls["c1"].phase.name == "ANNOUNCED")  # type: ignore[union-attr]
        ready.set()
        await asyncio.Event().wait()

    async with house(tmp_path, script) as at:
        one = await at.start()
        await ready.wait()
        await at.engine.runs.cancel(one.id, wait=True)
    refused = [line for line in audited(tmp_path) if line["action"] == "tool.refused"]
    whys = [line["metadata"]["aip44"]["audit"]["why"] for line in refused]
    assert whys == ["the run ended before it was approved"]
