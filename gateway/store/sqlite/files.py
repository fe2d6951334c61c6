"""Artifacts: content is written in chunks as it arrives, and cannot be read before the last one is there."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from gateway.core.errors import Conflict, NotFound, TooLarge
from gateway.core.types import Artifact
from gateway.store.sqlite import lease
from gateway.store.sqlite.changes import remove_artifact
from gateway.store.sqlite.queries import encode, require

CHUNK_BYTES = 256 * 1024


async def upload(
    artifact: Artifact,
    content: AsyncIterator[bytes],
    max_bytes: int,
    *,
    begin: Callable[[sqlite3.Cursor], int],
    write: Callable[..., Awaitable[Any]],
    forget: Callable[[Callable[[sqlite3.Cursor], None]], object],
) -> Artifact:
    """Implements `Store.put_artifact`. `write` runs work in the writer and waits; `forget` does not wait."""
    seq = await write(begin, durable=False)
    done = False
    try:
        size = await _store(content, max_bytes, partial(_add, seq=seq, artifact_id=artifact.id), write)
        stored: Artifact = msgspec.structs.replace(artifact, size=size)
        await write(partial(_finish, seq=seq, artifact=stored))
        done = True
        return stored
    finally:
        if not done:
            forget(partial(_give_up, seq=seq, artifact_id=artifact.id))


async def _store(
    content: AsyncIterator[bytes], max_bytes: int, add: Callable[..., None], write: Callable[..., Awaitable[Any]]
) -> int:
    """Cut the content into chunks, holding one in memory. Returns the size."""
    waiting = bytearray()
    size = number = 0
    async for piece in content:
        size += len(piece)
        if size > max_bytes:
            raise TooLarge(f"the file is larger than {max_bytes} bytes")
        waiting += piece
        while len(waiting) >= CHUNK_BYTES:
            await write(partial(add, number=number, data=bytes(waiting[:CHUNK_BYTES])), durable=False)
            del waiting[:CHUNK_BYTES]
            number += 1
    if waiting:
        await write(partial(add, number=number, data=bytes(waiting)), durable=False)
    return size


def begin(cursor: sqlite3.Cursor, *, owner: str, artifact: Artifact) -> int:
    """Create the record of a file that `owner` uploads. Returns its `seq`."""
    if artifact.run is not None:
        require(cursor, "runs", artifact.run)
    if artifact.thread is not None:
        require(cursor, "threads", artifact.thread)
    if cursor.execute("SELECT 1 FROM artifacts WHERE id = ?", (artifact.id,)).fetchone() is not None:
        raise Conflict(f"artifact {artifact.id} exists already")
    cursor.execute(
        "INSERT INTO artifacts (id, run, thread, uploader, created_at, record) VALUES (?, ?, ?, ?, ?, ?)",
        (artifact.id, artifact.run, artifact.thread, owner, artifact.created_at, encode(artifact)),
    )
    seq = cursor.lastrowid
    assert seq is not None
    return seq


def _add(cursor: sqlite3.Cursor, *, seq: int, artifact_id: str, number: int, data: bytes) -> None:
    cursor.execute(
        "INSERT INTO chunks (artifact, number, data) SELECT seq, ?, ? FROM artifacts WHERE seq = ? AND id = ?",
        (number, data, seq, artifact_id),
    )
    if not cursor.rowcount:
        raise NotFound(f"artifact {artifact_id} was removed while it was uploaded")


def _finish(cursor: sqlite3.Cursor, *, seq: int, artifact: Artifact) -> None:
    cursor.execute(
        "UPDATE artifacts SET uploader = NULL, record = ? WHERE seq = ? AND id = ?",
        (encode(artifact), seq, artifact.id),
    )
    if not cursor.rowcount:
        raise NotFound(f"artifact {artifact.id} was removed while it was uploaded")


def _give_up(cursor: sqlite3.Cursor, *, seq: int, artifact_id: str) -> None:
    if cursor.execute(
        "SELECT 1 FROM artifacts WHERE seq = ? AND id = ? AND uploader IS NOT NULL", (seq, artifact_id)
    ).fetchone():
        remove_artifact(cursor, seq)


def sweep(cursor: sqlite3.Cursor, me: lease.StoreProcess) -> None:
    """Remove unfinished uploads of dead processes."""
    unfinished = cursor.execute("SELECT seq, uploader FROM artifacts WHERE uploader IS NOT NULL").fetchall()
    dead = {owner: lease.is_dead(cursor, owner, me) for owner in {owner for _, owner in unfinished}}
    for seq, owner in unfinished:
        if dead[owner]:
            remove_artifact(cursor, seq)
