"""Calls of MCP servers' tools that an agent tells by events and has the gateway make, too: both are one call."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Denied
from gateway.core.types import Json, RunStatus
from gateway.governance.binding import Binding
from gateway.governance.enforcing.calls import CallPhase, GovernedCall
from gateway.governance.enforcing.governor import RouteGovernor
from gateway.governance.enforcing.judge import Twins
from tests.governance.enforcing.support import ANN, NO, YES, audited, documents, house, told, verified
from tests.support.aio import run
from tests.support.scripted import until


def mail(folder: Path, *tools: str) -> Binding:
    return documents(folder, tools=[{"kind": "mcp", "server": "mail", "allow": list(tools)}])


def tells(context: RunContext, tool: str, *, pending: bool = False) -> None:
    """By an event, as call c1."""
    assert context.governed is not None
    context.governed.describe("c1", tool=tool, server="mail", risk=0, pending=pending)
    context.emit(e.ToolCallStarted(call="c1", name=tool, kind="read", input={"to": "x"}))


async def makes(context: RunContext, tool: str, *, risk: int = 0) -> str:
    """By the gateway. Returns what became of it."""
    assert context.governed is not None
    try:
        act = await context.governed.act(tool, {"to": "x"}, risk=risk, server="mail")
    except Denied as error:
        return str(error)
    await context.governed.acted(act, result="made")
    return "made"


def why(folder: Path) -> list[str]:
    """The reasons of what was refused, in the log's order."""
    return [line["metadata"]["aip44"]["audit"]["why"] for line in audited(folder) if line["action"] == "tool.refused"]


def one(*, act: bool = False, to: str = "x", server: str | None = "mail", risk: int = 1) -> GovernedCall:
    return GovernedCall(id="c", tool="send", server=server, risk=risk, arguments={"to": to}, act=act)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (one(), one(act=True), True),
        (one(act=True), one(), True),
        (one(), one(act=True, risk=3), True),  # it is decided anew
        (one(act=True), one(risk=0), True),
        (one(act=True), one(risk=2), False),  # the decision about the act was about less
        (one(), one(), False),
        (one(act=True), one(act=True), False),
        (one(), one(act=True, to="y"), False),
        (one(server=None), one(act=True, server=None), False),
    ],
)
def test_calls_are_one_if_both_ways_tell_the_same_of_them(
    first: GovernedCall, second: GovernedCall, same: bool
) -> None:
    twins = Twins()
    assert twins.find(first) is None
    assert twins.find(second) is (first if same else None)
    assert (first.twin, second.twin) == ((second, first) if same else (None, None))


@pytest.mark.parametrize("phase", [CallPhase.REFUSED, CallPhase.ENDED])
def test_what_was_refused_or_is_over_is_not_made_later(phase: CallPhase) -> None:
    twins, before = Twins(), one()
    twins.find(before)
    before.to(phase)
    assert twins.find(one(act=True)) is None


def test_a_call_has_one_twin() -> None:
    twins, told_, made = Twins(), one(), one(act=True)
    twins.find(told_)
    assert twins.find(made) is told_
    again = one(act=True)
    assert twins.find(again) is None and twins.find(told_) is None
    assert twins.find(one()) is again


@pytest.mark.parametrize(("value", "done"), [(YES, True), (NO, False)])
def test_a_call_that_is_told_while_its_act_waits_is_decided_with_it(tmp_path: Path, value: Json, done: bool) -> None:
    made: list[str] = []
    ready = asyncio.Event()

    async def script(context: RunContext) -> None:
        act = asyncio.ensure_future(makes(context, "send"))
        await until(lambda: bool(context.run.interrupts))
        tells(context, "send")
        await until(lambda: context.governed.calls["c1"].phase is CallPhase.ASKING)  # type: ignore[union-attr]
        ready.set()
        made.append(await act)
        context.emit(e.ToolCallEnded(call="c1", failed=not done), e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script, binding=mail(tmp_path, "send")) as at:
            asked = await at.asked(given := await at.start())
            assert len(asked.interrupts) == 1, "both are asked about at once"
            await ready.wait()
            await at.answer(given, value, ANN)
            found = await at.ended(given)
            assert ("call send" in await at.shown(given)) is done is (made == ["made"])
            assert found.losses.get("tool_refused", 0) == (0 if done else 2)
        verified(tmp_path)

    run(scene())
    assert told(tmp_path).count("approval.requested send") == 1
    assert why(tmp_path) == ([] if done else ["it was rejected", "it was refused as it was to be made"])
    calls = [line["metadata"]["aip44"]["audit"] for line in audited(tmp_path) if line["action"] == "tool.call"]
    assert [call.get("approval") for call in calls] == ([None, "ann"] if done else [None]), (
        "one waits, the other is made"
    )


@pytest.mark.parametrize(("value", "done"), [(YES, True), (NO, False)])
def test_an_act_waits_for_the_answer_about_the_call_that_was_told(tmp_path: Path, value: Json, done: bool) -> None:
    made: list[str] = []

    async def script(context: RunContext) -> None:
        tells(context, "send")
        await until(lambda: bool(context.run.interrupts))
        made.append(await makes(context, "send"))
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script, binding=mail(tmp_path, "send")) as at:
            asked = await at.asked(given := await at.start())
            assert [i.id for i in asked.interrupts] == ["approval-c1"]
            await at.answer(given, value, ANN)
            await at.ended(given, RunStatus.SUCCESS if done else RunStatus.ERROR)
            assert ("call send" in await at.shown(given)) is done

    run(scene())
    assert told(tmp_path).count("approval.requested send") == 1
    assert (made == ["made"]) is done is ("tool.result send" in told(tmp_path))


async def test_an_act_that_is_withdrawn_leaves_the_call_that_was_told_to_be_asked_about(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        act = asyncio.ensure_future(makes(context, "send"))
        await until(lambda: bool(context.run.interrupts))
        tells(context, "send")
        await until(lambda: context.governed.calls["c1"].phase is CallPhase.ASKING)  # type: ignore[union-attr]
        act.cancel()
        await asyncio.gather(act, return_exceptions=True)
        await context.drain()
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script, binding=mail(tmp_path, "send")) as at:
        given = await at.start()
        await until(lambda: "approval-c1" in {i.id for i in at.engine.live[given.id].run.interrupts})
        await at.answer(given, YES, ANN)
        await at.ended(given)
        assert "call send" in await at.shown(given)


def test_an_act_that_is_riskier_than_the_call_that_was_told_is_decided_anew(tmp_path: Path) -> None:
    made: list[str] = []

    async def script(context: RunContext) -> None:
        tells(context, "read")
        await context.drain()
        made.append(await makes(context, "read", risk=3))
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script, binding=mail(tmp_path, "read")) as at:
            asked = await at.asked(given := await at.start())
            assert asked.interrupts[0].payload["risk"] == 3
            await at.answer(given, NO)
            await at.ended(given)

    run(scene())
    assert "not approved" in made[0]
    assert "approval.rejected read" in told(tmp_path)


def test_a_call_that_was_only_announced_is_begun_by_its_act(tmp_path: Path) -> None:
    """So a refusal that cannot be approved any more ends the run."""
    made: list[str] = []

    async def script(context: RunContext) -> None:
        tells(context, "send", pending=True)
        await until(lambda: context.governed.calls["c1"].phase is CallPhase.ANNOUNCED)  # type: ignore[union-attr]
        made.append(await makes(context, "send"))
        context.emit(e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script, binding=mail(tmp_path, "send")) as at:
            await at.asked(given := await at.start())
            governor = at.engine.agents.configured[0].outbound.governor  # type: ignore[attr-defined]
            assert governor is not None
            governor.replaced(RouteGovernor(mail(tmp_path, "read"), governor.journal))  # type: ignore[attr-defined]
            await at.answer(given, YES, ANN)
            await at.ended(given, RunStatus.ERROR)
            assert "call send" not in await at.shown(given)

    run(scene())
    assert "is refused" in made[0]
