"""The agents that are measured: `python -m bench.agent --port N`, one process for both.

Agent Connect, at the root: `echo`. `POST /runs/wait` (and on a thread) answers at once with the input's message. A
stream sends snapshots that grow to `config.configurable.chunks` chunks, `pace` seconds apart (0: as fast as they are
taken, `burst` a write), by a chunk each, or by the share `growth` of what was said before; each chunk is the time it
was sent (stamp.py).

Example, at `/example/BYTES`: an answer of that many bytes in 20-byte deltas, 50 lines a write, as fast as taken.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import uuid
from typing import Any

import msgspec

from bench.http import ServerConnection
from bench.stamp import CHUNK, stamp

AGENT_ID = "5f5c0d1e-0000-4000-8000-000000000001"
_TEXT = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
_CONFIG = {
    "type": "object",
    "properties": {
        "chunks": {"type": "integer", "minimum": 1},
        "pace": {"type": "number", "minimum": 0},
        "burst": {"type": "integer", "minimum": 1},
        "growth": {"type": "number", "minimum": 0},
    },
}
METADATA = {"ref": {"name": "echo", "version": "1.0.0"}, "description": "Says what it is told."}
DESCRIPTOR = {
    "metadata": METADATA,
    "specs": {
        "capabilities": {"threads": True, "interrupts": False, "callbacks": False, "streaming": {"values": True}},
        "input": _TEXT,
        "output": _TEXT,
        "config": _CONFIG,
        "thread_state": {"type": "object"},
    },
}
_EVENT = b"id: %d\nevent: agent_event\ndata: "
_VALUES = b'{"type":"values","run_id":"%b","status":"%b","values":{"message":"%b"}}\n\n'
_phases = itertools.count()
_open: dict[str, Stream] = {}
"""Streams by run id, for cancels."""


class Options(msgspec.Struct):
    """`config.configurable`."""

    chunks: int = 1
    pace: float = 0.0
    burst: int = 1
    growth: float = 0.0


class Config(msgspec.Struct):
    configurable: Options = msgspec.field(default_factory=Options)


class Input(msgspec.Struct):
    message: str = ""


class RunCreate(msgspec.Struct):
    """What is read of a request for a run."""

    input: Input
    config: Config | None = None


_read = msgspec.json.Decoder(RunCreate).decode


class Stream:
    """One answer of growing snapshots."""

    def __init__(self, connection: ServerConnection, run: RunCreate) -> None:
        self._connection = connection
        self._options = run.config.configurable if run.config is not None else Options()
        self._says = b"" if run.config is not None else msgspec.json.encode(run.input.message)[1:-1]
        run_id = str(uuid.uuid4())
        self._run_id = run_id.encode()
        _open[run_id] = self
        self._text = bytearray()
        self._sent = 0
        self._over = False
        self._loop = asyncio.get_running_loop()
        pace = self._options.pace
        connection.begin(b"text/event-stream", at_once=pace > 0)
        # Streams that are started together are not to speak at the same moments: each begins at a time of its own.
        self._at = self._loop.time() + pace * (next(_phases) * 0.618034 % 1.0)
        if pace:
            self._loop.call_at(self._at, self._step)
        else:
            self._step()

    def _step(self) -> None:
        connection, options = self._connection, self._options
        if connection.closed:
            self.forget()
        if self._over:
            return
        if connection.full:
            connection.on_room = self._step
            return
        pieces = []
        for _ in range(options.burst):
            if self._sent == options.chunks:
                break
            more = min(max(1, int(self._sent * options.growth)), options.chunks - self._sent)
            for _ in range(more):
                self._text += self._says or stamp()
            self._sent += more
            status = b"success" if self._sent == options.chunks else b"pending"
            pieces.append(_EVENT % self._sent + _VALUES % (self._run_id, status, self._text))
        connection.chunk(b"".join(pieces), last=self._sent == options.chunks)
        if self._sent == options.chunks:
            self.forget()
        elif options.pace:
            self._at += options.pace
            self._loop.call_at(self._at, self._step)
        else:
            self._loop.call_soon(self._step)

    def stop(self) -> None:
        """Say no more."""
        self.forget()
        self._connection.end()

    def forget(self) -> None:
        """Nobody listens any more, or there is nothing more to say."""
        self._over = True
        _open.pop(self._run_id.decode(), None)


class ExampleAnswer:
    """An answer of so many bytes in small deltas."""

    BATCH = 50

    def __init__(self, connection: ServerConnection, size: int) -> None:
        self._connection = connection
        self._left = size // CHUNK
        self._loop = asyncio.get_running_loop()
        self._lines = b'{"part":"text","delta":"%b"}\n' % (b"x" * CHUNK)
        connection.begin(b"application/x-ndjson")
        self._step()

    def _step(self) -> None:
        if self._connection.closed:
            return
        if self._connection.full:
            self._connection.on_room = self._step
            return
        batch = min(self._left, self.BATCH)
        self._left -= batch
        self._connection.chunk(self._lines * batch)
        if self._left:
            self._loop.call_soon(self._step)
        else:
            self._connection.chunk(b'{"done":null}\n')
            self._connection.end()


def _record(body: bytes, thread: str | None) -> dict[str, Any]:
    now = "2025-01-01T00:00:00+00:00"
    record: dict[str, Any] = {"run_id": str(uuid.uuid4()), "agent_id": AGENT_ID, "status": "success"}
    record |= {"created_at": now, "updated_at": now, "creation": msgspec.Raw(body)}
    return record | ({"thread_id": thread} if thread else {})


def handle(connection: ServerConnection, method: str, path: str, body: bytes) -> None:
    """Every request that the two agents know."""
    steps = path.strip("/").split("/")
    if steps[0] == "example":
        return _example(connection, steps[1:])
    thread = None
    if steps[0] == "threads" and len(steps) > 2:
        thread, steps = steps[1], steps[2:]
    match method, steps:
        case "POST", ["runs", "stream"]:
            Stream(connection, _read(body))
        case "POST", ["runs", "wait"]:
            output = {"type": "result", "values": {"message": _read(body).input.message}}
            connection.answer(msgspec.json.encode({"run": _record(body, thread), "output": output}))
        case "POST", ["threads"]:
            connection.answer(msgspec.json.encode({"thread_id": str(uuid.uuid4()), "status": "idle"}))
        case "POST", ["runs", run_id, "cancel"]:
            if run_id in _open:
                _open[run_id].stop()
            connection.answer(b"null")
        case "POST", ["agents", "search"]:
            connection.answer(msgspec.json.encode([{"agent_id": AGENT_ID, "metadata": METADATA}]))
        case "GET", ["agents", _, "descriptor"]:
            connection.answer(msgspec.json.encode(DESCRIPTOR))
        case _:
            connection.answer(b'"not found"', 404)


def _example(connection: ServerConnection, steps: list[str]) -> None:
    if len(steps) == 1 and steps[0].isdigit():
        ExampleAnswer(connection, int(steps[0]))
    else:
        connection.answer(b"{}")


def wait_body() -> str:
    """A run as clients ask for it. The agent's id may be its name here."""
    return msgspec.json.encode({"agent_id": "echo", "input": {"message": "What is the time in Lisbon?"}}).decode()


def stream_body(chunks: int, pace: float) -> str:
    """A streamed run of so many chunks."""
    config = {"configurable": {"chunks": chunks, "pace": pace}}
    body = {"agent_id": "echo", "input": {"message": "Go on"}, "config": config, "stream_mode": "values"}
    return msgspec.json.encode(body).decode()


async def serve(port: int) -> None:
    """Until the process is ended."""
    server = await asyncio.get_running_loop().create_server(lambda: ServerConnection(handle), "127.0.0.1", port)
    gc.collect()
    gc.freeze()
    async with server:
        await server.serve_forever()


def main() -> None:
    """The process."""
    from bench.stage import run

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
