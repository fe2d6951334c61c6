"""Leases: which process owns a run, and whether that process is alive.

A process keeps a lease in the store that expires unless it is refreshed. A process of the same host is instead looked
up by pid and start time (pids are reused), without waiting for that. "Same host" means the same name, boot and pid
namespace: otherwise a pid means nothing.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

TTL_SECONDS = 10.0


class StoreProcess(msgspec.Struct, frozen=True, kw_only=True):
    """This process as others see it. `started` is empty if the system does not say."""

    owner: str
    host: str
    pid: int
    started: str


class HeldLease:
    """Since when this process has held its lease. Before that others may have claimed its runs."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = math.inf
        self._since = 0.0

    @property
    def since(self) -> float:
        """See `gateway.store.Store.held_since`."""
        return math.inf if _awake_or_asleep() > self._until else self._since

    @contextlib.contextmanager
    def extending(self) -> Iterator[None]:
        """Entered to extend the lease, or to take it for the first time. What raises has extended nothing."""
        now = _awake_or_asleep()
        yield
        if self.since == math.inf:
            self._since = now
        self._until = now + self._seconds


def _awake_or_asleep() -> float:
    """Seconds by a clock that nobody sets, which goes on while the machine sleeps where the system has such a one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def identify(host: str | None = None) -> StoreProcess:
    """Make a new owner name for this process. `host` replaces the name of this host, for tests."""
    name = host or this_host()
    pid = os.getpid()
    owner = f"{socket.gethostname()}-{pid}-{uuid.uuid4().hex[:12]}"
    return StoreProcess(owner=owner, host=name, pid=pid, started=process_start(pid) or "")


def this_host() -> str:
    """Name the host so that a pid means the same process everywhere it is known by that name."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass  # not Linux: the name has to be enough
    return "/".join(parts)


def process_start(pid: int) -> str | None:
    """When process `pid` started, in the system's units. "" if it is alive but this is unknown, None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
        # A zombie is dead, only not yet buried, once the last of its threads has let go of its files and locks.
        return None if fields[0] in "ZX" and int(fields[17]) <= 1 else fields[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except OSError:
        return ""
    if sys.platform == "win32":
        return ""  # os.kill would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return ""
    return ""


def has_died(me: StoreProcess, host: str, pid: int, started: str, *, run_out: bool, stood_still: bool = False) -> bool:
    """True if the holder of a lease is a process of this host that is gone, or its lease has `run_out`.

    A process has one store, so another owner with our own pid is an earlier process, or a store that was abandoned.
    `stood_still`: the machine slept meanwhile, as a clock says that stops then and that a Linux host's processes share.
    """
    if host != me.host:
        return run_out
    if pid == me.pid:
        return True
    now = process_start(pid)
    if now is None or (now and started and now != started):
        return True
    return run_out and not (now and stood_still)
