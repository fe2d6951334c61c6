"""Every move of a prompt: those of the table happen, all others are refused."""

from __future__ import annotations

import itertools

import pytest

from adapters.agent_client.outbound.session import AgentSession
from adapters.agent_client.outbound.turn import TURN, AgentTurn, TurnPhase, TurnStep
from gateway.core.errors import IllegalEvent
from tests.adapters.agent_client.outbound_agent import AGENT
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
    after = TURN.get((phase, step))
    assert (after and after.name.lower()) == LEGAL[phase].get(step.value)


async def test_an_illegal_move_changes_nothing() -> None:
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
