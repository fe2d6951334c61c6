"""The files of a log: their names, and how they are made.

audit-log.jsonl                   being written
audit-log.000000000000.jsonl      full, named by its first entry's number: the order of names is that of entries
audit-log.000000000042.1f2e3d4c.torn    half a line that a crash left behind, moved aside (`.torn.new`: not yet noted)
audit-log.lock                    held by the process that writes
audit-log-2.jsonl ...             the log of a second process, with all of the same
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from gateway.core.errors import Unavailable, Unsupported

NAME = "audit-log"
_OF_A_LOG = re.compile(re.escape(NAME) + r"(?:-(\d+))?(?:\.\d{12,})?\.(?:jsonl|lock)")
CHUNK_BYTES = 1024 * 1024


class LogTaken(Unavailable):
    """Another process writes the log."""


def log_path(folder: Path, number: int) -> Path:
    """The active file of a folder's log. Each process that writes there has one of its own, from number 1 on."""
    return folder / (f"{NAME}.jsonl" if number == 1 else f"{NAME}-{number}.jsonl")


def log_number(path: Path) -> int:
    """The number of the log that a file belongs to; 1 for any name that has none."""
    found = _OF_A_LOG.fullmatch(path.name)
    return int(found[1] or 1) if found else 1


def log_numbers(folder: Path) -> set[int]:
    there = folder.iterdir() if folder.is_dir() else ()
    return {log_number(path) for path in there if _OF_A_LOG.fullmatch(path.name)}


def first_entry(path: Path) -> int | None:
    """The number that a full file has in its name, of its first entry; None for any other file."""
    number = path.name.removesuffix(".jsonl").rpartition(".")[2]
    return int(number) if len(number) >= 12 and number.isascii() and number.isdigit() else None


class LogFiles:
    """One log, by its active file (see `log_path`)."""

    def __init__(self, active: Path) -> None:
        self.folder = active.parent
        self.name = active.name.removesuffix(".jsonl")
        self.active = active

    def closed(self) -> list[Path]:
        """The full files, oldest first."""
        return sorted(self._matching(r"\d{12,}\.jsonl"), key=lambda path: (len(path.name), path.name))

    def files(self) -> list[Path]:
        """All files that hold entries, in order."""
        return [*self.closed(), *([self.active] if self.active.exists() else [])]

    def closed_name(self, first: int) -> Path:
        return self.folder / f"{self.name}.{first:012d}.jsonl"

    def torn_name(self, seq: int, sha256: str) -> Path:
        return self.folder / f"{self.name}.{seq:012d}.{sha256[:8]}.torn.new"

    def torn(self) -> list[Path]:
        """List fragments that were moved aside and are not noted yet."""
        return sorted(self._matching(r"\d{12,}\.[0-9a-f]{8}\.torn\.new"))

    def torn_until(self, seq: int) -> list[Path]:
        """List fragments moved aside in the place of entries up to that number."""
        found = self._matching(r"\d{12,}\.[0-9a-f]{8}\.torn")
        return [path for path in found if int(path.name.removeprefix(f"{self.name}.").partition(".")[0]) <= seq]

    def _matching(self, pattern: str) -> Iterator[Path]:
        wanted = re.compile(re.escape(self.name) + r"\." + pattern)
        if self.folder.is_dir():
            yield from (path for path in self.folder.iterdir() if wanted.fullmatch(path.name))

    def lock(self) -> int:
        """A file descriptor that holds the lock as long as it is open. Raises Unavailable if another has it."""
        try:
            import fcntl
        except ImportError as error:
            raise Unsupported("an audit log needs a system with flock") from error
        path = self.folder / f"{self.name}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            who = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise LogTaken(f"{self.active}: process {who or 'unknown'} writes this audit log already") from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd


def make_folder(path: Path) -> None:
    """Create a folder, and those above it that are missing, for their owner alone."""
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def create(path: Path, *, new: bool = False) -> int:
    """Open a file for appending; with `new` it must not be there."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if new else 0)
    return os.open(path, flags, 0o600)


def write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync(fd: int) -> None:
    """Wait until it is on disk."""
    os.fsync(fd)


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def first_line(path: Path, longest: int) -> bytes:
    """The first line of a file, its line feed included if it has one; of one that is longer only the beginning."""
    with path.open("rb") as file:
        return file.readline(longest + 1)


def last_line(path: Path, longest: int) -> bytes:
    """The last line of a file, its line feed included if it has one; of one that is longer only the end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start, tail = size, b""
        while start > 0 and b"\n" not in tail[:-1] and len(tail) <= longest:
            step = min(64 * 1024, start)
            start -= step
            file.seek(start)
            tail = file.read(step) + tail
    return tail[tail.rfind(b"\n", 0, -1) + 1 :]
