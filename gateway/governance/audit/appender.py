"""The half of the log that writes files: called by one thread, one call at a time, and blocking.

A batch is one write and one fsync. What could not be written is taken back, so that the file never holds what somebody
was told is not in it. Before each batch the file is looked at: one that is not as it was left is not written to again.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gateway.core.errors import InterlinguaError, TooLarge, Unavailable
from gateway.core.types import JsonObject
from gateway.governance.audit import files
from gateway.governance.audit.canonical import canonical, digest
from gateway.governance.audit.event import DOCTYPE, LONGEST, SCHEMA, AuditBroken, AuditEntry, AuditEvent, LogHead
from gateway.governance.audit.keys import EntrySigner
from gateway.governance.audit.recovery import LogEnd, recover
from gateway.governance.audit.redact import Redactor, snapshot

logger = logging.getLogger(__name__)

CLOCK_SLACK = 1.0
FILE_SECONDS = 86_400.0
"""The time of one file, where old ones are to be removed."""


class Piece(msgspec.Struct, frozen=True):
    """An event on its way: its snapshot as JSON and when it was handed over, in seconds since the epoch."""

    raw: bytes
    at: float


class Appender:
    """Owns the files of one log, from `open` to `close`."""

    def __init__(
        self,
        place: files.LogFiles,
        *,
        signer: EntrySigner | None,
        algorithm: str = "sha256",
        rotate_bytes: int,
    ) -> None:
        self._place = place
        self._redactor = Redactor()
        self._signer = signer
        self._rotate_bytes = rotate_bytes
        self.algorithm = algorithm
        self.by_day = False
        """Whether a file is closed when it is a day old as well."""
        self._lock = -1
        self._fd = -1
        self._size = 0
        self._first = 0
        self._since = 0.0
        self._suspect = False
        self._last = LogEnd()
        self._after = 0.0

    def keep(self, algorithm: str, *, by_day: bool) -> None:
        """Hash further entries with `algorithm`. `by_day`: see the attribute."""
        self.algorithm, self.by_day = algorithm, by_day

    def follow(self, at: float) -> None:
        """Date all that comes later than `at`, in seconds since the epoch."""
        self._after = max(self._after, (round(at * 1000) + 1) / 1000)

    @property
    def newest(self) -> float:
        """When the newest entry was recorded, in seconds since the epoch; 0 while there is none."""
        return self._last.ts

    @property
    def head(self) -> LogHead | None:
        """The newest entry on disk."""
        return LogHead(self._last.seq, self._last.hash) if self._last.seq >= 0 else None

    def open(self, known: LogHead | None, now: float) -> None:
        """Take the lock, look at what is there, and make good what a crash left behind.

        Raises Unavailable (locked, disk), AuditBroken if the log is not what was written or lacks the entry `known`.
        """
        try:
            files.make_folder(self._place.folder)
            self._lock = self._place.lock()
            fresh = not self._place.active.exists()
            self._fd = files.create(self._place.active)
            if fresh:
                files.sync_folder(self._place.folder)
            self._last = recover(self._place, self._fd, known)
            files.sync(self._fd)  # a process that was killed may have left whole lines that are not on disk yet
            self._size, self._first, self._since = os.fstat(self._fd).st_size, self._last.first, self._last.since
            for note, path in self._last.notes:
                self._note(note, now)
                os.rename(path, path.with_name(path.name.removesuffix(".new")))
        except OSError as error:
            self.close()
            raise Unavailable(f"the audit log cannot be opened: {error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the files. Nothing waits to be written: every batch was synced."""
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def write(self, pieces: Sequence[Piece]) -> list[AuditEntry | InterlinguaError]:
        """Append them in order, durably. One that cannot be an entry fails alone.

        Raises Unavailable if the disk failed, AuditBroken if somebody else wrote the file: then none is in the log.
        """
        try:
            self._repair()
            self._look()
            aged = self.by_day and self._size and pieces and pieces[0].at - self._since >= FILE_SECONDS
            if self._size >= self._rotate_bytes or aged:
                self._rotate()
            return self._append(pieces)
        except OSError as error:
            raise Unavailable("the audit log cannot be written", detail=str(error)) from error

    def _append(self, pieces: Sequence[Piece]) -> list[AuditEntry | InterlinguaError]:
        out: list[AuditEntry | InterlinguaError] = []
        lines: list[bytes] = []
        last = self._last
        for piece in pieces:
            try:
                line, entry, ts = self._line(piece, last)
            except InterlinguaError as error:
                out.append(error)
                continue
            if not self._size and not lines:
                self._since = ts
            lines.append(line)
            out.append(entry)
            last = LogEnd(entry.seq, entry.hash, ts)
        data = b"".join(lines)
        self._suspect = True
        try:
            files.write(self._fd, data)
            files.sync(self._fd)
        except OSError:
            with contextlib.suppress(OSError):  # it is tried again before the next batch
                self._repair()
            raise
        self._suspect = False
        self._size += len(data)
        self._last = last
        return out

    def _line(self, piece: Piece, last: LogEnd) -> tuple[bytes, AuditEntry, float]:
        try:
            ready = self._redactor(piece.raw)
            ts = max(last.ts, self._after, int(piece.at * 1000) / 1000)
            metadata: JsonObject = ready.event["metadata"]
            own: JsonObject = metadata.get("interlingua", {})
            if ts - piece.at > CLOCK_SLACK:
                own["clock"] = _written(piece.at)
            if own or self._signer is not None:
                metadata["interlingua"] = own
            entry: JsonObject = {
                **{key: value for key, value in ready.event.items() if value is not None},
                "$schema": SCHEMA,
                "doctype": DOCTYPE,
                "seq": last.seq + 1,
                "ts": _written(ts),
                "prevHash": last.hash,
                "hashAlg": self.algorithm,
            }
            if self._signer is not None:
                own["signature"] = self._signer.sign(canonical(entry, simple=ready.simple))
            body = canonical(entry, simple=ready.simple)
        except (ValueError, RecursionError) as error:
            raise TooLarge(f"audit event: it cannot be written: {error}") from error
        if len(body) > LONGEST:
            raise TooLarge(f"audit event: {len(body)} bytes, over the limit of {LONGEST}")
        value = digest(body, self.algorithm)
        line = canonical({**entry, "hash": value}, simple=ready.simple) + b"\n"
        return line, AuditEntry(entry["seq"], entry["ts"], value, last.hash), ts

    def _repair(self) -> None:
        """Take back what a failed batch may have left in the file. Raises OSError."""
        if self._suspect:
            os.ftruncate(self._fd, self._size)
            files.sync(self._fd)
            self._suspect = False

    def _look(self) -> None:
        """Raise AuditBroken unless the file is there and as long as it was left."""
        ours = os.fstat(self._fd)
        try:
            there = os.stat(self._place.active)
        except FileNotFoundError as error:
            raise AuditBroken(f"{self._place.active}: somebody removed the audit log") from error
        if (there.st_ino, there.st_dev) != (ours.st_ino, ours.st_dev):
            raise AuditBroken(f"{self._place.active}: somebody put another file in the audit log's place")
        if ours.st_size != self._size:
            raise AuditBroken(f"{self._place.active}: {ours.st_size} bytes where {self._size} were written")

    def _rotate(self) -> None:
        """Close the file under its number and begin the next. If that fails the old one goes on growing."""
        active, full = self._place.active, self._place.closed_name(self._first)
        try:
            if full.exists():
                raise AuditBroken(f"{full}: it is there before it was written")
            os.rename(active, full)
            try:
                fd = files.create(active, new=True)
            except OSError:
                os.rename(full, active)
                raise
        except OSError as error:
            logger.warning("the audit log cannot begin a new file, the old one goes on: %s", error)
            return
        os.close(self._fd)
        self._fd, self._size, self._first = fd, 0, self._last.seq + 1
        files.sync_folder(self._place.folder)

    def _note(self, event: AuditEvent, now: float) -> None:
        (entry,) = self.write([Piece(snapshot(event), now)])
        if not isinstance(entry, AuditEntry):
            raise entry


def _written(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
