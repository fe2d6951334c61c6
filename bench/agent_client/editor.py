"""One connection of an editor to an agent, or to what stands before it: requests, sessions, and what they are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.agent_client.wires import Wire, connect
from bench.chunks import Pieces
from bench.http import Failed

PROMPT_END = "end_turn"
CANCELLED = "cancelled"
_CHUNK = b'"agent_message_chunk"'
_SESSION = b'"sessionId":"'
_TEXT = b'"text":"'
_HELLO = {
    "protocolVersion": 1,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "bench", "version": "1.0.0"},
}
_encode = msgspec.json.encode


class Message(Struct):
    """What is not a chunk."""

    id: int | str | None = None
    method: str = ""
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Made(Struct, rename="camel"):
    """The answer to `session/new`."""

    session_id: str
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class Answered(Struct, rename="camel"):
    """The answer to a prompt."""

    stop_reason: str


class Session:
    """One session: a prompt at a time."""

    def __init__(self, editor: Editor, made: Made) -> None:
        self.id = made.session_id
        self.agent_pid: int | None = made.meta.get("pid")
        self._editor = editor
        self._name = made.session_id.encode()

    def prompt(self, text: str, reader: Pieces) -> asyncio.Future[Raw]:
        """Have `reader` told what comes of it. The future has the answer."""
        self._editor.readers[self._name] = reader
        reader.began = time.monotonic_ns()
        params = {"sessionId": self.id, "prompt": [{"type": "text", "text": text}]}
        return self._editor.request("session/prompt", params)

    async def turn(self, chunks: int, pace: float, reader: Pieces) -> None:
        """A prompt that is answered with that many chunks. Raises Failed if they did not all come."""
        why = stop_reason(await self.prompt(asking(chunks, pace), reader))
        if why != PROMPT_END or len(reader.sent) != chunks:
            raise Failed(f"{len(reader.sent)} chunks came of {chunks}, and it stopped for {why}")

    def cancel(self) -> None:
        """What is under way."""
        self._editor.notify("session/cancel", {"sessionId": self.id})


class Editor:
    """`open` one. `readers`: who reads the chunks of a session, by its id."""

    def __init__(self) -> None:
        self.readers: dict[bytes, Pieces] = {}
        self.wire: Wire | None = None
        self._next = 0
        self._asked: dict[int, tuple[str, asyncio.Future[Raw]]] = {}
        self._broken: str | None = None

    @classmethod
    async def open(cls, place: dict[str, Any]) -> Editor:
        """Connected and initialized. `place`: see `wires.connect`. Raises Failed."""
        editor = cls()
        editor.wire = await connect(place, editor._take, editor._lost)
        try:
            await editor.request("initialize", _HELLO)
        except BaseException:
            await editor.close()
            raise
        return editor

    async def session(self) -> Session:
        """A new one."""
        params = {"cwd": "/", "mcpServers": []}
        return Session(self, msgspec.json.decode(await self.request("session/new", params), type=Made))

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
        self._lost("the editor has left")

    def _take(self, messages: Sequence[bytes]) -> None:
        now = time.monotonic_ns()
        try:
            for message in messages:
                if message.find(_CHUNK) < 0:
                    self._other(message)
                    continue
                name = message.find(_SESSION) + len(_SESSION)
                text = message.find(_TEXT) + len(_TEXT)
                reader = self.readers[message[name : message.find(b'"', name)]]
                reader.piece(message, text, message.find(b'"', text), now)
        except Exception as error:
            self._lost(f"{type(error).__name__}: {error}")

    def _other(self, data: bytes) -> None:
        """An answer; or an update that nobody here has a use for."""
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


def asking(chunks: int, pace: float) -> str:
    """The prompt that has the agent (agent.py) say that many chunks."""
    return _encode({"chunks": chunks, "pace": pace}).decode()


def stop_reason(answer: Raw) -> str:
    """Why a turn ended."""
    return msgspec.json.decode(answer, type=Answered).stop_reason
