"""A log whose writer is killed at every step of its work: run as a program, away from the test's threads.

Each case is a real process that kills itself (SIGKILL) at its n-th call of the system, in mid-write if that is a write.
A second one then opens the log and is killed at its m-th call. What the third finds must be right, hold everything that
was acknowledged, and have a note of everything that was torn.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from gateway.core.errors import Unavailable
from gateway.governance.audit import AuditEntry, LogHead, verify
from gateway.governance.audit.files import LogFiles, log_path
from tests.governance.audit.support import appender, files_of, piece

CALLS = ("write", "fsync", "rename", "open", "ftruncate", "pwrite", "close")
ROTATE = 700
real_write = os.write


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def arm(at: int) -> None:
    """Be killed at the `at`-th call from here; a write is done by half."""
    counter = count(1)

    def armed(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if next(counter) == at:
                if name == "write":
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) * 2 // 3])
                die()
            return real(*arguments, **more)

        return call

    for name in CALLS:
        setattr(os, name, armed(name, getattr(os, name)))


def work(folder: Path, tell: int, batches: int) -> None:
    log = appender(folder, rotate_bytes=ROTATE)
    log.open(None, time.time())
    for number in range(batches):
        for entry in log.write([piece(number), piece(number)]):
            assert isinstance(entry, AuditEntry)
            real_write(tell, f"{entry.head}\n".encode())
    log.close()


def killed(folder: Path, at: int, batches: int) -> tuple[bool, list[LogHead]]:
    """Work in a child that is killed at its `at`-th call; whether it was, and what it had acknowledged."""
    read, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            arm(at)
            work(folder, tell, batches)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    os.close(tell)
    with open(read, encoding="ascii") as pipe:
        told = [LogHead.parse(line) for line in pipe]
    status = os.waitpid(child, 0)[1]
    assert status == 0 or os.WIFSIGNALED(status), f"the writer failed at call {at}"
    return status != 0, told


def entries(folder: Path) -> Iterator[dict[str, Any]]:
    for path in files_of(folder):
        for line in path.read_bytes().splitlines():
            yield msgspec.json.decode(line)


def check(folder: Path, told: list[LogHead]) -> None:
    """Open it once more, append, and look."""
    log = appender(folder, rotate_bytes=ROTATE)
    log.open(told[-1] if told else None, time.time())
    log.write([piece()])
    head = log.head
    log.close()
    report = verify(files_of(folder), head=head)
    assert report.mistakes == [], report.mistakes
    there = {entry["seq"]: entry for entry in entries(folder)}
    assert [head for head in told if there[head.seq]["hash"] != head.hash] == []
    notes = [e["metadata"]["interlingua"]["torn"]["file"] for e in there.values() if e["action"] == "audit.note"]
    torn = [path.name for path in folder.iterdir() if ".torn" in path.name]
    assert sorted(notes) == sorted(torn), (notes, torn)


def unfinished(folder: Path) -> str:
    """What the next to open it has to make good; "" if there is nothing."""
    active = folder / "audit-log.jsonl"
    if not active.exists():
        return "no active file" if LogFiles(log_path(folder, 1)).closed() else ""
    data = active.read_bytes()
    return f"torn in file {len(LogFiles(log_path(folder, 1)).closed())}" if data and not data.endswith(b"\n") else ""


def every_step(base: Path) -> tuple[int, int]:
    """Kill the writer at each call, and its successor at each call of the recovery. Returns how many of each."""
    seconds = 0
    seen = {""}
    for at in count(1):
        folder = base / f"{at}"
        was_killed, told = killed(folder, at, 3)
        state = unfinished(folder)
        for again in range(4, 19) if state not in seen else ():
            copy = base / f"{at}-{again}"
            shutil.copytree(folder, copy)
            more = killed(copy, again, 0)[1]
            check(copy, [*told, *more])
            seconds += 1
        seen.add(state)
        if folder.exists():
            check(folder, told)
        if not was_killed:
            return at - 1, seconds
    raise AssertionError


def disk_full(folder: Path) -> None:
    """A disk that takes half of a line and no more, for a while."""
    log = appender(folder)
    log.open(None, time.time())
    log.write([piece(1)])
    path = folder / "audit-log.jsonl"
    size = path.stat().st_size
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    for _ in range(2):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            log.write([piece(2), piece(3)])
            raise AssertionError("a write beyond the limit was taken")
        except Unavailable:
            assert path.stat().st_size == size, "what was refused is in the file"
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    (entry,) = log.write([piece(4)])
    log.close()
    assert isinstance(entry, AuditEntry) and entry.seq == 1
    assert verify(files_of(folder), head=entry.head).mistakes == []
    assert not list(LogFiles(log_path(folder, 1)).torn())


if __name__ == "__main__":
    os.fsync = lambda fd: None  # a killed process loses nothing that it wrote: only where the calls are matters
    root = Path(sys.argv[1])
    disk_full(root / "full")
    print(*every_step(root))
