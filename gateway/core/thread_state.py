"""A thread's state: what its checkpoints come to, in the schema that clients are told.

An agent that keeps state may publish a schema of its own (`Agent.thread_schema`). For every other agent that converses
the gateway keeps the state from its own record: an object with the conversation in `messages`, beside whatever members
a client has given it (`SCHEMA`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, overload

from msgspec.structs import replace

from gateway.core.errors import Invalid
from gateway.core.types import Agent, ChatMessage, Checkpoint, Json, JsonObject, Role

MESSAGES: Final = "messages"

SCHEMA: Final[JsonObject] = {
    "type": "object",
    "description": "The conversation so far, oldest message first.",
    "properties": {
        MESSAGES: {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "role": {"type": "string", "description": "user, assistant, system or tool"},
                    "content": {"type": "string"},
                    "id": {"type": "string"},
                    "metadata": {"type": "object"},
                },
                "required": ["role", "content"],
            },
        }
    },
}
"""The state of agents that publish none of their own."""

_ANNOTATIONS: Final = frozenset(
    ("title", "description", "examples", "example", "default", "$schema", "$id", "$comment")
)
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_REPLACES: Final = ".replaces_messages"
"""Records of older versions say `replaces` by such a key of the metadata."""
_ROLES: Final = frozenset(role.value for role in Role)


def schema_of(agent: Agent) -> JsonObject | None:
    """The schema of the state that a thread with this agent has; None where clients are shown none."""
    if agent.thread_schema is not None:
        return agent.thread_schema or None
    return SCHEMA if agent.converses else None


def same_schema(one: JsonObject, other: JsonObject) -> bool:
    """Whether two schemas allow the same, as far as can be seen: titles, descriptions and examples do not count."""
    return bool(_bare(one) == _bare(other))


def _bare(schema: Json) -> Json:
    if isinstance(schema, Mapping):
        out: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _ANNOTATIONS:
                continue
            if key in _NAMED and isinstance(value, Mapping):
                out[key] = {name: _bare(part) for name, part in value.items()}
            else:
                out[key] = sorted(value, key=str) if key == "required" and isinstance(value, list) else _bare(value)
        return out
    return [_bare(item) for item in schema] if isinstance(schema, list) else schema


class Accumulated(Sequence[Checkpoint]):
    """A thread's checkpoints, oldest first, each with the whole state at its time: all messages, and the newest values.

    One is made when it is asked for: what all of them have in common is kept once, however many there are.
    """

    def __init__(self, checkpoints: Iterable[Checkpoint]) -> None:
        """`checkpoints`: all of a thread's, oldest first."""
        self._points: list[tuple[Checkpoint, list[ChatMessage], int, Json]] = []
        messages: list[ChatMessage] = []
        values: Json = None
        for point in checkpoints:
            if point.replaces or _marks(point):
                messages = []  # those before still have theirs
            messages += point.messages
            if point.run is None and point.values is not None:
                values = point.values
            self._points.append((point, messages, len(messages), values))

    def __len__(self) -> int:
        return len(self._points)

    @overload
    def __getitem__(self, at: int) -> Checkpoint: ...
    @overload
    def __getitem__(self, at: slice) -> list[Checkpoint]: ...
    def __getitem__(self, at: int | slice) -> Checkpoint | list[Checkpoint]:
        if isinstance(at, slice):
            return [_whole(*one) for one in self._points[at]]
        return _whole(*self._points[at])

    def place(self, ident: str) -> int | None:
        """Where the checkpoint of that id is."""
        return next((at for at, (point, *_) in enumerate(self._points) if point.id == ident), None)


def _whole(point: Checkpoint, messages: list[ChatMessage], count: int, values: Json) -> Checkpoint:
    marks = _marks(point)
    metadata = {key: told for key, told in point.metadata.items() if key not in marks}
    return replace(point, messages=tuple(messages[:count]), values=values, replaces=True, metadata=metadata)


def _marks(point: Checkpoint) -> list[str]:
    return [key for key in point.metadata if key.endswith(_REPLACES)]


def kept(point: Checkpoint) -> JsonObject:
    """The values of a state that the gateway keeps (`SCHEMA`). `point` is an accumulated one."""
    beside = point.values if isinstance(point.values, dict) else {}
    return {**beside, MESSAGES: [_written(message) for message in point.messages]}


def untouched(point: Checkpoint) -> Json:
    """The values of a state that no agent has worked on: as clients gave them. `point` is an accumulated one."""
    if point.values is None or isinstance(point.values, dict):
        return kept(point) if point.messages else point.values
    return point.values


def as_given(point: Checkpoint, agent: Agent) -> Checkpoint:
    """The state that clients gave a thread before any agent worked on it, for an agent that keeps state. The messages
    are part of the values where its schema has them there. `point` is an accumulated one.
    """
    if MESSAGES in (agent.thread_schema or {}).get("properties", {}):
        return replace(point, values=untouched(point), messages=())
    return point


def _written(message: ChatMessage) -> JsonObject:
    told: JsonObject = {"role": message.role.value, "content": message.content}
    if message.id is not None:
        told["id"] = message.id
    if message.metadata:
        told["metadata"] = message.metadata
    return told


def patched(
    now: Checkpoint, base: Checkpoint, values: Json, messages: Sequence[ChatMessage] | None, *, strict: bool
) -> Checkpoint:
    """The checkpoint that makes the state `now` into `base` with these values and messages (None: those of `base`).

    `messages` of the values are the thread's messages, unless they are given beside. Where they are not written as
    `SCHEMA` says they stay a part of the values, or with `strict` raise Invalid. Its id, time and metadata are those of
    `now`.
    """
    if isinstance(values, dict) and MESSAGES in values:
        said = _read(values[MESSAGES])
        if said is not None:
            values = {name: value for name, value in values.items() if name != MESSAGES}
            messages = said if messages is None else messages
        elif strict:
            raise Invalid("messages are objects with a role and a content", path="/values/messages")
    elif strict and values is not None and not isinstance(values, dict):
        raise Invalid("the state is an object", path="/values")
    then = base.messages if messages is None else tuple(messages)
    appended = then[: len(now.messages)] == now.messages
    return replace(
        now,
        run=None,
        values=base.values if values is None else values,
        messages=then[len(now.messages) :] if appended else then,
        replaces=not appended,
    )


def _read(written: Json) -> tuple[ChatMessage, ...] | None:
    if not isinstance(written, list):
        return None
    out = []
    for one in written:
        if not isinstance(one, dict) or not one.keys() <= {"role", "content", "id", "metadata"}:
            return None
        role, content, ident, metadata = (one.get(name) for name in ("role", "content", "id", "metadata"))
        if role not in _ROLES or not isinstance(content, str) or not isinstance(ident, str | None):
            return None
        if not isinstance(metadata, dict | None):
            return None
        out.append(ChatMessage(role=Role(role), content=content, id=ident, metadata=metadata or {}))
    return tuple(out)
