"""A worker's end of the link to its supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import shutil
import signal
import socket
import threading
import uuid
from collections.abc import Awaitable, Callable
from typing import Self

import msgspec

from gateway.workers.messages import (
    LONGEST,
    VARIABLE,
    Changed,
    FromWorker,
    Gather,
    Gathered,
    Seat,
    ToWorker,
    Up,
    WorkerReport,
    say,
    to_worker,
)

MARK = "-w"
"""Between what cannot be guessed of an id and its worker's number."""

log = logging.getLogger("interlingua")

ANSWER_SECONDS = 0.8
"""How long the supervisor is waited for. It waits for other workers itself, less long; a probe waits for a second."""
LAST_WORD_SECONDS = 2.0


class WorkerLink:
    """What a worker was given by its supervisor, and the way to talk to it. `up` begins the talk."""

    def __init__(self, seat: Seat) -> None:
        self.number, self.workers, self.folder = seat.number, seat.workers, seat.folder
        for descriptor in (seat.link, *seat.listeners):
            os.set_inheritable(descriptor, False)
        self._link = socket.socket(fileno=seat.link)
        self._listeners = [socket.socket(fileno=each) for each in seat.listeners]
        self.place = seat.place
        self._leaves = False
        threading.Thread(target=self._notice, args=(self._link.dup(),), name="supervisor", daemon=True).start()
        self._writer: asyncio.StreamWriter | None = None
        self._connected = asyncio.Event()
        self._asked = 0
        self._gathering: asyncio.Future[Gathered | None] | None = None
        self._answer: asyncio.Future[Gathered] | None = None
        self._gathered: Gathered | None = None

    @classmethod
    def inherited(cls) -> Self | None:
        """Take over what the environment names; None in a process that is no worker."""
        given = os.environ.pop(VARIABLE, None)
        return None if given is None else cls(msgspec.json.decode(given, type=Seat))

    def _notice(self, link: socket.socket) -> None:
        """Stop this worker when its supervisor has died, also during its start or while its event loop is blocked, and
        keep the port of no place from another supervisor meanwhile.
        """
        gone = select.poll()
        gone.register(link, 0)  # a hang-up is always told
        gone.poll()
        if not self._leaves:
            for place, listener in enumerate(self._listeners):
                if place != self.place:  # its own is closed by the server that accepts from it
                    listener.close()
            os.kill(os.getpid(), signal.SIGTERM)

    @property
    def listener(self) -> socket.socket:
        return self._listeners[self.place]

    def new_id(self) -> str:
        """See `Gateway.new_id`: the worker's number is in it."""
        return f"{uuid.uuid4().hex}{MARK}{self.number}"

    def socket_of(self, number: int) -> str:
        """The path of the Unix socket at which a worker hears the others."""
        return os.path.join(self.folder, f"{number}.sock")

    def copy_of(self, place: int) -> socket.socket:
        """A copy of another place's listening socket. Closing it leaves the others as they are."""
        return self._listeners[place].dup()

    async def follow(self, up: Up, handler: Callable[[ToWorker], Awaitable[object]]) -> None:
        """Say that this worker is up, then hand each message to `handler`, until the supervisor is gone."""
        self._link.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=self._link, limit=LONGEST)
        self.say(up)
        self._connected.set()
        while line := await _line(reader):
            message = to_worker.decode(line)
            if isinstance(message, Gathered):
                self._have(message)
                continue
            try:
                await handler(message)
            except Exception:
                log.exception("what the supervisor asks for failed: %s", message)
        log.error("the supervisor is gone: this worker stops")
        shutil.rmtree(self.folder, ignore_errors=True)

    def say(self, message: FromWorker) -> None:
        say(self._writer, message)

    async def gather(self, own: WorkerReport) -> Gathered | None:
        """How all workers are, in bounded time. Who asks while another does waits with it. Where the supervisor does
        not answer, it is what it said last; None if it never has.
        """
        if self._gathering is None:
            self._gathering = asyncio.ensure_future(self._ask(own))
        return await asyncio.shield(self._gathering)

    async def _ask(self, own: WorkerReport) -> Gathered | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._connected.wait()
                self._asked += 1
                self._answer = asyncio.get_running_loop().create_future()
                self.say(Gather(self._asked, own))
                return await self._answer
        except TimeoutError:
            log.warning("the supervisor does not answer: how the workers are is what it last told")
            return self._gathered and msgspec.structs.replace(self._gathered, late=True)
        finally:
            self._gathering = None

    def _have(self, message: Gathered) -> None:
        self._gathered = message
        if message.number == self._asked and self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    async def leave(self, last: WorkerReport) -> None:
        """This worker ends: say how it was, so that nothing that it counted is lost."""
        self._leaves = True
        if self._writer is not None:
            self.say(last)
            self._writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LAST_WORD_SECONDS):
                    await self._writer.wait_closed()

    def tell_others(self, why: str) -> None:
        self.say(Changed(why))


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except OSError:  # killed while we spoke
        return b""
