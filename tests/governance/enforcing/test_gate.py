"""In which order, and when, the gate shows what an agent says, and what becomes of calls that never begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import IllegalEvent
from gateway.core.types import Answer, RunStatus, ThreadUpdate
from gateway.governance.policy import PolicyRules
from tests.governance.enforcing.support import NO, YES, audited, house, told, verified
from tests.governance.enforcing.test_permissions import REJECT, announce, permission
from tests.support.aio import run
from tests.support.scripted import Scripted, until


def logged(context: RunContext) -> int:
    """How many events of the run's there are by now."""
    return context.log.last


def texts(events: list[e.Event]) -> list[Any]:
    return [event.delta for event in events if isinstance(event, e.PartDelta)]


async def test_what_stands_before_a_call_that_waits_is_shown_at_once(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="before"), e.ToolCallStarted(call="c1", name="send"))
        await context.drain()
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())

    async with house(tmp_path, script) as at:
        await at.asked(one := await at.start())
        assert await at.shown(one) == ["before", "? approval-c1"]
        await at.answer(one, YES)
        await at.ended(one)


async def test_an_agent_was_heard_by_whatever_it_said_also_if_that_waits_at_the_gate(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        before = context.heard
        context.emit(e.ToolCallStarted(call="c1", name="send"))
        await context.drain()
        heard = [before, context.heard]
        context.note(ThreadUpdate(protocol="test", kind="title", data={"title": "noted"}))
        heard.append(context.heard)
        await context.add_artifact("a.txt", b"a")
        heard.append(context.heard)
        assert heard == sorted({*heard})
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())

    async with house(tmp_path, script) as at:
        await at.asked(one := await at.start())
        await at.answer(one, YES)
        await at.ended(one)


async def test_what_waits_for_nothing_is_shown_at_once_and_refused_at_once(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        before = logged(context)
        context.emit(e.PartDelta(part="text", delta="text"), e.Custom(name="wire", data={"of": "no call"}))
        assert logged(context) > before
        with pytest.raises(IllegalEvent):
            context.emit(e.Resumed(interrupt="q", answer=Answer()))
        context.emit(e.ToolCallStarted(call="c1", name="read"))
        await context.drain()
        before = logged(context)
        context.emit(e.ToolCallUpdated(call="c1", content="a part of it"))
        assert logged(context) == before + 1
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())

    async with house(tmp_path, script) as at:
        await at.ended(await at.start())
    (result,) = [line["output"] for line in audited(tmp_path) if line["action"] == "tool.result"]
    assert result == {"result": "a part of it"}


@pytest.mark.parametrize("described", [{"arguments": {"to": "y"}}, {"risk": 3}])
async def test_an_update_with_news_of_its_call_waits_until_they_are_recorded(
    tmp_path: Path, described: dict[str, Any]
) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        context.emit(e.ToolCallStarted(call="c1", name="read", kind="read", input={"to": "x"}))
        await context.drain()
        context.governed.describe("c1", **described)
        before, lines = logged(context), len(told(tmp_path))
        context.emit(e.ToolCallUpdated(call="c1", content="more"))
        assert logged(context) == before
        if "risk" in described:
            await until(lambda: bool(context.run.interrupts))
        else:
            await context.drain()
            assert told(tmp_path)[lines:] == ["tool.call read"] and logged(context) == before + 1
        context.emit(e.ToolCallEnded(call="c1"), e.RunFinished())

    async with house(tmp_path, script) as at:
        one = await at.start()
        if "risk" in described:
            await at.asked(one)
            await at.answer(one, YES)
        await at.ended(one)


def test_an_update_of_a_call_that_never_started_is_judged_by_its_name(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallUpdated(call="c9", status="in_progress"))
        await context.drain()
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            found = await at.ended(await at.start(), RunStatus.ERROR)
            assert found.failure is not None and found.failure.code == "denied"

    run(scene())
    assert "tool.refused c9" in told(tmp_path)


def test_a_call_that_ends_before_it_has_begun_holds_up_nothing(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        announce(context, "send")
        await context.drain()
        context.emit(e.ToolCallEnded(call="c1", failed=True), e.PartDelta(part="text", delta="behind"))
        before = logged(context)
        await until(lambda: logged(context) > before)
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            one = await at.start()
            await at.ended(one)
            assert await at.shown(one) == ["behind", "RunFinished"]

    run(scene())
    assert told(tmp_path)[2:] == ["tool.refused send", "operator.completed"]


def test_a_call_that_its_agent_has_only_announced_when_the_run_ends_is_refused_and_not_asked_about(
    tmp_path: Path,
) -> None:
    async def script(context: RunContext) -> None:
        announce(context, "send")
        await context.drain()
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            one = await at.start()
            await at.ended(one)
            assert await at.shown(one) == ["RunFinished"]

    run(scene())
    assert told(tmp_path)[2:] == ["tool.refused send", "operator.completed"]


async def test_what_an_agent_says_after_it_was_stopped_is_counted(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="drop"))
        await until(lambda: context.cancelled)
        context.emit(e.PartDelta(part="text", delta="one"), e.PartDelta(part="text", delta="two"))

    async with house(tmp_path, script) as at:
        found = await at.ended(one := await at.start(), RunStatus.ERROR)
        assert found.losses["late_event"] == 2 and texts(await at.events(one)) == []


async def test_a_gate_that_fails_ends_the_run_and_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a fault of ours")

    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="read"), e.PartDelta(part="text", delta="behind"))
        await until(lambda: context.cancelled)

    async with house(tmp_path, script) as at:
        monkeypatch.setattr(PolicyRules, "call", fails)
        found = await at.ended(one := await at.start(), RunStatus.ERROR)
        assert found.failure is not None and found.failure.message == "internal error"
        assert await at.shown(one) == ["RunFailed"]
    verified(tmp_path)


def test_only_what_adds_to_the_result_of_a_call_that_is_over_is_recorded_as_one(tmp_path: Path) -> None:
    def says(**more: Any) -> e.Custom:
        return e.Custom(name="wire", data={"toolCallId": "c1", **more})

    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="read"), says(rawOutput="early"))
        context.emit(e.ToolCallEnded(call="c1", output="whole"), says(title="nothing new"))
        context.emit(says(status="failed", rawOutput="more", content=[1]), e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.ended(await at.start())

    run(scene())
    results = [line["output"]["result"] for line in audited(tmp_path) if line["action"] == "tool.result"]
    assert results == ["whole", {"status": "failed", "rawOutput": "more", "content": [1]}]


def results(folder: Path) -> list[Any]:
    """What the log has of the ends of calls."""
    return [line["output"] for line in audited(folder) if line["action"] == "tool.result"]


@pytest.mark.parametrize(
    ("said", "recorded"),
    [
        ([e.ToolCallUpdated(call="c1", content="a part"), e.ToolCallEnded(call="c1")], {"result": "a part"}),
        ([e.ToolCallUpdated(call="c1", content="a part"), e.ToolCallEnded(call="c1", output="all")], {"result": "all"}),
        ([e.ToolCallEnded(call="c1", failed=True)], {"error": "failed"}),
        ([e.ToolCallEnded(call="c1", failed=True, output="no ink")], {"error": "no ink"}),
        ([e.ToolCallEnded(call="c1", output="one"), e.ToolCallEnded(call="c1", output="two")], {"result": "one"}),
    ],
)
def test_a_call_has_one_end_with_what_came_of_it(tmp_path: Path, said: list[e.Event], recorded: Any) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="read"), *said, e.RunFinished())
        await context.drain()

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            found = await at.ended(await at.start())
            twice = sum(isinstance(one, e.ToolCallEnded) for one in said) > 1
            assert found.losses.get("illegal_event", 0) == int(twice)

    run(scene())
    assert results(tmp_path) == [recorded]


async def test_a_call_that_was_rejected_ends_the_run_if_its_agent_does_not_wait_for_that(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.ToolCallStarted(call="c1", name="send"))
        context.emit(e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        await at.asked(one := await at.start())
        await at.answer(one, NO)
        found = await at.ended(one, RunStatus.ERROR)
        assert found.failure is not None and found.failure.code == "denied"


SENT = e.ToolCallEnded(call="c1", output="sent")


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ([[SENT], [e.RunFinished()]], True),
        ([[SENT, e.RunFinished()]], True),
        ([[e.ToolCallEnded(call="c1", output="not sent", failed=True)], [e.RunFinished()]], False),
        ([[e.ToolCallEnded(call="c1"), e.RunFinished()]], False),
    ],
    ids=["made", "made at the end of the run", "failed", "left open"],
)
async def test_an_agent_that_makes_a_call_although_it_was_rejected_is_stopped(
    tmp_path: Path, said: list[list[e.Event]], made: bool
) -> None:
    async def script(context: RunContext) -> None:
        announce(context, "send")
        await permission(context, "send")
        for events in said:
            context.emit(*events)
            await context.drain()

    async with house(tmp_path, script) as at:
        await at.asked(one := await at.start())
        await at.answer(one, REJECT)
        await at.ended(one, RunStatus.ERROR if made else RunStatus.SUCCESS)


async def test_what_is_said_of_a_call_that_nobody_told_of_is_counted_and_not_shown(tmp_path: Path) -> None:
    async def script(context: RunContext) -> None:
        context.emit(e.Custom(name="wire", data={"toolCallId": "nobody's", "rawOutput": "x"}), e.RunFinished())
        await context.drain()

    async with house(tmp_path, script) as at:
        found = await at.ended(one := await at.start())
        assert found.losses["tool_refused"] == 1
        assert not [event for event in await at.events(one) if isinstance(event, e.Custom)]
    async with house(tmp_path / "other", script, half=Scripted) as at:
        found = await at.ended(one := await at.start())
        assert not found.losses, "a half without rules has no words about calls"
        assert [event for event in await at.events(one) if isinstance(event, e.Custom)]


@pytest.mark.parametrize(("risk", "recorded"), [(None, 2), (1, 1)])
def test_a_call_that_is_named_and_never_started_is_as_risky_as_an_unknown_one(
    tmp_path: Path, risk: int | None, recorded: int
) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        context.governed.describe("c1", tool="read", risk=risk)
        context.emit(e.ToolCallUpdated(call="c1", status="in_progress"))
        await context.drain()
        context.emit(e.RunFinished())

    async def scene() -> None:
        async with house(tmp_path, script) as at:
            await at.until(await at.start())

    run(scene())
    records = [line["metadata"]["aip44"]["audit"] for line in audited(tmp_path) if "tool" in line["action"]]
    assert records[0]["risk"] == recorded
