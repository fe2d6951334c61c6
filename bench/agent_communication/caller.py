"""One connection of a client to an agent, or to what stands before it: calls, and the deltas they are told."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.agent_client.wires import Wire
from bench.agent_communication.wires import connect
from bench.chunks import Pieces
from bench.http import Failed

Given = dict[str, Any]
RUN = "agents/run"
_PROGRESS = b'"notifications/agents/run/progress"'
_TOKEN = b'"progressToken":"'
_DELTA = b'"delta":{"message":"'
_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1.0.0"}}
_encode = msgspec.json.encode
_tokens = itertools.count()
"""Of all connections here: a proxy tells by them what is whose (bare.py)."""


class Message(Struct):
    """What is no progress."""

    id: int | str | None = None
    method: str = ""
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Said(Struct):
    message: str


class Answered(Struct):
    """The answer to `agents/run`."""

    output: Said


class Lengths(Pieces):
    """Counts what a document grows by, whatever it says."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def piece(self, message: bytes, start: int, end: int, now: int) -> None:
        """See `Pieces`."""
        self.snapshots += 1
        self.bytes += len(message)
        self.length += end - start


class Caller:
    """`open` one. `readers`: who reads the deltas of a call, by its token. `bytes`: all that came."""

    def __init__(self) -> None:
        self.readers: dict[bytes, Pieces] = {}
        self.wire: Wire | None = None
        self.bytes = 0
        self._next = 0
        self._asked: dict[int, tuple[str, asyncio.Future[Raw]]] = {}
        self._broken: str | None = None

    @classmethod
    async def open(cls, place: dict[str, Any]) -> Caller:
        """Connected and initialized. `place`: see `wires.connect`. Raises Failed."""
        caller = cls()
        caller.wire = await connect(place, caller._take, caller._lost)
        try:
            await caller.request("initialize", _HELLO)
            caller.wire.send(_encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        except BaseException:
            await caller.close()
            raise
        return caller

    async def run(self, agent: str, given: Given, reader: Pieces, config: Given | None = None) -> Raw:
        """`agents/run`: have `reader` told what comes of it, and return the answer. Raises Failed."""
        token = f"t{next(_tokens)}"
        self.readers[token.encode()] = reader
        reader.began = time.monotonic_ns()
        try:
            params = {"name": agent, "input": given, "_meta": {"progressToken": token}}
            return await self.request(RUN, params | ({"config": config} if config else {}))
        finally:
            del self.readers[token.encode()]

    async def turn(self, agent: str, chunks: int, pace: float, reader: Pieces) -> None:
        """A call that is told that many chunks. Raises Failed if they did not all come."""
        await self.run(agent, {"chunks": chunks, "pace": pace}, reader)
        if len(reader.sent) != chunks:
            raise Failed(f"{len(reader.sent)} chunks came of {chunks}")

    def request(self, method: str, params: object) -> asyncio.Future[Raw]:
        """The future has the result, or Failed."""
        if self._broken is not None or self.wire is None:
            raise Failed(f"{method}: {self._broken}")
        id, self._next = self._next, self._next + 1
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._asked[id] = method, future
        self.wire.send(_encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        return future

    async def close(self) -> None:
        """What is under way there is left to itself."""
        if self.wire is not None:
            await self.wire.close()
        self._lost("the client has left")

    def _take(self, messages: Sequence[bytes]) -> None:
        now = time.monotonic_ns()
        try:
            for message in messages:
                self.bytes += len(message)
                if message.find(_PROGRESS, 0, 100) < 0:
                    self._other(message)
                    continue
                text = message.find(_DELTA)
                if text < 0:  # it is told something else
                    continue
                text += len(_DELTA)
                name = message.find(_TOKEN) + len(_TOKEN)
                reader = self.readers[message[name : message.find(b'"', name)]]
                reader.piece(message, text, message.find(b'"', text), now)
        except Exception as error:
            self._lost(f"{type(error).__name__}: {error}")

    def _other(self, data: bytes) -> None:
        """An answer; or a notification that nobody here has a use for."""
        message = msgspec.json.decode(data, type=Message)
        if message.method:
            if message.id is not None:
                raise Failed(f"the agent asks for {message.method}")
            return
        method, future = self._asked.pop(int(message.id or 0))
        if future.done():
            return
        if isinstance(message.result, Raw):
            future.set_result(message.result.copy())
        else:
            future.set_exception(Failed(f"{method}: {data[:500]!r}"))

    def _lost(self, why: str) -> None:
        self._broken = self._broken or why
        asked, self._asked = self._asked, {}
        for method, future in asked.values():
            if not future.done():
                future.set_exception(Failed(f"{method}: {why}"))


def output_length(answer: Raw) -> int:
    """Characters of the text that an agent answered with."""
    return len(msgspec.json.decode(answer, type=Answered).output.message)
