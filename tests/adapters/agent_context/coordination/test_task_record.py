"""The phases of a task: which moves there are in each, where they lead, and what is kept is read again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from adapters.agent_context.coordination.task_record import IllegalMove, KeptTask, TaskPhase
from gateway.core.types import Failure, Run, RunRequest, RunStatus

FAILURE = Failure(code="agent_failed", message="broken")
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "queue": (),
    "unmatch": ({},),
    "ask": ("a", {"why": 1}),
    "approve": (),
    "choose": ("a", {}),
    "start": ("r",),
    "withdraw": (),
    "use": (1, None),
    "end": (RunStatus.ERROR, "broken"),
    "settle": (FAILURE,),
}
LEADS: dict[TaskPhase, dict[str, TaskPhase]] = {
    TaskPhase.QUEUED: {
        "queue": TaskPhase.QUEUED,
        "unmatch": TaskPhase.QUEUED,
        "ask": TaskPhase.ASKING,
        "choose": TaskPhase.STARTING,
        "settle": TaskPhase.SETTLED,
    },
    TaskPhase.ASKING: {"approve": TaskPhase.QUEUED, "settle": TaskPhase.SETTLED},
    TaskPhase.STARTING: {"start": TaskPhase.RUNNING, "withdraw": TaskPhase.QUEUED, "end": TaskPhase.QUEUED},
    TaskPhase.RUNNING: {"use": TaskPhase.RUNNING, "end": TaskPhase.QUEUED},
    TaskPhase.SETTLED: {},
}
QUEUED = KeptTask()
AT = {
    TaskPhase.QUEUED: QUEUED,
    TaskPhase.ASKING: QUEUED.ask("a", {"why": 1}),
    TaskPhase.STARTING: QUEUED.choose("a", {}),
    TaskPhase.RUNNING: QUEUED.choose("a", {}).start("r"),
    TaskPhase.SETTLED: QUEUED.settle(FAILURE),
}


@pytest.mark.parametrize("phase", TaskPhase)
@pytest.mark.parametrize("move", ARGUMENTS)
def test_a_move_leads_to_its_phase_or_is_none(phase: TaskPhase, move: str) -> None:
    before = AT[phase]
    assert before.phase is phase
    if move in LEADS[phase]:
        assert getattr(before, move)(*ARGUMENTS[move]).phase is LEADS[phase][move]
    else:
        with pytest.raises(IllegalMove, match=move):
            getattr(before, move)(*ARGUMENTS[move])


@pytest.mark.parametrize("phase", TaskPhase)
def test_what_is_kept_is_read_again(phase: TaskPhase) -> None:
    kept: Any = msgspec.json.decode(msgspec.json.encode(AT[phase].told()))
    run = Run(
        id="r", request=RunRequest(agent="a", input=None, protocol="x"), created_at=0, updated_at=0, upstream=kept
    )
    assert kept and KeptTask.of(run) == AT[phase]
