"""The record of a task and the moves that change it: enough to go on after a restart without doing anything twice.

Pure. A move that the table does not have is a mistake of the caller's, and an `IllegalMove`.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec
from msgspec.structs import replace

from adapters.agent_context.wire.base import checked
from adapters.agent_context.wire.messages import DelegatedTask
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Failure, Interrupt, Json, JsonObject, Outcome, Run, RunStatus
from gateway.wire.jsonrpc import RpcError

WAITING: Final = "waiting"
"""`KeptTask.state`: in the queue, for an agent."""
RUNNING: Final = "running"
"""`KeptTask.state`: an agent has it."""

SOURCE: Final = "source"
"""Attribute of the run: the agent that delegates, which does not get the task itself."""
TARGET: Final = "target"
"""Attribute of the run: the only agent that may have it."""
HOPS: Final = "hops"
"""Attribute of the run: how often the work was delegated before, in one task because of another."""
ALLOWED: Final = "allowed"
"""Attribute of the run: patterns of the agents that may have it; any if left out."""


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One agent's try. `run` is its run, None until that has started; `status` that run's last one, None until then.

    `code` (of the error tree) and `error` say why it failed.
    """

    number: int
    agent: str
    run: str | None = None
    status: str | None = None
    code: str = "agent_failed"
    error: str | None = None


class PendingApproval(msgspec.Struct, frozen=True):
    """The agent that a person is asked to approve for attempt `number`, and why it was chosen."""

    number: int
    agent: str
    why: JsonObject


class TaskPhase(enum.StrEnum):
    """Where a task is."""

    QUEUED = "waits for an agent"
    ASKING = "waits for a person to approve its agent"
    STARTING = "has an agent, whose run is not known yet"
    RUNNING = "has an agent at work"
    SETTLED = "will fail"


class KeptTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Run.upstream` of a task.

    attempts: in order, the one under way last.
    approved: agents that a person has approved for the task.
    assignment: why the last attempt's agent was chosen (codec/ranking.py, `Ranking.explanation`).
    failure: what the task fails with, once that is settled.
    input_tokens, output_tokens: what the attempts that have ended used, None where none of them said.
    """

    state: str = WAITING
    attempts: tuple[Attempt, ...] = ()
    approved: tuple[str, ...] = ()
    asking: PendingApproval | None = None
    assignment: JsonObject = {}
    failure: Failure | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def attempt(self) -> Attempt | None:
        """The attempt under way, or that was when the gateway stopped."""
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.status is None else None

    @property
    def phase(self) -> TaskPhase:
        if self.failure is not None:
            return TaskPhase.SETTLED
        if (attempt := self.attempt) is not None:
            return TaskPhase.STARTING if attempt.run is None else TaskPhase.RUNNING
        return TaskPhase.QUEUED if self.asking is None else TaskPhase.ASKING

    def told(self) -> JsonObject:
        """As `Run.upstream` has it. Never empty."""
        return {"state": self.state, **msgspec.to_builtins(self, builtin_types=())}

    @classmethod
    def of(cls, run: Run) -> KeptTask:
        """Read the record of a run; a new one where there is none or the run is no task."""
        try:
            return msgspec.convert(run.upstream or {}, cls)
        except msgspec.ValidationError:
            return cls()


# --- moves -----------------------------------------------------------------------------------------------------------


class Queued(msgspec.Struct, frozen=True):
    """It waits in line."""


class ApprovalAsked(msgspec.Struct, frozen=True):
    """A person is asked whether the agent may have it."""

    agent: str
    why: JsonObject


class Approved(msgspec.Struct, frozen=True):
    """It may."""


class Unmatched(msgspec.Struct, frozen=True):
    """No agent can have it."""

    why: JsonObject


class Chosen(msgspec.Struct, frozen=True):
    """An agent gets it: a new attempt. Written before its run is started: whoever finds it looks for the run."""

    agent: str
    why: JsonObject


class Started(msgspec.Struct, frozen=True):
    """The attempt's run is known."""

    run: str


class Withdrawn(msgspec.Struct, frozen=True):
    """The attempt's run was never started."""


class Used(msgspec.Struct, frozen=True):
    """All attempts so far have used so many tokens."""

    input_tokens: int | None
    output_tokens: int | None


class Ended(msgspec.Struct, frozen=True):
    """The attempt has failed."""

    status: RunStatus
    error: str
    code: str = "agent_failed"


class Settled(msgspec.Struct, frozen=True):
    """The task fails with this, whatever happens."""

    failure: Failure


Move = Queued | ApprovalAsked | Approved | Unmatched | Chosen | Started | Withdrawn | Used | Ended | Settled

MOVES: Final[dict[tuple[TaskPhase, type[Move]], TaskPhase]] = {
    (TaskPhase.QUEUED, Queued): TaskPhase.QUEUED,
    (TaskPhase.QUEUED, Unmatched): TaskPhase.QUEUED,
    (TaskPhase.QUEUED, ApprovalAsked): TaskPhase.ASKING,
    (TaskPhase.QUEUED, Chosen): TaskPhase.STARTING,
    (TaskPhase.QUEUED, Settled): TaskPhase.SETTLED,
    (TaskPhase.ASKING, Approved): TaskPhase.QUEUED,
    (TaskPhase.ASKING, Settled): TaskPhase.SETTLED,
    (TaskPhase.STARTING, Started): TaskPhase.RUNNING,
    (TaskPhase.STARTING, Withdrawn): TaskPhase.QUEUED,
    (TaskPhase.STARTING, Ended): TaskPhase.QUEUED,
    (TaskPhase.RUNNING, Used): TaskPhase.RUNNING,
    (TaskPhase.RUNNING, Ended): TaskPhase.QUEUED,
}


class IllegalMove(Exception):
    """A task cannot do this where it is."""


def moved(record: KeptTask, *moves: Move) -> KeptTask:
    """The record after the moves. Raises IllegalMove."""
    for move in moves:
        if (record.phase, type(move)) not in MOVES:
            raise IllegalMove(f"a task that {record.phase.value} cannot be {type(move).__name__}")
        record = _after(record, move)
    return record


def _after(record: KeptTask, move: Move) -> KeptTask:
    match move:
        case Queued():
            return replace(record, state=WAITING)
        case ApprovalAsked(agent, why):
            asking = PendingApproval(number=len(record.attempts) + 1, agent=agent, why=why)
            return replace(record, asking=asking, assignment=why)
        case Approved():
            assert record.asking is not None
            return replace(record, asking=None, approved=(*record.approved, record.asking.agent))
        case Unmatched(why):
            return replace(record, assignment=why)
        case Chosen(agent, why):
            attempt = Attempt(number=len(record.attempts) + 1, agent=agent)
            return replace(record, attempts=(*record.attempts, attempt), assignment=why, state=RUNNING)
        case Withdrawn():
            return replace(record, attempts=record.attempts[:-1])
        case Used(input_tokens, output_tokens):
            return replace(record, input_tokens=input_tokens, output_tokens=output_tokens)
        case Settled(failure):
            return replace(record, failure=failure)
        case Started(run):
            last = replace(record.attempts[-1], run=run)
        case Ended(status, error, code):
            last = replace(record.attempts[-1], status=status.value, error=error, code=code)
    return replace(record, attempts=(*record.attempts[:-1], last))


# --- the task itself -------------------------------------------------------------------------------------------------


def document_of(run: Run) -> Json:
    """The task as its client gave it, unchecked; made of the text, where there is no more than that."""
    given = run.request.input
    if isinstance(given, dict) and "task" in given:
        return given["task"]
    said = given if isinstance(given, dict) else {"message": given}
    payload = {"messages": [{"text": said.get("message")}]}
    needs = said.get("requirements") or {"capabilities": said.get("capabilities")}
    return {"id": run.id, "type": "message", "payload": payload, "requirements": needs}


def task_in(run: Run) -> DelegatedTask:
    """The task that a run of the coordinator is to do: its input's, or made of the text there. Raises Invalid."""
    try:
        return checked(document_of(run), DelegatedTask, "/task")
    except RpcError as error:
        raise Invalid(str(error), path="/input/task") from None


# --- asking a person first (section 7.1), where the agent's route or the options say so -------------------------------


APPROVAL_KIND: Final = "permission"
APPROVAL: Final = "approve-"
"""Prefix of the ids of these questions."""
OPTION: Final = "optionId"
APPROVE: Final = "approve"
DECLINE: Final = "decline"
APPROVAL_ANSWER_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {OPTION: {"enum": [APPROVE, DECLINE], "enumNames": ["Approve", "Decline"]}},
    "required": [OPTION],
}
APPROVAL_PAYLOAD_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {"agent": {"type": "string"}, "why": {"type": "object"}, "task": {"type": "object"}},
    "required": ["agent", "why", "task"],
}


def approval_question(task: DelegatedTask, asking: PendingApproval) -> Interrupt:
    """May this agent have the task?"""
    return Interrupt(
        id=f"{APPROVAL}{asking.number}-{asking.agent}",
        kind=APPROVAL_KIND,
        message=f"Give the task {task.id} ({task.type}) to the agent {asking.agent}?",
        payload={
            "agent": asking.agent,
            "why": asking.why,
            "task": task.model_dump(by_alias=True, exclude_unset=True, exclude={"status"}),
        },
        answer_schema=APPROVAL_ANSWER_SCHEMA,
    )


def is_approved(answer: Answer) -> bool:
    """Whether it was approved: nothing else than the choice of that option is."""
    chosen = answer.value.get(OPTION) if isinstance(answer.value, dict) else None
    return answer.outcome is Outcome.ANSWERED and chosen == APPROVE


def is_approval(interrupt: Interrupt) -> bool:
    """Whether a question of a task's run is about its agent, and not its agent's own."""
    return interrupt.kind == APPROVAL_KIND and interrupt.id.startswith(APPROVAL)
