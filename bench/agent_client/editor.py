"""One connection of an editor to an agent, or to what stands before it: requests, sessions, and what they are told."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bench.chunks import Pieces
from bench.http import Failed
from bench.rpc.client import Client
from bench.rpc.wires import connect

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

    async def ask(self) -> None:
        """A prompt that is answered with one chunk."""
        await self.turn(1, 0.0, Pieces())

    def cancel(self) -> None:
        """What is under way."""
        self._editor.notify("session/cancel", {"sessionId": self.id})


class Editor(Client):
    """`open` one. `readers`: by the id of a session."""

    @classmethod
    async def open(cls, place: dict[str, Any]) -> Editor:
        """Connected and initialized. `place`: see `wires.connect`. Raises Failed."""
        editor = cls()
        editor.wire = await connect(place, editor.take, editor.lost)
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

    def chunk(self, message: bytes, now: int) -> bool:
        """See `Client.chunk`."""
        if message.find(_CHUNK) < 0:
            return False
        name = message.find(_SESSION) + len(_SESSION)
        text = message.find(_TEXT) + len(_TEXT)
        reader = self.readers[message[name : message.find(b'"', name)]]
        reader.piece(message, text, message.find(b'"', text), now)
        return True


def asking(chunks: int, pace: float) -> str:
    """The prompt that has the agent (agent.py) say that many chunks: words, as people write, and not a document."""
    return f"please {_encode({'chunks': chunks, 'pace': pace}).decode()}"


def stop_reason(answer: Raw) -> str:
    """Why a turn ended."""
    return msgspec.json.decode(answer, type=Answered).stop_reason
