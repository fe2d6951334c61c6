"""Calls Agent Protocol agents: makes a task, drives its steps one after the other, fetches its artifacts."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from adapters.agent_protocol import codec, upstream, wire
from adapters.agent_protocol.api import Api, StepRefused, StepUnfit
from adapters.agent_protocol.options import AgentProtocolTarget
from adapters.agent_protocol.upstream import CreatedTask, RemoteTask
from gateway.contract import RunContext, ThreadContext
from gateway.core import events as e
from gateway.core.errors import (
    AgentError,
    AgentFailed,
    AgentTimeout,
    Invalid,
    NotFound,
    OutcomeUnknown,
    TooLarge,
    Unsupported,
)
from gateway.core.media import ANY
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA, text_pointer
from gateway.core.types import Agent, AgentCapabilities, Interrupt, InterruptSpec, JsonObject, Outcome
from gateway.transport.http import FilePart

T = TypeVar("T")


class Stopped(Exception):
    """The run was cancelled: no more steps."""


class Declined(Exception):
    """The client declined to go on: the run ends here."""


class TaskDriver:
    """Drives one run."""

    def __init__(self, target: AgentProtocolTarget, api: Api, context: RunContext) -> None:
        self._stop = asyncio.Event()
        self._target = target
        self._api = api
        self._context = context
        self._trace = context.traceparent
        native = context.run.request.protocol == codec.PROTOCOL
        self._approve = target.drive == "approve"
        self._asks = self._approve or target.drive == "one" or (target.drive == "auto" and native)
        self._record = RemoteTask("")
        self._plan: list[wire.Step] = []
        self._told: e.PlanUpdated | None = None

    async def run(self) -> None:
        """Drive it from the task's creation to its last step."""
        await self._to_its_end(self._run())

    def cancel(self) -> None:
        """Execute no further step, and do not wait for the one under way."""
        self._stop.set()

    async def attach(self) -> None:
        """After a restart: tell what was missed of a finished task, or ask again; never execute a step twice."""
        await self._to_its_end(self._attach())

    async def _to_its_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Stopped:
            await self._save()
            await self._end(e.RunCancelled(reason=self._context.run.cancel_reason or ""))
        except Declined:
            await self._end(e.RunFinished())

    async def _run(self) -> None:
        await self._steps(await self._begin())

    async def _attach(self) -> None:
        record = RemoteTask.read(self._context.run.upstream)
        if record is None:
            raise OutcomeUnknown("the gateway was restarted before the agent had named its task")
        self._record = record
        self._plan = await self._api.steps(record.task_id, self._trace)
        missed = self._missed()
        ours = f"{record.task_id}/"
        waiting = [i for i in self._context.run.interrupts if codec.is_step_question(i) or i.id.startswith(ours)]
        if any(step.is_last and step.status == "completed" for step in self._plan):
            for step in missed:
                await self._tell(step, again=True)
            await self._look()
            await self._finish()
        elif waiting and not record.in_flight and not missed and not self._busy():
            await self._steps(await self._ask(waiting[0]), waiting[0])
        elif waiting:
            raise self._unknown()
        else:
            await self._take_up()

    def _unknown(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"the gateway was restarted while the agent may have been executing a step of its task "
            f"{self._record.task_id}, which does not say that it is; a step is not executed twice"
        )

    async def _take_up(self) -> None:
        """Wait for the step that the agent says is under way, tell what was missed, and go on behind it."""
        await self._unless_stopped(self._idle())
        missed = self._missed()
        if not missed:
            raise self._unknown()
        for step in missed[:-1]:
            await self._tell(step, again=True)
        if (following := await self._after(missed[-1], again=True)) is not None:
            await self._steps(*following)

    def _missed(self) -> list[wire.Step]:
        """Steps that the agent has done and that were not told."""
        return [step for step in self._plan if step.status == "completed" and step.step_id not in self._record.done]

    async def _idle(self) -> None:
        """Read the agent's list of steps until none is under way, and none has begun by the next look either: the
        record may be a moment older than the last request.
        """
        async with self._patience():
            before: list[wire.Step] = []
            while self._busy() or self._plan != before:
                before = self._plan
                await asyncio.sleep(self._target.poll_interval)
                self._plan = await self._api.steps(self._record.task_id, self._trace)

    # the task

    async def _begin(self) -> JsonObject:
        """Resume the thread's task or create one, with the files. Returns the first step's body."""
        context = self._context
        before = RemoteTask.read(context.upstream_thread)
        record = before if before is not None and before.reusable and await self._alive(before) else None
        given = await context.recall(fresh=record is None or not record.begun)
        again = before is not None and before.begun
        task, step, lost = upstream.first_bodies(context.run, context.thread, context.agent, given, again=again)
        if lost:
            context.lost("additional_input_key_taken", lost)
        if record is None:
            record = RemoteTask((await self._api.create_task(task, self._trace)).task_id)
        self._record = record
        await self._save()
        await self._look()
        await self._upload()
        return step

    async def _alive(self, record: RemoteTask) -> bool:
        try:
            await self._api.task(record.task_id, self._trace)
        except NotFound:
            return False
        return True

    async def _save(self) -> None:
        stored = self._record.dump()
        await self._context.set_upstream(stored, thread=stored if self._context.thread is not None else None)

    async def _upload(self) -> None:
        """Give the agent the client's files that it does not have yet. A refused one fails the run."""
        for artifact in await self._context.uploads():
            if artifact.id in self._record.uploaded:
                continue
            content = self._context.open_artifact(artifact.id)
            file = FilePart("file", artifact.name, content, artifact.media_type)
            theirs = await self._api.upload(self._record.task_id, file, artifact.relative_path, self._trace)
            self._record.uploaded[artifact.id] = theirs.artifact_id
            await self._save()

    # its steps

    async def _steps(self, body: JsonObject, question: Interrupt | None = None) -> None:
        """Execute steps to the last. question: the one that the first `body` answers."""
        for _ in range(self._target.max_steps):
            step = await self._answered(body, question)
            if step is None:
                await self._finish()
                return
            following = await self._after(step)
            if following is None:
                return
            body, question = following
        raise AgentFailed(f"the agent's task was not done after {self._target.max_steps} steps")

    async def _after(self, step: wire.Step, *, again: bool = False) -> tuple[JsonObject, Interrupt | None] | None:
        """Tell a step that is done. Returns the next one's body and the question that it answers; None at the end."""
        await self._tell(step, again=again)
        failed = upstream.failure(step)
        if failed is not None:
            self._record.finish()
            await self._save()
            raise AgentFailed(failed)
        await self._look()
        if step.is_last:
            await self._finish()
            return None
        question = self._question(step)
        if question is None:
            return {}, None
        await self._fetch_all()
        return await self._ask(question), question

    async def _answered(self, body: JsonObject, question: Interrupt | None) -> wire.Step | None:
        """`_execute`, and ask again where the agent refuses an answer to its own question."""
        attempt = 1
        while True:
            try:
                return await self._execute(body)
            except StepUnfit as refused:
                if question is None or codec.is_step_question(question):
                    raise
                self._record.step_refused()
                await self._save()
                attempt += 1
                body = await self._ask(upstream.again(question, refused.detail or str(refused), attempt))

    async def _execute(self, body: JsonObject) -> wire.Step | None:
        """One step, done; None if the agent turns out to have none left. Raises Stopped, AgentError."""
        if self._context.cancelled or self._stop.is_set():
            raise Stopped
        self._record.step_sent()
        await self._save()
        try:
            step = await self._unless_stopped(self._done(body))
        except StepRefused:
            if not await self._exhausted():
                raise
            step = None
        if step is None or step.step_id in self._record.done:
            self._context.lost("is_last_missing")
            return None
        return step

    async def _unless_stopped(self, doing: Coroutine[Any, Any, T]) -> T:
        work = asyncio.ensure_future(doing)
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Stopped
            return await work
        finally:
            work.cancel()
            stop.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)

    async def _done(self, body: JsonObject) -> wire.Step:
        """Execute a step; poll it if the agent answers before it is done."""
        task = self._record.task_id
        step = await self._api.execute(task, body, self._trace)
        async with self._patience():
            while step.status != "completed":
                await asyncio.sleep(self._target.poll_interval)
                found = await self._api.step(task, step.step_id, self._trace)
                if found is None:
                    raise AgentFailed("the agent has lost the step it was executing")
                step = found
        return step

    @contextlib.asynccontextmanager
    async def _patience(self) -> AsyncIterator[None]:
        """Raises AgentTimeout in place of the block that takes longer than a step may."""
        limit = self._target.step_timeout
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise AgentTimeout(f"the agent's step was not done within {limit:g} s") from None

    async def _exhausted(self) -> bool:
        """Whether a refused step was one too many: all that the agent had planned is done."""
        if not self._record.done:
            return False
        await self._look()
        return bool(self._plan) and all(
            step.status == "completed" and step.step_id in self._record.done for step in self._plan
        )

    def _busy(self) -> bool:
        return any(step.status == "running" for step in self._plan)

    def _question(self, step: wire.Step) -> Interrupt | None:
        """The question after a step: the agent's own, however it is driven, else that of `drive`."""
        record = self._record
        own = upstream.asked(record.task_id, len(record.done), step)
        if own is not None or not self._asks:
            return own
        return upstream.question(record.task_id, len(record.done), step, self._plan, approve=self._approve)

    async def _ask(self, question: Interrupt) -> JsonObject:
        """The next step's body. Raises Declined: the run ends, and the next one goes on with the task; Stopped."""
        answer = await self._context.ask(question)
        own = not codec.is_step_question(question)
        if own and answer.outcome is not Outcome.ANSWERED:
            self._record.finish()  # nothing but an answer goes on with it: the next run has a new task
            await self._save()
        if answer.outcome is Outcome.CANCELLED:
            raise Stopped
        if own:
            if answer.outcome is Outcome.ANSWERED:
                return upstream.reply_body(answer)
            self._context.lost("decline_not_in_protocol")
            raise Declined
        refused = question.kind == codec.PERMISSION and answer.value != codec.GO_ON
        if answer.outcome is Outcome.DECLINED or refused:
            raise Declined
        return {} if question.kind == codec.PERMISSION else upstream.answer_body(answer)

    # what is told

    async def _tell(self, step: wire.Step, *, again: bool = False) -> None:
        self._context.emit(*upstream.step_events(step, again=again))
        await self._context.drain()
        await self._fetch(step.artifacts)
        self._record.step_done(step.step_id)
        await self._save()

    async def _look(self) -> None:
        """Read the agent's own list of steps, and tell it as the plan if it has changed."""
        try:
            self._plan = await self._api.steps(self._record.task_id, self._trace)
        except AgentError:
            if self._told is None:
                self._context.lost("plan_unavailable")
            self._plan = []
            return
        plan = codec.plan(self._plan)
        if plan.entries and plan != self._told:
            self._told = plan
            self._context.emit(plan)
            await self._context.drain()

    async def _finish(self) -> None:
        await self._fetch_all()
        self._record.finish()
        await self._save()
        await self._end(e.RunFinished())

    async def _end(self, event: e.Event) -> None:
        self._context.emit(event)
        await self._context.drain()

    # its files

    async def _fetch_all(self) -> None:
        """Fetch what the agent made beside its steps."""
        try:
            listed = await self._api.artifacts(self._record.task_id, self._trace)
        except AgentError:
            return
        await self._fetch([artifact for artifact in listed if artifact.agent_created])

    async def _fetch(self, artifacts: Sequence[wire.TaskArtifact]) -> None:
        ours = set(self._record.uploaded.values())
        for artifact in artifacts:
            if artifact.artifact_id in self._record.artifacts or artifact.artifact_id in ours:
                continue
            self._record.artifacts.append(artifact.artifact_id)
            try:
                await self._fetch_one(artifact)
            except TooLarge:
                self._context.lost("artifact_too_large")
            except (AgentError, Invalid):
                self._context.lost("artifact_unavailable")
            await self._save()

    async def _fetch_one(self, artifact: wire.TaskArtifact) -> None:
        limit = self._target.max_artifact
        name = codec.file_label(artifact.file_name or artifact.artifact_id)
        try:
            path = codec.relative_path(artifact.relative_path)
        except Invalid:
            self._context.lost("relative_path_unsafe")
            path = None
        async with self._api.download(self._record.task_id, artifact.artifact_id, self._trace) as response:
            if response.status != 200:
                raise AgentFailed(f"the agent answered {response.status} to an artifact")
            kind = response.content_type
            if kind in ("", "application/octet-stream"):
                kind = mimetypes.guess_type(name)[0] or ""
            await self._context.add_artifact(
                name,
                _bounded(response.chunks(), limit),
                media_type=codec.media_type(kind),
                relative_path=path,
                metadata=codec.origin(artifact=artifact.model_dump()),
            )


async def _bounded(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"the artifact is larger than {limit} bytes")
        yield chunk


# --- all runs of an agent ---------------------------------------------------------------------------------------------


STEP_PAYLOAD = {
    "type": "object",
    "title": "Step",
    "properties": {name: {"type": "string"} for name in ("step_id", "name", "output", "next")},
}


class AgentProtocolOutbound:
    """See `gateway.contract.Outbound` and `Relay`."""

    def __init__(self, target: AgentProtocolTarget) -> None:
        self._target = target
        self._api = Api(target)
        self._drivers: dict[str, TaskDriver] = {}

    async def describe(self) -> Agent:
        """The protocol publishes nothing about an agent: asks whether it is there, and gives the default schemas."""
        await self._api.probe()
        drive = self._target.drive
        asks = drive in ("one", "approve")
        kind, answers = (codec.PERMISSION, codec.APPROVAL) if drive == "approve" else (codec.STEP, codec.STEP_BODY)
        spec = InterruptSpec(kind=kind, payload_schema=STEP_PAYLOAD, answer_schema=answers)
        return Agent(
            name=self._target.agent or "agent",
            version="v1",
            input_schema=MESSAGE_SCHEMA,
            output_schema=MESSAGE_OUTPUT_SCHEMA,
            input_assumed=True,
            output_assumed=True,
            interrupts=(spec,) if asks else (),
            capabilities=AgentCapabilities(
                threads=True, interrupts=asks, streaming=True, custom_streaming=False, artifacts=True, files=(ANY,)
            ),
            text_input=text_pointer(MESSAGE_SCHEMA),
            text_output=text_pointer(MESSAGE_OUTPUT_SCHEMA),
        )

    async def run(self, context: RunContext) -> None:
        with self._driver(context) as driver:
            await driver.run()

    async def attach(self, context: RunContext) -> None:
        """See `Outbound.attach`: waits for a step under way, asks an open question again, else says why it cannot."""
        with self._driver(context) as driver:
            await driver.attach()

    @contextmanager
    def _driver(self, context: RunContext) -> Iterator[TaskDriver]:
        driver = self._drivers[context.run.id] = TaskDriver(self._target, self._api, context)
        try:
            yield driver
        finally:
            del self._drivers[context.run.id]

    async def cancel(self, context: RunContext) -> None:
        """The protocol has no such operation: no further step is executed, the one under way is not waited for."""
        context.lost("cancel_not_in_protocol")
        driver = self._drivers.get(context.run.id)
        if driver is not None:
            driver.cancel()

    async def relay(self, context: ThreadContext, method: str, params: msgspec.Raw) -> msgspec.Raw:
        """Create a client's task before its first run. `params` is the client's body; the answer is a `CreatedTask`."""
        if method != codec.CREATE:
            raise Unsupported(f"agent {context.agent.name} is not sent {method} before a run")
        task = (await self._api.create_task(msgspec.json.decode(params), None)).task_id
        try:
            steps = await self._api.steps(task, None)
        except AgentError:  # the first run looks again, and counts the loss
            steps = []
        waiting = [step.name for step in steps if step.status == "created"]
        return msgspec.Raw(msgspec.json.encode(CreatedTask(RemoteTask(task).dump(), waiting)))

    async def forward(self, context: ThreadContext, method: str, params: msgspec.Raw) -> None:
        """The protocol has no notifications."""
        raise Unsupported("Agent Protocol has no notifications")

    async def aclose(self) -> None:
        await self._api.aclose()
