"""Starts runs: from a request to the run's dispatch, and what follows its end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from gateway import tracing
from gateway.access import Slots, UsageLimits
from gateway.agents.entry import Entry
from gateway.agents.roster import Roster
from gateway.contract import Caller
from gateway.contract.filling import Filled
from gateway.contract.interception import RunRecorder
from gateway.contract.optional import Preparing
from gateway.core import events as e
from gateway.core.errors import (
    AgentError,
    AgentGone,
    AgentTimeout,
    Conflict,
    InterlinguaError,
    NotFound,
    Unavailable,
    Unsupported,
)
from gateway.core.files import LOST, Attachment
from gateway.core.types import (
    UNFINISHED,
    Agent,
    Artifact,
    IfBusy,
    Run,
    RunQuery,
    RunRequest,
    Thread,
    ThreadChange,
)
from gateway.runs.callers import Lobby
from gateway.runs.elsewhere import RunsElsewhere, StartRun
from gateway.runs.given_files import GivenFiles, given
from gateway.runs.live import Commons, LiveRun
from gateway.runs.log import RESERVE, RunLog
from gateway.runs.parts import in_chunks
from gateway.runs.run_record import of_error
from gateway.runs.states import States
from gateway.runs.threads import UPLOADS, Threads
from gateway.store import CreatedRun, Delivery, LogEntry, RunChange, Store, TakenOver, Undelivered, Unsynced
from gateway.store.records import new_id
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
"""Between two tries to write an end that the store does not take."""
LOOK_SECONDS = 60.0
"""Between two looks at the clock, at most, where a run waits for its time: machines sleep, and clocks are set."""
INTERRUPTED = "interrupted by a newer run"
GIVEN_UP = "it was given up while it was being created"
UNREACHABLE = (AgentGone.code, AgentTimeout.code)
UNSYNCED = CreatedRun(False)
"""A run that is written and cannot be synced: refused, it would stay there as one that runs."""


class Starter:
    """Starts runs and sees them to their end. One per engine."""

    def __init__(
        self,
        store: Store,
        roster: Roster,
        conversations: Threads,
        states: States,
        *,
        public_url: str,
        artifact_limit: int,
        cancel_grace: float,
        limits: UsageLimits,
        owed: Callable[[Delivery], None],
        elsewhere: RunsElsewhere,
        recorder: RunRecorder,
        lobby: Lobby,
    ) -> None:
        """`owed` is told of every callback that is owed."""
        self.live: dict[str, LiveRun] = {}
        """Runs in progress, and those that have ended and are not written yet, by id."""
        self._store = store
        self._roster = roster
        self._conversations = conversations
        self._elsewhere = elsewhere
        self._recorder = recorder
        self._lobby = lobby
        self._limits = limits
        self._slots: dict[str, Slots] = {}
        """The limits' slots that runs in progress take, by id."""
        self._commons = Commons(
            store=store,
            threads=conversations,
            states=states,
            artifact_limit=artifact_limit,
            cancel_grace=cancel_grace,
            public_url=public_url,
            recorder=recorder,
            ended=self._ended,
            owed=owed,
            calling=self.wait_for,
        )
        self._queues = ThreadQueues()
        self._owed = UnwrittenEnds(self.live)
        self._memory = FailedRuns()
        self._unfinished = TaskSet()
        """Tasks that `close` waits for: cancels that agents are being told of, ends of runs that were given up."""
        self._by_id: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Held while a run is created by an id that its client gave it."""
        self._creating = 0
        """Runs that are being created, which `close` waits for, too."""
        self._created: asyncio.Event | None = None
        """Set when one of them is there; None until somebody waits for that."""
        self._stopping = False

    # --- runs ---------------------------------------------------------------------------------------------------

    async def start(
        self,
        request: RunRequest,
        *,
        files: Sequence[Attachment] = (),
        caller: Caller | None = None,
        told: bool = True,
    ) -> Run:
        self._not_stopping()
        entry = await self._roster.find(request.agent, request.protocol, request.metadata)
        call, process = StartRun(request.id or new_id(), request, tuple(files)), None
        if entry.placed is not None or request.thread is not None:
            process = await self._lobby.place(entry, request.thread)
        if process is not None:
            try:
                return await self._start_elsewhere(process, call, caller)
            except Undelivered as error:
                self._lobby.gone(process, error, entry)
                await self._roster.refresh_hosted()
                entry = await self._roster.find(request.agent, request.protocol, request.metadata)
                self._lobby.not_moved(entry)
        return await self._start_here(call, entry, caller, told=told)

    async def start_for(self, process: str, call: StartRun) -> Run:
        """Start a run for another process. Raises what `start` raises, Undelivered if its agent has moved on."""
        self._not_stopping()
        request = call.request
        entry = await self._roster.find(request.agent, request.protocol, request.metadata)
        self._lobby.not_moved(entry)
        caller = self._lobby.borrow(process, call.caller) if call.caller is not None else None
        return await self._start_here(call, entry, caller, told=True)

    async def _start_elsewhere(self, process: str, call: StartRun, caller: Caller | None) -> Run:
        """Start a run where its agent, or the conversation, is. It counts for the limits there. Raises Undelivered."""
        request = replace(call.request, traceparent=tracing.joined(call.request.traceparent, call.request.agent))
        run = await self._elsewhere.start(process, replace(call, request=request), caller)
        if run.thread is not None:
            self._conversations.watchers.tell(run.thread, run)
        return run

    async def _start_here(self, call: StartRun, entry: Entry, caller: Caller | None, *, told: bool) -> Run:
        """Start a run. Of two at once by the id that a client gave, the second is a Conflict, and takes no slot."""
        if call.request.id is None:
            return await self._start_new(call, entry, caller, told=told)
        async with self._by_id.setdefault(call.run, asyncio.Lock()):
            if call.run in self.live:
                raise Conflict(f"run {call.run} exists already")
            return await self._start_new(call, entry, caller, told=told)

    async def _start_new(self, call: StartRun, entry: Entry, caller: Caller | None, *, told: bool) -> Run:
        run_id, request, files = call.run, call.request, call.files
        slots = self._limits.run(request, *entry.limited)
        preparing: Preparing | None = None
        entry.begin()
        try:
            agent = await entry.need()
            request = self._completed(request, agent, entry)
            thread = None
            if request.thread is not None or request.if_busy is not IfBusy.REJECT:
                thread = await self._thread_for(request, agent)
            mine: GivenFiles | None = None
            if files or thread is not None or request.prompt is not None or agent.capabilities.files:
                uploaded = () if thread is None else await self._uploaded(thread)
                folder = f"{self._commons.public_url}/artifacts/{run_id if thread is None else thread.id}"
                limit = self._commons.artifact_limit
                mine = given(request, files, uploaded, entry, agent, folder=folder, limit=limit)
                request = mine.request
            filled = None if mine is None else mine.filled
            if filled is None or (filled.form is None and not filled.fits):
                entry.validate("input", agent.input_schema, request.input, "/input")
            if request.config:
                entry.validate("config", agent.config_schema, request.config, "/config/configurable")
            if mine is not None and mine.stored:
                await self._store_files(mine, thread)
            run = Run(id=run_id, request=request, created_at=(now := time.time()), updated_at=now)
            live = self.make(run, agent, entry, thread, caller=caller, filled=filled)
            if mine is not None and mine.lost:
                live.lost(LOST, mine.lost)
            if filled is not None and filled.unsaid:
                live.lost("prompt")
            at_once = (request.start_at is None or request.start_at <= now) and request.if_busy is IfBusy.REJECT
            told = told or thread is not None or live.interceptor is not None
            started = live.record.begins(not live.held, told=told) if at_once else ()
            if at_once and thread is None and not (live.interceptor or live.held or self._recorder.on):
                preparing = entry.preparing
                if preparing is not None:
                    preparing.prepare(live)
            await self._create(live, started, thread, slots)
        except BaseException:
            if self._slots.get(run_id) is not slots:
                slots.free()
                self._roster.let_go(entry)
                if preparing is not None:
                    preparing.unprepare(live)
            raise
        if thread is not None:
            self._conversations.watchers.tell(thread.id, live.record.run)
        return live.record.run

    @staticmethod
    def _completed(request: RunRequest, agent: Agent, entry: Entry) -> RunRequest:
        """The request with the agent's name, the trace that it belongs to, and the configuration of the agent."""
        traceparent = tracing.joined(request.traceparent, agent.name)
        if request.agent != agent.name or request.traceparent != traceparent:
            request = replace(request, agent=agent.name, traceparent=traceparent)
        return replace(request, config={**request.config, **entry.config}) if entry.config else request

    async def _uploaded(self, thread: Thread) -> Sequence[Artifact]:
        """The files that clients gave to a thread."""
        if not thread.attributes.get(UPLOADS):
            return ()
        return [each for each in await self._store.artifacts(thread=thread.id) if not each.agent_created]

    async def _store_files(self, given: GivenFiles, thread: Thread | None) -> None:
        """Store a request's files, which the run claims when it is created."""
        for artifact, content in given.stored:
            await self._store.put_artifact(artifact, in_chunks(content), max_bytes=self._commons.artifact_limit)
        if thread is not None and not thread.attributes.get(UPLOADS):
            await self._conversations.change(thread.id, ThreadChange(attributes={UPLOADS: True}))

    def make(
        self,
        run: Run,
        agent: Agent,
        entry: Entry,
        thread: Thread | None,
        *,
        reserved: int = RESERVE,
        last: int = 0,
        caller: Caller | None = None,
        filled: Filled | None = None,
    ) -> LiveRun:
        """The run in progress, not yet driven. Numbers above `last` and up to `reserved` may be used."""
        return LiveRun(
            run=run,
            agent=agent,
            entry=entry,
            thread=thread,
            log=RunLog(run.id, self._store, agent, reserved=reserved, last=last),
            commons=self._commons,
            caller=caller,
            filled=filled,
        )

    async def _thread_for(self, request: RunRequest, agent: Agent) -> Thread | None:
        """The run's thread, after checking that the agent can do what is asked of it."""
        if request.if_busy is IfBusy.ROLLBACK and not agent.capabilities.rollback:
            raise Unsupported(f"agent {agent.name} cannot roll back a run")
        if request.thread is None:
            return None
        thread = await self._store.thread(request.thread)
        await self._commons.states.check(thread, agent, request.protocol)
        return thread

    async def _create(self, live: LiveRun, started: Sequence[e.Event], thread: Thread | None, slots: Slots) -> None:
        """Commit the run with its first events, and begin it: one that begins at once and has nothing between itself
        and its agent when it is written, any other when it is on the disk. Nobody is told of it before that.
        """
        run, first, unseen = live.record.run, live.log.number(started), live.record.unseen
        between = live.interceptor if started else None
        there = partial(self._there, live, started, first, slots)
        written: Callable[[CreatedRun], None] | None = None
        if started and between is None and not unseen:
            here = contextvars.copy_context()

            def written(created: CreatedRun) -> None:
                if not self._stopping:
                    live.record.written()
                    here.run(there, created)

        if thread is not None:
            await self._owed.pay(thread.id)
        if thread is not None and run.request.if_busy in (IfBusy.INTERRUPT, IfBusy.ROLLBACK):
            await self._clear(thread.id)
        self._not_stopping()
        self._creating += 1
        try:
            async with contextlib.nullcontext() if between is None else between.starting():
                try:
                    created = await self._store.create_run(run, first, reserved=RESERVE, soon=unseen, written=written)
                except Unsynced:
                    created = UNSYNCED
            there(created)
            live.record.synced()
        except (asyncio.CancelledError, Unavailable):
            self.wait_for(asyncio.ensure_future(self._give_up(live, started, first)))
            raise
        finally:
            self._creating -= 1
            if self._created is not None:
                self._created.set()

    def _there(
        self,
        live: LiveRun,
        started: Sequence[e.Event],
        first: Sequence[LogEntry],
        slots: Slots,
        created: CreatedRun,
    ) -> None:
        """A new run is there: begin it, unless it has begun."""
        if live.task is None:
            self._not_stopping()
            if created.thread is not None:  # the run before may have changed it
                live.conversation.refreshed(created.thread)
            live.log.created(started, first)
            self.begin(live, live.drive() if started else self.wait_and_drive(live, created.active), slots)

    async def _give_up(self, live: LiveRun, started: Sequence[e.Event], first: Sequence[LogEntry]) -> None:
        """End a run whose client went, or whose gateway was told to stop, while it was being created, if it is there:
        nobody was told of it. If it has begun its agent has it, and may have said things of which the other clients of
        its thread hear.
        """
        run = live.record.run
        if live.task is None:
            with contextlib.suppress(InterlinguaError):  # it is not there
                await self._store.run(run.id)
                live.log.created(started, first)
                live.entry.begin()
                self._has(live)
                await live.finish(e.RunCancelled(reason=GIVEN_UP))
            return
        with contextlib.suppress(InterlinguaError):
            await self._store.commit(run.id, RunChange())  # behind its creation
        live.record.synced()
        if run.thread is not None:
            self._conversations.watchers.tell(run.thread, live.record.run)
        with contextlib.suppress(InterlinguaError):
            await live.cancel(GIVEN_UP)

    @property
    def stopping(self) -> bool:
        """Whether the gateway takes no new run."""
        return self._stopping

    def _not_stopping(self) -> None:
        if self._stopping:
            raise Unavailable("the gateway is shutting down")

    def quiet(self) -> None:
        """Take no new run."""
        self._stopping = True

    async def settled(self) -> None:
        """Stop trying to write the ends that the store did not take."""
        await self._owed.aclose()

    async def cancel(self, run_id: str, reason: str, *, wait: bool) -> Run:
        """Implements `GatewayRuns.cancel`, whichever process drives the run."""
        live = self.live.get(run_id)
        if live is None and (run := await self._store.run(run_id)).status.ended:
            return run
        self._not_stopping()
        if live is not None:
            with contextlib.suppress(TakenOver):
                await live.cancel(reason)
                if wait:
                    await live.over()
                return live.run
        return await self._elsewhere.cancel(run_id, reason, wait=wait)

    async def _clear(self, thread_id: str) -> None:
        """Cancel what runs or waits on a thread, in whichever process, and wait until it has ended."""
        here = [live.run.id for live in self.live.values() if live.run.thread == thread_id]
        found = await self._store.runs(RunQuery(thread=thread_id, statuses=UNFINISHED, limit=1_000_000))
        for run_id in dict.fromkeys([*here, *(run.id for run in found)]):
            with contextlib.suppress(NotFound):  # it was deleted meanwhile
                await self.cancel(run_id, INTERRUPTED, wait=True)

    def _has(self, live: LiveRun) -> None:
        """The run is there now, until its end. It uses its entry's target already."""
        run = live.record.run
        self.live[run.id] = live
        if run.id not in self._slots:
            self._slots[run.id] = self._limits.goes_on(run.request, *live.entry.limited)

    def begin(self, live: LiveRun, work: Coroutine[None, None, None], slots: Slots | None = None) -> None:
        """Begin a run's task. `slots`: those that it takes; None if it did so in another process. It uses its entry's
        target already.
        """
        if slots is not None:
            self._slots[live.record.run.id] = slots
        self._has(live)
        if self._recorder.on:
            with self._recorder.beginning(live):
                live.launch(work)
        else:
            live.launch(work)

    async def wait_and_drive(self, live: LiveRun, turn: bool) -> None:
        """Wait for the run's time and its turn, then dispatch it."""
        try:
            start_at = live.run.request.start_at or 0.0
            while (left := start_at - time.time()) > 0:  # noqa: ASYNC110 - a clock tells nobody
                await asyncio.sleep(min(left, LOOK_SECONDS))
            while not turn:
                turn = await self._store.activate(live.run.id)
                if not turn:
                    await self._queues.wait(live.run)
            await live.start()
        except asyncio.CancelledError:
            if live.detached:
                raise
            await live.finish(e.RunCancelled(reason=live.run.cancel_reason or ""))
            return
        except InterlinguaError as error:
            await live.finish(of_error(error, f"run {live.run.id}"))
            return
        await live.drive()

    def _ended(self, live: LiveRun) -> None:
        entry, run = live.entry, live.record.run
        if live.record.unwritten is not None:
            self._owed.add(live)
        else:
            self.live.pop(run.id, None)
        if (slots := self._slots.pop(run.id, None)) is not None:
            slots.free()
        if run.failure is not None and run.failure.code in UNREACHABLE:
            entry.doubt(AgentError(run.failure.message))
        self._roster.let_go(entry)
        if (thread := run.request.thread) is not None:
            self._queues.ended(thread)
        if entry.preparing is not None:
            entry.preparing.unprepare(live)
        if run.failure is not None:
            self._memory.add(live)

    def wait_for(self, work: asyncio.Future[None]) -> None:
        self._unfinished.hold(work)

    async def finish_up(self) -> None:
        """Wait for what has been begun. Bounded: see `LiveRun.call_cancel`."""
        while True:
            begun = [work for work in self._unfinished if not work.done()]  # of done ones `gather` may not yield
            if begun:
                await asyncio.gather(*begun, return_exceptions=True)
            elif self._creating:
                self._created = asyncio.Event()
                await self._created.wait()
            else:
                return


class UnwrittenEnds:
    """Runs whose end the store did not take: each was told as failed, and is written when the store takes it.

    Until then a run stays in memory, as it has ended: whoever asks for it hears so, and its thread is not busy.
    """

    def __init__(self, runs: dict[str, LiveRun]) -> None:
        """`runs` are those in memory, by id."""
        self._runs = runs
        self._lives: dict[str, LiveRun] = {}
        self._paying = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def add(self, live: LiveRun) -> None:
        """Try to write the run's end, again and again from now on."""
        self._lives[live.run.id] = live
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._try(), name="ends that are not written")

    async def pay(self, thread: str | None = None) -> None:
        """Write the ends on a thread, or all. Raises Unavailable if that cannot be done."""
        if not self._lives:
            return
        async with self._paying:
            for live in [live for live in self._lives.values() if thread in (None, live.run.thread)]:
                await live.record.pay()
                del self._lives[live.run.id]
                self._runs.pop(live.run.id, None)

    async def aclose(self) -> None:
        """Try once more, and let go: the next start ends what is left."""
        if self._task is not None:
            self._task.cancel()
        with contextlib.suppress(Unavailable):
            await self.pay()

    async def _try(self) -> None:
        while self._lives:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self.pay()
            except Unavailable as error:
                log.debug("%d ends of runs wait for the store: %s", len(self._lives), error)


QUEUE_POLL_SECONDS = 0.5


class ThreadQueues:
    """Runs that wait for others on their thread. One per engine."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Event] = {}

    async def wait(self, run: Run) -> None:
        """Wait until a run on its thread ends here, or a moment has passed: one may end in another process."""
        assert run.thread is not None, "only runs on threads queue"
        event = self._waiting.setdefault(run.thread, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUEUE_POLL_SECONDS):
                await event.wait()

    def ended(self, thread: str) -> None:
        """Called when a run on a thread has ended: let the runs behind it try again."""
        if (waiting := self._waiting.pop(thread, None)) is not None:
            waiting.set()


COLLECT_BYTES = 32 * 1024 * 1024
COLLECT_SECONDS = 1.0
"""Before the collector is called, so that clients see the end of the last run first."""


class FailedRuns:
    """Collects what failed runs leave in memory, by its size. One per engine.

    An error refers to the frames it came through, and they to it. The collector, which counts objects and not bytes,
    would leave a gigabyte of a few large messages uncollected. A run without an error refers nowhere to itself.
    """

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, live: LiveRun) -> None:
        """Called when a run has failed."""
        self._bytes += live.log.bytes
        try:
            self._bytes += len(msgspec.json.encode(live.record.run.request.input))
        except (ValueError, RecursionError):  # too deep: it is not counted
            log.debug("run %s: its input is not counted", live.run.id)
        if self._bytes > COLLECT_BYTES:
            self._bytes = 0
            asyncio.get_running_loop().call_later(COLLECT_SECONDS, gc.collect)
