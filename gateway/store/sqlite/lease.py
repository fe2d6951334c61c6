"""Who owns what, and whether that process still lives.

A process keeps a row in `leases` that runs out unless it is refreshed. On the same host nobody needs to wait for that:
a process is looked up by pid and start time (pids are used again). "Same host" means same name, same boot and same pid
namespace, else a pid says nothing.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
import time
import uuid
from pathlib import Path

import msgspec

TTL_SECONDS = 10.0


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """This process, as the others see it. `started` is empty where the system does not tell."""

    owner: str
    host: str
    pid: int
    started: str


def identify(host: str | None = None) -> Identity:
    """A fresh owner name for this process; `host` pretends to be elsewhere."""
    name = host or this_host()
    pid = os.getpid()
    owner = f"{socket.gethostname()}-{pid}-{uuid.uuid4().hex[:12]}"
    return Identity(owner=owner, host=name, pid=pid, started=process_start(pid) or "")


def this_host() -> str:
    """Within it, a pid means the same process to everyone."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass  # not Linux: the name has to do
    return "/".join(parts)


def process_start(pid: int) -> str | None:
    """When process `pid` started, in the system's own units; "" if it lives but that is unknown, None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
        return None if fields[0] in "ZX" else fields[19]  # a zombie is dead, only not yet buried
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


def keep(cursor: sqlite3.Cursor, me: Identity, ttl: float) -> None:
    """Take the lease, or make it last longer."""
    cursor.execute(
        "INSERT OR REPLACE INTO leases (owner, host, pid, started, expires_at, expires_tick) VALUES (?, ?, ?, ?, ?, ?)",
        (me.owner, me.host, me.pid, me.started, time.time() + ttl, time.monotonic() + ttl),
    )


def drop(cursor: sqlite3.Cursor, owner: str) -> None:
    """End an owner's lease; what it registered may then be registered by others."""
    cursor.execute("DELETE FROM leases WHERE owner = ?", (owner,))
    cursor.execute("UPDATE registrations SET held = 0 WHERE owner = ?", (owner,))


def is_dead(cursor: sqlite3.Cursor, owner: str, me: Identity) -> bool:
    """True if `owner` has no lease, let it run out, or is a process of this host that is gone.

    A process holds one store: another owner under our own pid was a process before us, or a store that was left.
    """
    if owner == me.owner:
        return False
    row = cursor.execute(
        "SELECT host, pid, started, expires_at, expires_tick FROM leases WHERE owner = ?", (owner,)
    ).fetchone()
    if row is None:
        return True
    host, pid, started, expires_at, expires_tick = row
    run_out = bool(expires_at < time.time())
    if host != me.host:
        return run_out
    if pid == me.pid:
        return True
    now = process_start(pid)
    if now is None or (now and started and now != started):
        return True
    # a machine that slept is not a process that hung: the monotonic clock sleeps too, and is one for all on Linux
    return run_out and (not now or bool(expires_tick < time.monotonic()))
