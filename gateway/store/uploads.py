"""Uploads: content is written in chunks as it arrives, and cannot be read before the last one is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from gateway.core.errors import TooLarge
from gateway.core.types import Artifact
from gateway.store.write_queue import LONG, WriteQueue

CHUNK_BYTES = 256 * 1024


class UploadSteps(NamedTuple):
    """An engine's steps for an upload. Each is the work of a job, given these keywords besides."""

    begin: Callable[..., Any]
    """owner, artifact: create the record, which nobody finds yet. Returns its `seq`."""
    add: Callable[..., Any]
    """seq, artifact_id, number, data: write a chunk. Raises NotFound if the record was removed meanwhile."""
    finish: Callable[..., Any]
    """seq, artifact: complete the record. Raises NotFound as `add` does."""
    give_up: Callable[..., Any]
    """seq, artifact_id: remove what is there of an upload that is not complete."""


async def upload(
    queue: WriteQueue,
    steps: UploadSteps,
    artifact: Artifact,
    content: AsyncIterator[bytes],
    *,
    owner: str,
    max_bytes: int,
) -> Artifact:
    """Implements `Store.put_artifact`."""
    seq = await queue.submit(partial(steps.begin, owner=owner, artifact=artifact), durable=False, size=LONG)
    done = False
    try:
        size = await _store(queue, content, max_bytes, partial(steps.add, seq=seq, artifact_id=artifact.id))
        stored = replace(artifact, size=size)
        await queue.submit(partial(steps.finish, seq=seq, artifact=stored), size=LONG)
        done = True
        return stored
    finally:
        if not done:
            queue.behind(partial(steps.give_up, seq=seq, artifact_id=artifact.id))


async def _store(queue: WriteQueue, content: AsyncIterator[bytes], max_bytes: int, add: Callable[..., Any]) -> int:
    """Cut the content into chunks, holding one in memory. Returns the size."""
    waiting = bytearray()
    size = number = 0
    async for piece in content:
        size += len(piece)
        if size > max_bytes:
            raise TooLarge(f"the file is larger than {max_bytes} bytes")
        waiting += piece
        while len(waiting) >= CHUNK_BYTES:
            data = bytes(waiting[:CHUNK_BYTES])
            await queue.submit(partial(add, number=number, data=data), durable=False, size=LONG)
            del waiting[:CHUNK_BYTES]
            number += 1
    if waiting:
        last = partial(add, number=number, data=bytes(waiting))
        await queue.submit(last, durable=False, size=LONG)
    return size
