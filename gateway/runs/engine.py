"""The `Gateway` that inbound adapters call: six parts, made here and given what they share."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager

from gateway import tracing
from gateway.access import UsageLimits
from gateway.agents.entry import Entry
from gateway.agents.roster import Roster
from gateway.contract import Requests, Watch, unguessable
from gateway.contract.fitting import SchemaJudge
from gateway.contract.interception import RunRecorder, Unrecorded
from gateway.core import events as e
from gateway.core.errors import Conflict, NotFound, Unavailable
from gateway.core.output import Output
from gateway.core.types import UNFINISHED, Agent, Answer, Outcome, Run, RunQuery
from gateway.runs.bells import FollowedRuns, RemoteReaders, WatchRun
from gateway.runs.callers import Lobby
from gateway.runs.elsewhere import AnswerRun, CancelRun, LoseOfRun, RunsElsewhere, StartRun, not_here
from gateway.runs.live import LiveRun
from gateway.runs.log import LiveWatch, decoded
from gateway.runs.parts import EngineBackchannel, EngineFiles, EngineRecords, EngineThreads, synced
from gateway.runs.post import PostOffice
from gateway.runs.recovery import Claimed, Recovery
from gateway.runs.starting import Starter
from gateway.runs.states import States
from gateway.runs.threads import Threads, ThreadWatchers
from gateway.runs.watching import ForeignWatch, StoredWatch
from gateway.store import Delivery, Store, TakenOver

EVENTS_BYTES = 4 * 1024 * 1024

Step = Callable[[], Awaitable[None]]


async def _nothing(*_: object) -> None:
    """Where nobody has anything to open or to close."""


class Engine:
    """Implements `gateway.contract.Gateway`. One per process; `open` before the first call, `close` at the end."""

    def __init__(
        self,
        store: Store,
        *,
        public_url: str = "",
        artifact_limit: int = 64_000_000,
        cancel_grace: float = 5.0,
        limits: UsageLimits | None = None,
        new_id: Callable[[], str] = unguessable,
        recorder: RunRecorder | None = None,
    ) -> None:
        """artifact_limit: the bytes that a file may have. cancel_grace: seconds in which an agent may end a run that is
        cancelled. new_id: see `Gateway.new_id`.
        """
        self.store = store
        self.new_id = new_id
        self.limits = limits or UsageLimits()
        self.public_url = public_url
        self.agents = Roster(store)
        self._owed: Callable[[Delivery], None] = _ignore_delivery
        recorder = recorder or Unrecorded()
        self.post = PostOffice(store, self._rung)
        """Calls to and of the other processes on the store."""
        self._followed = FollowedRuns(store, self.post)
        self._readers = RemoteReaders(store, self._rung)
        self._lobby = Lobby(store, self.post, watchers := ThreadWatchers())
        self.conversations = Threads(store, watchers, self._lobby.hold, self._lobby.holding)
        self._elsewhere = RunsElsewhere(store, self.post, self._followed, self._lobby, self.adopt_orphans)
        states = States(store, self.agents, self.conversations)
        self._starter = Starter(
            store,
            self.agents,
            self.conversations,
            states,
            public_url=public_url,
            artifact_limit=artifact_limit,
            cancel_grace=cancel_grace,
            limits=self.limits,
            owed=self._owes,
            elsewhere=self._elsewhere,
            lobby=self._lobby,
            recorder=recorder,
        )
        self.live = self._starter.live
        """Runs in progress, and those that have ended and are not written yet, by id."""
        self.runs = EngineRuns(store, self._starter, self.agents, self._elsewhere, self._followed, recorder=recorder)
        self.post.serve(StartRun, self._starter.start_for)
        self.post.serve(AnswerRun, self.runs.answer_here)
        self.post.serve(CancelRun, self.runs.cancel_here)
        self.post.serve(LoseOfRun, self.runs.lost_there)
        self.post.serve(WatchRun, self._watched)
        self.threads = EngineThreads(store, self.conversations, states)
        self.files = EngineFiles(
            store, self.agents, self.conversations, public_url=public_url, artifact_limit=artifact_limit
        )
        self.records = EngineRecords(store)
        self.backchannel = EngineBackchannel(store, self.agents, self.conversations, self.post, self._lobby)
        self._opened: list[Step] = []
        self.accompany()
        self._owned_since = self._looked_since = 0.0
        """Of `Store.held_since`: since when all runs here are known for this process's own; as of the last look."""
        self._recovery = Recovery(store, self.agents, self._starter, self.runs.events)
        self.adopting = asyncio.Lock()
        """Held while runs of dead processes are taken up."""

    def _owes(self, delivery: Delivery) -> None:
        self._owed(delivery)

    def on_owed(self, told: Callable[[Delivery], None]) -> None:
        """Call `told` with every callback that is owed."""
        self._owed = told

    def on_opened(self, step: Step) -> None:
        """Await this in `open`: the store and the mailbox are open, and it is not known yet which agents there are."""
        self._opened.append(step)

    def accompany(
        self,
        *,
        listed: Step = _nothing,
        claimed: Claimed = _nothing,
        adopted: Step = _nothing,
        closing: Step = _nothing,
    ) -> None:
        """Await these in `open`, `adopt` and `close`.

        listed: it is known which agents there are, and no run goes on yet. claimed: these runs, of processes that have
        died, are this one's, and do not go on yet. adopted: it is known which runs go on. closing: the store is still
        open.
        """
        self._listed, self._claimed, self._adopted, self._closing = listed, claimed, adopted, closing

    def _rung(self, run_id: str | None) -> None:
        self._followed.rung(run_id)

    async def _watched(self, process: str, call: WatchRun) -> bool:
        """Ring at another process for a run. Raises Undelivered for one that is not driven here."""
        if (live := self.live.get(call.run)) is not None:
            await live.record.show()
            self._readers.add(live.log, process)
        elif not (await self.store.run(call.run)).status.ended:
            raise not_here(call.run)
        return True

    @property
    def process(self) -> str:
        return self.store.owner

    def use(self, entries: Sequence[Entry]) -> None:
        """Take a new route table. Runs in progress keep the target they started with."""
        self.agents.use(entries)

    async def open(self) -> None:
        """Open the store, see which agents there are, take up every run that a dead gateway left unfinished.

        Inbound halves that host agents (`roster.hosts`) are opened in between.
        """
        await self.store.open()
        self.post.open()
        self._lobby.open()
        for step in self._opened:
            await step()
        await self.agents.open()
        await self._listed()
        await self.adopt()
        await self._adopted()

    async def adopt(self) -> None:
        """See what other gateways on the store created, take up what dead ones left. To be called now and then.

        Runs of hosted agents go on last, when all others are known again: they may have started some of them.
        """
        async with self.adopting:
            await self.agents.refresh()
            if await self._recovery.take_up(self._claimed):
                await self._adopted()
        self._rung(None)

    async def driven_elsewhere(self, name: str) -> bool:
        """Whether another process has a run that has not ended, by its id or by that of its thread."""
        found = [*await self.runs.list(RunQuery(thread=name, statuses=UNFINISHED, limit=1))]
        if not found:
            with contextlib.suppress(NotFound):
                found = [run for run in [await self.store.run(name)] if not run.status.ended]
        return any([await self.store.owner_of(run.id) != self.process for run in found])

    async def taken_over(self, name: str) -> bool:
        """Whether another process has claimed a run that is in progress here, by its id or by that of its thread: this
        one was so slow that its lease ran out. Costs nothing where it never did or `adopt_orphans` has looked since.
        """
        if self.store.held_since == self._owned_since:
            return False
        found = [live for live in self.live.values() if name in (live.run.id, live.run.thread)]
        return any([await self._handed_over(live) for live in found])

    async def _handed_over(self, live: LiveRun) -> bool:
        """Whether another process has claimed a run: then it is in progress here no longer."""
        try:
            mine = await self.store.owner_of(live.run.id) == self.process
        except NotFound:  # a run is written before it is in progress: whoever claimed it has deleted it since
            mine = False
        if not mine:
            live.hand_over(TakenOver(live.run.id))
        return not mine

    async def adopt_orphans(self) -> None:
        """Let go of what others have taken over, and adopt where there is something to take up, which costs little to
        see. To be called every moment.
        """
        if (held := self.store.held_since) != self._owned_since:
            for live in [*self.live.values()]:
                await self._handed_over(live)
            if held == self._looked_since < math.inf:  # the second look finds those too that were just being created
                self._owned_since = held
            self._looked_since = held
        waits = self._recovery.waits and not self.adopting.locked()  # else they are being taken up
        if waits or await self.store.is_orphaned():
            await self.adopt()

    def quiet(self) -> None:
        """Take no new run and no cancel: clients are about to lose their connections, and that is not their wish."""
        self._starter.quiet()

    async def close(self) -> None:
        """Take no more, let go of what runs (the next start finds it), close the store."""
        self.quiet()
        await self._starter.finish_up()
        for live in (lives := list(self.live.values())):
            live.detach()
        await asyncio.gather(*(live.task for live in lives if live.task is not None), return_exceptions=True)
        await self._starter.finish_up()
        await self._starter.settled()
        await self.agents.close()
        await self.conversations.settled()
        await self._elsewhere.close()
        await self._lobby.close()
        await self._followed.close()
        await self._readers.close()
        await self.post.close()
        await self._closing()
        await self.store.close()

    def requests(
        self, protocol: str, methods: Collection[str], code: Callable[[Exception], int], *, mcp: bool = False
    ) -> Requests:
        return tracing.RequestSpans(protocol, methods, code, mcp=mcp)


class EngineRuns:
    """Implements `gateway.contract.GatewayRuns`."""

    def __init__(
        self,
        store: Store,
        starter: Starter,
        agents: Roster,
        elsewhere: RunsElsewhere,
        followed: FollowedRuns,
        *,
        recorder: RunRecorder,
    ) -> None:
        self._store = store
        self._followed = followed
        self._starter = starter
        self._elsewhere = elsewhere
        self._live = starter.live
        self._agents = agents
        self._recorder = recorder
        self.start = starter.start

    def _named(self, run_id: str) -> LiveRun | None:
        """A client's message names a run, which is None if it is not in progress here."""
        if self._recorder.on:
            self._recorder.named(run_id)
        return self._live.get(run_id)

    def lost(self, run_id: str, what: str, count: int = 1) -> None:
        if (live := self._named(run_id)) is not None:
            live.lost(what, count)
        else:
            self._elsewhere.lost(run_id, what, count)

    async def lost_there(self, _: str, call: LoseOfRun) -> None:
        """Count a loss that another process has told of."""
        if (live := self._live.get(call.run)) is not None:
            live.lost(call.what, call.count)

    async def get(self, run_id: str) -> Run:
        if (live := self._named(run_id)) is None:
            return await self._store.run(run_id)
        await live.record.created()
        return live.run

    async def list(self, query: RunQuery) -> Sequence[Run]:
        return await synced(self._store, self._store.runs(query))

    async def count(self, query: RunQuery) -> int:
        return await synced(self._store, self._store.count_runs(query))

    async def wait(self, run_id: str, timeout: float | None = None) -> Run | None:
        if (live := self._named(run_id)) is not None:
            stopped = live.until(lambda: live.record.run.status.stopped)
            try:
                if timeout is None:
                    await stopped
                else:
                    due = asyncio.get_running_loop().time() + timeout
                    async with asyncio.timeout(timeout):
                        await stopped
                return live.record.run
            except TimeoutError:
                return None
            except TakenOver:
                timeout = None if timeout is None else max(0.0, due - asyncio.get_running_loop().time())
        return await self._elsewhere.until(run_id, lambda run: run.status.stopped, timeout)

    async def ended(self, run_id: str, beside: Collection[type[e.Event]]) -> Run | None:
        if (live := self._named(run_id)) is None:
            return None
        try:
            await live.until(lambda: live.record.run.status.stopped or not live.beside.isdisjoint(beside))
        except TakenOver:
            return None
        return live.record.run if live.record.run.status.ended and live.beside.isdisjoint(beside) else None

    def watch(self, run_id: str, after: int = 0, *, deltas: bool = True) -> AbstractAsyncContextManager[Watch]:
        if (live := self._named(run_id)) is None:
            return self._watch_stored(run_id, after, deltas=deltas)
        recorder, elsewhere = self._recorder, self._watch_elsewhere
        return LiveWatch(
            live.log, self._store, live.record, after, deltas=deltas, recorder=recorder, elsewhere=elsewhere
        )

    @contextlib.asynccontextmanager
    async def _watch_stored(self, run_id: str, after: int, *, deltas: bool) -> AsyncIterator[Watch]:
        """Watch a run that this process does not drive."""
        run = await self._store.run(run_id)
        output = Output(await self._published(run))
        if run.status.ended:
            output.finish(e.RunFinished(output=run.output))
            yield StoredWatch(self._store, run, output, after, deltas=deltas)
        else:
            with self._watch_elsewhere(run, output, after) as watch:
                yield watch

    @contextlib.contextmanager
    def _watch_elsewhere(self, run: Run, output: Output, after: int) -> Iterator[Watch]:
        """Watch a run that another process drives."""
        with self._followed.following(run.id) as followed:
            yield ForeignWatch(self._store, followed, run, output, after)

    async def _published(self, run: Run) -> Agent:
        """The agent of a run, as far as it is known now."""
        try:
            return await self._agents.get(run.agent, run.request.protocol)
        except NotFound:  # the route has gone since
            return Agent(name=run.agent, input_schema={}, output_schema={})

    async def events(self, run_id: str, after: int = 0) -> Sequence[tuple[int, e.Event]]:
        out: list[tuple[int, e.Event]] = []
        while entries := await self._store.events(run_id, after, max_bytes=EVENTS_BYTES):
            out += decoded(entries)
            after = entries[-1].number
        return out

    async def answer(self, run_id: str, answer: Answer, interrupt_id: str | None = None) -> Run:
        if (live := self._named(run_id)) is not None:
            with contextlib.suppress(TakenOver):
                return await self._answer(live, answer, interrupt_id)
        run = await self._store.run(run_id)
        if run.status.ended:
            raise Conflict(f"run {run_id} has ended ({run.status}); it is not waiting for an answer")
        return await self._elsewhere.answer(run_id, answer, interrupt_id)

    async def answer_here(self, _: str, call: AnswerRun) -> Run:
        """Answer for another process. Raises what `answer` raises."""
        if (live := self._live.get(call.run)) is not None:
            with contextlib.suppress(TakenOver):
                return await self._answer(live, call.answer, call.interrupt)
        if not (await self._store.run(call.run)).status.ended:
            raise not_here(call.run)
        return await self.answer(call.run, call.answer, call.interrupt)

    async def _answer(self, live: LiveRun, answer: Answer, interrupt_id: str | None) -> Run:
        asked = next((i for i in live.run.interrupts if interrupt_id in (None, i.id)), None)
        if asked is not None and answer.outcome is Outcome.ANSWERED and asked.answer_schema:
            SchemaJudge(asked.answer_schema).check(answer.value, "")
        await live.answer(answer, interrupt_id)
        return live.run

    async def cancel(self, run_id: str, *, reason: str = "", wait: bool = False) -> Run:
        self._named(run_id)
        return await self._starter.cancel(run_id, reason or "cancelled by the client", wait=wait)

    async def cancel_here(self, _: str, call: CancelRun) -> Run:
        """Cancel for another process. Raises Undelivered where the run is not, or not for much longer, driven here."""
        if (live := self._live.get(call.run)) is not None and not self._starter.stopping:
            try:
                await live.cancel(call.reason)
                if call.wait:
                    await live.over()
            except (Unavailable, TakenOver):  # this process lets go of it
                raise not_here(call.run) from None
            return live.run
        run = await self._store.run(call.run)
        if not run.status.ended:
            raise not_here(call.run)
        return run

    async def delete(self, run_id: str) -> None:
        await self.cancel(run_id, reason="deleted", wait=True)
        await self._store.delete_run(run_id)


def _ignore_delivery(delivery: Delivery) -> None:
    """Where nobody delivers: it stays in the store."""
