"""Which stop reasons are failures, and what is said of them."""

from __future__ import annotations

import pytest

from gateway.core.stopping import cut_short, failure
from gateway.core.types import StopReason

LIMITS = (StopReason.MAX_TOKENS, StopReason.MAX_TURN_REQUESTS)


@pytest.mark.parametrize("reason", StopReason)
@pytest.mark.parametrize("said", ["", " \n", "I may not."])
def test_a_refusal_is_a_failure_and_a_limit_only_where_nothing_was_said(reason: StopReason, said: str) -> None:
    fails = reason is StopReason.REFUSAL or (reason in LIMITS and not said.strip())
    assert (failure(reason, said) is not None) is fails
    assert (cut_short(reason) is not None) is (reason in (StopReason.REFUSAL, *LIMITS))


def test_the_failure_has_what_was_said_as_its_reason_in_bounds() -> None:
    for said, told in (("No. ", ": No."), ("", " and said nothing"), ("x" * 9000, f": {'x' * 499}…")):
        found = failure(StopReason.REFUSAL, said)
        assert found is not None and (found.code, found.message) == ("agent_failed", f"the agent refused{told}")
