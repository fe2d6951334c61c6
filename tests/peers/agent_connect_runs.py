"""The runs and threads of `agent_connect_agent.py`, in memory and without HTTP. Agent Connect 0.2.3.

It imports nothing of the gateway: it is a second reading of the specification, for the gateway to be tested against.
"""

import asyncio
import contextlib
import copy
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Document = dict[str, Any]


def now() -> str:
    return datetime.now(UTC).isoformat()


class Refused(Exception):
    """The request cannot be served: an HTTP status and the sentence that goes with it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Failure(Exception):
    """What an agent raises to end its run with `error`."""

    def __init__(self, errcode: int, description: str) -> None:
        super().__init__(description)
        self.errcode = errcode
        self.description = description


@dataclass
class Thread:
    """A conversation: its state after every change, newest last, and the ids of its runs."""

    thread_id: str
    metadata: Document
    created_at: str = field(default_factory=now)
    updated_at: str = field(default_factory=now)
    values: Document = field(default_factory=dict)
    messages: list[Document] = field(default_factory=list)
    history: list[Document] = field(default_factory=list)
    failed: bool = False

    def checkpoint(self, source: str) -> None:
        """Records the present state as a new entry of the history."""
        self.updated_at = now()
        state = {
            "checkpoint": {"checkpoint_id": str(uuid.uuid4())},
            "values": self.values,
            "messages": self.messages,
            "metadata": {"source": source, "step": len(self.history)},
        }
        self.history.append(copy.deepcopy(state))

    def public(self, active: "Run | None") -> Document:
        """The `Thread` of the specification; its status follows from the run that is not over."""
        status = "error" if self.failed else "idle"
        if active:
            status = "interrupted" if active.status == "interrupted" else "busy"
        return {
            "thread_id": self.thread_id,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "metadata": self.metadata,
            "status": status,
            "values": self.values,
            "messages": self.messages,
        }


@dataclass
class Run:
    """One execution and all it has emitted; watched by any number of connections, bound to none."""

    agent_id: str
    creation: Document
    thread: Thread | None = None
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: str = field(default_factory=now)
    updated_at: str = field(default_factory=now)
    status: str = "pending"
    events: list[Document] = field(default_factory=list)
    output: Document | None = None
    state: Document | None = None
    resumed_at: int = 0
    task: "asyncio.Task[None] | None" = None
    _answer: "asyncio.Future[Document] | None" = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def over(self) -> bool:
        return self.status in ("success", "error", "timeout")

    @property
    def settled(self) -> bool:
        """Nothing more will come until somebody acts: over, or interrupted."""
        return self.status != "pending"

    @property
    def configurable(self) -> Document:
        return (self.creation.get("config") or {}).get("configurable") or {}

    def public(self) -> Document:
        """The `RunStateless` or `RunStateful` of the specification."""
        ids = {"run_id": self.run_id, "agent_id": self.agent_id}
        if self.thread:
            ids["thread_id"] = self.thread.thread_id
        times = {"created_at": self.created_at, "updated_at": self.updated_at}
        return {**ids, **times, "status": self.status, "creation": self.creation}

    def _emit(self, event: Document) -> None:
        self.updated_at = now()
        self.events.append({**event, "run_id": self.run_id, "status": self.status})
        self._changed.set()
        self._changed = asyncio.Event()

    def values(self, values: Document) -> None:
        """A snapshot of the whole output so far."""
        self._emit({"type": "values", "values": copy.deepcopy(values)})

    def custom(self, update: Document) -> None:
        """An update in the agent's own words; only for who asked for `custom`."""
        self._emit({"type": "custom", "update": update})

    async def ask(self, interrupt: Document) -> Document:
        """Interrupts the run; the payload it is resumed with."""
        self._answer = asyncio.get_running_loop().create_future()
        self.status = "interrupted"
        self.output = {"type": "interrupt", "interrupt": interrupt}
        self._emit(self.output)
        return await self._answer

    def resume(self, payload: Document) -> None:
        """The answer to `ask`; 409 where nothing was asked."""
        if self.status != "interrupted" or self._answer is None:
            raise Refused(409, f"run {self.run_id} is not interrupted")
        self.status, self.output, self.updated_at = "pending", None, now()
        self.resumed_at = len(self.events)
        self._answer.set_result(payload)

    def finish(self, values: Document) -> None:
        self.status = "success"
        self.output = {"type": "result", "values": values}
        self.values(values)

    def fail(self, errcode: int, description: str) -> None:
        self.status = "error"
        error = {"type": "error", "errcode": errcode, "description": description}
        self.output = {**error, "run_id": self.run_id}
        self._emit(error)

    async def watch(self, modes: set[str], after: int | None) -> AsyncIterator[tuple[int, Document]]:
        """Numbered events from `after` on, or, for None, from the latest snapshot; ends when the run is settled."""
        if after is None:
            shots = [i for i, event in enumerate(self.events) if event["type"] == "values"]
            after = shots[-1] if shots else 0
        while True:
            changed = self._changed
            while after < len(self.events):
                event, answered = self.events[after], after < self.resumed_at
                after += 1
                if event["type"] in ("values", "custom"):
                    wanted = event["type"] in modes
                else:
                    wanted = not (event["type"] == "interrupt" and answered)
                if wanted:
                    yield after, event
            if self.settled:
                return
            await changed.wait()

    async def until_settled(self) -> None:
        async for _ in self.watch(set(), len(self.events)):
            pass


Work = Callable[[Run], Awaitable[Document]]


class World:
    """All threads and runs of one server."""

    def __init__(self) -> None:
        self.threads: dict[str, Thread] = {}
        self.runs: dict[str, Run] = {}

    def thread(self, thread_id: str) -> Thread:
        if thread_id not in self.threads:
            raise Refused(404, f"thread {thread_id} not found")
        return self.threads[thread_id]

    def run(self, run_id: str, thread_id: str | None = None) -> Run:
        run = self.runs.get(run_id)
        if run is None or (run.thread.thread_id if run.thread else None) != thread_id:
            raise Refused(404, f"run {run_id} not found")
        return run

    def runs_of(self, thread: Thread) -> list[Run]:
        return [run for run in self.runs.values() if run.thread is thread]

    def active(self, thread: Thread) -> Run | None:
        return next((run for run in self.runs_of(thread) if not run.over), None)

    def create_thread(self, asked: Document) -> Thread:
        thread_id = asked.get("thread_id") or str(uuid.uuid4())
        if thread_id in self.threads:
            if asked.get("if_exists", "raise") == "raise":
                raise Refused(409, f"thread {thread_id} exists")
            return self.threads[thread_id]
        thread = self.threads[thread_id] = Thread(thread_id, asked.get("metadata") or {})
        return thread

    def copy_thread(self, thread: Thread) -> Thread:
        twin = copy.deepcopy(thread)
        twin.thread_id, twin.created_at, twin.updated_at = str(uuid.uuid4()), now(), now()
        self.threads[twin.thread_id] = twin
        return twin

    def patch_thread(self, thread: Thread, patch: Document) -> None:
        """Metadata is merged; values and messages replace, on top of the named checkpoint, as a new one."""
        if "checkpoint" in patch:
            wanted = patch["checkpoint"]["checkpoint_id"]
            found = [s for s in thread.history if s["checkpoint"]["checkpoint_id"] == wanted]
            if not found:
                raise Refused(404, f"checkpoint {wanted} not found")
            thread.values = copy.deepcopy(found[0]["values"])
            thread.messages = copy.deepcopy(found[0]["messages"])
        thread.metadata.update(patch.get("metadata") or {})
        thread.values = {**thread.values, **(patch.get("values") or {})}
        thread.messages = patch.get("messages", thread.messages)
        thread.updated_at = now()
        if {"checkpoint", "values", "messages"} & patch.keys():
            thread.checkpoint("update")

    async def start(self, agent_id: str, work: Work, creation: Document, thread: Thread | None) -> Run:
        """A new run in a task of its own; on a busy thread, as `multitask_strategy` says."""
        run = Run(agent_id, creation, thread)
        before = self.active(thread) if thread else None
        strategy = creation.get("multitask_strategy") or "reject"
        if before and strategy == "reject":
            raise Refused(409, f"thread is busy with run {before.run_id}")
        if before and strategy in ("interrupt", "rollback"):
            await self.cancel(before, rollback=strategy == "rollback")
            before = None
        self.runs[run.run_id] = run
        run.task = asyncio.create_task(self._execute(run, work, before))
        return run

    async def _execute(self, run: Run, work: Work, before: Run | None) -> None:
        try:
            if before and before.task:
                await asyncio.wait([before.task])
            await asyncio.sleep(run.creation.get("after_seconds") or 0)
            values = await work(run)
        except Failure as failure:
            self._end(run, None)
            run.fail(failure.errcode, failure.description)
        except asyncio.CancelledError:
            run.fail(499, "cancelled")
        else:
            self._end(run, values)
            run.finish(values)

    @staticmethod
    def _end(run: Run, values: Document | None) -> None:
        """What a run leaves on its thread."""
        thread = run.thread
        if thread is None:
            return
        thread.failed = values is None
        said = (run.creation.get("input") or {}).get("message", "")
        thread.messages.append({"role": "user", "content": said})
        if values is not None:
            answer = str(values.get("message", ""))
            thread.messages.append({"role": "assistant", "content": answer})
            usual = {"turns": thread.values.get("turns", 0) + 1, "last": answer}
            thread.values = usual if run.state is None else run.state
        thread.checkpoint("run")

    async def cancel(self, run: Run, *, rollback: bool = False) -> None:
        """Ends a run that is not over; `rollback` forgets it as well."""
        if run.task and not run.over:
            run.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await run.task
        if rollback:
            self.runs.pop(run.run_id, None)
