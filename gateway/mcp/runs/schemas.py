"""JSON Schemas where the protocol and MCP want one of an object."""

from __future__ import annotations

from typing import Any, Final

from gateway.core import delta
from gateway.core.types import Json, JsonObject

_DEPTH: Final = 16
_VALUES: Final = ("const", "enum", "default", "examples")
"""Keywords whose values are no schemas."""
_REFERENCES: Final = ("$ref", "$dynamicRef")
_SILENT: Final = frozenset({"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description"})
"""Keywords that rule nothing out."""


def of_objects(schema: Any) -> bool:
    """Whether only objects are meant to fit: it says so, or what it refers to and all its alternatives do.

    So does one without a type that tells of properties.
    """
    return _of_objects(schema, schema, _DEPTH)


def _of_objects(schema: Any, root: Any, depth: int) -> bool:
    if not isinstance(schema, dict) or depth < 0:
        return False
    if "type" in schema:
        return schema["type"] in ("object", ["object"])
    if isinstance(schema.get("$ref"), str) and _of_objects(_resolved(schema["$ref"], root), root, depth - 1):
        return True
    if any(_of_objects(part, root, depth - 1) for part in _list(schema.get("allOf"))):
        return True
    for key in ("anyOf", "oneOf"):
        parts = _list(schema.get(key))
        if parts:
            return all(_of_objects(part, root, depth - 1) for part in parts)
    return isinstance(schema.get("properties"), dict) or isinstance(schema.get("required"), list)


def of_anything(schema: JsonObject) -> bool:
    """Whether it says nothing of what fits, as where an agent publishes no schema at all."""
    return _SILENT.issuperset(schema)


def as_object(schema: JsonObject) -> JsonObject:
    """A schema of objects that says `"type": "object"`, as SDKs insist on."""
    if schema.get("type") == "object":
        return schema
    return {"type": "object", **{key: value for key, value in schema.items() if key != "type"}}


def wrapped(schema: JsonObject, name: str) -> JsonObject:
    """The schema of an object whose only property has this one; references within it lead where they did."""
    inner = {key: value for key, value in schema.items() if key != "$schema"}
    if "$id" not in schema:
        inner = _moved(inner, f"#/properties/{delta.escape(name)}")
    out: JsonObject = {"type": "object", "properties": {name: inner}, "required": [name]}
    return {"$schema": schema["$schema"], **out} if isinstance(schema.get("$schema"), str) else out


def plain_properties(schema: JsonObject) -> JsonObject:
    """The same with every property's schema an object, as MCP wants it: for `true` and `false` there are such."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or all(isinstance(each, dict) for each in properties.values()):
        return schema
    return {**schema, "properties": {name: _plain(each) for name, each in properties.items()}}


def _plain(schema: Any) -> Any:
    return schema if not isinstance(schema, bool) else {} if schema else {"not": {}}


def _moved(value: Json, to: str) -> Json:
    if isinstance(value, list):
        return [_moved(item, to) for item in value]
    if not isinstance(value, dict):
        return value
    if "$id" in value:  # references inside of it are relative to that
        return value
    out: JsonObject = {}
    for key, part in value.items():
        if key in _REFERENCES and isinstance(part, str):
            out[key] = to + part[1:] if part == "#" or part.startswith("#/") else part
        elif key == "properties" and isinstance(part, dict):  # names, not keywords
            out[key] = {name: _moved(each, to) for name, each in part.items()}
        else:
            out[key] = part if key in _VALUES else _moved(part, to)
    return out


def resolve(schema: Any, root: Any) -> JsonObject:
    """A schema with the references that it consists of followed; {} where that leads nowhere."""
    for _ in range(_DEPTH):
        if not isinstance(schema, dict):
            return {}
        if not isinstance(schema.get("$ref"), str):
            return schema
        found = _resolved(schema["$ref"], root)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**found, **beside} if isinstance(found, dict) else beside
    return {}


def _resolved(reference: str, root: Any) -> Any:
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = delta.pointer_get(root, reference[1:])
    return None if found is delta.ABSENT else found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
