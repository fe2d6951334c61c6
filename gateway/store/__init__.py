"""What the gateway remembers: runs with their event logs, threads with history, artifacts, registrations.

One interface (`Store`), several engines (`sqlite`; `open_store` picks by URL), one contract suite that each passes
unchanged (`tests/store/contract.py`).

Two speeds. A *commit* is durable when it returns: creation, dispatch, interrupt, answer, end. An *append* or *save* is
written behind within moments, in order, and before any later commit of the same run. Ranges of event numbers are
reserved by a commit before they are used, so that a restart never gives a number out twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gateway.core.errors import Unavailable
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


class Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One event of a run's log: its number, its encoded form, and whether a lagging reader may skip it.

    A store may keep it as the array of its fields: another one goes last, and has a default.
    """

    number: int
    data: bytes
    delta: bool = False


class Unsynced(Unavailable):
    """It is written, so that others may have seen it, but the disk did not take it: a power cut may undo it."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook call that is owed: at least once, after the commit that caused it. `run` is the run as it was then."""

    id: str
    run: Run
    due_at: float
    attempts: int = 0


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one transition writes, all or nothing. Fields left out stay as they are.

    `reserved` is the highest event number that may now be used. The status of the run's thread follows that of `run`,
    its newest checkpoint is `checkpoint`, and `thread` is added to its record. `release` says that the run no longer
    occupies its thread (it ended): nothing comes after these events.
    """

    run: Run | None = None
    events: tuple[Entry, ...] = ()
    reserved: int | None = None
    checkpoint: Checkpoint | None = None
    thread: ThreadChange | None = None
    delivery: Delivery | None = None
    release: bool = False


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """A run taken over from a dead owner. Continue numbering above `reserved`."""

    run: Run
    reserved: int


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that registered itself. `data` is its protocol's own record; `expires_at` None is until removed."""

    name: str
    protocol: str
    owner: str
    data: JsonObject
    created_at: float
    expires_at: float | None = None


class Store(Protocol):
    """A store engine. All methods raise NotFound for unknown ids, Unavailable when the engine has failed or is closed:
    Unsynced where it was done all the same.

    `owner` identifies this process: runs belong to the owner that created or claimed them.
    """

    owner: str

    async def open(self) -> None:
        """Connect, migrate, take the lease and keep it alive until `close`. Raises Unavailable."""

    async def close(self) -> None:
        """Write everything that waits, give up the lease, disconnect. Idempotent.

        Raises Unavailable, after all of that, if something could not be written.
        """

    @property
    def backlog(self) -> int:
        """Bytes appended but not yet written; the engine stops taking tokens while this is large."""

    # runs

    async def create_run(self, run: Run, events: Sequence[Entry], *, reserved: int, soon: bool = False) -> bool:
        """Commit a new run. True if it may start; False if it queues behind an active run on its thread.

        Its thread is busy then. `soon`: it outlives this process when this returns, and is durable moments later, or
        with any later commit.

        One active run a thread, whichever process asks. With `if_busy` reject and a busy thread: raises Conflict and
        writes nothing. A thread is busy too while a run waits for it. The queue's order is that of creation. Raises
        NotFound when the thread does not exist, Conflict when the run's id does. After Unsynced `activate` says
        whether it may start.
        """

    async def activate(self, run_id: str) -> bool:
        """Let a queued run start if its thread is free and no older run waits for it. True if it is active now.

        False for a run that has left the queue, and for another owner's.
        """

    async def commit(self, run_id: str, change: Change, *, soon: bool = False) -> None:
        """Write a transition, durably, after everything appended for the run so far. `soon`: as in `create_run`.

        A queued run that ends leaves the queue. Raises Conflict if another owner has claimed the run meanwhile: this
        process was taken for dead and must let go of it. So may what would end a run a second time.
        """

    def append(self, run_id: str, entries: Sequence[Entry]) -> None:
        """Write behind. Neighbouring entries of one kind may share a row; each stays separately readable.

        Dropped, as is a `save`, if the run is gone or another owner's by then.
        """

    def save(self, run: Run) -> None:
        """Write the run's record behind (its upstream, its losses)."""

    async def flush(self) -> None:
        """Wait until everything appended or saved so far can be read back."""

    async def run(self, run_id: str) -> Run: ...

    async def runs(self, query: RunQuery) -> list[Run]:
        """Newest first (or oldest), filtered, paged."""

    async def count_runs(self, query: RunQuery) -> int:
        """How many match, whatever limit and offset say."""

    async def delete_run(self, run_id: str) -> None:
        """The run, its log, its artifacts, its deliveries. Frees its thread."""

    async def events(
        self, run_id: str, after: int = 0, *, max_bytes: int = 1 << 20, deltas: bool = True
    ) -> list[Entry]:
        """The log above `after`, in order, up to about `max_bytes` (at least one entry if there is any).

        With `deltas=False` entries marked so are left out.
        """

    # threads

    async def create_thread(self, thread: Thread, checkpoints: Sequence[Checkpoint] = ()) -> None:
        """Checkpoints come oldest first. Raises Conflict if the id exists."""

    async def thread(self, thread_id: str) -> Thread: ...

    async def threads(self, query: ThreadQuery) -> list[Thread]: ...

    async def count_threads(self, query: ThreadQuery) -> int: ...

    async def update_thread(
        self, thread_id: str, change: ThreadChange, checkpoint: Checkpoint | None = None, *, at: float
    ) -> Thread:
        """Apply a change to the record as it is now, whichever process wrote it, and add a checkpoint, whose values
        become the thread's if it has any. `at`: seconds since the epoch. Returns the new record.
        """

    async def delete_thread(self, thread_id: str) -> None:
        """The thread, its checkpoints and uploads; its runs stay, without it. Raises Conflict while one is active or
        queued.
        """

    async def history(self, thread_id: str, *, limit: int = 10, before: str | None = None) -> list[Checkpoint]:
        """Newest first, those older than checkpoint `before`."""

    # artifacts

    async def put_artifact(self, artifact: Artifact, content: AsyncIterator[bytes], *, max_bytes: int) -> Artifact:
        """Store a file; returns it with its size. It is there only once it is whole.

        Raises TooLarge, Conflict if the id exists, NotFound if its run or thread does not, and whatever `content`
        raises, and keeps nothing then.
        """

    async def artifact(self, artifact_id: str) -> Artifact: ...

    async def artifacts(self, *, run: str | None = None, thread: str | None = None) -> list[Artifact]:
        """Those of a run, or of a thread and of its runs; oldest first."""

    def open_artifact(self, artifact_id: str) -> AsyncIterator[bytes]:
        """The content in chunks of at most 256 KiB."""

    # callbacks, registrations, recovery, retention

    async def deliveries(self, now: float, limit: int = 100) -> list[Delivery]:
        """Owed webhook calls of this owner that are due, oldest first."""

    async def delivered(self, delivery_id: str) -> None: ...

    async def postpone(self, delivery_id: str, due_at: float) -> None:
        """Try again later; counts an attempt."""

    async def put_registration(self, registration: Registration) -> None:
        """Raises Conflict if the name is taken by another owner's live registration: one that has not expired, and
        whose owner, if that is a store's, has not closed or died.
        """

    async def registrations(self, now: float) -> list[Registration]:
        """Those that have not expired, by name. Read only: shared, and cheap to ask for while nothing has changed.

        The same list comes again as long as it has the same in it, and the same record until it is replaced.
        """

    async def delete_registration(self, name: str) -> None: ...

    async def claim(self) -> list[Recovered]:
        """Take over every unfinished run (and owed delivery) whose owner's lease is dead. Two callers never share one.

        An owner on this host whose process is gone is dead at once, any other when its lease has run out.
        """

    async def prune(self, *, older_than: float, max_bytes: int | None = None) -> int:
        """Remove ended runs last updated before `older_than` (epoch seconds), then the oldest ended runs while the
        store is larger than `max_bytes`; idle threads likewise. Never an unfinished run. Returns how many runs went.
        """


def open_store(url: str, base: str = ".", *, fsync: bool = True) -> Store:
    """The engine for a URL: `sqlite:///file.db` (relative to `base`; `sqlite://` alone is in memory).

    Without `fsync` a commit is out of the process's hands when it returns, but not yet on the disk.
    """
    path = store_path(url, base)
    from gateway.store.sqlite import SqliteStore

    return SqliteStore(path, fsync=fsync)


def store_path(url: str, base: str = ".") -> Path | None:
    """The file of a store by its URL; None for one in memory. Raises ValueError for another engine's."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        raise ValueError(f"no store engine for {scheme!r}; have sqlite")
    return Path(base) / rest.removeprefix("/") if rest else None
