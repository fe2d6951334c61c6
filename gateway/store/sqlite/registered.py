"""Reading registrations: they are asked for again and again, and are the same most of the time.

A counter in the file (kept by triggers, see schema.py) says when there is something to read, and of that only records
that are others are decoded. What is given out is shared, and so never changed.
"""

from __future__ import annotations

import math
import sqlite3

from gateway.store import Registration
from gateway.store.sqlite.queries import decode_registration


def changes(cursor: sqlite3.Cursor) -> int:
    """How often registrations have been written or removed."""
    ((count,),) = cursor.execute("SELECT value FROM counters WHERE name = 'registrations'").fetchall()
    return int(count)


class Table:
    """All registrations when `changes` was that, in the order of their names, also those that have expired."""

    def __init__(self, count: int = -1, records: dict[bytes, Registration] | None = None) -> None:
        self.changes = count
        self._records = records or {}
        self._list: list[Registration] = []
        self._since, self._until = math.inf, -math.inf

    def read(self, cursor: sqlite3.Cursor) -> Table:
        """What there is now. Records that are the same are the same objects."""
        count = changes(cursor)  # first: what is written meanwhile is read again
        known = self._records
        rows = cursor.execute("SELECT record FROM registrations ORDER BY name").fetchall()
        return Table(count, {record: known.get(record) or decode_registration(record) for (record,) in rows})

    def at(self, now: float) -> list[Registration]:
        """Those that have not expired: the same list as before where it has the same in it."""
        if not self._since <= now < self._until:
            ends = [one.expires_at for one in self._records.values() if one.expires_at is not None]
            self._since = max((end for end in ends if end <= now), default=-math.inf)
            self._until = min((end for end in ends if end > now), default=math.inf)
            self._list = [one for one in self._records.values() if one.expires_at is None or one.expires_at > now]
        return self._list
