"""One connection of a client to an agent, or to what stands before it: calls, and the deltas they are told."""

from __future__ import annotations

import itertools
import time
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bench.agent_communication.wires import connect
from bench.chunks import Pieces
from bench.http import Failed
from bench.rpc.client import Client

Given = dict[str, Any]
RUN = "agents/run"
_PROGRESS = b'"notifications/agents/run/progress"'
_TOKEN = b'"progressToken":"'
_DELTA = b'"delta":{"message":"'
_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1.0.0"}}
_encode = msgspec.json.encode
_tokens = itertools.count()
"""Of all connections here: a proxy tells by them what is whose (bare.py)."""


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


class Caller(Client):
    """`open` one. `readers`: by the token of a call."""

    @classmethod
    async def open(cls, place: dict[str, Any]) -> Caller:
        """Connected and initialized. `place`: see `wires.connect`. Raises Failed."""
        caller = cls()
        caller.wire = await connect(place, caller.take, caller.lost)
        try:
            await caller.request("initialize", _HELLO)
            caller.notify("notifications/initialized", {})
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

    def chunk(self, message: bytes, now: int) -> bool:
        """See `Client.chunk`."""
        if message.find(_PROGRESS, 0, 100) < 0:
            return False
        text = message.find(_DELTA)
        if text >= 0:  # else it is told something else
            text += len(_DELTA)
            name = message.find(_TOKEN) + len(_TOKEN)
            reader = self.readers[message[name : message.find(b'"', name)]]
            reader.piece(message, text, message.find(b'"', text), now)
        return True


def output_length(answer: Raw) -> int:
    """Characters of the text that an agent answered with."""
    return len(msgspec.json.decode(answer, type=Answered).output.message)
