"""A few threads that read, each with its own connection: neither the event loop nor the writer waits for them.

A single record is read on the event loop itself, where nothing is in the way: that takes some 20 us, and there and back
again through a thread ten times as much.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gateway.core.errors import Unavailable
from gateway.store.sqlite.faults import unavailable
from gateway.store.sqlite.schema import connect_reader

T = TypeVar("T")

THREADS = 2


class Locked(Exception):
    """A read has to wait for another connection."""


class Readers:
    """Called on the event loop. A read sees everything that was committed before it began."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="store-reader")
        self._local = threading.local()
        self._here: sqlite3.Cursor | None = None
        self._connections: list[sqlite3.Connection] = []

    async def __call__(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """The result of `work` with a cursor that cannot write. Raises Unavailable."""
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)
        except RuntimeError as error:  # how an executor says that it is shut down
            raise Unavailable("the store is closed", detail=str(error)) from error
        return await future

    def at_once(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """The same for what reads a record or two, without waiting. Raises Locked where that is not possible."""
        try:
            if self._here is None:
                self._here = self._connect(waits=False).cursor()
            return work(self._here)
        except sqlite3.OperationalError as error:
            raise Locked from error
        except sqlite3.Error as error:
            raise unavailable(error) from error

    async def close(self) -> None:
        """Let reads that have begun end, then disconnect."""
        await asyncio.to_thread(self._pool.shutdown)
        for connection in self._connections:
            connection.close()

    def _read(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        try:
            cursor: sqlite3.Cursor | None = getattr(self._local, "cursor", None)
            if cursor is None:
                cursor = self._local.cursor = self._connect().cursor()
            return work(cursor)
        except sqlite3.Error as error:
            raise unavailable(error) from error

    def _connect(self, *, waits: bool = True) -> sqlite3.Connection:
        connection = connect_reader(self._path, waits=waits)
        self._connections.append(connection)
        return connection
