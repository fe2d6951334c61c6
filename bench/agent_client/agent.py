"""The agent on standard input and output: `python -m bench.agent_client.agent`.

A prompt whose text is JSON, `{"chunks": N, "pace": SECONDS, "burst": B}`, is answered with N chunks, `pace` seconds
apart (0: as fast as they are taken, `burst` chunks a write). A chunk is the time it was sent (stamp.py). Any other
prompt is answered with its own text. There may be words before the JSON.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from bench.rpc.speaker import Speaker
from bench.stamp import stamp

CHUNKS = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%b","update":'
    b'{"content":{"text":"%b","type":"text"},"sessionUpdate":"agent_message_chunk"}}}\n'
)
INITIALIZED = {
    "protocolVersion": 1,
    "agentCapabilities": {"loadSession": False, "promptCapabilities": {}},
    "authMethods": [],
    "agentInfo": {"name": "bench", "title": "Says when it said it", "version": "1.0.0"},
}
_encode = msgspec.json.encode


class Options(Struct, forbid_unknown_fields=True):
    """The prompt."""

    chunks: Annotated[int, Meta(ge=1)]
    pace: Annotated[float, Meta(ge=0)] = 0.0
    burst: Annotated[int, Meta(ge=1)] = 1


class Block(Struct):
    text: str = ""


class Params(Struct, rename="camel"):
    session_id: str = ""
    prompt: list[Block] = []


class Message(Struct):
    """What is read of a request or notification."""

    method: str = ""
    id: Raw | UnsetType = UNSET
    params: Params = msgspec.field(default_factory=Params)


_read = msgspec.json.Decoder(Message).decode
_options = msgspec.json.Decoder(Options).decode


class Turn:
    """One prompt on its way to its answer. See `Speech`."""

    def __init__(self, id: Raw, session: bytes, options: Options, says: bytes | None) -> None:
        self.id = id
        self.session = session
        self.options = options
        self.pace = options.pace
        self.at = 0.0
        self.sent = 0
        self._says = says

    @property
    def over(self) -> bool:
        """Nothing is left to say."""
        return self.sent >= self.options.chunks

    def chunks(self) -> bytes:
        """The next of them."""
        lines = []
        for _ in range(min(self.options.burst, self.options.chunks - self.sent)):
            lines.append(CHUNKS % (self.session, self._says or stamp()))
            self.sent += 1
        return b"".join(lines)


class Agent(Speaker[Turn]):
    """See `Speaker`."""

    def __init__(self, source: int, sink: int) -> None:
        super().__init__(source, sink)
        self._ids = itertools.count(1)
        self._turns: dict[bytes, Turn] = {}
        self._methods: dict[str, Callable[[Message], None]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/set_mode": lambda message: self.write(_answer(message.id, {})),
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
        }

    def ending(self, turn: Turn) -> bytes:
        """The prompt's answer."""
        return self._ended(turn, "end_turn")

    # --- methods -----------------------------------------------------------------------------------------------

    def take(self, line: bytes) -> None:
        """See `Speaker.take`."""
        message = _read(line)
        serve = self._methods.get(message.method)
        if serve is not None:
            serve(message)
        elif message.method and message.id is not UNSET:
            error = {"code": -32601, "message": f"unknown method {message.method}"}
            self.write(_encode({"jsonrpc": "2.0", "id": message.id, "error": error}) + b"\n")

    def _initialize(self, message: Message) -> None:
        self.write(_answer(message.id, INITIALIZED))

    def _new(self, message: Message) -> None:
        """`_meta.pid` lets a measurement ask the system what this process takes."""
        name = f"sess_{next(self._ids):012d}"
        self.write(_answer(message.id, {"sessionId": name, "_meta": {"pid": os.getpid()}}))

    def _prompt(self, message: Message) -> None:
        session = message.params.session_id.encode()
        text = "".join(block.text for block in message.params.prompt)
        says = None
        try:
            options = _options(text[max(0, text.find("{")) :])
        except msgspec.DecodeError:
            options, says = Options(chunks=1), _encode(text)[1:-1]
        assert isinstance(message.id, Raw)
        turn = self._turns[session] = Turn(message.id.copy(), session, options, says)
        self.start(turn)

    def _cancel(self, message: Message) -> None:
        turn = self._turns.get(message.params.session_id.encode())
        if turn is not None and not turn.over:
            turn.sent = turn.options.chunks
            self.write(self._ended(turn, "cancelled"))

    def _ended(self, turn: Turn, why: str) -> bytes:
        del self._turns[turn.session]
        return _answer(turn.id, {"stopReason": why})


def _answer(id: Raw | UnsetType, result: object) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": id, "result": result}) + b"\n"


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        Agent(0, 1).serve()
