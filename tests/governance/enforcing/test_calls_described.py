"""What an agent says of a call, one thing after the other, and whether that leaves what was decided as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core import events as e
from gateway.governance.audit.aip44 import AUTO
from gateway.governance.enforcing.calls import CallPhase, GovernedCall
from gateway.governance.policy import Signatory
from tests.support import aio

NOTHING: dict[str, Any] = {"tool": None, "server": None, "risk": None, "arguments": None}


def decided(phase: CallPhase, approval: str = AUTO) -> GovernedCall:
    """A call of `send`, of the server `mail`, of risk 1."""
    call = GovernedCall(id="c1")
    call.describe("send", "mail", 1, {"to": "ann"})
    call.phase, call.approval, call.judged, call.grown = phase, approval, True, False
    return call


@pytest.mark.parametrize("phase", [CallPhase.ANNOUNCED, CallPhase.ASKING, CallPhase.ALLOWED])
@pytest.mark.parametrize(
    ("said", "stale", "another"),
    [
        ({}, False, False),
        ({"tool": "send", "server": "mail", "risk": 1}, False, False),
        ({"risk": 0}, False, False),
        ({"risk": 2}, True, False),
        ({"tool": "drop"}, True, True),
        ({"server": "files"}, True, True),
        ({"tool": "drop", "risk": 2}, True, True),
    ],
)
def test_a_decision_holds_for_the_tool_it_was_made_about_and_no_greater_risk(
    phase: CallPhase, said: dict[str, Any], stale: bool, another: bool
) -> None:
    call = decided(phase)
    call.describe(**{**NOTHING, **said})
    assert (call.stale, call.another) == (stale, another)
    assert call.risk == max(1, said.get("risk", 0)), "a risk once known is never talked down"
    assert not call.earlier and not call.grown
    call.describe(None, None, None, None)
    assert (call.stale, call.another) == (stale, another), "what is stale stays so until it is decided anew"


def test_a_call_of_another_tool_stays_another_when_only_its_risk_grows_then() -> None:
    call = decided(CallPhase.ALLOWED)
    call.describe("drop", None, None, None)
    call.describe(None, None, 3, None)
    assert call.stale and call.another and call.risk == 3


@pytest.mark.parametrize(
    ("phase", "approval", "another"),
    [
        (CallPhase.ANNOUNCED, AUTO, False),
        (CallPhase.ASKING, AUTO, True),
        (CallPhase.ALLOWED, AUTO, False),
        (CallPhase.ALLOWED, "ann", True),
        (CallPhase.ENDED, "ann", False),
    ],
)
def test_other_arguments_are_another_call_only_for_a_person_who_was_asked(
    phase: CallPhase, approval: str, another: bool
) -> None:
    call = decided(phase, approval)
    call.describe(None, None, None, {"to": "ann"})
    assert not call.stale and not call.another and not call.grown, "the same arguments again change nothing"
    call.describe(None, None, None, {"to": "all"})
    assert (call.stale, call.another) == (another, another)
    assert call.grown and call.arguments == {"to": "all"}


def test_other_arguments_are_not_those_of_the_act_that_the_call_was_matched_with() -> None:
    call = decided(CallPhase.ASKING)
    call.twin = other = GovernedCall(id="act-1")
    call.describe(None, None, None, {"to": "ann"})
    assert call.twin is other
    call.describe(None, None, None, {"to": "all"})
    assert call.twin is None


def test_a_call_is_judged_as_every_tool_it_was_said_to_be() -> None:
    call = GovernedCall(id="c1")
    for tool, server in [("read", None), ("read", None), ("write", None), ("write", "files"), ("send", None)]:
        call.describe(tool, server, None, None)
    assert (call.tool, call.server) == ("send", "files")
    assert call.earlier == {("read", None), ("write", None), ("write", "files")}


def test_the_adapter_rates_a_risk_lower_than_the_event_did_until_it_was_judged() -> None:
    call = GovernedCall(id="c1")
    call.started(e.ToolCallStarted(call="c1", name="send"), 3)
    assert call.risk == 3
    call.describe("send", None, 1, None)
    assert call.risk == 3, "the event has rated it"

    call = GovernedCall(id="c2", risk=2)
    call.describe("send", None, 1, None)
    assert call.risk == 1 and call.rated and call.named, "nothing was known of it"

    call = GovernedCall(id="c3", risk=2, judged=True)
    call.describe("send", None, 1, None)
    assert call.risk == 2


def test_what_the_adapter_has_said_counts_for_more_than_the_first_event() -> None:
    call = GovernedCall(id="c1")
    call.describe("send", "mail", 1, {"to": "ann"})
    call.started(e.ToolCallStarted(call="c1", name="Sending mail"), 3)
    assert (call.tool, call.server, call.risk, call.arguments) == ("send", "mail", 1, {"to": "ann"})
    call = GovernedCall(id="c2")
    call.started(e.ToolCallStarted(call="c2", name="send", input={}), 2)
    assert (call.tool, call.server, call.risk, call.arguments) == ("send", None, 2, {})


@pytest.mark.parametrize(
    ("change", "like", "same"),
    [
        (lambda call: None, True, True),
        (lambda call: setattr(call, "tool", "drop"), False, False),
        (lambda call: setattr(call, "server", "files"), False, False),
        (lambda call: setattr(call, "arguments", {"to": "all"}), False, False),
        (lambda call: setattr(call, "risk", 2), True, False),
        (lambda call: setattr(call, "risk", 0), True, True),
    ],
)
def test_an_approval_is_for_the_same_call_of_no_greater_risk(
    change: Callable[[GovernedCall], None], like: bool, same: bool
) -> None:
    one, other = decided(CallPhase.ALLOWED), decided(CallPhase.NEW)
    change(other)
    assert (one.like(other), one.same(other)) == (like, same)


LEGAL = {
    "NEW": {"ANNOUNCED", "ASKING", "ALLOWED", "REFUSED", "ENDED"},
    "ANNOUNCED": {"NEW", "ASKING", "REFUSED"},
    "ASKING": {"ANNOUNCED", "ALLOWED", "REFUSED"},
    "ALLOWED": {"NEW", "ENDED"},
    "REFUSED": set[str](),
    "ENDED": set[str](),
}


@pytest.mark.parametrize("before", CallPhase)
@pytest.mark.parametrize("after", CallPhase)
def test_a_refused_call_is_never_allowed_and_no_question_is_skipped(before: CallPhase, after: CallPhase) -> None:
    call = decided(before)
    if after.name in LEGAL[before.name]:
        call.to(after)
        assert call.phase is after
    else:
        with pytest.raises(RuntimeError, match=f"c1 cannot go from {before.name} to {after.name}"):
            call.to(after)
        assert call.phase is before


def test_a_call_that_changed_after_its_decision_is_taken_up_again() -> None:
    call = decided(CallPhase.ALLOWED, "ann")
    assert not call.take_up()
    call.signed.add(Signatory(id="ann"))
    call.describe(None, None, 2, None)
    assert call.take_up() and call.phase is CallPhase.NEW
    assert not call.stale and not call.recorded and call.signed, "a higher risk keeps the approvals so far"
    call.to(CallPhase.ANNOUNCED)
    call.describe("drop", None, None, None)
    assert call.take_up() and not call.signed and not call.another


def test_a_call_that_is_decided_is_not_taken_up() -> None:
    assert not decided(CallPhase.ANNOUNCED).take_up()
    assert not decided(CallPhase.ENDED).take_up()


def test_a_call_of_before_a_restart_is_shown_and_recorded() -> None:
    call = GovernedCall(id="c1")
    call.started(e.ToolCallStarted(call="c1", name="send", input={"to": "ann"}), 2)
    assert call.grown
    call.as_before()
    assert (call.phase, call.recorded, call.approval) == (CallPhase.ALLOWED, True, AUTO)
    assert call.old and not call.grown


def test_an_act_is_decided_as_the_call_that_events_tell() -> None:
    act, told = GovernedCall(id="act-1", act=True), decided(CallPhase.ALLOWED, "ann")
    act.follow(told)
    assert (act.phase, act.approval, act.decision) == (CallPhase.ALLOWED, "ann", told.decision)


def test_what_a_call_gave_is_kept_until_its_end_is_recorded() -> None:
    call = decided(CallPhase.ALLOWED)
    call.gave("some")
    call.gave(None)
    assert call.content == "some" and call.arguments is not None
    call.gave("more")
    assert call.content == "more"
    call.ended()
    assert call.content is None and call.arguments is None


@pytest.mark.parametrize(
    ("change", "pending", "over"),
    [
        (lambda call: call.begun(), False, False),
        (lambda call: call.stopped(unbegun=True), True, True),
        (lambda call: call.stopped(unbegun=False), False, False),
        (lambda call: call.abandoned(), True, True),
    ],
)
def test_a_call_that_was_only_announced_begins_or_never_does(
    change: Callable[[GovernedCall], None], pending: bool, over: bool
) -> None:
    async def check() -> None:
        call = GovernedCall(id="c1")
        call.announce()
        waiting = asyncio.ensure_future(call.change())
        await asyncio.sleep(0)
        change(call)
        await waiting
        assert (call.pending, call.over) == (pending, over)
        other = GovernedCall(id="c2")
        change(other)
        assert (other.pending, other.over) == (False, False), "it was not announced"

    aio.run(check())


def test_an_announcement_after_the_decision_changes_nothing() -> None:
    call = decided(CallPhase.ALLOWED)
    call.announce()
    assert not call.pending


@pytest.mark.parametrize("phase", CallPhase)
def test_a_call_may_be_shown_once_it_is_allowed_and_after_it_has_ended(phase: CallPhase) -> None:
    assert decided(phase).allowed is (phase in (CallPhase.ALLOWED, CallPhase.ENDED))
