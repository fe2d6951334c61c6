"""Checks a log when it is opened, and repairs what a crash left behind.

A process killed while it writes leaves half a line; a power cut may leave a hole of zeros. No append of these
has succeeded. They are moved aside, and the log's next entry says so. The order makes every step safe
to be killed in: the copy is on disk before the file is cut, and its name says "not noted" until the note is on
disk. Any other damage is not repaired: the log does not open.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from io import BufferedReader
from pathlib import Path

import msgspec

from gateway.governance.audit import files
from gateway.governance.audit.canonical import GENESIS
from gateway.governance.audit.chain import ChainCheck, Fault
from gateway.governance.audit.event import GATEWAY, LONGEST, AuditBroken, AuditEvent, AuditLine, AuditSubject, LogHead


class LogEnd(msgspec.Struct, frozen=True):
    """The end of a log: number (-1 if it is empty), hash and time of the last entry.

    `first` is the number of the active file's first entry, `since` its time; `notes` is what the log must say next,
    each with the file that was moved aside.
    """

    seq: int = -1
    hash: str = GENESIS
    ts: float = 0.0
    first: int = 0
    since: float = 0.0
    notes: tuple[tuple[AuditEvent, Path], ...] = ()


def recover(place: files.LogFiles, fd: int, known: LogHead | None) -> LogEnd:
    """Check that the active file is sound and follows the one before, and cut off a torn end. `fd` is the active
    file's.

    Raises AuditBroken, OSError.
    """
    walk = _before(place, known)
    since, noted, torn = _read(place, walk)
    first = since.seq if since is not None else walk.seq + 1
    if known is not None and known.seq < first and known != walk.before:
        _look_for(place, known)
    if known is not None and walk.seq < known.seq:
        last = f"entry {walk.seq}" if walk.seq >= 0 else "nothing"
        hint = "" if walk.seq >= 0 else " (or it is on another gateway's disk: then each needs an audit.name)"
        wrong = f"it ends with {last}, and entry {known.seq} was written: it was cut off{hint}"
        raise AuditBroken(f"{place.active}: {wrong}")
    if torn is not None:
        _move_aside(place, fd, walk.seq + 1, torn)
    notes = []
    for path in place.torn():
        note = _note(path)
        if note.metadata["interlingua"]["torn"]["sha256"] in noted:
            os.rename(path, path.with_name(path.name.removesuffix(".new")))
        else:
            notes.append((note, path))
    ts = walk.ts.timestamp() if walk.ts is not None else 0.0
    began = since.ts.timestamp() if since is not None else 0.0
    return LogEnd(walk.seq, walk.hash, ts, first, began, tuple(notes))


def _before(place: files.LogFiles, known: LogHead | None) -> ChainCheck:
    """Return a check that stands at the end of the last full file. Raises AuditBroken."""
    closed = place.closed()
    if not closed:
        return ChainCheck(head=known)
    raw = files.last_line(closed[-1], LONGEST)
    last = ChainCheck.at(raw)
    if isinstance(last, Fault):
        raise AuditBroken(f"{closed[-1]}: its last line: {last.what}")
    return ChainCheck(LogHead(last.seq, last.hash), head=known, ts=last.ts)


def _read(place: files.LogFiles, walk: ChainCheck) -> tuple[AuditLine | None, set[str], int | None]:
    """Check the active file. Returns its first entry, the fragments it has noted, and where a torn end begins."""
    first: AuditLine | None = None
    noted: set[str] = set()
    torn_at: int | None = None
    offset = number = 0
    with place.active.open("rb") as file:
        while raw := file.readline(LONGEST + 1):
            number += 1
            if b"\0" in raw or (not raw.endswith(b"\n") and len(raw) <= LONGEST):
                torn_at = offset
                break
            if faults := walk.feed(raw):
                raise _broken(place, number, faults[0])
            offset += len(raw)
            assert walk.line is not None
            first = first or walk.line
            own = walk.line.metadata.get("interlingua")
            if isinstance(own, dict) and isinstance(torn := own.get("torn"), dict):
                noted.add(str(torn.get("sha256")))
    if faults := walk.beginning():
        raise _broken(place, 1, faults[0])
    return first, noted, torn_at


def _broken(place: files.LogFiles, number: int, fault: Fault) -> AuditBroken:
    return AuditBroken(f"{place.active}#L{number}:{fault.field} {fault.code} {fault.what}")


def _look_for(place: files.LogFiles, known: LogHead) -> None:
    """Raise AuditBroken unless the full files hold `known`."""
    holding = [path for path in place.closed() if (files.first_entry(path) or 0) <= known.seq]
    if holding:
        with holding[-1].open("rb") as file:
            while raw := file.readline(LONGEST + 1):
                walk = ChainCheck.at(raw)
                if isinstance(walk, ChainCheck) and walk.seq == known.seq:
                    if walk.hash == known.hash:
                        return
                    break
    raise AuditBroken(f"{place.active}: the files before it do not hold entry {known.seq} as it was written")


def _move_aside(place: files.LogFiles, fd: int, seq: int, offset: int) -> None:
    """Copy what follows `offset` into a file of its own, durably, then cut it off. Raises OSError."""
    with place.active.open("rb") as source:
        source.seek(offset)
        sha256 = _hash(source)
        source.seek(offset)
        with open(place.torn_name(seq, sha256), "wb", opener=_private) as copy:
            shutil.copyfileobj(source, copy, files.CHUNK_BYTES)
            copy.flush()
            files.sync(copy.fileno())
    files.sync_folder(place.folder)
    os.ftruncate(fd, offset)
    files.sync(fd)


def _note(path: Path) -> AuditEvent:
    """Make the log's note of a fragment."""
    with path.open("rb") as file:
        sha256 = _hash(file)
        size = file.tell()
    name = path.name.removesuffix(".new")
    return AuditEvent(
        actor=GATEWAY,
        action="audit.note",
        subject=AuditSubject("audit-log", path=name),
        output={"note": "the end of the log was torn by a crash; what was no entry was moved aside"},
        metadata={"interlingua": {"torn": {"file": name, "bytes": size, "sha256": sha256}}},
    )


def _hash(file: BufferedReader) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
