"""One run in progress: the `RunContext` that an outbound adapter sees, from its dispatch to its end.

Its record and log are in run_record.py, its agent's questions in questions.py, its conversation in thread_context.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Unpack

import msgspec
from msgspec.structs import replace

from gateway import tracing
from gateway.agents.entry import Entry
from gateway.contract import Caller, Runner
from gateway.contract.filling import Filled
from gateway.contract.interception import RunRecorder
from gateway.contract.outbound import FileDetails
from gateway.core import delta, files
from gateway.core import events as e
from gateway.core.errors import InterlinguaError, Unsupported, let_go_of
from gateway.core.memory import Recalled
from gateway.core.stream import Item
from gateway.core.types import (
    Agent,
    Answer,
    Artifact,
    Checkpoint,
    Failure,
    Interrupt,
    Json,
    JsonObject,
    Run,
    RunStatus,
    Thread,
    ThreadUpdate,
)
from gateway.runs.log import RunLog
from gateway.runs.memory import Conversation, knows_all
from gateway.runs.parts import in_chunks
from gateway.runs.questions import CANCELLED, Clock, NotGiven, Questions, completed
from gateway.runs.run_record import RunRecord, of_error, timed_out, without_result
from gateway.runs.states import States
from gateway.runs.thread_context import ConversationContext, UntoldCaller
from gateway.runs.threads import UPLOADS, Threads
from gateway.store import Delivery, Store, TakenOver
from gateway.store.records import new_id

log = logging.getLogger(__name__)

BACKLOG_BYTES = 8 * 1024 * 1024
CANCEL_CALL_SECONDS = 5.0


class Commons(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine's runs share. The callbacks are called synchronously, after the commit, and must not raise."""

    store: Store
    threads: Threads
    states: States
    artifact_limit: int
    cancel_grace: float
    public_url: str
    """URLs of files begin with it."""
    recorder: RunRecorder
    ended: Callable[[LiveRun], None]
    owed: Callable[[Delivery], None]
    calling: Callable[[asyncio.Future[None]], None]
    """A run's agent is being told to stop, which may take longer than the run."""


class LiveRun:
    """See `gateway.contract.RunContext` for the methods that outbound adapters call, and
    `gateway.contract.interception` for those that a run's interceptor calls.
    """

    traceparent: str | None = None
    beside: frozenset[type[e.Event]] = frozenset()
    """Which of `e.BESIDE` the agent may have said."""
    task: asyncio.Task[None] | None = None
    """Its own, in which `Outbound.run` is called. See `_interrupt` for who cancels it."""
    span: tracing.RunSpan | None = None
    ended = False
    detached = False
    """The gateway stops, and will find the run again."""
    _then: Callable[[], None] | None = None
    _conversation: ConversationContext | None = None
    _questions: Questions | None = None
    _terminal: e.Event | None = None
    _usage: e.UsageReported | None = None
    _calling = False
    """The outbound adapter is at work."""
    _aborted: Failure | None = None
    """The failure that its interceptor ends it with."""
    _ending = False
    """It ends: its end is being written, or has been."""

    def __init__(
        self,
        *,
        run: Run,
        agent: Agent,
        entry: Entry,
        thread: Thread | None,
        log: RunLog,
        commons: Commons,
        caller: Caller | None = None,
        filled: Filled | None = None,
    ) -> None:
        """`entry` is the agent as it is now: the run keeps its target.

        `filled` is the input as far as it is known, where the run is new and came with a prompt.
        """
        self.agent = agent
        self.entry = entry
        self._commons = commons
        self._store = commons.store
        self.record = RunRecord(run, log, commons.store, commons.owed)
        self.shown = self.record.show
        self.log = log
        self._begun_on, self._client = thread, caller
        self._route = entry.route
        self._clock = Clock(self._route.timeout)
        self.artifacts: list[Artifact] = []
        self.interceptor = entry.intercepting.intercept(self) if entry.intercepting else None
        if self.interceptor is not None:
            self.record.guard(self.interceptor.changing)
        self.outbound: Runner = self.interceptor or entry.outbound
        if log.last:
            self.beside = e.BESIDE
        self._filled = filled
        missing = filled is None or filled.form is not None
        self._incomplete = run.request.prompt is not None and not run.dispatched and missing
        """Something of its input is missing, as far as is known: it is asked for before the run is sent."""
        self._recalled = run.dispatched
        """Its input was asked for, now or before a restart: it may have been sent."""
        self._told: dict[tuple[bool, bool], Recalled] = {}
        """What `recall` has returned, by `fresh` and `knows`: a loss is counted once, however often the run is sent."""
        self._early: list[tuple[str, int]] = []
        """Losses from before the run was driven, which its span is yet to count."""

    # --- its record and its conversation -------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        return self.record.run

    @property
    def questions(self) -> Questions:
        """The questions of the run's agent. Made when it asks the first."""
        if self._questions is None:
            self._questions = Questions(self.record, self._clock)
        return self._questions

    @property
    def conversation(self) -> ConversationContext:
        """The run's conversation, or none. Made when somebody asks for it."""
        if self._conversation is None:
            given, threads = self._given, self._commons.threads
            self._conversation = ConversationContext(self.agent, threads, self._begun_on, given=given)
        return self._conversation

    @property
    def thread(self) -> Thread | None:
        return self._begun_on if self._conversation is None else self._conversation.thread

    @property
    def upstream_thread(self) -> JsonObject | None:
        return self.conversation.upstream_thread

    @property
    def caller(self) -> Caller | None:
        return self._given if self.thread is None else self.conversation.caller

    @property
    def _given(self) -> Caller | None:
        if self._client is not None and self.record.hidden and not isinstance(self._client, UntoldCaller):
            self._client = UntoldCaller(self._client, self.record.show)
        return self._client

    @property
    def callers(self) -> Sequence[Caller]:
        return self.conversation.callers

    @property
    def cancelled(self) -> bool:
        return self.record.run.cancel_reason is not None or self._aborted is not None

    async def set_thread(self, upstream: JsonObject) -> None:
        await self.conversation.set_thread(upstream)

    def hold(self) -> Callable[[], None]:
        return self.conversation.hold()

    async def set_upstream(self, upstream: JsonObject, *, thread: JsonObject | None = None, finds: bool = True) -> None:
        if (finds and (self._terminal is None or self._ending)) or self.record.lock.locked():
            await self.record.save(soon=finds and self.run.upstream is None, upstream=upstream)
        else:
            self.record.note(upstream=upstream)
        if thread is not None:
            await self.set_thread(thread)

    def lost(self, what: str, count: int = 1) -> None:
        self.record.losses[what] = self.record.losses.get(what, 0) + count
        if self.span is not None:
            self.span.record_loss(what, count)
        else:
            self._early.append((what, count))

    async def ask(self, interrupt: Interrupt) -> Answer:
        return await self.questions.ask(self, interrupt)

    def approval(self, tool: str, call: str, policy: str | None) -> tracing.ApprovalSpan:
        """Trace an approval. One before the run is driven leaves no trace."""
        return tracing.ApprovalSpan(None, None) if self.span is None else self.span.approval(tool, call, policy)

    # --- what outbound adapters call ---------------------------------------------------------------------------

    @property
    def heard(self) -> int:
        return self.log.newest + (self.record.run.upstream is not None) + (self._terminal is not None)

    def emit(self, *events: e.Event) -> None:
        if self._terminal is not None or self.ended:
            self.lost("late_event", len(events))
            return
        parts = self.log.opener.parts
        for event in events:
            if type(event) is not e.PartDelta or parts.get(event.part) is not Item.OPEN:
                break
        else:  # nearly always: what is being said goes on
            return self.log.append(events)
        for at, event in enumerate(events):
            if (kind := type(event)) in e.OF_MESSAGES:
                continue
            if isinstance(event, e.TERMINAL):
                self._terminal = event
                if len(events) > at + 1:
                    self.lost("late_event", len(events) - at - 1)
                events = events[:at]
                if not events:
                    return
                break
            if isinstance(event, e.UsageReported):
                self._usage = event
            elif isinstance(event, e.TOOL_CALL_ENDS) and self.span is not None:
                self.span.record_tool(event)
            elif kind in e.BESIDE and kind not in self.beside:
                self.beside |= {kind}
                self.record.wake()
        legal: list[e.Event] = []
        try:
            self.log.opener.feed(events, legal)
        finally:  # what came before an illegal event has happened: what follows builds on it
            self.log.append(legal)

    async def drain(self) -> None:
        if self._terminal is not None:
            with self._clock.paused():  # no time limit passes while its end is written
                return await self.record.change(self.finish(self._terminal))
        if self.log.holding:
            await self.log.settled()
        if self.log.wrong is not None:
            raise self.log.wrong
        if self._store.backlog > BACKLOG_BYTES:
            await self._store.flush()
        if self._route.backpressure:
            await self.log.readers_near()

    @property
    def flowing(self) -> bool:
        waits = self._terminal is not None or self.log.holding or self._route.backpressure
        return not waits and self._store.backlog <= BACKLOG_BYTES

    def afterwards(self, then: Callable[[], None]) -> None:
        if self.ended:
            then()
        else:
            self._then = then

    async def thread_state(self) -> Checkpoint | None:
        return None if self.thread is None else await self._commons.states.for_run(self.thread, self.agent)

    async def recall(self, *, fresh: bool, knows: bool = False) -> Recalled:
        self._recalled = True
        request, thread = self.record.run.request, self.thread
        knows = thread is None or knows or not thread.begun or knows_all(thread, self.agent, fresh=fresh)
        if knows and not request.files:
            return Recalled(input=request.input)
        if (told := self._told.get((fresh, knows))) is None:
            told = Recalled(input=request.input)
            if thread is not None and not knows:
                conversation = Conversation(self._store, thread, self.agent, self.entry, self.lost)
                told = await conversation.recalled(request.input, fresh=fresh)
            if ids := files.referred(told.input, request.files):
                told = replace(told, input=files.fill(told.input, await self.contents(ids)))
            self._told[fresh, knows] = told
        return told

    async def add_artifact(
        self, name: str, content: AsyncIterator[bytes] | bytes, **about: Unpack[FileDetails]
    ) -> Artifact:
        artifact = await self.store_artifact(name, content, **about)
        self.emit(e.ArtifactAdded(artifact=artifact))
        return artifact

    async def store_artifact(
        self, name: str, content: AsyncIterator[bytes] | bytes, **about: Unpack[FileDetails]
    ) -> Artifact:
        artifact_id = new_id()
        artifact = Artifact(
            id=artifact_id,
            name=name,
            run=self.run.id,
            thread=self.run.thread,
            relative_path=about.get("relative_path"),
            media_type=about.get("media_type", "application/octet-stream"),
            created_at=time.time(),
            url=f"{self._commons.public_url}/artifacts/{self.run.id}/{artifact_id}",
            metadata=about.get("metadata", {}),
        )
        artifact = await self._store.put_artifact(artifact, in_chunks(content), max_bytes=self._commons.artifact_limit)
        self.artifacts.append(artifact)
        return artifact

    async def uploads(self) -> Sequence[Artifact]:
        thread = self.thread
        if not self.record.run.request.files and (thread is None or not thread.attributes.get(UPLOADS)):
            return []
        found = await self._store.artifacts(run=self.run.id, thread=self.run.thread)
        return [artifact for artifact in found if not artifact.agent_created]

    async def contents(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The content of files, by id. Raises NotFound for one that was removed."""
        return {each: b"".join([chunk async for chunk in self.open_artifact(each)]) for each in ids}

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        return self._store.open_artifact(artifact_id)

    def note(self, update: ThreadUpdate) -> None:
        if (event := self.noted(update)) is not None:
            self.emit(event)

    retell = note

    def noted(self, update: ThreadUpdate) -> e.Custom | None:
        in_turn = self._terminal is None and not self.ended
        if not (in_turn and update.kept):
            self.conversation.record(replace(update, after=self.run.id), tell=not in_turn)
        return e.Custom(name=update.protocol, data=update.data) if in_turn else None

    def launch(self, work: Coroutine[None, None, None]) -> None:
        """Begin the run's own task."""
        self.task = asyncio.get_running_loop().create_task(work, name=f"run {self.record.run.id}")

    # --- what the engine calls ---------------------------------------------------------------------------------

    async def drive(self, *, attach: bool = False) -> None:
        """Let the outbound adapter run, and commit the end whatever happens."""
        with tracing.run_span(self.record.run, self.agent, resumed=attach) as self.span:
            for what, count in self._early:
                self.span.record_loss(what, count)
            target, request = self._route.target, self.record.run.request
            if not attach and target.protocol != request.protocol:
                for what in request.native:
                    self.lost(what)
            if tracing.tracing():
                with tracing.call_span(target.protocol, None if self._route.targets else target) as call:
                    self.traceparent = call.traceparent
                    end = await self._call(attach)
            else:
                self.traceparent = self.span.traceparent
                end = await self._call(attach)
            await self.finish(self._terminal or end or without_result())

    async def _call(self, attach: bool) -> e.Event | None:
        """Let the outbound adapter run; the end that is none of its words."""
        self._calling = True
        try:
            with self._clock:
                if not self.record.run.dispatched:
                    await self.record.change(self._sent(await self.ready()))
                await (self.outbound.attach(self) if attach else self.outbound.run(self))
        except (Exception, asyncio.CancelledError) as error:
            if self.detached and not self._ending and isinstance(error, asyncio.CancelledError):
                raise
            return self._end_of(error)
        finally:
            self._calling = False
        return None

    def _end_of(self, error: Exception | asyncio.CancelledError) -> e.Event:
        """How a run ends whose adapter raised this before the agent's last word."""
        if isinstance(error, NotGiven | asyncio.CancelledError):
            return e.RunCancelled(reason=self.run.cancel_reason or str(error) or "cancelled")
        if isinstance(error, TimeoutError):
            if self._clock.expired:
                self._commons.calling(asyncio.ensure_future(self.call_cancel()))
            return timed_out(self._route.timeout if self._clock.expired else None)
        return of_error(error, f"run {self.run.id} of {self.agent.name}")

    @property
    def held(self) -> bool:
        """Whether it is not yet to be sent when it starts. Then `drive` commits the mark once it is `ready`."""
        return self._incomplete or (self.interceptor is not None and self.interceptor.holds)

    async def ready(self) -> Json:
        """Wait until a run that is held may be sent; its input. Raises NotGiven, and what else then ends the run."""
        given = await completed(self, self._filled) if self._incomplete else self.run.request.input
        if self.interceptor is not None:
            await self.interceptor.ready()
        return given

    async def _sent(self, given: Json) -> None:
        async with self.record.lock:
            request = replace(self.run.request, input=given)
            await self.record.write((), replace(self.run, request=request, dispatched=True, updated_at=time.time()))

    async def start(self) -> None:
        """Commit the start, and the dispatch mark, of a run that was created earlier (queued or scheduled)."""
        await self.record.change(self._start())

    async def _start(self) -> None:
        async with self.record.lock:
            if self.thread is not None:  # runs before it may have changed it
                self.conversation.refreshed(await self._store.thread(self.thread.id))
            starting = contextlib.nullcontext() if self.interceptor is None else self.interceptor.starting()
            async with starting:
                run = replace(self.run, status=RunStatus.RUNNING, dispatched=not self.held, updated_at=time.time())
                await self.record.write((e.RunStarted(),), run)

    async def finish(self, end: e.Event) -> None:
        """Commit the end, once; tell everyone. The last step of the run's own task, which is carried out whole."""
        if self._ending:
            return await self.until(lambda: self.ended or self.log.left is not None)
        self._ending = True
        self._terminal = end
        if isinstance(self._client, UntoldCaller):  # what it was told before is no news after the end
            await self._client.told()
        async with self.record.lock:
            cancelled = self.record.run.cancel_reason
            if cancelled is not None:
                said = end.origin if isinstance(end, e.RunCancelled) else None
                end = e.RunCancelled(reason=cancelled, origin=said)
            elif self._aborted is not None:
                end = e.RunFailed(failure=self._aborted)
            try:
                if type(end) is not e.RunFinished or end.origin is not None:  # a document is encoded already
                    end = delta.sound(end)
                if self.interceptor is None:
                    await self._conclude(end)
                else:
                    async with self.interceptor.concluding(end) as last:
                        await self._conclude(last)
            except TakenOver as error:
                self.hand_over(error)
            except Exception as error:  # whatever it is, the run has ended
                if self.log.left is None:
                    await self.record.fail(error)
        if self.log.left is not None:
            return
        self.ended = True
        self._give_up_questions()
        run = self.record.run
        if self.span is not None:
            self.span.finish(run.status, usage=self._usage, events=self.log.last, failure=run.failure)
        else:
            tracing.metrics.events.add(self.log.last, tracing.metrics.agent(self.agent.name))
        self.log.close()
        self.record.wake()
        self._commons.ended(self)
        self._leave()

    def _conclude(self, end: e.Event) -> Coroutine[None, None, None]:
        return self.record.conclude(self.agent, self.thread, self.artifacts, end, recalled=self._recalled)

    async def cancel(self, reason: str) -> None:
        """Store the wish, answer what is open as cancelled, tell the agent, set the grace running. Raises TakenOver."""
        await self.record.change(self._cancel(reason))

    async def _cancel(self, reason: str) -> None:
        async with self.record.lock:
            if self.ended or self.cancelled:
                return
            closed = tuple(e.Resumed(interrupt=i.id, answer=CANCELLED) for i in self.run.interrupts)
            status = RunStatus.RUNNING if self.run.interrupts else self.run.status
            run = replace(self.run, cancel_reason=reason, interrupts=(), status=status, updated_at=time.time())
            await self.record.write(closed, run)
        self._give_up_questions()
        if not self.run.dispatched or self.task is None:
            self._interrupt()
            return
        self._stop_agent()

    def abort(self, failure: Failure) -> None:
        if self.cancelled or self._ending:
            return
        self._aborted = failure
        self._give_up_questions()
        self._stop_agent()

    def detach(self, why: TakenOver | None = None) -> None:
        """Let go of the run without ending it, and tell who waits for it: the gateway stops, and will find it again."""
        if self.interceptor is not None:
            self.interceptor.close()
        self.detached = True
        self._interrupt()
        if why is not None or not self._ending:
            self.log.leave(why or let_go_of(self.record.run.id))
            self.record.wake()

    def hand_over(self, why: TakenOver) -> None:
        """Another process drives the run by now. Who waits for it here hears of it from there on. Idempotent."""
        if self.log.left is None and not self.ended:
            log.warning("%s: this one was stopped, or slow, for longer than its lease", why)
            self._commons.ended(self)
            self.detach(why)
            self._leave()

    def _interrupt(self) -> None:
        """Cancel the run's own task, unless it is at its last step. Nobody else cancels it, but for its clock."""
        if self.task is not None and (self._calling or not self._ending):
            self.task.cancel()

    # --- who waits, and who answers ---------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self.cancelled or self._ending

    @property
    def gone(self) -> bool:
        return self.detached or self.ended

    async def answer(self, answer: Answer, interrupt_id: str | None) -> None:
        """Commit an answer to an open interrupt and hand it to the adapter. Raises Conflict, TakenOver among others."""
        await self.record.change(self._answer(answer, interrupt_id))

    async def _answer(self, answer: Answer, interrupt_id: str | None) -> None:
        accepts = self.interceptor.accepts if self.interceptor is not None else None
        await self.questions.answer(answer, interrupt_id, cancelled=self.cancelled, span=self.span, accepts=accepts)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until that is true. Raises Unavailable if the gateway lets go of it before, TakenOver to another one."""
        while not true():
            if self.log.left is not None:
                raise self.log.left
            await self.record.woken()

    async def over(self) -> None:
        """Wait until the run has ended, answers and all. Raises as `until`."""
        await self.until(lambda: self.ended)

    # --- inside ------------------------------------------------------------------------------------------------

    def _leave(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()

    def _give_up_questions(self) -> None:
        """Answer what is open as cancelled."""
        if self._questions is not None:
            self._questions.cancel_all()

    def _stop_agent(self) -> None:
        """Tell the agent to stop, and wait no longer for it than the grace."""
        self._commons.calling(asyncio.ensure_future(self.call_cancel()))
        asyncio.get_running_loop().call_later(self._commons.cancel_grace, self._grace_over)

    async def call_cancel(self) -> None:
        """Tell the agent to stop; whatever comes of it is counted or logged, never raised. In a task of its own."""
        if self._commons.recorder.on:
            self._commons.recorder.telling(self.run.id)
        try:
            async with asyncio.timeout(CANCEL_CALL_SECONDS):
                await self.outbound.cancel(self)
        except Unsupported as error:
            self.lost("cancel_unsupported")
            log.info("run %s: %s", self.run.id, error)
        except (InterlinguaError, TimeoutError) as error:
            log.warning("run %s: the agent was not told of the cancel: %s", self.run.id, error)
        except Exception:
            log.exception("run %s: telling the agent of the cancel failed", self.run.id)

    def _grace_over(self) -> None:
        if not self._ending:
            self.lost("upstream_may_still_run")
            self._interrupt()
