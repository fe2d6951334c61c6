"""Runs of the coordinator seen as tasks: delegated once, found by their ids, listed at `agent://tasks`."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from adapters.agent_context.codec.errors import failure_error
from adapters.agent_context.coordination import Coordinator
from adapters.agent_context.coordination.task_record import (
    SOURCE,
    TARGET,
    WAITING,
    Attempt,
    KeptTask,
    document_of,
    is_approval,
)
from adapters.agent_context.security import ClientPrincipal
from adapters.agent_context.wire.constants import ASSIGNMENT, PROTOCOL
from adapters.agent_context.wire.messages import DelegatedTask
from gateway.contract import Gateway
from gateway.core import delta
from gateway.core.errors import Conflict, NotFound, Unavailable
from gateway.core.types import JsonObject, Run, RunQuery, RunRequest, RunStatus
from gateway.mcp.runs import keys

TASK: Final = "task"
"""Key of a task's run's metadata: the task's id; and of its input: the task."""
PAGE: Final = 200
"""Runs that are read at a time."""
NAMESPACE: Final = uuid.UUID("6b7a0a5c-4d1f-4c63-9b0e-2f4e6f0d8a51")
"""Of the ids of tasks' runs: the same task has the same at every process, so that the store has it once."""
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
    return task.model_dump(by_alias=True, exclude_unset=True, exclude={"status"})


# --- the view --------------------------------------------------------------------------------------------------------


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
        "status": status_of(run, kept),
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


def status_of(run: Run, kept: KeptTask | None = None) -> str:
    """pending, running, awaiting_approval, completed, failed, cancelled or expired."""
    if any(is_approval(interrupt) for interrupt in run.interrupts):
        return AWAITING
    if run.status is RunStatus.RUNNING and (kept or KeptTask.of(run)).state == WAITING:
        return PENDING
    return STATUSES[run.status]


def assignment_of(run: Run) -> JsonObject:
    """Why the task's agent was chosen, or why none was; for `_meta`."""
    return KeptTask.of(run).assignment


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
    """One per gateway process. A task's id is its delegator's own: another's task may have the same."""

    def __init__(self, gateway: Gateway, coordinator: Coordinator) -> None:
        self._gateway = gateway
        self._agent = coordinator.name

    def request(
        self,
        task: DelegatedTask,
        principal: str | None,
        *,
        source: str | None = None,
        target: str | None = None,
        creation: JsonObject | None = None,
        metadata: JsonObject | None = None,
        attributes: JsonObject | None = None,
        traceparent: str | None = None,
    ) -> RunRequest:
        """The run that is the task. `source` is the agent that delegates it, `target` the only one that may have it.

        `creation` is the whole params as they came, `attributes` what else the inbound half marks its runs with.
        """
        marks = {SOURCE: source, TARGET: target}
        return RunRequest(
            agent=self._agent,
            input={TASK: document(task)},
            protocol=PROTOCOL,
            metadata={**(metadata or {}), TASK: task.id},
            principal=principal,
            traceparent=traceparent,
            creation=creation or {},
            attributes={**(attributes or {}), **{key: value for key, value in marks.items() if value is not None}},
            id=self._run_of(task.id, principal),
        )

    async def delegate(self, request: RunRequest, start: Callable[[RunRequest], Awaitable[Run]] | None = None) -> Run:
        """Start a task's run (of `request`) by `start`, or return the one there is.

        The same task of the same principal's with the same content is the same one, however it has ended; with other
        content Conflict is raised. Raises what `start` does (left out: `Gateway.runs.start`).
        """
        task_id = str(request.metadata[TASK])
        run = await self.find(task_id, request.principal)
        if run is None:
            try:
                run = await (start or self._gateway.runs.start)(request)
            except (Conflict, Unavailable):  # it was delegated a moment ago, here or at another gateway process
                run = await self.find(task_id, request.principal)
                if run is None:
                    raise
        if not _same(run.request, request):
            raise Conflict(f"task {task_id} was delegated before, and is another")
        return run

    async def find(self, task_id: str, principal: str | None) -> Run | None:
        """The run of a task that was delegated by `principal`; None if there is none (any more)."""
        with contextlib.suppress(NotFound):
            return await self._gateway.runs.get(self._run_of(task_id, principal))
        return None

    def _run_of(self, task_id: str, principal: str | None) -> str:
        return str(uuid.uuid5(NAMESPACE, json.dumps([self._agent, principal, task_id])))

    async def list(self, reader: ClientPrincipal | None) -> list[JsonObject]:
        """The newest tasks, newest first; the reader's own whole. None: all whole, to see whether any has changed."""
        found: list[JsonObject] = []
        query = RunQuery(agent=self._agent, limit=PAGE)
        while len(found) < MOST_LISTED and (runs := await self._gateway.runs.list(query)):
            found += [task_of(run, mine=reader is None or reader.name == run.request.principal) for run in runs]
            query = msgspec.structs.replace(query, offset=query.offset + PAGE)
        return found[:MOST_LISTED]


def _same(before: RunRequest, now: RunRequest) -> bool:
    asked_before, asked = ((one.input, one.attributes.get(TARGET)) for one in (before, now))
    return bool(delta.same(list(asked_before), list(asked)))
