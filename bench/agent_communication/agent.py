"""The agents on standard input and output: `python -m bench.agent_communication.agent`.

`text` answers the input `{"chunks": N, "pace": SECONDS, "burst": B}` with N deltas, `pace` seconds apart (0: as fast as
they are taken, `burst` a write), each of which adds a chunk to the output's `message`; a chunk is the time it was sent
(stamp.py). `list` adds an item to `items` instead. With `"who": true` a chunk is the number of this process. Both are
tools of plain MCP, too: a call is answered with the whole document as text.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from bench.rpc.speaker import Speaker
from bench.stamp import stamp

PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/agents/run/progress","params":{"delta":%b,"progressToken":%b}}\n'
_INPUT = {
    "type": "object",
    "properties": {
        "chunks": {"type": "integer", "minimum": 1},
        "pace": {"type": "number", "minimum": 0},
        "burst": {"type": "integer", "minimum": 1},
        "who": {"type": "boolean"},
    },
    "required": ["chunks"],
}
_encode = msgspec.json.encode


class Shape(Struct):
    """How an agent's document grows: its first delta, the others, and all of it, of chunks and of what joins them."""

    schema: dict[str, Any]
    first: bytes
    more: bytes
    whole: bytes
    between: bytes


SHAPES = {
    "text": Shape(
        schema={"type": "object", "properties": {"message": {"type": "string"}}},
        first=b'{"message":"%b"}',
        more=b'{"message":"%b"}',
        whole=b'{"message":"%b"}',
        between=b"",
    ),
    "list": Shape(
        schema={"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}},
        first=b'{"items":["%b"]}',
        more=b'{"items":[null,"%b"]}',
        whole=b'{"items":["%b"]}',
        between=b'","',
    ),
}
AGENTS = [
    {"name": name, "description": "Says when it said it.", "inputSchema": _INPUT, "outputSchema": shape.schema}
    for name, shape in SHAPES.items()
]
TOOLS = [{"name": one["name"], "inputSchema": _INPUT} for one in AGENTS]
INITIALIZED = {"capabilities": {"agents": {}, "tools": {}}, "serverInfo": {"name": "bench", "version": "1.0.0"}}


class Options(Struct):
    """The input."""

    chunks: Annotated[int, Meta(ge=1)]
    pace: Annotated[float, Meta(ge=0)] = 0.0
    burst: Annotated[int, Meta(ge=1)] = 1
    who: bool = False


class Beside(Struct, rename="camel"):
    """`_meta`."""

    progress_token: Raw = Raw()


class Params(Struct, rename="camel"):
    name: str = ""
    input: Options | None = None
    arguments: Options | None = None
    protocol_version: str = ""
    request_id: Raw = Raw()
    meta: Beside = msgspec.field(name="_meta", default_factory=Beside)


class Message(Struct):
    """What is read of a request or notification."""

    method: str = ""
    id: Raw | UnsetType = UNSET
    params: Params = msgspec.field(default_factory=Params)


_read = msgspec.json.Decoder(Message).decode


class Turn:
    """One call on its way to its answer. See `Speech`."""

    def __init__(self, id: bytes, shape: Shape, options: Options, token: bytes, *, tool: bool) -> None:
        self.id = id
        self.tool = tool
        self.options = options
        self.pace = options.pace
        self.at = 0.0
        self.said: list[bytes] = []
        self.over = False
        self._shape = shape
        self._token = token

    def chunks(self) -> bytes:
        """The next of them, in a line each; none where nobody wants to know."""
        lines = []
        said, options = self.said, self.options
        for _ in range(min(options.burst, options.chunks - len(said))):
            chunk = b"%019d " % os.getpid() if options.who else stamp()
            lines.append(PROGRESS % ((self._shape.more if said else self._shape.first) % chunk, self._token))
            said.append(chunk)
        self.over = len(said) >= options.chunks
        return b"".join(lines) if self._token else b""

    def whole(self) -> bytes:
        """The document."""
        return self._shape.whole % self._shape.between.join(self.said)


class Agent(Speaker[Turn]):
    """See `Speaker`."""

    def __init__(self, source: int, sink: int) -> None:
        super().__init__(source, sink)
        self._turns: dict[bytes, Turn] = {}
        self._methods: dict[str, Callable[[Message, bytes], None]] = {
            "initialize": self._initialize,
            "ping": lambda _, id: self._answer(id, {}),
            "agents/list": lambda _, id: self._answer(id, {"agents": AGENTS}),
            "agents/run": self._run,
            "tools/list": lambda _, id: self._answer(id, {"tools": TOOLS}),
            "tools/call": self._run,
        }

    def ending(self, turn: Turn) -> bytes:
        """The call's answer."""
        del self._turns[turn.id]
        if turn.tool:
            content = [{"type": "text", "text": turn.whole().decode()}]
            return _line(turn.id, "result", {"content": content, "isError": False})
        return b'{"jsonrpc":"2.0","id":%b,"result":{"output":%b}}\n' % (turn.id, turn.whole())

    # --- methods -----------------------------------------------------------------------------------------------

    def take(self, line: bytes) -> None:
        """See `Speaker.take`."""
        message = _read(line)
        if message.id is UNSET:
            if message.method == "notifications/cancelled":
                self._cancel(bytes(message.params.request_id))
            return
        id = bytes(message.id)
        serve = self._methods.get(message.method)
        if serve is not None and (serve != self._run or message.params.name in SHAPES):
            serve(message, id)
        else:
            self._refuse(id, -32601, f"unknown method {message.method}, or no such agent")

    def _initialize(self, message: Message, id: bytes) -> None:
        self._answer(id, {"protocolVersion": message.params.protocol_version, **INITIALIZED})

    def _run(self, message: Message, id: bytes) -> None:
        params, tool = message.params, message.method == "tools/call"
        options = params.input or params.arguments or Options(chunks=1)
        token = b"" if tool else bytes(params.meta.progress_token)
        turn = self._turns[id] = Turn(id, SHAPES[params.name], options, token, tool=tool)
        self.start(turn)

    def _cancel(self, id: bytes) -> None:
        turn = self._turns.pop(id, None)
        if turn is not None:
            turn.over = True
            self._refuse(id, -32800, "cancelled")

    def _answer(self, id: bytes, result: object) -> None:
        self.write(_line(id, "result", result))

    def _refuse(self, id: bytes, code: int, why: str) -> None:
        self.write(_line(id, "error", {"code": code, "message": why}))


def _line(id: bytes, member: str, value: object) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": Raw(id), member: value}) + b"\n"


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        Agent(0, 1).serve()
