"""One connection to an agent, or to what stands before it: requests, and their answers."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.chunks import Pieces
from bench.http import Failed
from bench.rpc.wires import Wire

_encode = msgspec.json.encode


class Message(Struct):
    """What is not a chunk."""

    id: int | str | None = None
    method: str = ""
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Client(ABC):
    """`readers`: who reads the chunks of a session or call, by the name in their messages. `bytes`: all that came.

    A protocol's own opens the `wire` with `take` and `lost`, and tells chunks from other messages.
    """

    def __init__(self) -> None:
        self.readers: dict[bytes, Pieces] = {}
        self.wire: Wire | None = None
        self.bytes = 0
        self._next = 0
        self._asked: dict[int, tuple[str, asyncio.Future[Raw]]] = {}
        self._broken: str | None = None

    @abstractmethod
    def chunk(self, message: bytes, now: int) -> bool:
        """Give a chunk to its reader; whether it was one (or is nobody's concern). `now`: time.monotonic_ns()."""

    def request(self, method: str, params: object) -> asyncio.Future[Raw]:
        """The future has the result, or Failed."""
        if self._broken is not None or self.wire is None:
            raise Failed(f"{method}: {self._broken}")
        id, self._next = self._next, self._next + 1
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._asked[id] = method, future
        self.wire.send(_encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        return future

    def notify(self, method: str, params: object) -> None:
        """Nothing comes of it."""
        if self.wire is not None:
            self.wire.send(_encode({"jsonrpc": "2.0", "method": method, "params": params}))

    async def close(self) -> None:
        """What is under way there is left to itself."""
        if self.wire is not None:
            await self.wire.close()
        self.lost("the client has left")

    def take(self, messages: Sequence[bytes]) -> None:
        """Messages have come."""
        now = time.monotonic_ns()
        try:
            for message in messages:
                self.bytes += len(message)
                if not self.chunk(message, now):
                    self._other(message)
        except Exception as error:
            self.lost(f"{type(error).__name__}: {error}")

    def lost(self, why: str) -> None:
        """Nothing more comes."""
        self._broken = self._broken or why
        asked, self._asked = self._asked, {}
        for method, future in asked.values():
            if not future.done():
                future.set_exception(Failed(f"{method}: {why}"))

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
