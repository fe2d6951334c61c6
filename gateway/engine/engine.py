"""The `Gateway` that inbound adapters call: every run, thread and artifact goes through here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

from msgspec.structs import replace

from gateway import tracing
from gateway.adapter import Caller, Watch
from gateway.core import events as e
from gateway.core.errors import (
    AgentGone,
    AgentTimeout,
    Conflict,
    InterlinguaError,
    NotFound,
    Unavailable,
    Unsupported,
)
from gateway.core.output import Output
from gateway.core.types import (
    Agent,
    Answer,
    IfBusy,
    Outcome,
    Run,
    RunQuery,
    RunRequest,
    RunStatus,
    Thread,
)
from gateway.engine import ending, recovery
from gateway.engine.agents import Agents
from gateway.engine.directory import Entry
from gateway.engine.garbage import Garbage
from gateway.engine.hosts import HostedEntry
from gateway.engine.live import LiveRun
from gateway.engine.log import RESERVE, LogWatch, RunLog, decoded
from gateway.engine.making import run_of
from gateway.engine.relays import Relays
from gateway.engine.roster import Roster
from gateway.engine.rules import Hooks, Rules, Settings
from gateway.engine.stored import ForeignWatch, StoredWatch, stopped_elsewhere
from gateway.engine.threads import new_id
from gateway.engine.turns import Turns
from gateway.engine.unwritten import Owed
from gateway.engine.validation import check
from gateway.store import Delivery, Recovered, Store, Unsynced
from gateway.store import Entry as LogEntry

log = logging.getLogger(__name__)

UNREACHABLE = (AgentGone.code, AgentTimeout.code)
EVENTS_BYTES = 4 * 1024 * 1024


class Engine(Agents, Relays):
    """Implements `gateway.adapter.Gateway`. One per process; `open` before the first call, `close` at the end."""

    def __init__(self, store: Store, *, public_url: str = "", rules: Rules | None = None) -> None:
        super().__init__(store, public_url=public_url, artifact_limit=(rules or Rules()).artifact_limit)
        self.live: dict[str, LiveRun] = {}
        self.roster = Roster(store)
        self._rules = rules or Rules()
        self._turns = Turns()
        self._owed = Owed(self.live)
        self._stopping = False
        self._garbage = Garbage()
        self.on_owed: Callable[[Delivery], None] = _ignore_delivery
        self.opened: Callable[[], Awaitable[None]] = _nothing
        """Awaited by `open` when the store is open, and by `close` as `closing` before it is closed; `listed` when it
        is known which agents there are, and no run goes on yet; `adopted` when it is known which runs go on."""
        self.listed = self.closing = self.adopted = self.opened

    # --- life ---------------------------------------------------------------------------------------------------

    def use(self, entries: Sequence[Entry]) -> None:
        """Take a new route table. Runs in progress keep the target they started with."""
        self.roster.use(entries)

    async def open(self) -> None:
        """Open the store, see which agents there are, take up every run that a dead gateway left unfinished.

        Inbound halves that host agents (`roster.hosts`) are opened in between.
        """
        await self.store.open()
        await self.opened()
        await self.roster.open()
        await self.listed()
        await self.adopt()
        await self.adopted()

    async def adopt(self) -> None:
        """See what other gateways on the store created, take up what dead ones left. To be called now and then.

        Runs of hosted agents go on last, when all others are known again: they may have started some of them.
        """
        await self.roster.refresh()
        hosted: list[tuple[LiveRun, Entry]] = []
        try:
            for found in await self.store.claim():
                live, entry = await self._recover(found)
                if isinstance(entry.host or entry, HostedEntry):
                    self.live[live.run.id] = live
                    hosted.append((live, entry))
                else:
                    self._go_on(live, entry)
        finally:
            for live, entry in hosted:
                self._go_on(live, entry)

    async def _recover(self, found: Recovered) -> tuple[LiveRun, Entry]:
        run = found.run
        try:
            entry = await self.roster.find(run.agent, run.request.protocol, run.request.metadata)
        except NotFound as error:
            entry = recovery.entry_gone(run, str(error))
        agent = await entry.describe()
        thread = await self.store.thread(run.thread) if run.thread is not None else None
        live = self._live(run, agent, entry, thread, reserved=found.reserved, last=found.reserved)
        await recovery.taken_up(live, events := await self.events(run.id))
        live.replayed(events)
        return live, entry

    def _go_on(self, live: LiveRun, entry: Entry) -> None:
        waits = live.run.status is RunStatus.PENDING and not live.cancelled
        work = self._wait_and_drive(live, turn=False) if waits else recovery.goes_on(live)
        self._begin(live, entry, work)

    def _begin(self, live: LiveRun, entry: Entry, work: Coroutine[None, None, None]) -> None:
        self.live[live.run.id] = live
        entry.begin()
        live.task = asyncio.create_task(work, name=f"run {live.run.id}")

    def quiet(self) -> None:
        """Take no new run and no cancel: clients are about to lose their connections, and that is not their wish."""
        self._stopping = True

    async def close(self) -> None:
        """Take no more, let go of what runs (the next start finds it), close the store."""
        self.quiet()
        for live in (lives := list(self.live.values())):
            live.detach()
        await asyncio.gather(*(live.task for live in lives if live.task is not None), return_exceptions=True)
        await self._owed.aclose()
        await self.roster.close()
        await self.conversations.settled()
        await self.closing()
        await self.store.close()

    # --- runs ---------------------------------------------------------------------------------------------------

    async def start(self, request: RunRequest, *, caller: Caller | None = None, told: bool = True) -> Run:
        """See `Gateway.start`."""
        if self._stopping:
            raise Unavailable("the gateway is shutting down")
        entry = await self.roster.find(request.agent, request.protocol, request.metadata)
        agent = await entry.need()
        request = replace(request, agent=agent.name, traceparent=tracing.traceparent(request.traceparent))
        if entry.config:
            request = replace(request, config={**request.config, **entry.config})
        entry.validate("input", agent.input_schema, request.input, "/input")
        if request.config:
            entry.validate("config", agent.config_schema, request.config, "/config/configurable")
        thread = await self._thread_for(request, agent, entry)
        live = self._live(self._new(request), agent, entry, thread)
        live.given = caller
        now = request.start_at is None or request.start_at <= time.time()
        at_once = now and request.if_busy is IfBusy.REJECT
        if at_once:
            live.run = replace(live.run, status=RunStatus.RUNNING, dispatched=not live.held)
        started = live.opener.feed((e.RunStarted(),)) if at_once else []
        first = live.log.first(started)
        if live.governed is None:
            turn = await self._create(live, first, thread, at_once and not told)
        else:
            turn = await self._create_audited(live, first, thread, at_once)
        live.log.created(started, first)
        if live.thread is not None:
            self.conversations.listeners.tell(live.thread.id, live.run)
        self._begin(live, entry, live.drive() if at_once else self._wait_and_drive(live, turn))
        return live.run

    def _new(self, request: RunRequest) -> Run:
        return Run(id=new_id(), request=request, created_at=(now := time.time()), updated_at=now)

    def _live(
        self, run: Run, agent: Agent, entry: Entry, thread: Thread | None, *, reserved: int = RESERVE, last: int = 0
    ) -> LiveRun:
        """The run in progress, not yet driven. Numbers above `last` and up to `reserved` may be used."""
        live = run_of(entry.governor)(
            run=run,
            agent=agent,
            outbound=entry.outbound,
            store=self.store,
            threads=self.conversations,
            log=RunLog(run.id, self.store, Output(agent), reserved=reserved, last=last),
            hooks=Hooks(ended=lambda ended: self._ended(ended, entry), owed=self.on_owed),
            settings=Settings(
                timeout=entry.route.timeout,
                cancel_grace=self._rules.cancel_grace,
                artifact_limit=self._rules.artifact_limit,
                public_url=self.public_url,
                backpressure=entry.route.backpressure,
            ),
            thread=thread,
            target=entry.route.target,
        )
        return live

    async def _thread_for(self, request: RunRequest, agent: Agent, entry: Entry) -> Thread | None:
        """The run's thread, after checking that the agent can do what is asked of it."""
        if request.if_busy is IfBusy.ROLLBACK and not agent.capabilities.rollback:
            raise Unsupported(f"agent {agent.name} cannot roll back a run")
        if request.thread is None:
            return None
        thread = await self.store.thread(request.thread)
        lossy = entry.route.lossy == "allow"
        if not agent.capabilities.threads and not lossy and thread.values is not None:
            raise Unsupported(f"agent {agent.name} keeps no threads: it would not know what was said before")
        if not agent.capabilities.files and not lossy and thread.attributes.get("uploads"):
            raise Unsupported(f"agent {agent.name} takes no files")
        return thread

    async def _create(self, live: LiveRun, first: Sequence[LogEntry], thread: Thread | None, soon: bool) -> bool:
        run = live.run
        if thread is not None:
            await self._owed.pay(thread.id)
        if thread is not None and run.request.if_busy in (IfBusy.INTERRUPT, IfBusy.ROLLBACK):
            await self._clear(thread.id)
        turn = False
        with contextlib.suppress(Unsynced):  # it is there: refused, it would stay there as one that runs
            turn = await self.store.create_run(run, first, reserved=RESERVE, soon=soon and thread is None)
        if thread is not None:
            live.thread = await self.conversations.busy(thread)
        return turn

    async def _create_audited(
        self, live: LiveRun, first: Sequence[LogEntry], thread: Thread | None, at_once: bool
    ) -> bool:
        if at_once:
            await live.starts()
        try:
            return await self._create(live, first, thread, False)
        except BaseException:
            await live.started_not()
            raise

    async def _clear(self, thread_id: str) -> None:
        """Cancel what runs or waits on a thread, and wait until it has ended."""
        for live in [live for live in self.live.values() if live.run.thread == thread_id]:
            await self.cancel(live.run.id, reason="interrupted by a newer run", wait=True)

    async def _wait_and_drive(self, live: LiveRun, turn: bool) -> None:
        """Wait for the run's time and its turn, then dispatch it."""
        try:
            start_at = live.run.request.start_at
            if start_at is not None:
                await asyncio.sleep(max(0.0, start_at - time.time()))
            while not turn:
                turn = await self.store.activate(live.run.id)
                if not turn:
                    await self._turns.wait(live.run)
            await live.start()
        except asyncio.CancelledError:
            if live.detached:
                raise
            await live.finish(e.RunCancelled(reason=live.run.cancel_reason or ""))
            return
        except InterlinguaError as error:
            await live.finish(ending.of_error(error, f"run {live.run.id}"))
            return
        await live.drive()

    def _ended(self, live: LiveRun, entry: Entry) -> None:
        if live.unwritten is not None:
            self._owed.add(live)
        else:
            self.live.pop(live.run.id, None)
        tracing.metrics.events.add(live.log.last, tracing.metrics.agent(live.run.agent))
        if live.run.failure is not None and live.run.failure.code in UNREACHABLE:
            entry.doubt()
        if (unused := entry.end()) is not None:
            live.keep(asyncio.ensure_future(unused.aclose()))
        self._turns.ended(live.run)
        self._garbage.add(live)

    # --- runs in progress ---------------------------------------------------------------------------------------

    def lost(self, run_id: str, what: str, count: int = 1) -> None:
        """See `Gateway.lost`."""
        if (live := self.live.get(run_id)) is not None:
            live.lost(what, count)

    async def run(self, run_id: str) -> Run:
        """See `Gateway.run`."""
        return live.run if (live := self.live.get(run_id)) is not None else await self.store.run(run_id)

    async def runs(self, query: RunQuery) -> Sequence[Run]:
        """See `Gateway.runs`."""
        return await self.store.runs(query)

    async def count_runs(self, query: RunQuery) -> int:
        """See `Gateway.count_runs`."""
        return await self.store.count_runs(query)

    async def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        """See `Gateway.wait`."""
        if (live := self.live.get(run_id)) is None:
            return await stopped_elsewhere(lambda: self.store.run(run_id), timeout)
        return live.run if await live.stopped(timeout) else None

    @contextlib.asynccontextmanager
    async def watch(self, run_id: str, after: int = 0, *, deltas: bool = True) -> AsyncIterator[Watch]:
        """See `Gateway.watch`."""
        live = self.live.get(run_id)
        if live is None:
            run = await self.store.run(run_id)
            output = Output(await self._published(run))
            if not run.status.ended:
                yield ForeignWatch(self.store, run, output, after)
                return
            output.finish(e.RunFinished(output=run.output))
            yield StoredWatch(self.store, run, output, after, deltas=deltas)
            return
        watch = LogWatch(live.log, self.store, live, after, deltas=deltas)
        protocol = live.run.request.protocol
        tracing.metrics.watchers.add(1, protocol)
        try:
            with watch.reading():
                yield watch
        finally:
            tracing.metrics.watchers.add(-1, protocol)

    async def _published(self, run: Run) -> Agent:
        """The agent of a run, as far as it is known now."""
        try:
            return await self.agent(run.agent, run.request.protocol)
        except NotFound:  # the route has gone since
            return Agent(name=run.agent, input_schema={}, output_schema={})

    async def events(self, run_id: str, after: int = 0) -> Sequence[tuple[int, e.Event]]:
        """See `Gateway.events`."""
        out: list[tuple[int, e.Event]] = []
        while entries := await self.store.events(run_id, after, max_bytes=EVENTS_BYTES):
            out += decoded(entries)
            after = entries[-1].number
        return out

    async def answer(self, run_id: str, answer: Answer, interrupt_id: str | None = None) -> Run:
        """See `Gateway.answer`."""
        live = await self._mine(run_id)
        asked = next((i for i in live.run.interrupts if interrupt_id in (None, i.id)), None)
        if asked is not None and answer.outcome is Outcome.ANSWERED and asked.answer_schema:
            check(asked.answer_schema, answer.value, "")
        await live.answer(answer, interrupt_id)
        return live.run

    async def cancel(self, run_id: str, *, reason: str = "", wait: bool = False) -> Run:
        """See `Gateway.cancel`."""
        live = self.live.get(run_id)
        if live is None:
            run = await self.store.run(run_id)
            if run.status.ended:
                return run
            raise Unavailable(f"run {run_id} belongs to another gateway process")
        if self._stopping:
            raise Unavailable("the gateway is shutting down")
        await live.cancel(reason or "cancelled by the client")
        if wait:
            await live.over()
        return live.run

    async def delete_run(self, run_id: str) -> None:
        """See `Gateway.delete_run`."""
        if run_id in self.live:
            await self.cancel(run_id, reason="deleted", wait=True)
        await self.store.delete_run(run_id)

    async def _mine(self, run_id: str) -> LiveRun:
        live = self.live.get(run_id)
        if live is None:
            run = await self.store.run(run_id)
            if run.status.ended:
                raise Conflict(f"run {run_id} has ended ({run.status}); it is not waiting for an answer")
            raise Unavailable(f"run {run_id} belongs to another gateway process")
        return live


async def _nothing() -> None:
    """Where nobody has anything to open or to close."""


def _ignore_delivery(delivery: Delivery) -> None:
    """Where nobody delivers: it stays in the store."""
