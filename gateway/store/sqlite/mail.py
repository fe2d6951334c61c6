"""The mailbox in the file, and its bell: a Unix datagram socket beside the file, for its user alone.

A bell's datagram names the runs to look at, or the mailbox by an empty name: what is to be read is in the file. A
lease's `bell` is the name of the socket, in the file's folder; empty where the process has none and looks by itself;
NULL in one of a version that has no mailbox. `<file>-bell-*` that nobody serves any more is removed when the next
store is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gateway.core.errors import InterlinguaError, Unsupported
from gateway.store import Message, Undelivered
from gateway.store.leases import StoreProcess
from gateway.store.sqlite import lease
from gateway.store.write_queue import WriteQueue

LONGEST = 100
"""Bytes of a socket's path that every system takes."""
DATAGRAM = 60_000
"""Bytes; as many names as fit are rung for at once."""
RETRY_SECONDS = 0.005
"""When to ring again at a process whose socket is full: it has not looked yet."""


def send(cursor: sqlite3.Cursor, *, me: StoreProcess, owner: str, message: Message, seconds: float) -> str:
    """Implements `Mailbox.send`. Returns the address of the recipient's bell, "" if it has none."""
    row = cursor.execute("SELECT bell FROM leases WHERE owner = ?", (owner,)).fetchone()
    if row is None or lease.is_dead(cursor, owner, me):
        raise Undelivered("another gateway process has ended; try again", detail=owner)
    if row[0] is None:
        raise Unsupported("another gateway process is of a version that cannot be told anything", detail=owner)
    cursor.execute(
        "INSERT INTO mail (recipient, id, sender, answers, expires_at, body) VALUES (?, ?, ?, ?, ?, ?)",
        (owner, message.id, message.sender, message.answers, time.time() + seconds, message.body),
    )
    return str(row[0])


def others(cursor: sqlite3.Cursor, me: StoreProcess) -> list[str]:
    """Implements `Mailbox.others`."""
    rows = cursor.execute("SELECT owner FROM leases WHERE bell IS NOT NULL AND owner != ?", (me.owner,)).fetchall()
    return [owner for (owner,) in rows if not lease.is_dead(cursor, owner, me)]


def waits(cursor: sqlite3.Cursor, owner: str) -> bool:
    """Whether there is something to `receive`."""
    return cursor.execute("SELECT 1 FROM mail WHERE recipient = ? LIMIT 1", (owner,)).fetchone() is not None


def receive(cursor: sqlite3.Cursor, owner: str) -> list[Message]:
    """Implements `Mailbox.receive`."""
    rows = cursor.execute(
        "SELECT id, sender, answers, body, expires_at FROM mail WHERE recipient = ? ORDER BY seq", (owner,)
    ).fetchall()
    cursor.execute("DELETE FROM mail WHERE recipient = ?", (owner,))
    now = time.time()
    return [
        Message(id=id, sender=sender, answers=answers, body=body) for id, sender, answers, body, at in rows if at > now
    ]


def bell_of(cursor: sqlite3.Cursor, owner: str) -> str:
    """The address of a process's bell, "" if it has none."""
    row = cursor.execute("SELECT bell FROM leases WHERE owner = ?", (owner,)).fetchone()
    return row[0] or "" if row is not None else ""


class SocketBell:
    """The socket of this process. Used on the event loop. Without one (Windows, a folder that takes none) `name` is
    empty.
    """

    def __init__(self, path: Path, owner: str) -> None:
        """`path`: the store's file."""
        self.name = ""
        self._folder, self._file = os.path.split(os.path.realpath(path))
        self._own = f"{self._file}-bell-{owner.rpartition('-')[2]}"
        self._folder_fd: int | None = None
        self._socket: socket.socket | None = None
        self._ringing: dict[str, dict[str, None]] = {}
        """By address: what is to be rung for there, in order."""
        self._planned = False

    def open(self, heard: Callable[[str], None]) -> None:
        """Serve the socket. `heard` is called with every name that is rung for."""
        if not hasattr(socket, "AF_UNIX"):
            return
        self._heard = heard
        try:
            self._folder_fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._sweep()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            with contextlib.suppress(OSError):  # Linux binds with the mode of the socket: never open to others
                os.fchmod(self._socket.fileno(), 0o600)
            self._socket.bind(self._path(self._own))
            os.chmod(self._own, 0o600, dir_fd=self._folder_fd)
            asyncio.get_running_loop().add_reader(self._socket.fileno(), self._rung)
        except (OSError, NotImplementedError):
            self.close()
        else:
            self.name = self._own

    def close(self) -> None:
        """Take the socket away. Idempotent."""
        if self._socket is not None:
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._folder_fd is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._own, dir_fd=self._folder_fd)
            os.close(self._folder_fd)
            self._folder_fd = None
        self.name = ""

    def ring(self, address: str, name: str) -> None:
        """Ring at a bell, in the next turn of the loop."""
        if not address or self._socket is None:
            return
        self._ringing.setdefault(address, {})[name] = None
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._ring)

    def _ring(self) -> None:
        self._planned = False
        full = False
        for address, names in list(self._ringing.items()):
            while names and self._socket is not None:
                some = list(_fitting(names))
                try:
                    self._socket.sendto("\n".join(some).encode(), self._path(address))
                except (BlockingIOError, InterruptedError):
                    full = True
                    break
                except OSError:  # it has gone: whoever watched there has gone as well
                    names.clear()
                    break
                for name in some:
                    del names[name]
            if not names:
                del self._ringing[address]
        if full and not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._ring)

    def _rung(self) -> None:
        names: dict[str, None] = {}
        for _ in range(64):
            try:
                assert self._socket is not None
                names |= dict.fromkeys(self._socket.recv(DATAGRAM * 2).decode(errors="replace").split("\n"))
            except OSError:
                break
        for name in names:
            self._heard(name)

    def _path(self, name: str) -> str:
        """The path of a socket in the folder, short enough for every system: Linux knows open folders by number."""
        path = os.path.join(self._folder, os.path.basename(name))
        if len(os.fsencode(path)) <= LONGEST:
            return path
        short = f"/proc/self/fd/{self._folder_fd}/{os.path.basename(name)}"
        if len(os.fsencode(short)) > LONGEST or not os.path.isdir("/proc/self/fd"):
            raise OSError("the path is too long for a socket")
        return short

    def _sweep(self) -> None:
        """Remove the sockets that dead processes left."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            for name in os.listdir(self._folder):
                if name.startswith(f"{self._file}-bell-"):
                    try:
                        probe.connect(self._path(name))
                    except ConnectionRefusedError:
                        with contextlib.suppress(OSError):
                            os.unlink(name, dir_fd=self._folder_fd)
                    except OSError:
                        continue


def _fitting(names: dict[str, None]) -> Iterator[str]:
    room = DATAGRAM
    for at, name in enumerate(names):
        room -= len(name.encode()) + 1
        if room < 0 and at:
            return
        yield name


class FileMailbox:
    """Implements `gateway.store.Mailbox`."""

    def __init__(
        self, me: StoreProcess, queue: WriteQueue, bell: SocketBell | None, read: Callable[..., Awaitable[Any]]
    ) -> None:
        """`read` does work with a cursor that reads. `bell` None: a database in memory, which has one process."""
        self._me = me
        self._queue = queue
        self._bell = bell
        self._read = read
        self._hears: Callable[[str | None], None] = _nobody
        self._addresses: dict[str, str] = {}
        self._looking: set[asyncio.Future[None]] = set()

    @property
    def has_bell(self) -> bool:
        return self._bell is None or bool(self._bell.name)

    def listen(self, heard: Callable[[str | None], None]) -> None:
        self._hears = heard

    def heard(self, name: str) -> None:
        """The bell has been rung for this."""
        self._hears(name)

    def ring(self, owner: str, run_id: str) -> None:
        if self._bell is None:
            return
        if owner in self._addresses:
            self._bell.ring(self._addresses[owner], run_id)
            return
        looking = asyncio.ensure_future(self._look_and_ring(owner, run_id))
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)

    async def _look_and_ring(self, owner: str, run_id: str) -> None:
        with contextlib.suppress(InterlinguaError):
            self._addresses[owner] = await self._read(partial(bell_of, owner=owner), one=True)
            self.ring(owner, run_id)

    async def others(self) -> list[str]:
        return await self._read(partial(others, me=self._me), one=True)  # type: ignore[no-any-return]

    async def send(self, owner: str, message: Message, *, seconds: float) -> None:
        work = partial(send, me=self._me, owner=owner, message=message, seconds=seconds)
        address = await self._queue.submit(work, own=True, durable=False, size=len(message.body))
        if self._bell is None:
            self._hears("")
            return
        self._addresses[owner] = address
        self._bell.ring(address, "")

    async def receive(self) -> list[Message]:
        if not await self._read(partial(waits, owner=self._me.owner), one=True):
            return []
        return await self._queue.submit(partial(receive, owner=self._me.owner), own=True, durable=False)


def _nobody(_: str | None) -> None:
    """Before anybody listens."""
