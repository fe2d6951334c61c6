"""Leases as rows of `leases` (see gateway/store/leases.py)."""

from __future__ import annotations

import sqlite3
import time

from gateway.store.leases import StoreProcess, has_died


def keep(cursor: sqlite3.Cursor, me: StoreProcess, ttl: float, bell: str) -> None:
    """Take the lease or extend it. `bell` is where this process hears of its mail: see mail.py."""
    cursor.execute(
        "INSERT OR REPLACE INTO leases (owner, host, pid, started, expires_at, expires_tick, bell) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (me.owner, me.host, me.pid, me.started, time.time() + ttl, time.monotonic() + ttl, bell),
    )


def drop(cursor: sqlite3.Cursor, owner: str) -> None:
    """End an owner's lease, with the mail that it has not read. Others may then register the names that it had."""
    cursor.execute("DELETE FROM leases WHERE owner = ?", (owner,))
    cursor.execute("DELETE FROM mail WHERE recipient = ?", (owner,))
    cursor.execute("UPDATE registrations SET held = 0 WHERE owner = ?", (owner,))


def is_dead(cursor: sqlite3.Cursor, owner: str, me: StoreProcess) -> bool:
    """True if `owner` has no lease, its lease has run out, or it is a process of this host that is gone."""
    if owner == me.owner:
        return False
    row = cursor.execute(
        "SELECT host, pid, started, expires_at, expires_tick FROM leases WHERE owner = ?", (owner,)
    ).fetchone()
    if row is None:
        return True
    host, pid, started, expires_at, expires_tick = row
    return has_died(
        me,
        host,
        pid,
        started,
        run_out=bool(expires_at < time.time()),
        stood_still=bool(expires_tick >= time.monotonic()),
    )
