"""One task under way, and what is kept of it: enough to go on after a restart without doing anything twice."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import msgspec

from adapters.agent_context.codec.ranking import Needs
from adapters.agent_context.coordination.choosing import Takes
from adapters.agent_context.coordination.queue import Slot
from adapters.agent_context.wire.messages import Task
from adapters.agent_context.wire.reading import checked
from gateway.contract import RunContext
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Failure, Interrupt, Json, JsonObject, Run
from gateway.transport.tasks import TaskSet
from gateway.wire.jsonrpc import RpcError

WAITING = "waiting"
"""`Kept.state`: in the queue, for an agent."""
RUNNING = "running"
"""`Kept.state`: an agent has it."""

SOURCE = "source"
"""Of the run's attributes: the agent that delegates, which does not get the task itself."""
TARGET = "target"
"""Of them too: the only agent that may have it."""
HOPS = "hops"
"""Of them too: how often the work was delegated before, in one task because of another."""
ALLOWED = "allowed"
"""Of them too: patterns of the agents that may have it; any if left out."""


class Attempt(msgspec.Struct, omit_defaults=True):
    """One agent's try. `run` is its run, None until that has started; `status` that run's last one, None until then.

    `code` (of the error tree) and `error` say why it failed.
    """

    number: int
    agent: str
    run: str | None = None
    status: str | None = None
    code: str = "agent_failed"
    error: str | None = None


class Asking(msgspec.Struct):
    """The agent that a person is asked to approve for attempt `number`, and why it was chosen."""

    number: int
    agent: str
    why: JsonObject


class Kept(msgspec.Struct, omit_defaults=True):
    """`Run.upstream` of a task.

    attempts: in order, the one under way last.
    approved: agents that a person has approved for the task.
    assignment: why the last attempt's agent was chosen (codec/ranking.py, `Ranking.explanation`).
    failure: what the task fails with, once that is settled.
    input_tokens, output_tokens: what the attempts that have ended used, None where none of them said.
    """

    state: str = WAITING
    attempts: list[Attempt] = []
    approved: list[str] = []
    asking: Asking | None = None
    assignment: JsonObject = {}
    failure: Failure | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    def told(self) -> JsonObject:
        """As `Run.upstream` has it. Never empty."""
        return {"state": self.state, **msgspec.to_builtins(self)}

    @classmethod
    def of(cls, run: Run) -> Kept:
        """What a run's record says; nothing yet where it says nothing, or is no task's."""
        try:
            return msgspec.convert(run.upstream or {}, cls)
        except msgspec.ValidationError:
            return cls()


def document_of(run: Run) -> Json:
    """The task as its client gave it, unchecked; made of the text, where there is no more than that."""
    given = run.request.input
    if isinstance(given, dict) and "task" in given:
        return given["task"]
    said = given if isinstance(given, dict) else {"message": given}
    payload = {"messages": [{"text": said.get("message")}]}
    needs = said.get("requirements") or {"capabilities": said.get("capabilities")}
    return {"id": run.id, "type": "message", "payload": payload, "requirements": needs}


def task_in(run: Run) -> Task:
    """The task that a run of the coordinator is to do: its input's, or made of the text there. Raises Invalid."""
    try:
        return checked(document_of(run), Task, "/task")
    except RpcError as error:
        raise Invalid(str(error), path="/input/task") from None


@dataclass
class Job:
    """A task of this process."""

    context: RunContext
    task: Task
    kept: Kept
    slot: Slot | None = None
    failed: dict[str, str] = field(default_factory=dict)
    """Agents that have failed it, and how."""
    unfit: dict[str, str] = field(default_factory=dict)
    """Agents that do not take it, and why."""
    last: Failure | None = None
    """How the last of them did."""
    resumed: bool = False
    """The attempt under way was under way before a restart."""
    over: bool = False
    """It has ended, whatever still goes on."""
    given: dict[str, Answer] = field(default_factory=dict)
    """Answers from before a restart, by question: they may not have been heard."""

    def __post_init__(self) -> None:
        self._background = TaskSet()
        self.takes = Takes(self.task.payload)
        for attempt in self.kept.attempts:
            if attempt.status is not None:
                self.failed[attempt.agent] = attempt.error or "failed"
                self.last = Failure(code=attempt.code, message=attempt.error or "the agent failed")

    @property
    def id(self) -> str:
        """Of the task's run."""
        return self.context.run.id

    @property
    def priority(self) -> int:
        """Higher is first."""
        return self.task.constraints.priority or 0

    @property
    def left(self) -> float | None:
        """Seconds until the deadline, below 0 if it has passed; None without one."""
        at = self.task.constraints.deadline_at
        return None if at is None else at - time.time()

    @property
    def attempt(self) -> Attempt | None:
        """The attempt under way, or that was when the gateway stopped."""
        last = self.kept.attempts[-1] if self.kept.attempts else None
        return last if last is not None and last.status is None else None

    @property
    def hops(self) -> int:
        """How often the work was delegated before."""
        hops = self.context.run.request.attributes.get(HOPS)
        return hops if isinstance(hops, int) else 0

    def mark(self, attempt: Attempt) -> str:
        """What an attempt's run is found by, if the gateway died before it learned its id."""
        return f"{self.id}/{attempt.number}"

    def needs(self, only: str | None = None) -> Needs:
        """What the agent must be. `only`: this one and no other."""
        request = self.context.run.request
        excluded = {request.agent: "is the coordinator itself", **self.unfit}
        excluded |= {agent: f"has failed already: {why}" for agent, why in self.failed.items()}
        source, target = request.attributes.get(SOURCE), request.attributes.get(TARGET)
        if isinstance(source, str):
            excluded[source] = "delegates the task itself"
        return Needs(
            capabilities=self.task.needed,
            min_score=self.task.constraints.min_score,
            max_cost=self.task.constraints.max_cost,
            only=only or (target if isinstance(target, str) else None),
            excluded=excluded,
            allowed=allowed if isinstance(allowed := request.attributes.get(ALLOWED), list) else ("*",),
        )

    def keep(self, task: asyncio.Future[None]) -> None:
        """Hold on to what goes on beside it until that is done."""
        self._background.hold(task)

    async def ask(self, interrupt: Interrupt) -> Answer:
        """`RunContext.ask`, or what was answered before a restart."""
        given = self.given.pop(interrupt.id, None)
        return given if given is not None else await self.context.ask(interrupt)

    async def save(self) -> None:
        """Have what is kept written."""
        await self.context.set_upstream(self.kept.told())
