"""The agent on standard input and output: `python -m bench.agent_client.agent`.

A prompt whose text is JSON, `{"chunks": N, "pace": SECONDS, "burst": B}`, is answered with N chunks, `pace` seconds
apart (0: as fast as they are taken, `burst` chunks a write). A chunk is the time it was sent (stamp.py). Any other
prompt is answered with its own text.

No event loop and few imports: it starts in the time that an interpreter takes, and one process outruns its readers.
Whoever does not read holds it up, as most agents are.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import time
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from bench.stamp import stamp

BLOCK = 64 * 1024
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
    """One prompt on its way to its answer. `at`: when its next chunk is due."""

    def __init__(self, id: Raw, session: bytes, options: Options, says: bytes | None, at: float) -> None:
        self.id = id
        self.session = session
        self.options = options
        self.at = at
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


class Agent:
    """`serve` it until `source` ends or nobody reads `sink` any more."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._rest = b""
        self._ids = itertools.count(1)
        self._turns: dict[bytes, Turn] = {}
        self._fast: list[Turn] = []
        self._paced: list[tuple[float, int, Turn]] = []
        self._order = itertools.count()
        self._methods: dict[str, Callable[[Message], None]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
        }

    def serve(self) -> None:
        """See the class."""
        with contextlib.suppress(BrokenPipeError):
            while True:
                ready, _, _ = select.select([self._source], [], [], self._seconds())
                if ready:
                    data = os.read(self._source, BLOCK)
                    if not data:
                        return
                    *lines, self._rest = (self._rest + data).split(b"\n")
                    for line in lines:
                        self._take(line)
                self._speak()

    def _seconds(self) -> float | None:
        """Until there is something to say; None if there is not."""
        if self._fast:
            return 0.0
        return max(0.0, self._paced[0][0] - time.monotonic()) if self._paced else None

    def _speak(self) -> None:
        """What is due: a write a turn."""
        now = time.monotonic()
        while self._paced and self._paced[0][0] <= now:
            turn = heapq.heappop(self._paced)[2]
            if self._said(turn):
                turn.at += turn.options.pace
                heapq.heappush(self._paced, (turn.at, next(self._order), turn))
        if self._fast:
            self._fast = [turn for turn in self._fast if self._said(turn)]

    def _said(self, turn: Turn) -> bool:
        """Have a turn say the next of it, and its answer with the last; whether there is more to come."""
        if turn.over:  # cancelled
            return False
        self._write(turn.chunks())
        if turn.over:
            self._end(turn, "end_turn")
        return not turn.over

    # --- methods -----------------------------------------------------------------------------------------------

    def _take(self, line: bytes) -> None:
        message = _read(line)
        serve = self._methods.get(message.method)
        if serve is not None:
            serve(message)
        elif message.method and message.id is not UNSET:
            error = {"code": -32601, "message": f"unknown method {message.method}"}
            self._write(_encode({"jsonrpc": "2.0", "id": message.id, "error": error}) + b"\n")

    def _initialize(self, message: Message) -> None:
        self._answer(message.id, INITIALIZED)

    def _new(self, message: Message) -> None:
        """`_meta.pid` lets a measurement ask the system what this process takes."""
        name = f"sess_{next(self._ids):012d}"
        self._answer(message.id, {"sessionId": name, "_meta": {"pid": os.getpid()}})

    def _prompt(self, message: Message) -> None:
        session = message.params.session_id.encode()
        text = "".join(block.text for block in message.params.prompt)
        says = None
        try:
            options = _options(text)
        except msgspec.DecodeError:
            options, says = Options(chunks=1), _encode(text)[1:-1]
        assert isinstance(message.id, Raw)
        number = next(self._order)
        # Turns that begin together are not to speak at the same moments: each begins at a time of its own.
        at = time.monotonic() + options.pace * (number * 0.618034 % 1.0)
        turn = self._turns[session] = Turn(message.id.copy(), session, options, says, at)
        if options.pace:
            heapq.heappush(self._paced, (at, number, turn))
        else:
            self._fast.append(turn)

    def _cancel(self, message: Message) -> None:
        turn = self._turns.get(message.params.session_id.encode())
        if turn is not None and not turn.over:
            turn.sent = turn.options.chunks
            self._end(turn, "cancelled")

    def _end(self, turn: Turn, why: str) -> None:
        del self._turns[turn.session]
        self._answer(turn.id, {"stopReason": why})

    def _answer(self, id: Raw | UnsetType, result: object) -> None:
        self._write(_encode({"jsonrpc": "2.0", "id": id, "result": result}) + b"\n")

    def _write(self, data: bytes) -> None:
        """All of it; waits while nobody reads."""
        written = os.write(self._sink, data)
        while written < len(data):
            written += os.write(self._sink, data[written:])


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        Agent(0, 1).serve()
