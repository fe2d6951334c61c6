"""Wire to core, pure: threads and messages as agents give them, and messages as clients write them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gateway.core.errors import AgentBroken
from gateway.core.types import ChatMessage, Checkpoint, Json, JsonObject, Role

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
    return _state(thread, str(thread.get("updated_at") or ""))


def states(body: bytes, where: str) -> list[Checkpoint]:
    """A list of `ThreadState`. Raises AgentBroken."""
    listed = _decoded(body, where)
    if not isinstance(listed, list):
        raise AgentBroken(f"{where} did not answer with a list of states")
    out = []
    for one in listed:
        told = _object(one, where)
        metadata = told.get("metadata")
        out.append(_state(told, str(metadata.get("created_at") or "") if isinstance(metadata, dict) else ""))
    return out


def _state(told: JsonObject, at: str) -> Checkpoint:
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
