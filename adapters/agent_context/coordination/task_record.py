"""The record of a task and the moves that change it: enough to go on after a restart without doing anything twice.

Pure. A move that the table does not have is a mistake of the caller's, and an `IllegalMove`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Final, ParamSpec

import msgspec
from msgspec.structs import replace

from adapters.agent_context.wire.base import checked
from adapters.agent_context.wire.messages import DelegatedTask
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Failure, Interrupt, Json, JsonObject, Outcome, Run, RunStatus
from gateway.wire.jsonrpc import RpcError

P = ParamSpec("P")

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


MOVES: Final = {
    TaskPhase.QUEUED: frozenset(("queue", "unmatch", "ask", "choose", "settle")),
    TaskPhase.ASKING: frozenset(("approve", "settle")),
    TaskPhase.STARTING: frozenset(("start", "withdraw", "end")),
    TaskPhase.RUNNING: frozenset(("use", "end")),
    TaskPhase.SETTLED: frozenset(),
}
"""The moves (methods of `KeptTask`) that are legal in each phase. The record that one makes says the phase after it."""


class IllegalMove(Exception):
    """A task cannot do this where it is."""


def _move(change: Callable[Concatenate[KeptTask, P], KeptTask]) -> Callable[Concatenate[KeptTask, P], KeptTask]:
    """A method that is a move of the table: it raises IllegalMove in any other phase."""

    @wraps(change)
    def moved(record: KeptTask, /, *args: P.args, **kwargs: P.kwargs) -> KeptTask:
        if change.__name__ not in MOVES[record.phase]:
            raise IllegalMove(f"no {change.__name__} for a task that {record.phase.value}")
        return change(record, *args, **kwargs)

    return moved


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

    # --- moves: each is the record after it --------------------------------------------------------------------------

    @_move
    def queue(self) -> KeptTask:
        """It waits in line."""
        return replace(self, state=WAITING)

    @_move
    def unmatch(self, why: JsonObject) -> KeptTask:
        """No agent can have it."""
        return replace(self, assignment=why)

    @_move
    def ask(self, agent: str, why: JsonObject) -> KeptTask:
        """A person is asked whether the agent may have it."""
        asking = PendingApproval(number=len(self.attempts) + 1, agent=agent, why=why)
        return replace(self, asking=asking, assignment=why)

    @_move
    def approve(self) -> KeptTask:
        """It may."""
        assert self.asking is not None
        return replace(self, asking=None, approved=(*self.approved, self.asking.agent))

    @_move
    def choose(self, agent: str, why: JsonObject) -> KeptTask:
        """An agent gets it: a new attempt. Written before its run is started: whoever finds it looks for the run."""
        attempt = Attempt(number=len(self.attempts) + 1, agent=agent)
        return replace(self, attempts=(*self.attempts, attempt), assignment=why, state=RUNNING)

    @_move
    def start(self, run: str) -> KeptTask:
        """The attempt's run is known."""
        return self._with_last(run=run)

    @_move
    def withdraw(self) -> KeptTask:
        """The attempt's run was never started."""
        return replace(self, attempts=self.attempts[:-1])

    @_move
    def use(self, input_tokens: int | None, output_tokens: int | None) -> KeptTask:
        """All attempts so far have used so many tokens."""
        return replace(self, input_tokens=input_tokens, output_tokens=output_tokens)

    @_move
    def end(self, status: RunStatus, error: str, code: str = "agent_failed") -> KeptTask:
        """The attempt has failed."""
        return self._with_last(status=status.value, error=error, code=code)

    @_move
    def settle(self, failure: Failure) -> KeptTask:
        """The task fails with this, whatever happens."""
        return replace(self, failure=failure)

    def _with_last(self, **changes: str) -> KeptTask:
        return replace(self, attempts=(*self.attempts[:-1], replace(self.attempts[-1], **changes)))


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
