"""Every move of a prompt and of a session that is being opened: those of the tables happen, all others are refused."""

from __future__ import annotations

import itertools

import pytest

from adapters.agent_client.outbound.session import STRAY, AgentSession, OpeningStep, Stray
from adapters.agent_client.outbound.turn import TURN, AgentTurn, TurnPhase, TurnStep, moved
from gateway.core.errors import IllegalEvent
from tests.adapters.agent_client.outbound_agent import AGENT
from tests.support.aio import run
from tests.support.context import context

LEGAL = {
    TurnPhase.WAITING: {"begin": "working", "end": "over", "give up": "owed"},
    TurnPhase.WORKING: {"wait": "waiting", "end": "over", "give up": "owed"},
    TurnPhase.OWED: {"begin": "owed", "wait": "owed", "end": "owed", "settle": "over"},
    TurnPhase.OVER: {"begin": "over", "end": "over", "give up": "owed"},
}
"""Written out once more: what is changed in the table is changed here."""


@pytest.mark.parametrize(("phase", "step"), [*itertools.product(TurnPhase, TurnStep)])
def test_a_prompt_moves_as_the_table_says_and_no_other_way(phase: TurnPhase, step: TurnStep) -> None:
    wanted = LEGAL[phase].get(step.value)
    if wanted is None:
        with pytest.raises(IllegalEvent, match=step.value):
            moved(TURN, phase, step)
    else:
        assert moved(TURN, phase, step).name.lower() == wanted
    assert ((phase, step) in TURN) is (wanted is not None)


@pytest.mark.parametrize(("now", "step"), [*itertools.product(Stray, OpeningStep)])
def test_what_updates_are_changes_while_a_session_is_opened_and_no_other_way(now: Stray, step: OpeningStep) -> None:
    if (now is Stray.NEWS) is (step is OpeningStep.OPENED):
        assert (now, step) not in STRAY
        with pytest.raises(IllegalEvent, match=step.value):
            moved(STRAY, now, step)
    else:
        opened = {OpeningStep.REPLAY: Stray.HISTORY, OpeningStep.RESTORE: Stray.KNOWN, OpeningStep.OPENED: Stray.NEWS}
        assert moved(STRAY, now, step) is opened[step]


def test_an_illegal_move_changes_nothing() -> None:
    async def body() -> None:
        session = AgentSession("t1", 1.0, lambda _: None, lambda _: None)
        turn = AgentTurn(context(AGENT, "hello"), session.note, session.calls)
        session.begin(turn)
        with pytest.raises(IllegalEvent):
            session.begin(turn)
        assert session.turn is turn
        assert turn.phase is TurnPhase.WORKING
        session.end(turn)
        with pytest.raises(IllegalEvent):
            session.wait(turn)
        assert session.turn is None
        assert turn.phase is TurnPhase.OVER
        with session.telling(OpeningStep.RESTORE), pytest.raises(IllegalEvent), session.telling(OpeningStep.REPLAY):
            raise AssertionError("opened twice")
        with session.telling(OpeningStep.REPLAY):
            pass

    run(body())
