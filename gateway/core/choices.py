"""Questions whose answer is one of a few values: which values, by their JSON Schema, and how a person names them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.core import delta
from gateway.core.types import Json

MOST: Final = 30
"""More values than this are no choice but a text."""
REFUSING: Final = "x-refusing"
"""Key of a schema that lists values: those of them that say no, where their words do not tell."""
_YES: Final = frozenset(["yes", "y", "true", "ok", "okay", "allow", "accept", "approve", "agree", "confirm"])
_NO: Final = frozenset(
    ["no", "n", "false", "deny", "reject", "refuse", "decline", "disagree", "cancel", "abort", "stop"]
)


class Choice(msgspec.Struct, frozen=True):
    """One value. `id` names it on the wire, unlike every other of its list; `label` is what a person reads."""

    id: str
    value: Json
    label: str
    told: bool = False
    """Whether the schema says that it refuses."""

    @property
    def refuses(self) -> bool:
        """Whether choosing it says no: the schema says so, or its words do."""
        return self.told or self.value is False or bool({self.id.lower(), self.label.lower()} & _NO)


def choices(schema: Any, most: int = MOST) -> list[Choice] | None:
    """The values that a schema allows, if it lists them: `enum`, alternatives of `const`, a boolean. None if not."""
    if not isinstance(schema, dict):
        return None
    values = _listed(schema)
    if values is None and schema.get("type") == "boolean":
        values = [(True, "Yes"), (False, "No")]
    if not values or len(values) > most:
        return None
    out: list[Choice] = []
    refusing = schema.get(REFUSING)
    for value, label in values:
        if any(delta.same(value, choice.value) for choice in out):
            continue
        ident = text = value if isinstance(value, str) else delta.encode(value).decode()
        while any(choice.id == ident for choice in out):
            ident += "'"
        out.append(Choice(ident, value, label or text, told=isinstance(refusing, list) and value in refusing))
    return out


def _listed(schema: dict[str, Any]) -> list[tuple[Json, str]] | None:
    values = schema.get("enum")
    if isinstance(values, list):
        names = schema.get("enumNames")
        named = isinstance(names, list) and len(names) == len(values)
        labels = names if isinstance(names, list) and named else [None] * len(values)
        return [(value, label if isinstance(label, str) else "") for value, label in zip(values, labels, strict=True)]
    for key in ("oneOf", "anyOf"):
        parts = schema.get(key)
        if isinstance(parts, list) and parts and all(isinstance(part, dict) and "const" in part for part in parts):
            titles = [part.get("title") for part in parts]
            return [
                (part["const"], title if isinstance(title, str) else "")
                for part, title in zip(parts, titles, strict=True)
            ]
    return [(schema["const"], "")] if "const" in schema else None


def in_object(schema: Any) -> tuple[str, dict[str, Any]] | None:
    """(name, schema) of the only required property of an object; of its only one if none is required. None if not."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return None
    if schema.get("type", "object") != "object":
        return None
    properties, required = schema["properties"], schema.get("required")
    names = required if isinstance(required, list) and required else list(properties)
    if len(names) != 1 or not isinstance(names[0], str):
        return None
    inner = properties.get(names[0])
    return (names[0], inner) if isinstance(inner, dict) else None


def offered(schema: Any) -> tuple[list[Choice], str | None] | None:
    """The values of which an answer of this schema is one, and the key that it has in the answer, if any.

    None if the schema offers no choice.
    """
    values = choices(schema)
    if values is not None:
        return values, None
    inner = in_object(schema)
    values = choices(inner[1]) if inner is not None else None
    return (values, inner[0]) if inner is not None and values is not None else None


def listing(found: list[Choice]) -> str:
    """The choices for a person to read, who can be told only, and how to make one. `named` understands the answer."""
    lines = [f"{number}. {choice.label}" for number, choice in enumerate(found, 1)]
    return "\n".join([*lines, "", "Answer with one of these, or its number."])


def named(found: list[Choice], text: str) -> Choice | None:
    """The choice that a person names by value, label or number (from 1), whatever the case; None if none or unclear."""
    word = text.strip()
    for names in ([choice.id for choice in found], [choice.label for choice in found]):
        exact = [at for at, name in enumerate(names) if name == word]
        loose = exact or [at for at, name in enumerate(names) if name.casefold() == word.casefold()]
        if loose:
            return found[loose[0]] if len(loose) == 1 else None
    if word.rstrip(".)").isascii() and word.rstrip(".)").isdecimal():
        at = int(word.rstrip(".)")[:6])
        return found[at - 1] if 1 <= at <= len(found) else None
    if all(isinstance(choice.value, bool) for choice in found):
        said = True if word.casefold() in _YES else False if word.casefold() in _NO else None
        return next((choice for choice in found if choice.value is said), None)
    return None
