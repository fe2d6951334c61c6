"""Core to Agent Connect, pure: threads, their history and messages, files as links."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adapters.agent_connect import wire
from adapters.agent_connect.codec import timestamp
from gateway.core import projection
from gateway.core.types import Artifact, ChatMessage, Checkpoint, JsonObject, Thread

_dump = msgspec.json.Encoder().encode


def encode_thread(thread: Thread, state: Checkpoint, unread: str = "") -> bytes:
    """`Thread` as JSON with its whole state. `unread`: why the agent did not give it, told in the metadata."""
    return _dump(_thread(thread, state, unread))


def encode_threads(threads: Sequence[tuple[Thread, Checkpoint]]) -> bytes:
    """A list of `Thread`s as JSON."""
    return _dump([_thread(thread, state) for thread, state in threads])


def _thread(thread: Thread, state: Checkpoint, unread: str = "") -> wire.ConnectThread:
    return wire.ConnectThread(
        thread_id=thread.id,
        created_at=timestamp(thread.created_at),
        updated_at=timestamp(thread.updated_at),
        metadata={**thread.metadata, wire.STATE_UNREAD: unread} if unread else thread.metadata,
        status=thread.status.value,
        values=state.values,
        messages=[_message(m) for m in state.messages] or None,
    )


def encode_history(states: Sequence[Checkpoint]) -> bytes:
    """A list of `ThreadState`s as JSON; each is the whole state at its time."""
    return _dump([_state(state) for state in states])


def _state(state: Checkpoint) -> wire.ThreadState:
    told: JsonObject = {"created_at": timestamp(state.created_at)} if state.created_at else {}
    if state.run:
        told["run_id"] = state.run
    return wire.ThreadState(
        checkpoint=wire.ThreadCheckpoint(checkpoint_id=state.id),
        values={} if state.values is None else state.values,
        messages=[_message(m) for m in state.messages] or None,
        metadata={**told, **state.metadata},
    )


def _message(message: ChatMessage) -> wire.ConnectMessage:
    return wire.ConnectMessage(
        role=message.role.value, content=message.content, id=message.id, metadata=message.metadata or None
    )


def file_messages(
    files: Sequence[Artifact], document: bytes | msgspec.Raw, pointer: str | None
) -> tuple[wire.ConnectMessage, ...]:
    """The agent's message that carries its files as links, if it made any, with the text of its output `document`.

    The only case where an output is parsed. `content` is text: the SDK drops every other.
    """
    if not files:
        return ()
    text = projection.text_of(msgspec.json.decode(document), pointer) or ""
    return (
        wire.ConnectMessage(role="assistant", content=text, metadata={"artifacts": [link(file) for file in files]}),
    )


def link(file: Artifact) -> JsonObject:
    """A file as this protocol's clients see it."""
    told: JsonObject = {"name": file.name, "url": file.url, "media_type": file.media_type, "size": file.size}
    if file.relative_path:
        told["relative_path"] = file.relative_path
    return told
