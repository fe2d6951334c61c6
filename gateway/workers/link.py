"""A worker's end of the link to its supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
from collections.abc import Awaitable, Callable
from typing import Self

import msgspec

from gateway.workers.messages import LONGEST, VARIABLE, Changed, FromWorker, Seat, ToWorker, Up, say, to_worker

log = logging.getLogger("interlingua")


class WorkerLink:
    """What a worker was given by its supervisor, and the way to talk to it. `up` begins the talk."""

    def __init__(self, seat: Seat) -> None:
        self.number, self.workers, self.folder = seat.number, seat.workers, seat.folder
        for descriptor in (seat.link, *seat.listeners):
            os.set_inheritable(descriptor, False)
        self._link = socket.socket(fileno=seat.link)
        self._listeners = [socket.socket(fileno=each) for each in seat.listeners]
        self._place = seat.place
        self._writer: asyncio.StreamWriter | None = None

    @classmethod
    def inherited(cls) -> Self | None:
        """Take over what the environment names; None in a process that is no worker."""
        given = os.environ.pop(VARIABLE, None)
        return None if given is None else cls(msgspec.json.decode(given, type=Seat))

    @property
    def listener(self) -> socket.socket:
        """The listening socket of this worker's place."""
        return self._listeners[self._place]

    def copy_of(self, place: int) -> socket.socket:
        """A copy of another place's listening socket. Closing it leaves the others as they are."""
        return self._listeners[place].dup()

    async def follow(self, up: Up, handler: Callable[[ToWorker], Awaitable[object]]) -> None:
        """Say that this worker is up, then hand each message to `handler`, until the supervisor is gone."""
        self._link.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=self._link, limit=LONGEST)
        self.say(up)
        while line := await _line(reader):
            message = to_worker.decode(line)
            try:
                await handler(message)
            except Exception:
                log.exception("what the supervisor asks for failed: %s", message)
        log.error("the supervisor is gone: this worker stops")
        shutil.rmtree(self.folder, ignore_errors=True)

    def say(self, message: FromWorker) -> None:
        """Say it to the supervisor."""
        say(self._writer, message)

    def tell_others(self, why: str) -> None:
        """Have all other workers read their files again."""
        self.say(Changed(why))


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except OSError:  # killed while we spoke
        return b""
