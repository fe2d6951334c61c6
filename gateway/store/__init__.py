"""The interface of a store: runs with their event logs, threads with their history, artifacts, registrations.

`open_store` (opening.py) makes an engine for a URL: `sqlite` or `postgres`. Every engine passes one contract suite
unchanged (`tests/store/contracts`). What they share stands beside them: what waits to be written (write_queue.py),
records and rows of logs (records.py, log_rows.py), leases, uploads.

Writes have two speeds. A *commit* is durable when it returns: creation, dispatch, interrupt, answer, end. An *append*
or *save* is written a moment later, in order, and before any later commit of the same run. A commit reserves a range of
event numbers before they are used, so a restart never gives a number out twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from gateway.core.errors import Conflict, Unavailable
from gateway.core.types import (
    Artifact,
    Checkpoint,
    JsonObject,
    Run,
    RunQuery,
    Thread,
    ThreadChange,
    ThreadQuery,
)


class LogEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One event of a run's log: its number, its encoded form, and whether a lagging reader may skip it.

    A store may keep it as the array of its fields, so a new field goes last and has a default.
    """

    number: int
    data: bytes
    delta: bool = False


class Unsynced(Unavailable):
    """The write was made, and others may have seen it, but it could not be synced: a power cut may undo it."""


class TakenOver(Conflict):
    """Another owner has claimed the run: this process was taken for dead, and is to let go of it."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} was taken over by another process")


class Undelivered(Unavailable):
    """A message was not sent, since its recipient is dead: nothing was done."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook call to make at least once, after the commit that caused it. `run` is the run as of that commit."""

    id: str
    run: Run
    due_at: float
    attempts: int = 0


class RunChange(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one transition of a run writes, all or nothing. A field left out changes nothing.

    `reserved` is the highest event number that may be used from now on. The thread's status follows the status of
    `run`, `checkpoint` becomes its newest checkpoint, and `thread` is merged into its record. `release` frees the
    thread, because the run has ended: no event comes after these.
    """

    run: Run | None = None
    events: Sequence[LogEntry] = ()
    reserved: int | None = None
    checkpoint: Checkpoint | None = None
    thread: ThreadChange | None = None
    delivery: Delivery | None = None
    release: bool = False


class CreatedRun(NamedTuple):
    """The place of a new run. thread: of one that may start, as the run found it, or None for a run without one."""

    active: bool
    thread: Thread | None = None


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """A run taken over from a dead owner. Its next event number is above `reserved`."""

    run: Run
    reserved: int


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that registered itself. `data` is its protocol's own record. `expires_at` None: until it is removed.

    `number` is the store's, new with an owner or after expiry: who has the higher one of two could read the other.
    """

    name: str
    protocol: str
    owner: str
    data: JsonObject
    created_at: float
    expires_at: float | None = None
    number: int = 0


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """A use of something of which all processes on the store together may use no more than `limit`.

    `used` is how much of it is known to have been used before; the store may know of more, and never goes by less. At
    `until` (epoch seconds) it is over, and the store may forget it.
    """

    name: str
    amount: int = 1
    limit: int
    used: int = 0
    until: float

    def suffices(self, used: int) -> bool:
        """Whether the amount is still there after so much was used."""
        return used + self.amount <= self.limit


def suffice(allowances: Sequence[Allowance], used: Sequence[int]) -> bool:
    """Whether all of them are spent, given what `Store.spend` returned for them."""
    return all(one.suffices(before) for one, before in zip(allowances, used, strict=True))


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message from one process on the store to another. `answers` is the id of the message that it answers."""

    id: str
    sender: str
    body: bytes
    answers: str = ""


class Mailbox(Protocol):
    """Messages between the processes on a store, and the bells that save them from looking.

    A message is received at most once, and by the process that it was sent to. A bell carries nothing: it says where to
    look. It may be lost, or be rung for nothing, so whoever listens looks now and then all the same.
    """

    @property
    def has_bell(self) -> bool:
        """Whether others can ring at this process. While they cannot, it has to look often."""

    def listen(self, heard: Callable[[str | None], None]) -> None:
        """Have `heard` called, on the event loop, with the id of a run whose log has grown; "" for the mailbox; or None
        when the bell has come or gone, so that anything may be new. Once, before the store is opened.
        """

    def ring(self, owner: str, run_id: str) -> None:
        """Ring at another process for a run's log, which has to be written by now. Never waits, never raises."""

    async def others(self) -> list[str]:
        """List the other processes that have the store open, live, and read mail."""

    async def send(self, owner: str, message: Message, *, seconds: float) -> None:
        """Put a message into the mailbox of another process, and ring. It may be received for so many seconds.

        Raises Undelivered if that process is dead, Unsupported if it is of a version that reads no mail, Unavailable
        where the store cannot say whether it was sent.
        """

    async def receive(self) -> list[Message]:
        """Take what lies in the mailbox of this process, the oldest first, without what has expired.

        What is taken is gone, so that nothing is done twice: whoever sent it learns from the lack of an answer that
        this process died of it.
        """


class Store(Protocol):
    """A store engine. Every method raises NotFound for an unknown id and Unavailable if the engine failed or is closed.
    It raises Unsynced if the write was made but could not be synced.

    `owner` identifies this process. A run belongs to the owner that created or claimed it.
    """

    owner: str

    async def open(self) -> None:
        """Connect, migrate, take the lease and keep it alive until `close`. Raises Unavailable."""

    async def close(self) -> None:
        """Write everything that waits, give up the lease, disconnect. Idempotent.

        Then raises Unavailable if something could not be written.
        """

    @property
    def trouble(self) -> str:
        """Why what was to be written last was not, as clients are told; empty where it was. Costs nothing.

        What has passed is seen within a third of a lease, whether anything else is written or not.
        """

    @property
    def held_since(self) -> float:
        """When this process regained its lease after it had run out: 0 if it never has, infinite while it has none.

        Before that another may have claimed its runs. Who writes elsewhere about one of them, and has not asked for its
        owner since then, asks `owner_of` before. Costs nothing.
        """

    @property
    def backlog(self) -> int:
        """Bytes appended but not yet written. The gateway stops taking tokens while this is large."""

    @property
    def mailbox(self) -> Mailbox: ...

    async def lives(self, owner: str) -> bool:
        """Whether a process that has the store open is alive, as far as is known here."""

    async def is_orphaned(self) -> bool:
        """Whether a dead owner has left something to `claim`. Cheap."""

    # runs

    def create_run(
        self,
        run: Run,
        events: Sequence[LogEntry],
        *,
        reserved: int,
        soon: bool = False,
        written: Callable[[CreatedRun], None] | None = None,
    ) -> Awaitable[CreatedRun]:
        """Commit a new run. It is `active` if it may start, and not if it is queued behind another run of its thread.

        Its thread is busy from now on. With `soon`, the run survives this process when the call returns, and is durable
        moments later or with any later commit. Without it `written` may be called, on the event loop, when the run
        survives this process and is not durable yet; it must not raise.

        A thread has one active run, over all processes. It is busy while a run is active on it or queued for it; the
        queue is in order of creation. If it is busy and `if_busy` is reject, raises Conflict and writes nothing. Raises
        NotFound if the thread does not exist, Conflict if the run's id does. After Unsynced, ask `activate` whether the
        run may start.
        """

    async def activate(self, run_id: str) -> bool:
        """Start a queued run if its thread is free and no older run is queued. Returns True if the run is active now.

        Returns False for a run that has left the queue and for another owner's.
        """

    def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> Awaitable[None]:
        """Write a transition durably, after everything appended for the run so far. `soon`: as in `create_run`.

        A queued run that ends leaves the queue. Raises TakenOver. May raise Conflict for a change that ends a run a
        second time.
        """

    def append(self, run_id: str, entries: Sequence[LogEntry]) -> int:
        """Write entries behind; returns their size. Neighbours of one kind may share a row; each can be read alone.

        As with `save`, nothing is written if the run is gone or another owner's by then.
        """

    def save(self, run: Run, *, soon: bool = False) -> None:
        """Write the run's record (its upstream, its losses) behind; with `soon` within milliseconds."""

    async def flush(self, run_id: str | None = None) -> None:
        """Wait until everything appended or saved so far (for a run, if given) can be read back, here and elsewhere."""

    async def synced(self) -> None:
        """Wait until all that this process has written, and others may read, is on the disk. Unless the disk fails,
        which is logged. Costs nothing where it is there.
        """

    async def run(self, run_id: str) -> Run:
        """What another process has changed, in a file within the last minute, is on the disk when this returns, with
        all events before the change. Unless the disk fails, which is logged: then it is what is written.
        """

    async def owner_of(self, run_id: str) -> str:
        """The owner of a run, ended or not."""

    async def runs(self, query: RunQuery) -> list[Run]:
        """Newest first (or oldest), filtered, paged."""

    async def count_runs(self, query: RunQuery) -> int:
        """Count all that match, without regard to limit and offset."""

    async def delete_run(self, run_id: str) -> None:
        """Delete the run with its log, artifacts and deliveries. Frees its thread."""

    async def events(
        self, run_id: str, after: int = 0, *, max_bytes: int = 1 << 20, deltas: bool = True
    ) -> list[LogEntry]:
        """Read the log above `after`, in order: up to about `max_bytes`, and at least one entry if there is any.

        `deltas=False` leaves out entries marked as deltas.
        """

    # threads

    async def create_thread(self, thread: Thread, checkpoints: Sequence[Checkpoint] = ()) -> None:
        """Create a thread. `checkpoints` come oldest first. Raises Conflict if the id exists."""

    async def thread(self, thread_id: str) -> Thread: ...

    async def threads(self, query: ThreadQuery) -> list[Thread]: ...

    async def count_threads(self, query: ThreadQuery) -> int: ...

    async def update_thread(
        self, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None = None, *, at: float
    ) -> Thread:
        """Apply a change to the current record, whichever process wrote it, and add a checkpoint. The checkpoint's
        values, if it has any, become the thread's. `at`: seconds since the epoch. Returns the new record.
        """

    async def delete_thread(self, thread_id: str) -> None:
        """Delete the thread with its checkpoints and uploads. Its runs stay, without a thread.

        Raises Conflict while one of them is active or queued.
        """

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> list[Checkpoint]:
        """List checkpoints older than `before`, newest first."""

    # artifacts

    async def put_artifact(self, artifact: Artifact, content: AsyncIterator[bytes], *, max_bytes: int) -> Artifact:
        """Store a file and return it with its size. It cannot be read before it is complete.

        Raises TooLarge, Conflict if the id exists, NotFound if its run or thread does not, or what `content` raises. In
        each case nothing is kept.
        """

    async def artifact(self, artifact_id: str) -> Artifact: ...

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> list[Artifact]:
        """List the files of a run, or of a thread and its runs, oldest first."""

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        """Read the content in chunks of at most 256 KiB."""

    # callbacks, registrations, recovery, retention

    async def deliveries(self, now: float, limit: int = 100) -> list[Delivery]:
        """List this owner's webhook calls that are due, oldest first."""

    async def delivered(self, delivery_id: str) -> None: ...

    async def postpone(self, delivery_id: str, due_at: float) -> None:
        """Make the call at `due_at` instead, and count an attempt."""

    async def put_registration(self, registration: Registration) -> None:
        """Add or replace a registration. Raises Conflict if another owner's live registration has the name.

        A registration is live until it expires and, if its owner is a store's, until that store closes or dies.
        """

    async def registrations(self, now: float) -> list[Registration]:
        """List registrations that have not expired, by name. Cheap while nothing has changed. Do not modify the list.

        While its members are the same, every call returns the same list object, and a record is the same object until
        it is replaced.
        """

    async def delete_registration(self, name: str) -> None: ...

    async def spend(self, allowances: Sequence[Allowance]) -> list[int]:
        """Spend all of these allowances, each of another name, or none of them if one does not suffice (`suffice`).

        Returns how much of each was used before. What is spent survives this process. After Unavailable it may have
        been spent or not.
        """

    async def claim(self) -> list[Recovered]:
        """Take over every unfinished run and undelivered call of dead owners. Two callers never get the same one.

        An owner on this host is dead as soon as its process is gone, any other when its lease has run out. Runs are
        taken over also where that cannot be synced. To be awaited to its end: nobody gets them a second time.
        """

    async def prune(self, *, older_than: float, max_bytes: int | None = None) -> int:
        """Remove ended runs last updated before `older_than` (epoch seconds), then the oldest ended runs while the
        store is larger than `max_bytes`; idle threads likewise. Never an unfinished run. Returns how many runs went.
        """
