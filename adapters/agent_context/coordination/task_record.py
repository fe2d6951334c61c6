"""A task: the record of it, its run seen as a task, and all tasks (`agent://tasks`).

The record is enough to go on after a restart without doing anything twice.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from adapters.agent_context.codec.errors import failure_error
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire import ASSIGNMENT
from adapters.agent_context.wire.messages import DelegatedTask, task_in
from gateway.contract import Gateway
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import Conflict, Denied, Invalid, NotFound, Unavailable
from gateway.core.types import (
    Answer,
    Failure,
    Interrupt,
    Json,
    JsonObject,
    Outcome,
    Run,
    RunQuery,
    RunRequest,
    RunStatus,
)
from gateway.mcp.runs import keys
from gateway.wire.jsonrpc import RpcError

SOURCE: Final = "source"
"""Attribute of the run: the agent that delegates, which does not get the task itself."""
TARGET: Final = "target"
"""Attribute of the run: the only agent that may have it."""
HOPS: Final = "hops"
"""Attribute of the run: how often the work was delegated before, in one task because of another."""
ALLOWED: Final = "allowed"
"""Attribute of the run: patterns of the agents that may have it; any if left out."""


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """One agent's try. `status` is its run's last one, None until then. `code` (of the error tree) and `error` say why
    it failed. `run`, in records of older versions, is its run: now the id of that follows from the rest.
    """

    number: int
    agent: str
    run: str | None = None
    status: str | None = None
    code: str = "agent_failed"
    error: str | None = None


class KeptTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Run.upstream` of a task. It waits for an agent while no attempt is under way. What its run knows is not in it:
    which agents a person has approved or is asked to, what was said and used.

    attempts: in order, the one under way last.
    assignment: why the last agent was chosen (codec/ranking.py, `Ranking.explanation`).
    failure: what the task fails with, once that is settled.
    """

    attempts: tuple[Attempt, ...] = ()
    assignment: JsonObject = {}
    failure: Failure | None = None

    @property
    def attempt(self) -> Attempt | None:
        last = self.attempts[-1] if self.attempts else None
        return last if last is not None and last.status is None else None

    def told(self) -> JsonObject:
        """As `Run.upstream` has it. Never empty."""
        return {"attempts": [], **msgspec.to_builtins(self, builtin_types=())}

    @classmethod
    def of(cls, run: Run) -> KeptTask:
        """Read the record of a run; a new one where there is none or the run is no task."""
        try:
            return msgspec.convert(run.upstream or {}, cls)
        except msgspec.ValidationError:
            return cls()

    # --- changes: each returns the record after it -------------------------------------------------------------------

    def choose(self, agent: str, why: JsonObject) -> KeptTask:
        """An agent gets it: a new attempt. Written before its run is started: whoever finds it looks for the run."""
        attempt = Attempt(number=len(self.attempts) + 1, agent=agent)
        return replace(self, attempts=(*self.attempts, attempt), assignment=why)

    def withdraw(self) -> KeptTask:
        return replace(self, attempts=self.attempts[:-1])

    def end(self, status: RunStatus, error: str, code: str = "agent_failed") -> KeptTask:
        last = replace(self.attempts[-1], status=status.value, error=error, code=code)
        return replace(self, attempts=(*self.attempts[:-1], last))


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


def task_by(run: Run) -> DelegatedTask:
    """The task that a run of the coordinator is to do: its input's, or made of the text there. Raises Invalid."""
    try:
        return task_in(document_of(run))
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


def approval_question(task: DelegatedTask, number: int, agent: str, why: JsonObject) -> Interrupt:
    """Asks a person to approve an agent for attempt `number`. `why` it was chosen."""
    return Interrupt(
        id=f"{APPROVAL}{number}-{agent}",
        kind=APPROVAL_KIND,
        message=f"Give the task {task.id} ({task.type}) to the agent {agent}?",
        payload={"agent": agent, "why": why, "task": document(task)},
        answer_schema=APPROVAL_ANSWER_SCHEMA,
    )


def open_approval(run: Run) -> Interrupt | None:
    return next((each for each in run.interrupts if _is_approval(each)), None)


def approved(asked: Interrupt, answer: Answer) -> str:
    """The agent that was approved. Raises Denied if it was not."""
    agent: str = asked.payload["agent"]
    chosen = answer.value.get(OPTION) if isinstance(answer.value, dict) else None
    if answer.outcome is Outcome.ANSWERED and chosen == APPROVE:
        return agent
    raise Denied(f"the task was not approved for agent {agent}")


def approved_in(log: Iterable[e.Event]) -> list[str]:
    """The agents that were approved, by a task's log. Raises Denied if one was not."""
    asked: dict[str, Interrupt] = {}
    agents: list[str] = []
    for event in log:
        if isinstance(event, e.Interrupted) and _is_approval(event.interrupt):
            asked[event.interrupt.id] = event.interrupt
        elif isinstance(event, e.Resumed) and event.interrupt in asked:
            agents.append(approved(asked[event.interrupt], event.answer))
    return agents


def _is_approval(asked: Interrupt) -> bool:
    return asked.kind == APPROVAL_KIND and asked.id.startswith(APPROVAL)


TASK: Final = "task"
"""Key of a task's run's metadata: the task's id; and of its input: the task."""
NAMESPACE: Final = uuid.UUID("6b7a0a5c-4d1f-4c63-9b0e-2f4e6f0d8a51")
"""Of the ids of runs of tasks and attempts: each has the same at every process, so that the store has it once."""
MOST_LISTED: Final = 1000
"""Tasks that a listing has."""

PENDING: Final = "pending"
AWAITING: Final = "awaiting_approval"
STATUSES: Final = {
    RunStatus.PENDING: PENDING,
    RunStatus.RUNNING: "running",
    RunStatus.INTERRUPTED: "running",
    RunStatus.SUCCESS: "completed",
    RunStatus.ERROR: "failed",
    RunStatus.CANCELLED: "cancelled",
    RunStatus.TIMEOUT: "expired",
}
"""Status of the run -> of the task; PENDING and AWAITING come of what the run waits for."""


def document(task: DelegatedTask) -> JsonObject:
    """The task as it was delegated, less its status: that is the gateway's to say."""
    return {key: value for key, value in task.document.items() if key != "status"}


# --- its run, seen as a task ------------------------------------------------------------------------------------------


def task_of(run: Run, *, mine: bool = True) -> JsonObject:
    """A task as it is told. `mine`: to who delegated it; nobody else is told what it says, or what came of it.

    {id, type, status, priority, deadline?, requirements?, agent?, attempts: [{number, agent, status}], createdAt,
    updatedAt}; mine has payload, result or error {code, message}, interrupts (its open questions), and `_meta` too.
    """
    document, kept = document_of(run), KeptTask.of(run)
    given = document if isinstance(document, dict) else {}
    requirements = given.get("requirements") or {}
    limits = requirements.get("constraints") or {}
    told: JsonObject = {
        "id": given.get("id", run.id),
        "type": given.get("type", ""),
        "status": status_of(run),
        "priority": limits.get("priority") or 0,
        "requirements": requirements,
        "attempts": [_attempt(one, run, mine) for one in kept.attempts],
        "createdAt": _time(run.created_at),
        "updatedAt": _time(run.updated_at),
    }
    if limits.get("deadline") is not None:
        told["deadline"] = limits["deadline"]
    if kept.attempts:
        told["agent"] = kept.attempts[-1].agent
    return told | _private(run, given, kept) if mine else told


def status_of(run: Run) -> str:
    """pending, running, awaiting_approval, completed, failed, cancelled or expired."""
    if open_approval(run) is not None:
        return AWAITING
    kept = KeptTask.of(run)
    waits = run.status is RunStatus.RUNNING and kept.attempt is None and kept.failure is None
    return PENDING if waits else STATUSES[run.status]


def _private(run: Run, given: JsonObject, kept: KeptTask) -> JsonObject:
    told: JsonObject = {"payload": given.get("payload"), "_meta": {keys.RUN_ID: run.id}}
    if kept.assignment:
        told["_meta"][ASSIGNMENT] = kept.assignment
    if run.status is RunStatus.SUCCESS:
        told["result"] = msgspec.json.decode(run.output)
    elif run.failure is not None:
        error = failure_error(run.failure).error
        told["error"] = {"code": error.code, "message": error.message}
    elif run.status is RunStatus.CANCELLED and run.cancel_reason:
        told["reason"] = run.cancel_reason
    if run.interrupts:
        told["interrupts"] = [{"id": one.id, "kind": one.kind, "message": one.message} for one in run.interrupts]
    return told


def _attempt(one: Attempt, run: Run, mine: bool) -> JsonObject:
    told: JsonObject = {"number": one.number, "agent": one.agent}
    last = STATUSES[run.status] if run.status.ended else "running"
    told["status"] = last if one.status is None else STATUSES[RunStatus(one.status)]
    if mine and one.error is not None:
        told["error"] = one.error
    return told


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# --- all of them -----------------------------------------------------------------------------------------------------


class Tasks:
    """One per gateway process. `coordinator`: the name of the agent whose runs they are.

    A task's id is its delegator's own: another's task may have the same.
    """

    def __init__(self, gateway: Gateway, coordinator: str) -> None:
        self._gateway = gateway
        self._agent = coordinator

    async def delegate(self, request: RunRequest, start: Callable[[RunRequest], Awaitable[Run]]) -> Run:
        """Start a task's run, which has the id that `run_of` says, by `start`; or return the one there is.

        The same task of the same principal's with the same content is the same one, however it has ended; with other
        content Conflict is raised. Raises what `start` does.
        """
        task_id = str(request.metadata[TASK])
        run = await self.find(task_id, request.principal)
        if run is None:
            try:
                run = await start(request)
            except (Conflict, Unavailable):  # it was delegated a moment ago, here or at another gateway process
                run = await self.find(task_id, request.principal)
                if run is None:
                    raise
        before, now = ([one.input, one.attributes.get(TARGET)] for one in (run.request, request))
        if not delta.same(before, now):
            raise Conflict(f"task {task_id} was delegated before, and is another")
        return run

    async def find(self, task_id: str, principal: str | None) -> Run | None:
        """The run of a task that was delegated by `principal`; None if there is none (any more)."""
        with contextlib.suppress(NotFound):
            return await self._gateway.runs.get(self.run_of(task_id, principal))
        return None

    def run_of(self, task_id: str, principal: str | None) -> str:
        return str(uuid.uuid5(NAMESPACE, json.dumps([self._agent, principal, task_id])))

    async def list(self, reader: ClientPrincipal | None) -> list[JsonObject]:
        """The newest tasks, newest first; the reader's own whole. None: all whole, to see whether any has changed."""
        runs = await self._gateway.runs.list(RunQuery(agent=self._agent, limit=MOST_LISTED))
        return [task_of(run, mine=reader is None or reader.name == run.request.principal) for run in runs]
