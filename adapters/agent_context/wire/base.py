"""Params as they are read: held against the published schema (schema.json), and used as they were sent.

What does not fit is refused with where it does not, what was expected, and what came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters.agent_context.wire import INVALID
from gateway.contract.fitting import SchemaJudge
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Json, JsonObject
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

_NONE: Final = Raw(b"{}")
_SHOWN: Final = 60
"""Characters of a value that does not fit."""
_SECRET: Final = "auth"
"""Member whose content is never shown."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)


def read(raw: Raw | bytes, name: str) -> JsonObject:
    """Params that fit a definition of the schema, in sound text; none at all count as an empty object.

    Raises RpcError -32001 with `details {expected, received}` and the JSON pointer to the first mistake.
    """
    try:
        value = delta.sound(jsonrpc.unpack(raw or _NONE))
    except (msgspec.DecodeError, RecursionError):
        raise refused("", "no JSON that can be read", "JSON", "other") from None
    found: JsonObject = checked(value, name)
    return found


def checked(value: Json, name: str, at: str = "") -> Any:
    """The same of a value in sound text that was read already and stands at the pointer `at`."""
    judge = _judge(name)
    if judge.fits(value):
        return value
    error: Any = judge.misfits(value)[0]
    while error.context:  # of the first way to write it: the others are lists of it, or null
        inside = error.context[0]
        if len(inside.absolute_path) == len(error.absolute_path) and not (
            inside.validator == "required" and error.path
        ):
            break
        error = inside
    missing = None
    if error.validator == "required":
        missing = next(each for each in error.validator_value if each not in error.instance)
    path = delta.join([str(step) for step in (*error.absolute_path, *([] if missing is None else [missing]))])
    expected = _expected(error.schema if missing is None else error.schema["properties"].get(missing, {}))
    complaint = f"must be {expected.rpartition('; ')[2]}" if missing is None else "is missing"
    raise refused(at + path, complaint, expected, received_in(value, path))


def seconds_of(text: str, at: str) -> float:
    """A date-time with a time zone (RFC 3339), which stands at `at`, as seconds since the epoch. Raises RpcError."""
    try:
        if _TIME.fullmatch(text):
            return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        pass
    expected = "A date-time with a time zone, such as 2025-02-22T00:00:00Z"
    raise refused(at, "no such date and time with a time zone", expected, received_in(text, ""))


def refused(path: str, complaint: str, expected: str, received: str) -> RpcError:
    """The error for a payload that does not fit."""
    data = {
        "details": {"expected": expected, "received": received},
        "code": Invalid.code,
        "path": path,
        "retryable": False,
    }
    return RpcError(INVALID, f"Invalid payload structure: {path or 'params'}: {complaint}", data)


def received_at(raw: Raw | bytes, path: str) -> str | None:
    """Describe the value at a JSON pointer of params, without secrets; None for params that cannot be read."""
    try:
        return received_in(delta.sound(jsonrpc.unpack(raw or _NONE)), path)
    except (msgspec.DecodeError, RecursionError, ValueError, Invalid):
        return None


def received_in(document: Json, path: str) -> str:
    """Describe the value at a JSON pointer on one line, without secrets. Raises Invalid for what is no pointer."""
    value, secret = delta.pointer_get(document, path), _SECRET in delta.split(path)
    if value is delta.ABSENT:
        return "nothing"
    if isinstance(value, dict):
        return "an object" if secret or not value else "an object with " + _cut(", ".join(sorted(map(str, value))))
    if isinstance(value, list):
        return f"an array of {len(value)}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if secret:
        return "a string" if isinstance(value, str) else "a number"
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


# --- what the schema says --------------------------------------------------------------------------------------------


@cache
def definitions() -> Mapping[str, JsonObject]:
    """All definitions of the published schema, which describes every message, read and sent."""
    found: dict[str, JsonObject] = json.loads(Path(__file__).with_name("schema.json").read_text("utf-8"))["$defs"]
    return found


@cache
def _judge(name: str) -> SchemaJudge:
    return SchemaJudge(_whole({"$ref": f"#/$defs/{name}"}))


def _whole(schema: Any) -> Any:
    """A schema with what it refers to in the place of the references."""
    if isinstance(schema, list):
        return [_whole(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    told = {key: _whole(value) for key, value in schema.items() if key != "$ref"}
    return _whole(definitions()[schema["$ref"].rpartition("/")[2]]) | told if "$ref" in schema else told


def _expected(schema: JsonObject) -> str:
    """What a place should have: the description of its member, else of its type, and the rules."""
    ways = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    said: str = schema.get("description") or (ways[0].get("description", "") if len(ways) == 1 else "")
    words = [said.strip().removesuffix("."), _rules(schema)]
    return "; ".join(word for word in words if word) or "another value"


_RULES: Final = {
    "pattern": "matching {}",
    "minLength": "of at least {} characters",
    "minimum": "at least {}",
    "exclusiveMinimum": "greater than {}",
    "maximum": "at most {}",
    "format": "({})",
}


def _rules(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_rules(each) for each in schema["anyOf"] if each.get("type") != "null"))
    if schema.get("required"):
        return "object with " + ", ".join(schema["required"])
    rules = [_RULES[key].format(schema[key]) for key in _RULES if key in schema]
    return " ".join([str(schema.get("type", "")), *rules]).strip()
