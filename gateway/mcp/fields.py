"""The fields of a form, for the JSON Schema of a question; and the values of a question, for what a form gave."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.core import delta, wording
from gateway.core.choices import Choice, choices
from gateway.core.types import Json, JsonObject

WRAPPED: Final = "value"
"""The field of a form that asks for one plain value."""
FORMATS: Final = ("email", "uri", "date", "date-time")


class FormDialect(msgspec.Struct, frozen=True):
    """The features of forms. Every form has texts, numbers, booleans, and lists of texts to choose one of."""

    titled: bool = True
    """Each choice may have a title beside its value (`oneOf`); else all have names (`enumNames`)."""
    multiple: bool = True
    """Several of a list may be chosen."""
    defaults: bool = True
    """Every field may have a default; else a boolean only."""
    pattern: bool = False
    """A text may have to match a regular expression."""
    modes: bool = True
    """A form says that it is one (`mode`)."""
    names_urls: bool = False
    """A url needs an `elicitationId`."""


def form(schema: JsonObject, dialect: FormDialect) -> JsonObject | None:
    """The form that asks for a value of the schema; None if there is none.

    Objects in it are taken apart, into fields with names like `place.zip`.
    """
    if not is_object(schema):
        field = _field(wording.resolved(schema, schema), dialect) if schema else {"type": "string"}
        return field and {"type": "object", "properties": {WRAPPED: field}, "required": [WRAPPED]}
    leaves = list(wording.leaves(schema))
    fields = {leaf.name: _field(leaf.schema, dialect) for leaf in leaves}
    names = schema.get("required")
    whole = {leaf.path[0] for leaf in leaves if leaf.required}.issuperset(names if isinstance(names, list) else ())
    required = [leaf.name for leaf in leaves if leaf.required]
    shown = {name: field for name, field in fields.items() if field is not None}
    if not shown or not whole or any(name not in shown for name in required) or len(fields) < len(leaves):
        return None
    out: JsonObject = {"type": "object", "properties": shown}
    out.update(_texts(schema))
    return {**out, "required": required} if required else out


def value_of(schema: JsonObject, content: JsonObject) -> Json:
    """The value of the schema that the content of its `form` is; ABSENT where it has none."""
    if not is_object(schema):
        value = content.get(WRAPPED, delta.ABSENT)
        return value if value is delta.ABSENT else _value(wording.resolved(schema, schema), value)
    leaves = {leaf.name: leaf for leaf in wording.leaves(schema)}
    out: JsonObject = {}
    for key, each in content.items():
        leaf = leaves.get(key)
        path = (key,) if leaf is None else leaf.path
        inside = out
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
        inside[path[-1]] = each if leaf is None else _value(leaf.schema, each)
    return out


def is_object(schema: JsonObject) -> bool:
    """Whether the question is for an object with named values; else it is for one value."""
    return schema.get("type", "object") == "object" and isinstance(schema.get("properties"), dict)


def _field(schema: JsonObject, dialect: FormDialect) -> JsonObject | None:
    kind = schema.get("type")
    if kind == "boolean" and "enum" not in schema:
        return {"type": "boolean", **_texts(schema), **_given(schema, "default", bool)}
    found = choices(schema)
    if found is not None:
        return _select(schema, found, dialect)
    match kind:
        case "string":
            return _text(schema, dialect)
        case "integer" | "number":
            type_ = int if kind == "integer" else (int, float)
            field = {"type": kind, **_texts(schema)}
            for key in ("minimum", "maximum", *(("default",) if dialect.defaults else ())):
                field |= _given(schema, key, type_)
            return field
        case "array":
            return _multiple(schema) if dialect.multiple else None
    return None


def _text(schema: JsonObject, dialect: FormDialect) -> JsonObject:
    field: JsonObject = {"type": "string", **_texts(schema)}
    if dialect.defaults:
        field |= _given(schema, "default", str)
    if dialect.pattern:
        field |= _given(schema, "pattern", str)
    for key in ("minLength", "maxLength"):
        field |= _count(schema, key)
    return {**field, "format": schema["format"]} if schema.get("format") in FORMATS else field


def _select(schema: JsonObject, found: list[Choice], dialect: FormDialect) -> JsonObject:
    """One of a few values. What is no text goes by its name."""
    field: JsonObject = {"type": "string", **_texts(schema)}
    titled = any(choice.label != choice.id for choice in found)
    if titled and dialect.titled:
        field["oneOf"] = [{"const": choice.id, "title": choice.label} for choice in found]
    else:
        field["enum"] = [choice.id for choice in found]
        if titled:
            field["enumNames"] = [choice.label for choice in found]
    if not dialect.defaults:
        return field
    default = schema.get("default", delta.ABSENT)
    chosen = next((choice for choice in found if delta.same(choice.value, default)), None)
    return field if chosen is None else {**field, "default": chosen.id}


def _multiple(schema: JsonObject) -> JsonObject | None:
    found = choices(schema.get("items"))
    if found is None:
        return None
    items: JsonObject = {"type": "string", "enum": [choice.id for choice in found]}
    if any(choice.label != choice.id for choice in found):
        items = {"anyOf": [{"const": choice.id, "title": choice.label} for choice in found]}
    return {
        "type": "array",
        **_texts(schema),
        "items": items,
        **_count(schema, "minItems"),
        **_count(schema, "maxItems"),
    }


def _value(schema: Any, value: Json) -> Json:
    """A field's value as the question has it."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [_value(schema.get("items"), item) for item in value]
    if isinstance(value, str):
        return next((choice.value for choice in choices(schema) or () if choice.id == value), value)
    if schema.get("type") == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _texts(schema: JsonObject) -> JsonObject:
    return {key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)}


def _given(schema: JsonObject, key: str, type_: Any) -> JsonObject:
    value = schema.get(key)
    fits = isinstance(value, type_) and (type_ is bool or not isinstance(value, bool))
    return {key: value} if fits else {}


def _count(schema: JsonObject, key: str) -> JsonObject:
    value = schema.get(key)
    return {key: value} if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else {}
