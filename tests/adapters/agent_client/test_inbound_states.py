"""The tables of where an editor's session is, and its prompt: what they have happens, and nothing else."""

from __future__ import annotations

import itertools
from unittest.mock import Mock

import pytest
from msgspec import Raw

from adapters.agent_client.inbound.context import (
    LIFE,
    PROMPTING,
    Prompting,
    PromptStep,
    SessionContext,
    SessionLife,
    SessionStep,
)
from gateway.core.errors import Conflict, IllegalEvent
from gateway.core.types import Thread

TO_LIFE = {
    SessionLife.NEW: (),
    SessionLife.OPENING: (SessionStep.OPEN,),
    SessionLife.REPLAYING: (SessionStep.OPEN, SessionStep.REPLAY),
    SessionLife.OPENED: (SessionStep.OPEN, SessionStep.TOLD),
    SessionLife.RELOADING: (SessionStep.OPEN, SessionStep.TOLD, SessionStep.RELOAD),
    SessionLife.LIVE: (SessionStep.OPEN, SessionStep.TOLD, SessionStep.GO),
    SessionLife.CLOSED: (SessionStep.CLOSE,),
}
TO_PROMPTING = {
    Prompting.FREE: (),
    Prompting.WAITING: (PromptStep.PROMPT,),
    Prompting.WORKING: (PromptStep.PROMPT, PromptStep.ANSWER),
}


def at(life: SessionLife = SessionLife.NEW, prompting: Prompting = Prompting.FREE) -> SessionContext:
    thread = Thread(id="s", created_at=0.0, updated_at=0.0)
    state = SessionContext(Mock(), thread, "agent", Raw(b"{}"))
    for step in TO_LIFE[life]:
        state.advance(step)
    for word in TO_PROMPTING[prompting]:
        state.prompt(word)
    assert (state.life, state.prompting) == (life, prompting)
    return state


@pytest.mark.parametrize(("life", "step"), list(itertools.product(SessionLife, SessionStep)))
def test_a_step_that_the_table_does_not_have_is_refused_and_changes_nothing(
    life: SessionLife, step: SessionStep
) -> None:
    state = at(life)
    if (life, step) in LIFE:
        state.advance(step)
        assert state.life is LIFE[life, step]
    else:
        with pytest.raises(IllegalEvent, match=f"{step.value} of session s, which is {life.value}"):
            state.advance(step)
        assert state.life is life


@pytest.mark.parametrize(("prompting", "word"), list(itertools.product(Prompting, PromptStep)))
def test_what_a_prompt_may_not_do_yet_is_a_conflict_and_changes_nothing(prompting: Prompting, word: PromptStep) -> None:
    state = at(prompting=prompting)
    if (prompting, word) in PROMPTING:
        state.prompt(word)
        assert state.prompting is PROMPTING[prompting, word]
    else:
        with pytest.raises(Conflict, match="session s is busy with its last prompt"):
            state.prompt(word)
        assert state.prompting is prompting


def test_a_client_is_told_what_was_while_the_record_or_the_agent_tells_it() -> None:
    assert [life for life in SessionLife if at(life).replaying] == [SessionLife.REPLAYING, SessionLife.RELOADING]


def test_it_is_known_what_runs_in_a_session_once_it_was_opened_also_while_its_agent_tells_what_was() -> None:
    assert [life for life in SessionLife if not at(life).opened] == [
        SessionLife.NEW,
        SessionLife.OPENING,
        SessionLife.REPLAYING,
    ]


def test_a_closed_session_stays_closed_whatever_was_under_way() -> None:
    for step in SessionStep:
        if (SessionLife.CLOSED, step) in LIFE:
            assert LIFE[SessionLife.CLOSED, step] is SessionLife.CLOSED
    assert all(LIFE[life, SessionStep.CLOSE] is SessionLife.CLOSED for life in SessionLife)
