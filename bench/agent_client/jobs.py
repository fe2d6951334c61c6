"""The load's jobs with editors (see load.py). `place` is where they connect to (wires.py): a program of their own, to
which one connection goes with all sessions, or a URL, where each session has a connection of its own unless `shared`.

| job | does | result |
|---|---|---|
| `seat` | opens so many `sessions` there; they are kept from one job to the next | pids of program and agent, if told |
| `prompts` | a prompt in each at once, read to its end | chunks, messages, bytes, p50, p99, first |
| `flood` | keeps `sessions` busy, one prompt after the other, for `seconds` | as above, within it; `all`: also later |
| `asks` | keeps `sessions` busy with prompts of one chunk, for `seconds` | count, seconds, p50, p99 of a prompt |
| `openings` | one `session/new` after the other on one connection, for `seconds` | the same of an opening |
| `occupy` | opens `sessions` and leaves them open; with `chunks`, amid a prompt that has had so many | held |
| `vacate` | cancels and closes those | held |
| `first` | connects anew and prompts once | ms from its start to `initialized`, `made` (a session), `chunk` |
| `leave` | closes what is kept there | |
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import msgspec

from bench.agent_client.editor import CANCELLED, Editor, Session, asking, stop_reason
from bench.chunks import Pieces, Result
from bench.http import Failed
from bench.rpc import turns

Place = dict[str, Any]
LOOK_SECONDS = 0.02
AT_ONCE = 16
HELD_CHUNKS = 1_000_000


class Seats:
    """The connections to one place, and their sessions."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._each = "url" in place and not place.get("shared")
        self.editors: list[Editor] = []
        self.sessions: list[Session] = []

    async def fill(self, count: int) -> list[Session]:
        """So many sessions, those that are there first. Several are opened at a time where each has a connection."""
        if not self._each and not self.editors:
            self.editors.append(await Editor.open(self._place))
        while (missing := count - len(self.sessions)) > 0:
            self.sessions += await asyncio.gather(*(self._opened() for _ in range(min(missing, AT_ONCE))))
        return self.sessions[:count]

    async def _opened(self) -> Session:
        if self._each:
            editor = await Editor.open(self._place)
            self.editors.append(editor)
            return await editor.session()
        return await self.editors[0].session()

    async def leave(self) -> None:
        """Close them all."""
        await asyncio.gather(*(editor.close() for editor in self.editors))


class Editors:
    """Does the jobs."""

    def __init__(self) -> None:
        self._seats: dict[bytes, Seats] = {}
        self._held: list[tuple[Seats, list[asyncio.Future[Any]]]] = []

    async def seat(self, place: Place, sessions: int) -> Result:
        """See the module."""
        seats = self._at(place)
        await seats.fill(sessions)
        wire = seats.editors[0].wire
        return {"pid": wire.pid if wire is not None else None, "agent": seats.sessions[0].agent_pid}

    async def prompts(self, place: Place, sessions: int, chunks: int, pace: float) -> Result:
        """See the module. Fails if one of them does not bring all its chunks."""
        seated = await self._at(place).fill(sessions)
        return await turns.once([partial(session.turn, chunks, pace) for session in seated])

    async def flood(self, place: Place, sessions: int, chunks: int, seconds: float) -> Result:
        """See the module. What comes after the time is read, but not counted."""
        seated = await self._at(place).fill(sessions)
        return await turns.repeated([partial(session.turn, chunks, 0.0) for session in seated], seconds)

    async def asks(self, place: Place, sessions: int, seconds: float) -> Result:
        """See the module."""
        seated = await self._at(place).fill(sessions)
        return await turns.timed([session.ask for session in seated], seconds)

    async def openings(self, place: Place, seconds: float) -> Result:
        """See the module. The connection and its sessions are gone afterwards."""
        editor = await Editor.open(place)
        try:
            return await turns.timed([editor.session], seconds)
        finally:
            await editor.close()

    async def occupy(self, place: Place, sessions: int, chunks: int = 0, pace: float = 0.1) -> Result:
        """See the module."""
        seats = Seats(place)
        begun: list[asyncio.Future[Any]] = []
        self._held.append((seats, begun))
        seated = await seats.fill(sessions)
        readers = [Pieces() for _ in seated] if chunks else []
        for session, reader in zip(seated, readers, strict=False):
            begun.append(session.prompt(asking(HELD_CHUNKS, pace), reader))
        while readers and min(len(reader.sent) for reader in readers) < chunks:
            for ended in begun:
                if ended.done():
                    raise Failed(f"a held prompt ended: {ended.exception() or ended.result()!r}")
            await asyncio.sleep(LOOK_SECONDS)
        return {"held": len(seated)}

    async def vacate(self) -> Result:
        """See the module."""
        held, self._held = self._held, []
        for seats, begun in held:
            for session in seats.sessions if begun else ():
                session.cancel()
            for prompt in begun:
                if (why := stop_reason(await prompt)) != CANCELLED:
                    raise Failed(f"a cancelled prompt stopped for {why}")
            await seats.leave()
        return {"held": sum(len(seats.sessions) for seats, _ in held)}

    async def first(self, place: Place) -> Result:
        """See the module."""
        began = time.monotonic()
        editor = await Editor.open(place)
        try:
            initialized = time.monotonic()
            session = await editor.session()
            made = time.monotonic()
            reader = Pieces()
            await session.turn(1, 0.0, reader)
        finally:
            await editor.close()
        ats = {"initialized": initialized, "made": made, "chunk": reader.first_at / 1e9}
        return {name: (at - began) * 1e3 for name, at in ats.items()}

    async def leave(self, place: Place) -> Result:
        """See the module."""
        seats = self._seats.pop(msgspec.json.encode(place), None)
        if seats is not None:
            await seats.leave()
        return {}

    def _at(self, place: Place) -> Seats:
        return self._seats.setdefault(msgspec.json.encode(place), Seats(place))
