"""Threads, pure: their history, messages and files as clients are told, and as agents and clients write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from adapters.agent_connect import wire
from adapters.agent_connect.codec import timestamp
from gateway.core import projection
from gateway.core.errors import AgentBroken
from gateway.core.types import Artifact, ChatMessage, Checkpoint, Json, JsonObject, Role, Thread

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


_ROLES = {
    "user": Role.USER,
    "human": Role.USER,
    "assistant": Role.ASSISTANT,
    "ai": Role.ASSISTANT,
    "agent": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "tool": Role.TOOL,
}


def thread_id(body: bytes, where: str) -> str:
    """The id of a `Thread`. Raises AgentBroken."""
    ident = _object(_decoded(body, where), where).get("thread_id")
    if not isinstance(ident, str):
        raise AgentBroken(f"{where} did not answer with a thread")
    return ident


def state(body: bytes, where: str) -> Checkpoint:
    """The state of a `Thread`. Raises AgentBroken."""
    thread = _object(_decoded(body, where), where)
    return _told_state(thread, str(thread.get("updated_at") or ""))


def states(body: bytes, where: str) -> list[Checkpoint]:
    """A list of `ThreadState`. Raises AgentBroken."""
    listed = _decoded(body, where)
    if not isinstance(listed, list):
        raise AgentBroken(f"{where} did not answer with a list of states")
    out = []
    for one in listed:
        told = _object(one, where)
        metadata = told.get("metadata")
        out.append(_told_state(told, str(metadata.get("created_at") or "") if isinstance(metadata, dict) else ""))
    return out


def _told_state(told: JsonObject, at: str) -> Checkpoint:
    ref, metadata, said = told.get("checkpoint"), told.get("metadata"), told.get("messages")
    ident = ref.get("checkpoint_id") if isinstance(ref, dict) else None
    messages = [one for one in said if isinstance(one, dict) and isinstance(one.get("role"), str)] if said else []
    return Checkpoint(
        id=ident if isinstance(ident, str) else "",
        thread="",
        created_at=_seconds(at),
        values=told.get("values"),
        messages=tuple(chat_message(one) for one in messages),
        replaces=True,
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def chat_message(told: Mapping[str, Any]) -> ChatMessage:
    """A `Message` as a thread's record keeps it: text, with everything else in `metadata`."""
    role, content = told["role"], told.get("content")
    metadata = dict(told.get("metadata") or {})
    if role not in _ROLES:
        metadata["role"] = role
    if not isinstance(content, str):
        metadata["content"] = content
    return ChatMessage(role=_ROLES.get(role, Role.USER), content=_text(content), id=told.get("id"), metadata=metadata)


def message(kept: ChatMessage) -> JsonObject:
    """The way back: the `Message` that `chat_message` was given."""
    metadata = dict(kept.metadata)
    told: JsonObject = {"role": metadata.pop("role", kept.role.value), "content": metadata.pop("content", kept.content)}
    if kept.id is not None:
        told["id"] = kept.id
    if metadata:
        told["metadata"] = metadata
    return told


def _text(content: Json) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    texts = [block["text"] if isinstance(block, dict) and "text" in block else block for block in blocks]
    return "".join(text for text in texts if isinstance(text, str))


def _decoded(body: bytes, where: str) -> Json:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise AgentBroken(f"{where} did not answer with JSON", detail=str(error)) from None


def _object(value: Json, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise AgentBroken(f"{where} did not answer with a thread")
    return value


def _seconds(told: str) -> float:
    try:
        return datetime.fromisoformat(told).timestamp()
    except (ValueError, OverflowError):
        return 0.0
