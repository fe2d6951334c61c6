"""A lean translator, the floor of a gateway in Python: Agent Connect in and out, and nothing else.

It reads a request and writes one for the agent, reads the agent's answer and writes one of its own, with the run's own
id; a stream event by event. uvicorn serves, a small client on httptools calls, msgspec reads and writes JSON. There are
no routes, no checks, no time limits and no store: what a run costs beyond this is what the gateway adds to translating.

`--rows FILE`: two rows a run in SQLite, one when it begins and one when it ends, on disk before the answer is sent, as
the gateway promises; many runs share a commit. `python -m bench.lean --port N --agent PORT [--rows FILE]`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sqlite3
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from msgspec import UNSET, Raw, Struct, UnsetType

from bench.http import ClientConnection

_JSON = [(b"content-type", b"application/json")]
_EVENTS = [(b"content-type", b"text/event-stream")]
_DATA = b"data: "
_encode = msgspec.json.encode


class Asked(Struct):
    """What a client asks for."""

    agent_id: str
    input: Raw
    config: Raw | UnsetType = UNSET
    stream_mode: str | UnsetType = UNSET


class Output(Struct):
    type: str
    values: Raw
    status: str | UnsetType = UNSET
    run_id: str | UnsetType = UNSET


class Answered(Struct):
    """What the agent answers a wait."""

    output: Output


class Run(Struct):
    """What a client is told of a run."""

    run_id: str
    agent_id: str
    status: str
    created_at: str
    updated_at: str
    creation: Asked


class Whole(Struct):
    run: Run
    output: Output


_asked = msgspec.json.Decoder(Asked).decode
_answered = msgspec.json.Decoder(Answered).decode
_event = msgspec.json.Decoder(Output).decode


class Rows:
    """Two rows a run, written by a thread; whatever waits goes into one commit."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._waiting: list[tuple[str, bytes, asyncio.Future[None] | None]] = []
        self._some = threading.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._write, daemon=True).start()

    def begun(self, run_id: str, record: bytes) -> None:
        """Soon on disk."""
        self._waiting.append((run_id, record, None))

    def ended(self, run_id: str, record: bytes) -> asyncio.Future[None]:
        """Done once both are on disk."""
        future = self._loop.create_future()
        self._waiting.append((run_id, record, future))
        self._some.set()
        return future

    def _write(self) -> None:
        database = sqlite3.connect(self._file, isolation_level=None)
        database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
        database.execute("CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID")
        while True:
            self._some.wait()
            self._some.clear()
            rows, self._waiting = self._waiting, []
            database.execute("BEGIN")
            database.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?)", [row[:2] for row in rows])
            database.execute("COMMIT")
            self._loop.call_soon_threadsafe(_done, [future for _, _, future in rows if future is not None])


def _done(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Translator:
    """The ASGI application."""

    def __init__(self, agent: int, rows: Path | None) -> None:
        self._agent = agent
        self._file = rows
        self._rows: Rows | None = None
        self._free: list[ClientConnection] = []
        self._up = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not self._up:
            self._up = True
            self._rows = Rows(self._file) if self._file is not None else None
            gc.collect()
            gc.freeze()
        path, body = scope["path"], b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        if path == "/runs/wait":
            await self._wait(_asked(body), send)
        elif path == "/runs/stream":
            await self._stream(_asked(body), send)
        else:
            await _reply(send, b"{}")

    async def _wait(self, asked: Asked, send: Any) -> None:
        run = self._begun(asked)
        connection = await self._connected()
        answer = _answered(await connection.request("POST", "/runs/wait", _encode(asked)))
        self._free.append(connection)
        whole = Whole(run, Output("result", answer.output.values))
        await self._ended(run)
        await _reply(send, _encode(whole))

    async def _stream(self, asked: Asked, send: Any) -> None:
        run = self._begun(asked)
        connection = await self._connected()
        pieces: list[bytes] = []
        some = asyncio.Event()

        def take(piece: bytes) -> None:
            pieces.append(piece)
            some.set()

        answer = connection.request("POST", "/runs/stream", _encode(asked), take)
        answer.add_done_callback(lambda _: some.set())
        await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
        rest, number = b"", 0
        while pieces or not answer.done():
            if not pieces:
                some.clear()
                await some.wait()
            *events, rest = (rest + b"".join(pieces)).split(b"\n\n")
            pieces.clear()
            told = []
            for event in events:
                said = _event(event[event.find(_DATA) + len(_DATA) :])
                said.run_id = run.run_id
                number += 1
                told.append(b"id: %d\nevent: agent_event\ndata: %b\n\n" % (number, _encode(said)))
            if told:
                await send({"type": "http.response.body", "body": b"".join(told), "more_body": True})
        await answer
        self._free.append(connection)
        await self._ended(run)
        await send({"type": "http.response.body", "body": b""})

    def _begun(self, asked: Asked) -> Run:
        now = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        run = Run(str(uuid.uuid4()), asked.agent_id, "pending", now, now, asked)
        if self._rows is not None:
            self._rows.begun(run.run_id, _encode(run))
        return run

    async def _ended(self, run: Run) -> None:
        run.status = "success"
        if self._rows is not None:
            await self._rows.ended(run.run_id, _encode(run))

    async def _connected(self) -> ClientConnection:
        while self._free:
            connection = self._free.pop()
            if connection.fresh:
                return connection
        return await ClientConnection.open("127.0.0.1", self._agent)


async def _reply(send: Any, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _JSON})
    await send({"type": "http.response.body", "body": body})


def serve(app: Any, port: int, **more: Any) -> None:
    """Serve a translator until the process is told to end. more: what it wants of uvicorn beside that."""
    uvicorn.run(
        app,
        port=port,
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
        server_header=False,
        **more,
    )


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--agent", type=int, required=True)
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    serve(Translator(options.agent, options.rows), options.port)


if __name__ == "__main__":
    main()
