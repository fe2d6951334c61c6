"""What a store's contract tests stand on: a place that several stores share, records to put there, other processes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import sqlite3
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from gateway.core.types import Artifact, Checkpoint, IfBusy, Run, RunRequest, RunStatus, Thread
from gateway.store import LogEntry, Store
from tests.support.forking import Forked, fork

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("child.py")
NOW = 1_800_000_000.0
"""A clock for records; leases have their own."""


@dataclass(frozen=True)
class Place:
    """Where one test's stores live, empty at first. `maker` (module:function) makes a store of `url` and options.

    Options, which every engine must take: `host`, a name to take the lease under; `lease_seconds`.
    """

    maker: str
    url: str

    def store(self, **options: Any) -> Store:
        """Another store, not open yet."""
        module, _, name = self.maker.partition(":")
        store: Store = getattr(importlib.import_module(module), name)(self.url, **options)
        return store

    @contextlib.asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Store]:
        store = self.store(**options)
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def sql(self, statement: str) -> list[Any]:
        """The rows of a statement in the database, past every store."""
        if self.url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None)) as file:
                return file.execute(statement).fetchall()
        connection = await asyncpg.connect(self.url, server_settings={"search_path": "interlingua"})
        try:
            return list(await connection.fetch(statement))
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def process(self, command: str, **arguments: Any) -> AsyncIterator[Child]:
        """A process that has the store open and does `command` (child.py); killed at the end."""
        call = json.dumps({"maker": self.maker, "url": self.url, "command": command, "arguments": arguments})
        child = await Child.start(call)
        try:
            yield child
        finally:
            await child.kill()


class Child:
    """The other process, seen from here. It speaks in lines of JSON."""

    def __init__(self, process: Forked, asked: int, said: asyncio.StreamReader, pipe: asyncio.BaseTransport) -> None:
        self._process = process
        self._asked = asked
        self._said = said
        self._pipe = pipe

    @classmethod
    async def start(cls, call: str) -> Child:
        """A process of its own, forked off one that has imported what it needs."""
        (given, asked), (heard, told) = os.pipe(), os.pipe()
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        try:
            process = fork(["-P", str(CHILD), call], (given, told, 2), env=env, cwd=ROOT, python=sys.executable)
        finally:
            os.close(given)
            os.close(told)
        reader = asyncio.StreamReader()
        connected = asyncio.get_running_loop().connect_read_pipe
        pipe, _ = await connected(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(heard, "rb"))
        return cls(process, asked, reader, pipe)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def said(self) -> Any:
        """The next thing it says. AssertionError if it ends instead."""
        line = await self._said.readline()
        assert line, "the other process ended"
        return json.loads(line)

    async def go(self) -> None:
        """Let it go on where it waits."""
        os.write(self._asked, b"go\n")

    async def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        if self._asked < 0:
            return
        self._process.kill()
        await asyncio.to_thread(self._process.wait, 60)
        os.close(self._asked)
        self._asked = -1
        self._pipe.close()


def new_id() -> str:
    return str(uuid.uuid4())


def make_run(
    run_id: str | None = None,
    *,
    thread: str | None = None,
    if_busy: IfBusy = IfBusy.ENQUEUE,
    at: float = NOW,
    status: RunStatus = RunStatus.PENDING,
    **request: Any,
) -> Run:
    """A run as the engine makes it; `request` are fields of its RunRequest."""
    fields = {"agent": "mail", "input": {"message": "hi"}, "protocol": "plain", **request}
    return Run(
        id=run_id or new_id(),
        request=RunRequest(thread=thread, if_busy=if_busy, **fields),
        status=status,
        created_at=at,
        updated_at=at,
    )


def make_thread(thread_id: str | None = None, *, at: float = NOW, **fields: Any) -> Thread:
    return Thread(id=thread_id or new_id(), created_at=at, updated_at=at, **fields)


def make_checkpoint(thread: str, checkpoint_id: str | None = None, *, at: float = NOW, **fields: Any) -> Checkpoint:
    return Checkpoint(id=checkpoint_id or new_id(), thread=thread, created_at=at, **fields)


def make_artifact(artifact_id: str | None = None, *, at: float = NOW, **fields: Any) -> Artifact:
    return Artifact(id=artifact_id or new_id(), name="report.txt", created_at=at, **fields)


def entry(number: int, data: str | None = None, *, delta: bool = False) -> LogEntry:
    return LogEntry(number, (data or json.dumps({"event": "custom", "name": f"n{number}"})).encode(), delta)


def tokens(first: int, count: int) -> list[LogEntry]:
    """Deltas, each with its number in it."""
    return [
        entry(n, json.dumps({"event": "part_delta", "delta": f"t{n}"}), delta=True) for n in range(first, first + count)
    ]


async def content(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def whole(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


async def eventually(found: Any, within: float = 30.0) -> Any:
    """What the coroutine function `found` returns as soon as that is true; AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        if result := await found():
            return result
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


def numbers(entries: Iterable[LogEntry]) -> list[int]:
    return [one.number for one in entries]
