"""The mailbox in the database, and its bell: LISTEN on a connection of its own, NOTIFY by whoever rings.

A notification names a run to look at, or the mailbox by an empty name: what is to be read is in the tables. A lease's
`bell` is the channel that its process listens on; NULL in one of a version that has no mailbox. Whether the bell works
is found out by ringing it. While it does not, or behind a pooler, this process looks by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from gateway.core.errors import InterlinguaError, Unsupported
from gateway.store import Message, Undelivered
from gateway.store.postgres.connections import Connection, Server, fetch

BEAT_SECONDS = 5.0
"""How often the bell is tried."""
RETRY_SECONDS = 1.0
"""How soon another connection is tried after one that broke."""
PATIENCE_SECONDS = 2.0
"""How soon a bell that works is heard."""
BEAT = "?"
"""Payload of a ring that tests the bell."""

logger = logging.getLogger(__name__)


async def send(
    connection: Connection,
    *,
    is_dead: Callable[[Connection, str], Awaitable[bool]],
    owner: str,
    message: Message,
    seconds: float,
) -> None:
    """Implements `Mailbox.send`."""
    rows = await fetch(connection, "SELECT bell FROM interlingua.leases WHERE owner = $1", owner)
    if not rows or await is_dead(connection, owner):
        raise Undelivered("another gateway process has ended; try again", detail=owner)
    if rows[0]["bell"] is None:
        raise Unsupported("another gateway process is of a version that cannot be told anything", detail=owner)
    await fetch(
        connection,
        "INSERT INTO interlingua.mail (recipient, id, sender, answers, expires_at, body) "
        "VALUES ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5), $6)",
        owner,
        message.id,
        message.sender,
        message.answers,
        seconds,
        message.body,
    )
    await fetch(connection, "SELECT pg_notify($1, '')", rows[0]["bell"])


async def others(
    connection: Connection, owner: str, is_dead: Callable[[Connection, str], Awaitable[bool]]
) -> list[str]:
    """Implements `Mailbox.others`."""
    sql = "SELECT owner FROM interlingua.leases WHERE bell IS NOT NULL AND owner != $1"
    rows = await fetch(connection, sql, owner)
    return [row["owner"] for row in rows if not await is_dead(connection, row["owner"])]


async def waits(connection: Connection, owner: str) -> bool:
    """Whether there is something to `receive`."""
    return bool(await fetch(connection, "SELECT 1 FROM interlingua.mail WHERE recipient = $1 LIMIT 1", owner))


async def receive(connection: Connection, owner: str) -> list[Message]:
    """Implements `Mailbox.receive`."""
    rows = await fetch(
        connection,
        "DELETE FROM interlingua.mail WHERE recipient = $1 "
        "RETURNING seq, id, sender, answers, body, expires_at > clock_timestamp() AS fresh",
        owner,
    )
    return [
        Message(id=row["id"], sender=row["sender"], answers=row["answers"], body=row["body"])
        for row in sorted(rows, key=lambda row: int(row["seq"]))
        if row["fresh"]
    ]


async def ring(connection: Connection, owners: list[str], runs: list[str]) -> None:
    """Ring at processes, each for the run that stands in the same place."""
    await fetch(
        connection,
        "SELECT pg_notify(l.bell, w.run) FROM unnest($1::text[], $2::text[]) AS w(owner, run) "
        "JOIN interlingua.leases l ON l.owner = w.owner WHERE l.bell IS NOT NULL",
        owners,
        runs,
    )


class Bell:
    """The connection that listens. `heard` is called with what is rung for, and with None when it has come or gone."""

    def __init__(self, server: Server, owner: str, heard: Callable[[str | None], None]) -> None:
        self.channel = f"interlingua_{owner.rpartition('-')[2]}"
        self._server = server
        self._heard = heard
        self._beat = asyncio.Event()
        self._broken = asyncio.Event()
        self.works = False

    async def serve(self) -> None:
        """Listen until cancelled, on one connection after the other."""
        while True:
            connection: Connection = None
            try:
                if (connection := await self._server.listener()) is not None:
                    await self._serve(connection)
            except Exception as error:  # whatever it is, this process looks by itself until the bell is heard again
                logger.debug("the store has no bell: %s: %s", type(error).__name__, error)
            finally:
                self._is(False)
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(RETRY_SECONDS)

    async def _serve(self, connection: Connection) -> None:
        """Listen as long as what is rung is heard."""
        self._broken.clear()
        connection.add_termination_listener(lambda _: self._broken.set())
        await connection.add_listener(self.channel, self._rung)
        while await self._tried(connection):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._broken.wait()

    async def _tried(self, connection: Connection) -> bool:
        """Whether the bell is heard when it is rung."""
        self._beat.clear()
        if self._broken.is_set():
            return False
        async with asyncio.timeout(PATIENCE_SECONDS):
            await fetch(connection, "SELECT pg_notify($1, $2)", self.channel, BEAT)
            await self._beat.wait()
        self._is(True)
        return True

    def _is(self, works: bool) -> None:
        if works is not self.works:
            self.works = works
            self._heard(None)

    def _rung(self, connection: Any, pid: int, channel: str, name: str) -> None:
        if name == BEAT:
            self._beat.set()
        else:
            self._heard(name)


class DatabaseMailbox:
    """Implements `gateway.store.Mailbox`."""

    def __init__(
        self,
        server: Server,
        owner: str,
        is_dead: Callable[[Connection, str], Awaitable[bool]],
        write: Callable[..., Awaitable[Any]],
        read: Callable[..., Awaitable[Any]],
    ) -> None:
        """`write` does work in the writer's next transaction, `read` with a connection that reads."""
        self._server = server
        self._owner = owner
        self._is_dead = is_dead
        self._write = write
        self._read = read
        self._bell = Bell(server, owner, self._rung)
        self._hears: Callable[[str | None], None] = _nobody
        self._ringing: dict[tuple[str, str], None] = {}
        """Rings to be sent: for what, and at whom."""
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted = asyncio.Event()

    @property
    def has_bell(self) -> bool:
        return self._bell.works

    @property
    def channel(self) -> str:
        """For the lease: where this process listens."""
        return self._bell.channel

    def open(self) -> None:
        """Begin to listen, and to ring."""
        self._tasks = [asyncio.create_task(work, name="postgres bell") for work in (self._bell.serve(), self._rings())]

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def listen(self, heard: Callable[[str | None], None]) -> None:
        self._hears = heard

    def _rung(self, name: str | None) -> None:
        self._hears(name)

    def ring(self, owner: str, run_id: str) -> None:
        self._ringing[(owner, run_id)] = None
        self._wanted.set()

    async def _rings(self) -> None:
        """Ring for all that has come meanwhile, at once."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            wanted, self._ringing = self._ringing, {}
            with contextlib.suppress(InterlinguaError):
                await self._read(partial(ring, owners=[one for one, _ in wanted], runs=[run for _, run in wanted]))

    async def others(self) -> list[str]:
        return await self._read(partial(others, owner=self._owner, is_dead=self._is_dead))  # type: ignore[no-any-return]

    async def send(self, owner: str, message: Message, *, seconds: float) -> None:
        work = partial(send, is_dead=self._is_dead, owner=owner, message=message, seconds=seconds)
        await self._write(work, own=True, durable=False)

    async def receive(self) -> list[Message]:
        if not await self._read(partial(waits, owner=self._owner)):
            return []
        return await self._write(partial(receive, owner=self._owner), own=True, durable=False)  # type: ignore[no-any-return]


def _nobody(_: str | None) -> None:
    """Before anybody listens."""
