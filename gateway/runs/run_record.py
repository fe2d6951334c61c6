"""A run's record and its log, which are changed together: one change at a time, all of it or nothing; and what they say
of its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from gateway.core import errors, stopping
from gateway.core import events as e
from gateway.core.errors import AgentBroken, InterlinguaError, Unavailable
from gateway.core.types import NULL, Agent, Artifact, Failure, Run, RunStatus, StopReason, Thread
from gateway.runs.log import RunLog
from gateway.runs.threads import checkpoint_of, known_now
from gateway.store import Delivery, LogEntry, RunChange, Store, Unsynced
from gateway.store.records import new_id
from gateway.transport.tasks import TaskSet

log = logging.getLogger(__name__)

STARTED: Final = (e.RunStarted(),)


class UnwrittenEnd(msgspec.Struct, frozen=True):
    """The last events of a run, as watchers were told them, and the call that its webhook is owed."""

    events: Sequence[LogEntry]
    delivery: Delivery | None


class RunRecord:
    """The only writer of one run's record and log."""

    unwritten: UnwrittenEnd | None = None
    """The end, told as a failure, while the store does not take it."""
    unseen = False
    """Whether only the client that waits for the run's end can know of the run."""
    unsynced = False
    """Whether its creation is written and not yet on the disk: its agent may have it, and nobody is told of it."""
    _background: TaskSet | None = None
    _changing: Callable[[Sequence[e.Event], Run], Awaitable[None]] | None = None

    def __init__(
        self,
        run: Run,
        log: RunLog,
        store: Store,
        owed: Callable[[Delivery], None],
    ) -> None:
        """`owed` is told of every callback that the run owes."""
        self.run = run
        self.log = log
        self.lock = asyncio.Lock()
        """Held by whoever changes the record and the log, until what is changed is written."""
        self.losses = dict(run.losses)
        self._store = store
        self._owed = owed
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._sent_before = run.dispatched
        """Before a restart: its agent may have made files then that are not known here."""

    def guard(self, changing: Callable[[Sequence[e.Event], Run], Awaitable[None]]) -> None:
        """Await this before a record is written; what it raises keeps the record from being written."""
        self._changing = changing

    # --- changes ------------------------------------------------------------------------------------------------

    def begins(self, dispatched: bool, *, told: bool) -> Sequence[e.Event]:
        """Make the new record that of a run that is started at once; its first events, to be created with it.

        Without `told` only the client that waits for the end can know of the run.
        """
        self.run = replace(self.run, status=RunStatus.RUNNING, dispatched=dispatched)
        self.unseen = not told
        self.log.opener.state.advance(STARTED[0])
        return STARTED

    async def change(self, change: Coroutine[Any, Any, None]) -> None:
        """Carry out a change whole, even if whoever wants it is cancelled meanwhile.

        Half a change would have the next event take a number that the store has already.
        """
        task = asyncio.ensure_future(change)
        self.keep(task)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # a cancelled caller reads neither
        await asyncio.shield(task)

    async def save(self, *, soon: bool, **fields: Any) -> None:
        """Change fields that no event tells of; written behind. With `soon` almost at once, where others know of the
        run: without its name at its agent it could not be found again after a crash.
        """
        while self.lock.locked():  # what is being written was made of the record as it is
            async with self.lock:
                pass
        self.run = replace(self.run, **fields)
        self._store.save(self.run, soon=soon and not self.unseen)

    def note(self, **fields: Any) -> None:
        """Change fields that are written with the run's end. Not while `lock` is held."""
        self.run = replace(self.run, **fields)

    async def write(self, events: tuple[e.Event, ...], run: Run) -> None:
        """Commit a new record with its events. Called with `lock` held."""
        if self._changing is not None:
            await self._changing(events, run)
        run = replace(run, losses=dict(self.losses))
        owed = delivery(run, self.run)
        await self.log.commit(events, RunChange(run=run, delivery=owed))
        self.run, self.unseen = run, False
        self._told(owed)

    async def show(self) -> None:
        """Wait until the run is on the disk: somebody besides the client that waits for its end is to be told of it."""
        if self.unseen:
            await self.change(self._show())
        await self.created()

    async def created(self) -> None:
        """Wait until its creation is on the disk, or as far as it gets, where it is `unsynced`."""
        while self.unsynced:
            await self.woken()

    @property
    def hidden(self) -> bool:
        """Whether nobody is told of the run before `show`."""
        return self.unseen or self.unsynced

    def written(self) -> None:
        """Its creation is written, and not yet on the disk."""
        self.unsynced = True

    def synced(self) -> None:
        """Its creation is on the disk, or as far as it gets."""
        if self.unsynced:
            self.unsynced = False
            self.wake()

    async def _show(self) -> None:
        async with self.lock:
            if self.unseen and not self.run.status.ended:
                await self.write((), self.run)

    async def conclude(
        self, agent: Agent, thread: Thread | None, artifacts: Sequence[Artifact], end: e.Event, *, recalled: bool
    ) -> None:
        """Commit the last record with its events, and what becomes of the thread. Called with `lock` held."""
        if self.log.holding:  # the document is whole only when nothing is held back
            await self.log.settled()
        if self.log.wrong is not None and isinstance(end, e.RunFinished):  # the adapter has not heard of it
            end = of_error(self.log.wrong, f"run {self.run.id}")
        made = None if self._sent_before else len(artifacts)
        run, last = concluded(self.run, end, self.log, updated_at=time.time(), losses=dict(self.losses), made=made)
        owed = delivery(run, self.run) if run.request.webhook is not None else None
        checkpoint = checkpoint_of(run, agent, artifacts) if run.request.thread is not None else None
        known = None if thread is None else known_now(thread, run, agent, checkpoint, recalled)
        change = RunChange(run=run, checkpoint=checkpoint, thread=known, delivery=owed, release=True)
        soon = self.unseen and owed is None
        await self.log.commit(last, change, soon=soon)
        self.run = run
        if owed is not None:
            self._owed(owed)

    # --- an end that the store does not take ----------------------------------------------------------------------

    async def fail(self, error: Exception) -> None:
        """End the run as failed, since its end could not be committed, and show that to its watchers.

        Where the store is not at fault the failure is committed first. Else it is `unwritten` until `pay`.
        """
        end = of_error(error, f"run {self.run.id}: storing its end")
        await self.log.settled()
        before = self.run
        self.run, last = concluded(before, end, self.log, updated_at=time.time())
        events = self.log.opener.feed(last)
        entries = self.log.number(events)
        self.unwritten = UnwrittenEnd(entries, delivery(self.run, before))
        if not isinstance(error, Unavailable):
            with contextlib.suppress(Unavailable):
                await self.pay()
        self.log.created(events, entries)

    async def pay(self) -> None:
        """Write the end as it was told, unless it is written. Raises Unavailable if the store does not take it."""
        owed = self.unwritten
        if owed is None:
            return
        change = RunChange(
            run=self.run, events=owed.events, reserved=owed.events[-1].number, delivery=owed.delivery, release=True
        )
        delivery = owed.delivery
        try:
            await self._store.commit(self.run.id, change)
        except Unsynced as error:
            log.error("run %s: a power cut may undo its end: %s", self.run.id, error.detail)
        except Unavailable:
            raise
        except Exception as error:  # the run was deleted, or is another process's by now; more tries would not help
            unexpected = not isinstance(error, InterlinguaError)
            log.warning("run %s: its end is not stored: %s", self.run.id, error, exc_info=unexpected)
            delivery = None
        self.unwritten = None
        self._told(delivery)

    # --- who waits ------------------------------------------------------------------------------------------------

    def keep(self, task: asyncio.Future[None]) -> None:
        """Hold on to a background task until it is done."""
        if self._background is None:
            self._background = TaskSet()
        self._background.hold(task)

    async def woken(self) -> None:
        """Return with the next `wake`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)

    def wake(self) -> None:
        """Have everybody in `woken` look again."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def _told(self, delivery: Delivery | None) -> None:
        """Wake whoever waits for what the record says now, and have its webhook called."""
        if self.run.status.stopped:
            self.wake()
        if delivery is not None:
            self._owed(delivery)


# --- ends -------------------------------------------------------------------------------------------------------------


def concluded(run: Run, end: e.Event, events: RunLog, **changes: Any) -> tuple[Run, list[e.Event]]:
    """The run's last record, with these changes, and its last events: `end`, after a correction where the result
    differs from the deltas.

    A run that has not succeeded keeps what was said until then as its output. One that stopped for a reason that is a
    failure (`core.stopping`) keeps that reason, too.
    """
    changes["interrupts"] = ()
    if isinstance(end, e.RunFinished):
        changes["stop_reason"] = end.stop_reason
        if (
            end.stop_reason in stopping.SHORT
            and (failed := stopping.failure(end.stop_reason, events.output.text(end))) is not None
        ):
            end = e.RunFailed(failure=failed, origin=end.origin)
    match end:
        case e.RunFinished():
            correction, final = events.finished(end)
            if final is not end.output:
                end = replace(end, output=final)
            run = replace(run, status=RunStatus.SUCCESS, output=final, **changes)
            return run, [correction, end] if correction is not None else [end]
        case e.RunFailed():
            changes |= {"status": RunStatus.TIMEOUT if end.timeout else RunStatus.ERROR, "failure": end.failure}
        case _:
            changes |= {"status": RunStatus.CANCELLED, "stop_reason": StopReason.CANCELLED}
    partial = NULL if events.output.empty else msgspec.Raw(events.output.encoded)
    return replace(run, output=partial, **changes), [end]


def delivery(run: Run, before: Run) -> Delivery | None:
    """The delivery owed to the run's webhook after this change of its record."""
    if run.request.webhook is None or not run.status.stopped or run.status is before.status:
        return None
    return Delivery(id=new_id(), run=run, due_at=time.time())


def of_error(raised: Exception, what: str) -> e.RunFailed:
    """The end that an adapter's exception makes; a task group's is unwrapped to the first of the error tree.

    Anything else is our own mistake: logged with its trace, told as no more than an internal error.
    """
    error = errors.first(raised)
    if error is None:
        log.error("%s: the adapter failed", what, exc_info=raised)
        return e.RunFailed(failure=Failure(code="internal", message="internal error"))
    log.info("%s failed: %s %s", what, error, error.detail)
    return e.RunFailed(failure=Failure.of(error))


def without_result() -> e.RunFailed:
    """The end of a run whose adapter returned without a terminal event."""
    return e.RunFailed(failure=Failure.of(AgentBroken("the agent stopped without a result")))


def timed_out(limit: float | None) -> e.RunFailed:
    """The end of a run that took longer than its route allows, or (None) whose agent did."""
    if limit is None:
        return e.RunFailed(failure=Failure(code="agent_timeout", message="the agent did not answer", retryable=True))
    return e.RunFailed(failure=Failure(code="agent_timeout", message=f"no result within {limit:g} s"), timeout=True)
