"""The load's jobs with callers (see load.py). `place` is where they connect to: a program of their own or an http:
URL, to which one connection goes with all calls, or a ws: URL, where each call has a connection of its own.

| job | does | result |
|---|---|---|
| `join` | opens what `calls` at once need there; they are kept from one job to the next | pids of program and agent |
| `calls` | so many at once of the agent `name`, each to its end | chunks, messages, bytes, p50, p99, first |
| `rush` | keeps `calls` under way, one after the other, for `seconds` | as above, within it; `all`: also later |
| `piped` | so many clients call a tool over one pipe, one call after the other | count, seconds, p50, p99 of a call |
| `document` | `times` calls, one after the other, for a document of `length` if told | seconds, bytes, messages |
| `part` | closes what is kept there | |
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import msgspec

from bench.agent_communication.caller import Caller, Lengths, output_length
from bench.chunks import Pieces, Result
from bench.http import Failed
from bench.rpc import turns

Place = dict[str, Any]


class Seats:
    """The connections to one place."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._each = str(place.get("url")).startswith("ws:")
        self.callers: list[Caller] = []

    async def fill(self, count: int) -> list[Caller]:
        """One for each of so many calls."""
        while len(self.callers) < (count if self._each else 1):
            self.callers.append(await Caller.open(self._place))
        return self.callers[:count] if self._each else self.callers * count

    async def leave(self) -> None:
        """Close them all."""
        await asyncio.gather(*(caller.close() for caller in self.callers))


class Callers:
    """Does the jobs."""

    def __init__(self) -> None:
        self._seats: dict[bytes, Seats] = {}

    async def join(self, place: Place, name: str, calls: int) -> Result:
        """See the module."""
        callers = await self._at(place).fill(calls)
        reader = Pieces()
        await callers[0].run(name, {"chunks": 1, "who": True}, reader)
        wire = callers[0].wire
        return {"pid": wire.pid if wire is not None else None, "agent": reader.sent[0]}

    async def calls(self, place: Place, name: str, calls: int, chunks: int, pace: float) -> Result:
        """See the module. Fails if one of them does not bring all its chunks."""
        callers = await self._at(place).fill(calls)
        return await turns.once([partial(caller.turn, name, chunks, pace) for caller in callers])

    async def rush(self, place: Place, name: str, calls: int, chunks: int, seconds: float) -> Result:
        """See the module. What comes after the time is read, but not counted."""
        callers = await self._at(place).fill(calls)
        return await turns.repeated([partial(caller.turn, name, chunks, 0.0) for caller in callers], seconds)

    async def piped(self, place: Place, name: str, arguments: dict[str, Any], *, calls: int, seconds: float) -> Result:
        """See the module."""
        (caller,) = await self._at(place).fill(1)
        call = partial(caller.request, "tools/call", {"name": name, "arguments": arguments})
        return await turns.timed([call] * calls, seconds)

    async def document(self, place: Place, *, times: int = 1, length: int | None = None, **call: Any) -> Result:
        """See the module. Fails unless the deltas of each call add up to as much as its answer has, and that is it.

        `call`: the arguments of `Caller.run`.
        """
        (caller,) = await self._at(place).fill(1)
        before, messages = caller.bytes, 0
        began = time.monotonic()
        answers = []
        for _ in range(times):
            reader = Lengths()
            answers.append(await caller.run(reader=reader, **call))
            messages += reader.snapshots
            if length is not None and reader.length != length:
                raise Failed(f"the deltas of a document of {length} add up to {reader.length}")
        seconds = time.monotonic() - began
        if length is not None and any(output_length(answer) != length for answer in answers):
            raise Failed(f"an answer is not of {length} characters")
        return {"seconds": seconds, "bytes": caller.bytes - before, "messages": messages}

    async def part(self, place: Place) -> Result:
        """See the module."""
        seats = self._seats.pop(msgspec.json.encode(place), None)
        if seats is not None:
            await seats.leave()
        return {}

    def _at(self, place: Place) -> Seats:
        return self._seats.setdefault(msgspec.json.encode(place), Seats(place))
