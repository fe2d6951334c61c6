"""The conformance suite notices when a check is gone: each is taken out of a real gateway, and a requirement fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.governance.conformance import requirements
from tests.governance.conformance.requirements import REQUIREMENTS
from tests.governance.conformance.room import STRIPPED, Room, stripped_room

r = requirements
_recorded_first = r.a_tool_call_and_its_result_are_on_disk_before_a_client_sees_them
NOTICED = {
    "calls_are_recorded": _recorded_first,
    "results_are_recorded": _recorded_first,
    "what_is_recorded_is_on_disk_before_it_is_shown": _recorded_first,
    "what_cannot_be_recorded_is_not_done": r.what_cannot_be_recorded_is_not_shown,
    "arguments_are_recorded": r.a_tool_call_is_recorded_with_who_what_and_by_whose_word,
    "transitions_are_recorded": r.every_transition_is_recorded_before_it_is_told,
    "entries_are_chained": r.the_log_of_all_that_happened_is_whole,
    "a_closed_session_closes_its_audit": r.closing_a_session_closes_its_audit_and_forgets_what_is_ephemeral,
    "memory_may_be_ephemeral": r.closing_a_session_closes_its_audit_and_forgets_what_is_ephemeral,
    "tools_are_decided": r.a_tool_that_is_not_authorised_is_never_shown,
    "policies_are_asked_about_a_tool": r.a_tool_that_is_not_authorised_is_never_shown,
    "approvals_are_waited_for": r.a_call_that_needs_approval_is_held_until_somebody_approves,
    "a_rejection_is_final": r.a_call_that_is_rejected_is_never_shown_and_ends_the_turn,
    "the_agents_question_is_the_rules_to_answer": r.no_tool_is_approved_because_the_agent_asks,
    "a_denied_question_is_declined": r.what_is_denied_is_declined_without_a_question,
    "budgets_are_counted": r.a_budget_that_is_used_up_asks,
    "paths_are_admitted": r.no_session_is_opened_outside_of_the_authorised_roots,
    "paths_of_files_are_admitted": r.no_file_is_touched_outside_of_the_authorised_roots,
    "calls_outside_of_turns_are_dropped": r.a_call_outside_of_a_turn_is_told_to_nobody,
    "history_is_marked": r.history_is_marked_as_untrusted,
    "only_what_is_promised_is_declared": r.each_tier_declares_what_it_stands_for_and_nothing_else,
    "prompts_are_checked": r.what_was_not_declared_is_refused,
    "skills_are_told": r.an_operators_skills_are_told_its_agent_in_the_first_turn_and_recorded_before,
    "what_nothing_governs_is_let_alone": r.what_nothing_governs_is_as_it_was,
}
"""By each check that `stripped.py` can take out, what is not met without it."""


@pytest.fixture(scope="module")
def stripping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Room, Callable[[str], None]]]:
    with stripped_room(tmp_path_factory.mktemp("stripped")) as found:
        yield found


@pytest.mark.parametrize("check", NOTICED)
def test_the_suite_fails_without(stripping: tuple[Room, Callable[[str], None]], check: str) -> None:
    there, strip = stripping
    strip(check)
    with pytest.raises(AssertionError):
        NOTICED[check](there)


def test_with_every_check_put_back_it_conforms(stripping: tuple[Room, Callable[[str], None]]) -> None:
    """So that what failed did so for want of the check. Not again: what can be spent or broken but once."""
    there, strip = stripping
    strip("")
    once = (
        r.what_cannot_be_recorded_is_not_shown,
        r.a_budget_that_is_used_up_asks,
        r.the_log_of_all_that_happened_is_whole,
    )
    for requirement in {*NOTICED.values()}.difference(once):
        requirement(there)


def test_every_check_is_taken_out_and_every_requirement_fails_without_one() -> None:
    assert set(re.findall(r"@check\ndef (\w+)", STRIPPED.read_text())) == set(NOTICED)
    assert set(NOTICED.values()) == set(REQUIREMENTS.values())
