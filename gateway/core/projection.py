"""Text <-> JSON document, by schema: where the text of a document is.

The place is a JSON pointer, with "-" for the item of a conversation that speaks: the last one when a document is read,
a new one when it is written. `/message` of `{"message": "Hi"}`, `/messages/-/content` of a chat, "" of a bare string.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from gateway.core import media
from gateway.core.delta import ABSENT, Json, join, pointer_get, pointer_set, split

JsonObject = dict[str, Any]
Schema = Mapping[str, Any] | bool | None

MESSAGE_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {"message": {"type": "string"}},
    "required": ["message"],
}
"""Input of an agent that publishes no schema."""

MESSAGE_OUTPUT_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "message": {"type": "string"},
        "artifacts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "url": {"type": "string"}},
                "required": ["name", "url"],
            },
        },
    },
    "required": ["message"],
}
"""Output of an agent that publishes no schema."""

PREFERRED: Final = (
    *("message", "text", "content", "input", "output", "prompt", "query", "question", "answer", "result"),
    *("response", "reply", "instruction", "instructions", "task", "goal", "user_input", "body", "value"),
)
CHATS: Final = ("messages", "history", "conversation", "chat", "chat_history")
LAST: Final = "-"
USER: Final = "user"
ASSISTANT: Final = "assistant"

_ROLE_KEYS = ("role", "type")
_ROLES = {USER: ("user", "human"), ASSISTANT: ("assistant", "ai", "agent", "bot", "AIMessageChunk")}
_NO_TEXT = ("enum", "const", "format", "contentEncoding")
_DEPTH = 4  # of documents and chains of references that are searched


def text_pointer(schema: Schema, explicit: str | None = None) -> str | None:
    """Where the text of a document of this schema is, or None. `explicit` (a route's own word) wins if it is not None.

    A string is its own text. In an object: a property with a telling name (PREFERRED, required ones first), a
    conversation (CHATS), its only string, and then the same inside of its own objects. References within the schema are
    followed. Raises Invalid if `explicit` is no JSON pointer.
    """
    if explicit is not None:
        split(explicit)
        return explicit
    return _searched(msgspec.json.encode(schema))


@lru_cache(maxsize=1024)
def _searched(encoded: bytes) -> str | None:
    """`text_pointer` of an encoded schema: a search takes long, and many agents have the same."""
    schema: Schema = msgspec.json.decode(encoded)
    path = _find(schema, schema, _DEPTH)
    return None if path is None else join(path)


def with_text_at(schema: JsonObject, pointer: str) -> JsonObject:
    """A schema that the gateway assumes, with the document's text at another place. The other properties stay, where
    the document is still an object. Raises Invalid if `pointer` is no JSON pointer.
    """
    moved: JsonObject = {"type": "string"}
    for step in reversed(split(pointer)):
        if step == LAST:
            if moved["type"] == "object":  # a message has a place for who says it
                moved["properties"].setdefault(_ROLE_KEYS[0], {"type": "string"})
            moved = {"type": "array", "items": moved, "minItems": 1}
        elif _is_index(step):
            moved = {"type": "array", "prefixItems": [*[{}] * int(step), moved], "minItems": int(step) + 1}
        else:
            moved = {"type": "object", "properties": {step: moved}, "required": [step]}
    if moved["type"] == "object":
        before = split(text_pointer(schema) or "")[:1]
        beside = {name: part for name, part in schema.get("properties", {}).items() if name not in before}
        moved["properties"] = {**beside, **moved["properties"]}
        if "required" not in schema:
            del moved["required"]
    return moved


def may_have_text(schema: Schema, pointer: str) -> bool:
    """Whether a document of this schema may have text at a pointer, as far as the schema tells: a property that it does
    not name, in an object of which it names others, is none of the document's.
    """
    views = list(views_of(schema, schema))
    for step in split(pointer):
        if not views or any(map(_is_open, views)):
            return True
        index = step == LAST or _is_index(step)
        inside = [view["properties"][step] for view in views if step in view["properties"]]
        inside += [view["items"] for view in views if index and isinstance(view.get("items"), Mapping)]
        inside += [
            view["prefixItems"][int(step)]
            for view in views
            if _is_index(step) and int(step) < len(_schemas(view.get("prefixItems")))
        ]
        if not inside:
            return False
        views = [view for part in inside for view in views_of(part, schema)]
    return not views or any(view["type"] in ("string", "array", None) for view in views)


def _is_open(view: Mapping[str, Any]) -> bool:
    """Whether the view says nothing of what is inside."""
    if view["type"] in ("object", None) and not view["properties"]:
        return view.get("additionalProperties") is not False and ("items" not in view or view["type"] == "object")
    more = view.get("additionalProperties"), view.get("patternProperties")
    return any(part is True or isinstance(part, Mapping) for part in more) or (
        view["type"] == "array" and "items" not in view and "prefixItems" not in view
    )


@lru_cache(maxsize=1024)
def _steps(pointer: str) -> Sequence[str]:
    """The steps of a pointer to an agent's text: every message is read and written by one."""
    return tuple(split(pointer))


def wrap(text: str, pointer: str | None, schema: Schema = None, role: str = USER) -> Json:
    """A document with the text at the pointer (None: the text itself is the document).

    Of a conversation it is the only item, said by `role` (USER or ASSISTANT) in the schema's own word for it.
    """
    steps = _steps(pointer or "")
    value: Json = text
    for depth in range(len(steps) - 1, -1, -1):
        step = steps[depth]
        if step == LAST:
            value = [_spoken(value, schema, steps[:depth], role)]
        elif _is_index(step):
            value = [*[None] * int(step), value]
        else:
            value = {step: value}
    return value


def inside_out(pointer: str | None) -> list[str | None]:
    """A pointer's steps from the text outwards; None for an item of an array, as far as a pointer tells."""
    steps = reversed(split(pointer or ""))
    return [None if step == LAST or _is_index(step) else step for step in steps]


def _is_index(step: str) -> bool:
    """Whether a step is taken for a place in an array. A pointer alone does not say."""
    return step.isdecimal() and int(step) < 100


def unwrap(document: Json, pointer: str) -> str | None:
    """The text at the pointer, or None if there is no text there. Text in content blocks is joined."""
    value = document
    for step in _steps(pointer):
        if isinstance(value, dict):
            value = value.get(step, ABSENT)
        else:
            last = step == LAST and isinstance(value, list) and value
            value = value[-1] if last else pointer_get(value, join([step]))
    return _as_text(value)


def text_of(document: Json, pointer: str | None = None) -> str | None:
    """The text at the pointer, or else wherever a document that does not follow its schema seems to have it.

    None if it has none (a document that is no text is for the caller to show as JSON).
    """
    if pointer is not None and (text := unwrap(document, pointer)) is not None:
        return text
    return _guess(document, _DEPTH)


def takes_prose(pointer: str | None) -> bool:
    """Whether the text at the pointer is what somebody says, as far as its name tells; a `city` is not."""
    if pointer is None:
        return False
    named = [step for step in split(pointer) if step != LAST]
    return not named or named[-1] in PREFERRED or named[-1] in CHATS


def preceded(document: Json, pointer: str | None, text: str) -> Json:
    """The document with `text` and a blank line before its own text at the pointer; ABSENT if it has none there."""
    if pointer is None:
        return ABSENT
    steps: list[str | int] = []
    value = document
    for step in split(pointer):
        if step == LAST and isinstance(value, list) and value:
            steps.append(len(value) - 1)
            value = value[-1]
        else:
            steps.append(step)
            value = pointer_get(value, join([step]))
    if isinstance(value, str):
        return pointer_set(document, join(steps), f"{text}\n\n{value}" if value else text)
    if isinstance(value, list) and value and all(isinstance(one, dict) and "type" in one for one in value):
        return pointer_set(document, join(steps), [{"type": "text", "text": text}, *value])
    return ABSENT


def chat_pointer(schema: Schema, array: str | None = None) -> str | None:
    """Where a document of this schema holds a conversation: the pointer to a message's text, `/messages/-/content`.

    Its items say who speaks, in words that the schema has for both the user and the assistant. `array`: the pointer of
    the list, where it is known. None if there is no such place.
    """
    return _chat(msgspec.json.encode(schema), array)


@lru_cache(maxsize=1024)
def _chat(encoded: bytes, array: str | None) -> str | None:
    schema: Schema = msgspec.json.decode(encoded)
    if array is not None:
        path = split(array)
        return _chat_in(_at(schema, path), schema, path)
    return next((found for path, part in _lists(schema) if (found := _chat_in(part, schema, path)) is not None), None)


def _lists(schema: Schema) -> Iterator[tuple[list[str], Schema]]:
    """Places of a document that may hold a conversation, the likely ones first."""
    views = list(views_of(schema, schema))
    yield [], schema
    for view in views:
        named = [name for name in CHATS if name in view["properties"]]
        for name in (*named, *(name for name in view["properties"] if name not in named)):
            yield [name], view["properties"][name]
    for view in views:
        for name, part in view["properties"].items():
            for inner in views_of(part, schema):
                for within, deeper in inner["properties"].items():
                    yield [name, within], deeper


def _chat_in(part: Schema, root: Schema, path: list[str]) -> str | None:
    for view in views_of(part, root):
        rest = _find_in_chat(view, root) if view.get("type") == "array" else None
        if rest is None or len(rest) != 2:
            continue
        items = [_spoken({rest[1]: ""}, root, path, role) for role in (USER, ASSISTANT)]
        told = all(speaker(item) == role for item, role in zip(items, (USER, ASSISTANT), strict=True))
        if told and ("role" in items[0] or (items[0]["type"] != items[1]["type"] and _chosen(view["items"], root))):
            return join([*path, *rest])
    return None


def _chosen(item: Schema, root: Schema) -> bool:
    """Whether an item's `type` is one of a few words: any other string is the kind of its content, not who speaks."""
    kinds = [view["properties"].get("type") for view in views_of(item, root)]
    return all("enum" in view or "const" in view for kind in kinds for view in views_of(kind, root))


def speaker(message: Json) -> str | None:
    """A message's speaker: USER, ASSISTANT, or the message's own word for another; None if it does not say."""
    if not isinstance(message, dict):
        return None
    said = next((message[key] for key in _ROLE_KEYS if isinstance(message.get(key), str)), None)
    return next((role for role, words in _ROLES.items() if said in words), said)


def _as_text(value: Json) -> str | None:
    """A string, or the text of a list of content blocks (`{"type": "text", "text": ...}`)."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        parts = [item.get("text") if isinstance(item, dict) else item for item in value]
        blocks = any(isinstance(item, dict) and "type" in item for item in value)
        if blocks and any(isinstance(part, str) for part in parts):
            return "".join(part for part in parts if isinstance(part, str))
    return None


def _guess(document: Json, depth: int) -> str | None:
    text = _as_text(document)
    if text is not None or depth == 0:
        return text
    if isinstance(document, list):
        return _guess(document[-1], depth - 1) if document else None
    if not isinstance(document, dict):
        return None
    for name in PREFERRED:
        if isinstance(document.get(name), str):
            return str(document[name])
    strings = [value for value in document.values() if isinstance(value, str)]
    for name in (*CHATS, *PREFERRED, *(document if len(document) == 1 else ())):
        inner = document.get(name)
        if isinstance(inner, dict | list) and (text := _guess(inner, depth - 1)) is not None:
            return text
    return strings[0] if len(strings) == 1 else None


# -- schemas ----------------------------------------------------------------------------------------------------------


def _find(schema: Schema, root: Schema, depth: int) -> list[str] | None:
    """The path to the text of a document of this schema."""
    views = list(views_of(schema, root))
    if any(_is_string(view) for view in views):
        return []
    if depth == 0:
        return None
    for view in views:
        path = _find_in_object(view, root, depth)
        if path is None and view.get("type") == "array":
            path = _find_in_chat(view, root)
        if path is not None:
            return path
    return None


def _find_in_object(view: Mapping[str, Any], root: Schema, depth: int) -> list[str] | None:
    properties = view["properties"]
    strings = [name for name, part in properties.items() if any(map(_is_string, views_of(part, root)))]
    strings = [name for name in strings if not _is_file(name, properties[name], root)] or strings
    required = [name for name in strings if name in view["required"]]
    telling = _first(PREFERRED, required) or _first(PREFERRED, strings)
    if telling is not None:
        return [telling]
    for name in CHATS:
        for part in views_of(properties.get(name), root):
            if (rest := _find_in_chat(part, root)) is not None:
                return [name, *rest]
    if len(strings) == 1 or len(required) == 1:
        return strings if len(strings) == 1 else required
    inner = [name for name in PREFERRED if name in properties] or (list(properties) if len(properties) == 1 else [])
    for name in inner:
        if (rest := _find(properties[name], root, depth - 1)) is not None:
            return [name, *rest]
    return None


def _find_in_chat(view: Mapping[str, Any], root: Schema) -> list[str] | None:
    """The path to the last text of a list of strings or of messages."""
    if view.get("type") not in ("array", None) or "items" not in view:
        return None
    for item in views_of(view["items"], root):
        if _is_string(item):
            return [LAST]
        spoken = [name for name, part in item["properties"].items() if any(map(_is_string, views_of(part, root)))]
        name = _first(("content", "text", "message", "body"), spoken)
        if name is not None:
            return [LAST, name]
    return None


def _spoken(item: Json, schema: Schema, path: Sequence[str], role: str) -> Json:
    """A message of a conversation, with who says it where the schema has a place for that."""
    if not isinstance(item, dict):
        return item
    for view in views_of(_at(schema, path), schema):
        for message in views_of(view.get("items"), schema):
            for key in _ROLE_KEYS:
                word = _word(message["properties"].get(key), schema, role)
                if word is not None:
                    return {key: word, **item}
    return {_ROLE_KEYS[0]: role, **item} if schema is None else item


def _word(schema: Schema, root: Schema, role: str) -> str | None:
    """The schema's own word for a role: one it lists, else ours if it takes any string."""
    views = [view for view in views_of(schema, root) if view.get("type") in ("string", None)]
    listed = [word for view in views for word in (view.get("enum") or [view[k] for k in ("const",) if k in view])]
    known = _first(_ROLES[role], listed)
    if known is not None or listed or not views:
        return known
    return role


def _at(schema: Schema, path: Iterable[str]) -> Schema:
    at = schema
    for step in path:
        at = next((view["properties"][step] for view in views_of(at, schema) if step in view["properties"]), None)
    return at


def _first(wanted: Iterable[str], among: Iterable[str]) -> str | None:
    have = set(among)
    return next((name for name in wanted if name in have), None)


def _is_string(view: Mapping[str, Any]) -> bool:
    """True if the view takes free text: a string that is no choice of words, no format of its own and no file."""
    return view.get("type") == "string" and not any(key in view for key in _NO_TEXT)


def _is_file(name: str, schema: Schema, root: Schema) -> bool:
    return any(media.taking(name, view) is not None for view in views_of(schema, root, _DEPTH))


def views_of(schema: Schema, root: Schema, depth: int = _DEPTH) -> Iterator[Mapping[str, Any]]:
    """The views of a schema, one for each alternative and type, with references resolved and parts merged.

    Each view has `properties` and `required`, and a `type` that is one name, or none. `depth`: how many references and
    parts deep is looked.
    """
    if not isinstance(schema, Mapping) or depth < 0:
        return
    plain = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
    parts: list[list[Mapping[str, Any]]] = []
    if isinstance(schema.get("$ref"), str):
        parts.append(list(views_of(_resolve(schema["$ref"], root), root, depth - 1)))
    parts += [list(views_of(part, root, depth - 1)) for part in _schemas(schema.get("allOf"))]
    for key in ("anyOf", "oneOf"):
        alternatives = [view for part in _schemas(schema.get(key)) for view in views_of(part, root, depth - 1)]
        if alternatives:
            parts.append(alternatives)
    merged: list[Mapping[str, Any]] = [plain]
    for alternatives in parts:
        merged = [_merged(view, other) for view in merged for other in alternatives or [{}]][:32]
    for view in merged:
        kinds = view.get("type")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            properties, required = view.get("properties"), view.get("required")
            yield {
                **view,
                "type": kind,
                "properties": properties if isinstance(properties, Mapping) else {},
                "required": required if isinstance(required, list | tuple) else [],
            }


def _merged(a: Mapping[str, Any], b: Mapping[str, Any]) -> Mapping[str, Any]:
    both = {**a, **{key: value for key, value in b.items() if value is not None}}
    both["properties"] = {**(a.get("properties") or {}), **(b.get("properties") or {})}
    both["required"] = [*(a.get("required") or []), *(b.get("required") or [])]
    return both


def _schemas(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _resolve(reference: str, root: Schema) -> Schema:
    """The schema that a reference into the same document names, or None."""
    if not reference.startswith("#") or (reference[1:] and reference[1] != "/"):
        return None
    found = pointer_get(root, reference[1:])
    return None if found is ABSENT else found
