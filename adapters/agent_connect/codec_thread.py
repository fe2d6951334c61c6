"""Core to Agent Connect, pure: threads, their history and messages, files as links."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adapters.agent_connect import wire
from adapters.agent_connect.codec import timestamp
from gateway.core import projection
from gateway.core.types import Artifact, ChatMessage, Checkpoint, JsonObject, Thread

_dump = msgspec.json.Encoder().encode


def encode_thread(thread: Thread, messages: Sequence[ChatMessage]) -> bytes:
    """`Thread` as JSON; `messages` is the conversation so far."""
    return _dump(_thread(thread, messages))


def encode_threads(threads: Sequence[tuple[Thread, Sequence[ChatMessage]]]) -> bytes:
    """A list of `Thread`s as JSON."""
    return _dump([_thread(thread, messages) for thread, messages in threads])


def _thread(thread: Thread, messages: Sequence[ChatMessage]) -> wire.Thread:
    return wire.Thread(
        thread_id=thread.id,
        created_at=timestamp(thread.created_at),
        updated_at=timestamp(thread.updated_at),
        metadata=thread.metadata,
        status=thread.status.value,
        values=thread.values,
        messages=[_message(m) for m in messages] or None,
    )


def encode_history(states: Sequence[tuple[Checkpoint, Sequence[ChatMessage]]]) -> bytes:
    """A list of `ThreadState`s as JSON; each with the conversation up to it."""
    return _dump([_state(checkpoint, messages) for checkpoint, messages in states])


def _state(checkpoint: Checkpoint, messages: Sequence[ChatMessage]) -> wire.ThreadState:
    told: JsonObject = {"created_at": timestamp(checkpoint.created_at)}
    if checkpoint.run:
        told["run_id"] = checkpoint.run
    hidden = REPLACES_MESSAGES
    return wire.ThreadState(
        checkpoint=wire.ThreadCheckpoint(checkpoint_id=checkpoint.id),
        values={} if checkpoint.values is None else checkpoint.values,
        messages=[_message(m) for m in messages] or None,
        metadata={**{k: v for k, v in checkpoint.metadata.items() if k != hidden}, **told},
    )


REPLACES_MESSAGES = "agent_connect.replaces_messages"
"""Mark in a checkpoint's metadata: its messages are the whole conversation, not what this step added."""


def conversation(checkpoints: Sequence[Checkpoint]) -> list[list[ChatMessage]]:
    """The messages of a thread at each of its checkpoints; all of them, oldest first."""
    so_far: list[ChatMessage] = []
    out = []
    for checkpoint in checkpoints:
        before = [] if checkpoint.metadata.get(REPLACES_MESSAGES) else so_far
        so_far = [*before, *checkpoint.messages]
        out.append(so_far)
    return out


def _message(message: ChatMessage) -> wire.Message:
    return wire.Message(
        role=message.role.value, content=message.content, id=message.id, metadata=message.metadata or None
    )


def file_messages(
    files: Sequence[Artifact], document: bytes | msgspec.Raw, pointer: str | None
) -> tuple[wire.Message, ...]:
    """The agent's message that carries its files as links, if it made any, with the text of its output `document`.

    The only case where an output is parsed. `content` is text: the SDK drops every other.
    """
    if not files:
        return ()
    text = projection.text_of(msgspec.json.decode(document), pointer) or ""
    return (wire.Message(role="assistant", content=text, metadata={"artifacts": [link(file) for file in files]}),)


def link(file: Artifact) -> JsonObject:
    """A file as this protocol's clients see it."""
    told: JsonObject = {"name": file.name, "url": file.url, "media_type": file.media_type, "size": file.size}
    if file.relative_path:
        told["relative_path"] = file.relative_path
    return told
