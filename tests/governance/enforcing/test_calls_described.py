"""What an agent says of a call, one thing after the other, and whether that leaves what was decided as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.core import events as e
from gateway.governance.audit.aip44 import AUTO
from gateway.governance.enforcing.calls import CallPhase, GovernedCall
from gateway.governance.policy import Signatory


def decided(phase: CallPhase, approval: str = AUTO) -> GovernedCall:
    """A call of `send`, of the server `mail`, of risk 1."""
    call = GovernedCall(id="c1")
    call.describe("send", "mail", 1, {"to": "ann"})
    call.phase, call.approval, call.judged, call.grown = phase, approval, True, False
    return call


def test_a_call_of_another_tool_stays_another_when_only_its_risk_grows_then() -> None:
    call = decided(CallPhase.ALLOWED)
    call.describe("drop", None, None, None)
    call.describe(None, None, 3, None)
    assert call.stale and call.another and call.risk == 3


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


def test_a_call_of_before_a_restart_is_shown_and_recorded() -> None:
    call = GovernedCall(id="c1")
    call.started(e.ToolCallStarted(call="c1", name="send", input={"to": "ann"}), 2)
    assert call.grown
    call.as_before()
    assert (call.phase, call.recorded, call.approval) == (CallPhase.ALLOWED, True, AUTO)
    assert call.old and not call.grown


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
async def test_a_call_that_was_only_announced_begins_or_never_does(
    change: Callable[[GovernedCall], None], pending: bool, over: bool
) -> None:
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
