"""The log as the rest of the program uses it: events in order of calls, durable when the await returns.

    append() --snapshot--> a batch --> thread: one write and one fsync --> all who wait are woken

The event loop takes the snapshot (microseconds) and nothing else; redaction, hashing, signing and the disk are the
thread's. While one batch is being synced the next one gathers: the more is appended, the less a sync costs each.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from gateway.core.errors import InterlinguaError, Invalid, TooLarge, Unavailable
from gateway.governance.audit.appender import Appender, Piece
from gateway.governance.audit.canonical import ALGORITHMS
from gateway.governance.audit.event import AuditEntry, AuditEvent, LogHead
from gateway.governance.audit.files import LogFiles
from gateway.governance.audit.heads import POINTER_SECONDS, HeadKeeper, Pointer
from gateway.governance.audit.keys import EntrySigner
from gateway.governance.audit.redact import snapshot
from gateway.governance.audit.retention import DAY, Upkeep

BATCH_EVENTS = 1024
BATCH_BYTES = 1024 * 1024
WAITING_BYTES = 64 * 1024 * 1024
"""Of events that may wait for the disk."""
ROTATE_BYTES = 16 * 1024 * 1024


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a log: `days` it is kept (None: for ever), `pointer`: its signed head is published."""

    algorithm: str = "sha256"
    days: int | None = None
    pointer: bool = False


T = TypeVar("T")
OnHead = Callable[[int, str], Awaitable[None]]

logger = logging.getLogger(__name__)


class AuditLog:
    """An append-only log: the file at `path`, and those beside it that were full (see `files.py`).

    One process writes a log at a time. Every method is called on one event loop.

    `rotate_bytes`: a file that has grown so large is closed. `head`: the newest entry that is known from elsewhere; a
    log that lacks it does not open. `on_head` is called on the loop with number and hash of the newest durable entry,
    soon after it became that, one call at a time, not for every entry; what it raises is logged and it is called again.
    """

    def __init__(
        self,
        path: Path,
        *,
        signer: EntrySigner | None = None,
        algorithm: str = "sha256",
        rotate_bytes: int = ROTATE_BYTES,
        head: LogHead | None = None,
        on_head: OnHead | None = None,
    ) -> None:
        """Raises Invalid for an algorithm that an audit event cannot name."""
        _known(algorithm)
        self._place = LogFiles(path)
        self._appender = Appender(self._place, signer=signer, algorithm=algorithm, rotate_bytes=rotate_bytes)
        self._head_known = head
        self._signer = signer
        self._terms = Terms(algorithm=algorithm)
        self._pointer: HeadKeeper | None = None
        self._pointing = False
        self._upkeep = Upkeep(self._place, self._put, lambda: self._appender.newest, self._kept)
        self._waiting: deque[tuple[Piece, asyncio.Future[AuditEntry]]] = deque()
        self._waiting_bytes = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-writer")
        self._writing: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._keeper = HeadKeeper(on_head) if on_head is not None else None
        self._usable = False
        self.head: LogHead | None = None
        """The newest entry that is on disk; None while there is none."""

    @property
    def path(self) -> Path:
        return self._place.active

    @property
    def newest(self) -> float:
        """When the newest entry was recorded, in seconds since the epoch; 0 while there is none."""
        return self._appender.newest

    async def open(self) -> None:
        """Take the lock, check the newest file, repair what a crash tore. Called once.

        Raises Unavailable (another process writes it, the disk fails), AuditBroken if it is not what was written.
        """
        opening = asyncio.ensure_future(self._do(self._appender.open, self._head_known, time.time()))
        try:
            await asyncio.shield(opening)
        except BaseException:
            opening.add_done_callback(asyncio.Future.exception)  # nobody else looks at it
            self._thread.submit(self._appender.close)
            self._thread.shutdown(wait=False)
            raise
        self.head = self._appender.head
        self._usable = True
        self.keep(self._terms)
        if self._keeper is not None and self.head is not None:
            self._keeper.put(self.head)

    async def aclose(self) -> None:
        """Write what waits, tell `on_head` the last entry, let go of the files. No error if it is closed."""
        self._upkeep.stop()
        if self._usable:
            self._usable = False
            self._ending = asyncio.ensure_future(self._end())
        if self._ending is not None:
            await asyncio.shield(self._ending)
        for keeper in (self._keeper, self._pointer):
            if keeper is not None:
                await keeper.aclose()

    def keep(self, terms: Terms) -> None:
        """Keep the log on these terms from now on. Raises Invalid, and changes nothing, if that is impossible."""
        _known(terms.algorithm)
        if terms.pointer and self._signer is None:
            raise Invalid("audit: there is no key to sign the head pointer with")
        self._terms = terms
        self._appender.keep(terms.algorithm, by_day=terms.days is not None)
        if not self._usable:
            return  # `open` does the rest
        self._upkeep.keep(terms.days)
        if terms.pointer and not self._pointing and self._signer is not None:
            if self._pointer is None:
                self._pointer = HeadKeeper(Pointer(self.path, self._signer).publish, every=POINTER_SECONDS)
            if self.head is not None:
                self._pointer.put(self.head)
        self._pointing = terms.pointer

    def follow(self, *newest: float) -> None:
        """Date what is recorded from now on later than each of these, in seconds since the epoch: the times of the last
        lines of logs that it goes on with. So lines of several logs have an order, whatever clocks say.

        One that is more than a day ahead is of a clock that was wrong, or no log's: it takes no other log along.
        """
        latest = time.time() + DAY
        self._appender.follow(max((at for at in newest if at <= latest), default=0.0))

    async def __aenter__(self) -> AuditLog:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def append(self, event: AuditEvent) -> asyncio.Future[AuditEntry]:
        """Record `event` as it is now; the future is done when it is on disk. Order is the order of calls.

        Show nobody what the event is about before: a future that fails means that it is not in the log. Cancelling it
        does not take the event back. Raises at once, or in the future, Invalid and TooLarge for an event that no log
        can hold, Unavailable if the disk fails, too much waits or the log is closed (a later one may go through),
        AuditBroken if somebody else touched the file (none goes through until it is opened again).
        """
        if "interlingua" in event.metadata:
            raise Invalid("audit event: metadata.interlingua is the log's own", path="/metadata/interlingua")
        return self._put(event)

    def _put(self, event: AuditEvent) -> asyncio.Future[AuditEntry]:
        if not self._usable:
            raise Unavailable("the audit log is closed")
        try:
            piece = Piece(snapshot(event), time.time())
        except UnicodeEncodeError as error:
            raise Invalid("audit event: no Unicode text") from error
        size = len(piece.raw)
        if size > WAITING_BYTES:
            raise TooLarge(f"audit event: {size} bytes, over the limit of {WAITING_BYTES}")
        if self._waiting_bytes + size > WAITING_BYTES:
            raise Unavailable("the audit log cannot keep up")
        future: asyncio.Future[AuditEntry] = asyncio.get_running_loop().create_future()
        self._waiting_bytes += size
        self._waiting.append((piece, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="audit log")
        return future

    async def _write_all(self) -> None:
        """Write what waits, a batch at a time: meanwhile the next one gathers."""
        while batch := self._take():
            self._settle(batch, await self._do(self._write, [piece for piece, _ in batch]))

    def _take(self) -> Sequence[tuple[Piece, asyncio.Future[AuditEntry]]]:
        batch: list[tuple[Piece, asyncio.Future[AuditEntry]]] = []
        size = 0
        while self._waiting and len(batch) < BATCH_EVENTS and size < BATCH_BYTES:
            batch.append(self._waiting.popleft())
            size += len(batch[-1][0].raw)
        return batch

    def _settle(
        self,
        batch: Sequence[tuple[Piece, asyncio.Future[AuditEntry]]],
        results: Sequence[AuditEntry | InterlinguaError],
    ) -> None:
        """Wake those who wait."""
        for (piece, future), result in zip(batch, results, strict=True):
            self._waiting_bytes -= len(piece.raw)
            if future.done():
                continue  # whoever waited was cancelled
            if isinstance(result, AuditEntry):
                future.set_result(result)
            else:
                future.set_exception(result)
        head = self._appender.head
        if head is not None and head != self.head:
            self.head = head
            if self._keeper is not None:
                self._keeper.put(head)
            if self._pointer is not None and self._pointing:
                self._pointer.put(head)

    async def _kept(self, seq: int) -> None:
        if self._keeper is not None:
            await self._keeper.reached(seq)

    async def _end(self) -> None:
        if self._writing is not None:
            await self._writing
        await self._do(self._appender.close)
        self._thread.shutdown(wait=False)

    def _do(self, work: Callable[..., T], *given: Any) -> asyncio.Future[T]:
        """Have the thread do this: one thing after the other."""
        return asyncio.get_running_loop().run_in_executor(self._thread, work, *given)

    def _write(self, pieces: Sequence[Piece]) -> Sequence[AuditEntry | InterlinguaError]:
        """In the thread."""
        try:
            return self._appender.write(pieces)
        except InterlinguaError as error:
            logger.error("%d audit events were refused: %s %s", len(pieces), error, error.detail)
            refused = error
        except Exception as error:  # a defect: nobody may be left waiting, and nothing may be shown
            logger.critical("the audit log's writer failed", exc_info=True)
            refused = Unavailable("the audit log cannot be written", detail=str(error))
        return [type(refused)(str(refused), detail=refused.detail) for _ in pieces]


def _known(algorithm: str) -> None:
    if algorithm not in ALGORITHMS:
        raise Invalid(f"audit: no hash algorithm {algorithm!r}; have {', '.join(ALGORITHMS)}")
