"""The phases of a task: every move leads where the table says, no other is made, and what is kept is read again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adapters.agent_context.coordination import task_record as record
from adapters.agent_context.coordination.task_record import MOVES, IllegalMove, KeptTask, Move, TaskPhase, moved
from gateway.core.types import Failure, Run, RunRequest, RunStatus

MADE: tuple[Move, ...] = (
    record.Queued(),
    record.ApprovalAsked("a", {"why": 1}),
    record.Approved(),
    record.Unmatched({}),
    record.Chosen("a", {}),
    record.Started("r"),
    record.Withdrawn(),
    record.Used(1, None),
    record.Ended(RunStatus.ERROR, "broken"),
    record.Settled(Failure(code="agent_failed", message="broken")),
)
QUEUED = KeptTask()
AT = {
    TaskPhase.QUEUED: QUEUED,
    TaskPhase.ASKING: moved(QUEUED, MADE[1]),
    TaskPhase.STARTING: moved(QUEUED, MADE[4]),
    TaskPhase.RUNNING: moved(QUEUED, MADE[4], MADE[5]),
    TaskPhase.SETTLED: moved(QUEUED, MADE[9]),
}


@pytest.mark.parametrize("phase", TaskPhase)
@pytest.mark.parametrize("move", MADE, ids=lambda move: type(move).__name__)
def test_a_move_leads_where_the_table_says_or_is_none(phase: TaskPhase, move: Move) -> None:
    before = AT[phase]
    assert before.phase is phase
    if (phase, type(move)) in MOVES:
        assert moved(before, move).phase is MOVES[phase, type(move)]
    else:
        with pytest.raises(IllegalMove, match=type(move).__name__):
            moved(before, move)


@pytest.mark.parametrize("phase", TaskPhase)
def test_what_is_kept_is_read_again(phase: TaskPhase) -> None:
    kept: Any = msgspec.json.decode(msgspec.json.encode(AT[phase].told()))
    run = Run(
        id="r", request=RunRequest(agent="a", input=None, protocol="x"), created_at=0, updated_at=0, upstream=kept
    )
    assert kept and KeptTask.of(run) == AT[phase]
