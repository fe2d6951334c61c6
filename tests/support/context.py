"""A `RunContext` without an engine: it holds events to the legality table, folds the output, and answers by script."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.contract import Caller
from gateway.contract.governing import Governor, RunGovernor
from gateway.core import events as e
from gateway.core import projection
from gateway.core.memory import Recalled
from gateway.core.output import Output
from gateway.core.stream import Opener
from gateway.core.types import (
    Agent,
    Answer,
    Artifact,
    Checkpoint,
    Interrupt,
    Json,
    JsonObject,
    Outcome,
    Run,
    RunRequest,
    RunStatus,
    Thread,
    ThreadUpdate,
)

CANCELLED = Answer(outcome=Outcome.CANCELLED)
DECLINED = Answer(outcome=Outcome.DECLINED)


@dataclass
class FakeContext:
    """What an outbound adapter sees of one run.

    answers: by turn, a value, an `Answer`, or a function of the interrupt that gives either. With none left a
        question waits for `cancel_now`.
    bursts: how many `emit` calls there were, with the number of events in each.
    """

    agent: Agent
    run: Run
    thread: Thread | None = None
    answers: list[Any] = field(default_factory=list)
    caller: Caller | None = None
    older: list[Caller] = field(default_factory=list)
    governor: Governor | None = None
    governed: RunGovernor | None = None
    before: str = ""
    traceparent: str | None = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    def __post_init__(self) -> None:
        self.events: list[e.Event] = []
        self.fresh: list[bool] = []
        self.bursts: list[int] = []
        self.asked: list[Interrupt] = []
        self.losses: Counter[str] = Counter()
        self.artifacts: list[tuple[Artifact, bytes]] = []
        self.upstreams: list[JsonObject] = []
        self.notes: list[ThreadUpdate] = []
        self.cancelled = False
        self.holds = 0
        self.uploaded: list[tuple[Artifact, bytes]] = []
        self.changed = asyncio.Event()
        self._opener = Opener()
        self._output = Output(self.agent)
        self._waiting: list[asyncio.Future[Answer]] = []

    # --- for the adapter ---------------------------------------------------------------------------------------

    @property
    def callers(self) -> list[Caller]:
        return [] if self.caller is None else [self.caller, *self.older]

    @property
    def upstream_thread(self) -> JsonObject | None:
        return self.thread.upstream.get(self.agent.name) if self.thread else None

    async def set_thread(self, upstream: JsonObject) -> None:
        if self.thread is not None:
            known = {**self.thread.upstream, self.agent.name: upstream}
            self.thread = msgspec.structs.replace(self.thread, upstream=known)

    def hold(self) -> Callable[[], None]:
        self.holds += 1
        return self._released

    def _released(self) -> None:
        self.holds -= 1

    def note(self, update: ThreadUpdate) -> None:
        self.notes.append(update)
        self._told()

    def retell(self, update: ThreadUpdate) -> None:
        self.note(update)

    @property
    def heard(self) -> int:
        return len(self.events) + len(self.upstreams)

    def emit(self, *events: e.Event) -> None:
        self.bursts.append(len(events))
        for event in self._opener.feed(events):
            self.events.append(event)
            self._output.apply(event)
        self._told()

    async def drain(self) -> None:
        await asyncio.sleep(0)

    async def shown(self) -> None:
        """At once: nothing is stored."""

    def afterwards(self, then: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(then)

    @property
    def flowing(self) -> bool:
        return True

    async def set_upstream(self, upstream: JsonObject, *, thread: JsonObject | None = None, finds: bool = True) -> None:
        self.upstreams.append(upstream)
        self.run = msgspec.structs.replace(self.run, upstream=upstream)
        if thread is not None:
            await self.set_thread(thread)
        self._told()

    async def thread_state(self) -> Checkpoint | None:
        """Of a thread that no agent has worked on: as the thread's record has it."""
        thread = self.thread
        if thread is None or thread.upstream or thread.values is None:
            return None
        return Checkpoint(id="", thread=thread.id, created_at=0.0, values=thread.values)

    async def recall(self, *, fresh: bool, knows: bool = False) -> Recalled:
        """What was said before is `before`, where the agent's conversation is fresh."""
        self.fresh.append(fresh)
        given = self.run.request.input
        if not (fresh and self.before) or knows:
            return Recalled(input=given)
        pointer = projection.text_pointer(self.agent.input_schema, self.agent.text_input)
        return Recalled(input=projection.preceded(given, pointer, self.before), before=self.before)

    async def ask(self, interrupt: Interrupt) -> Answer:
        self.asked.append(interrupt)
        self.events += self._opener.feed([e.Interrupted(interrupt=interrupt)])
        self._told()
        if self.answers:
            answer = self.answers.pop(0)
            answer = answer(interrupt) if callable(answer) else answer
            answer = answer if isinstance(answer, Answer) else Answer(value=answer)
        elif self.cancelled:
            answer = CANCELLED
        else:
            self._waiting.append(asyncio.get_running_loop().create_future())
            answer = await self._waiting[-1]
        self.events += self._opener.feed([e.Resumed(interrupt=interrupt.id, answer=answer)])
        return answer

    async def add_artifact(
        self,
        name: str,
        content: AsyncIterator[bytes] | bytes,
        *,
        media_type: str = "application/octet-stream",
        relative_path: str | None = None,
        metadata: JsonObject | None = None,
    ) -> Artifact:
        data = content if isinstance(content, bytes) else b"".join([chunk async for chunk in content])
        artifact = Artifact(
            id=f"artifact-{len(self.artifacts) + 1}",
            name=name,
            run=self.run.id,
            relative_path=relative_path,
            media_type=media_type,
            size=len(data),
            metadata=metadata or {},
        )
        self.artifacts.append((artifact, data))
        self.emit(e.ArtifactAdded(artifact=artifact))
        return artifact

    async def uploads(self) -> Sequence[Artifact]:
        return [artifact for artifact, _ in self.uploaded]

    async def contents(self, ids: Sequence[str]) -> dict[str, bytes]:
        return {artifact.id: data for artifact, data in self.uploaded if artifact.id in ids}

    async def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        for artifact, data in [*self.uploaded, *self.artifacts]:
            if artifact.id == artifact_id:
                yield data

    def lost(self, what: str, count: int = 1) -> None:
        self.losses[what] += count

    # --- for the test ------------------------------------------------------------------------------------------

    @property
    def output(self) -> Json:
        """The run's document, folded from all events."""
        return self._output.document

    @property
    def end(self) -> e.Event:
        """The terminal event."""
        assert self.events and isinstance(self.events[-1], e.TERMINAL), self.events[-3:]
        return self.events[-1]

    def said(self, kind: type[Any]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def snapshots(self) -> list[Json]:
        """The documents that a watcher saw one after the other, each once."""
        seen: list[Json] = []
        fold = Output(self.agent)
        for event in self.events:
            if fold.apply(event) and seen[-1:] != [document := msgspec.json.decode(fold.encoded)]:
                seen.append(document)
        return seen

    async def until(self, true: Callable[[FakeContext], bool], within: float = 30) -> None:
        """Return when `true(self)`; it is looked at after every event and every record."""
        async with asyncio.timeout(within):
            while not true(self):
                self.changed.clear()
                await self.changed.wait()

    def cancel_now(self, reason: str = "asked to") -> None:
        """What the engine does to the context when a run is cancelled; the adapter is told by the test."""
        self.cancelled = True
        self.run = msgspec.structs.replace(self.run, cancel_reason=reason)
        for future in self._waiting:
            if not future.done():
                future.set_result(CANCELLED)

    def _told(self) -> None:
        self.changed.set()


def _document(agent: Agent, text: str) -> Json:
    at = projection.text_pointer(agent.input_schema, agent.text_input)
    return {"message": text} if at is None else projection.wrap(text, at, agent.input_schema)


def context(
    agent: Agent,
    input: Json = None,
    *,
    protocol: str = "test",
    thread: str | None = None,
    answers: Sequence[Any] = (),
    upstream: JsonObject | None = None,
    upstream_thread: JsonObject | None = None,
    before: str = "",
    **request: Any,
) -> FakeContext:
    """A context for a run of `agent`; a text as `input` becomes a document of its schema, else `{"message": text}`.

    `request`: more of RunRequest.
    """
    document = _document(agent, input) if isinstance(input, str) else input
    run = Run(
        id="run-1",
        request=RunRequest(agent=agent.name, input=document, protocol=protocol, thread=thread, **request),
        status=RunStatus.RUNNING,
        created_at=0.0,
        updated_at=0.0,
        dispatched=True,
        upstream=upstream,
    )
    record = None
    if thread is not None:
        known = {agent.name: upstream_thread} if upstream_thread else {}
        record = Thread(id=thread, created_at=0.0, updated_at=0.0, upstream=known)
    return FakeContext(agent, run, record, list(answers), before=before)
