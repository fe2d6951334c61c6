"""Params as they are read: held against the published schema (schema.json), and used as they were sent; and what is
worked out of them. What does not fit is refused with where it does not, what was expected, and what came.

tools.json has the definitions of the standard tools: `agentSearch` in the protocol's own words, the others in its
manner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters.agent_context.wire import CORRELATION, INVALID
from gateway.contract import fitting
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
    expected = _expected(error.schema if missing is None else error.schema.get("properties", {}).get(missing, {}))
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


TOOLS: Final[tuple[JsonObject, ...]] = tuple(json.loads(Path(__file__).with_name("tools.json").read_text("utf-8")))
"""As `tools/list` has them, for every revision of MCP."""


def correlation_in(params: JsonObject) -> str | None:
    """`_meta.correlationId` of params that fit."""
    found: str | None = (params.get("_meta") or {}).get(CORRELATION)
    return found


# --- agents ----------------------------------------------------------------------------------------------------------


_VALUES: Final = ("const", "enum", "default", "examples")
"""Keywords whose values are no schemas."""
_REFERENCES: Final = ("$ref", "$dynamicRef")
_SAMPLES: Final[tuple[Any, ...]] = ({}, [], "", 0, None)


def agent_record(record: Json, at: str = "") -> JsonObject:
    """An agent as it registers. Raises RpcError as `read`, also for a JSON Schema of its documents that is invalid,
    refers to something outside of it, or cannot be applied.

    Agents are not trusted, and their schemas are applied to other clients' data: a schema may refer to nothing outside
    (a reference would be fetched), and must not fail only once it is applied.
    """
    found: JsonObject = checked(record, "AgentRecord", at)
    for key, whose in (("inputSchema", "payloads it takes"), ("outputSchema", "documents it answers with")):
        if (schema := found.get(key)) is not None and (why := _fault(schema)):
            received = received_in(found, f"/{key}")
            raise refused(f"{at}/{key}", why, f"JSON Schema of the {whose}. An extension; object", received)
    return found


def _fault(schema: JsonObject) -> str | None:
    if why := fitting.fault(schema):
        return f"no JSON Schema: {why[:200]}"
    try:
        for key, value in _keywords(schema):
            if why := _refusal(key, value, schema):
                return f"no JSON Schema that can be used: {why}"
        judge = fitting.SchemaJudge(schema)
        for sample in _SAMPLES:
            judge.fits(sample)
    except RecursionError:
        return "no JSON Schema: it never ends"
    except fitting.Inapplicable as error:
        why = "it never ends" if isinstance(error.__cause__, RecursionError) else str(error)[:200]
        return f"no JSON Schema that can be used: {why}"
    return None


def _refusal(key: str, value: Any, root: JsonObject) -> str | None:
    if key in _REFERENCES and isinstance(value, str):
        if not value.startswith("#"):
            return "a reference in it leads outside of it"
        if value.startswith("#/") and "$id" not in root and delta.pointer_get(root, value[1:]) is delta.ABSENT:
            return "a reference in it leads nowhere"
    import regex

    try:
        for pattern in [value] if key == "pattern" else value if key == "patternProperties" else ():
            regex.compile(pattern)
    except (regex.error, TypeError):
        return "a pattern in it is no regular expression"
    return None


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every keyword with its value, however deep."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("pattern", *_REFERENCES) and not isinstance(value, str):  # a property of that name
                yield from _keywords(value)
            elif key not in _VALUES:
                yield key, value
                yield from _keywords(value)


# --- work ------------------------------------------------------------------------------------------------------------


class WorkNeeds(msgspec.Struct, frozen=True):
    """`requirements` of a piece of work; None for a limit that it has not. `deadline_at`: seconds since the epoch."""

    capabilities: tuple[str, ...] = ()
    deadline: str | None = None
    deadline_at: float | None = None
    max_tokens: int | None = None
    priority: int = 0
    max_cost: float | None = None
    min_score: float | None = None


def needs_in(requirements: JsonObject | None, at: str) -> WorkNeeds:
    """Requirements that fit, which stand at `at`. Raises RpcError for a deadline that is none."""
    given = requirements or {}
    said = given.get("constraints") or {}
    deadline, tokens = said.get("deadline"), said.get("maxTokens")
    return WorkNeeds(
        capabilities=tuple(given.get("capabilities") or ()),
        deadline=deadline,
        deadline_at=None if deadline is None else seconds_of(deadline, f"{at}/constraints/deadline"),
        max_tokens=None if tokens is None else int(tokens),
        priority=int(said.get("priority") or 0),
        max_cost=said.get("maxCost"),
        min_score=said.get("minScore"),
    )


class DelegatedTask(msgspec.Struct, frozen=True):
    """A task. `document`: all of it, as it was delegated."""

    id: str
    type: str
    payload: Json
    needs: WorkNeeds
    document: JsonObject


def task_in(task: Json, at: str = "/task") -> DelegatedTask:
    """Read a task, which stands at `at`. Raises RpcError as `read`."""
    found: JsonObject = checked(task, "Task", at)
    needs = needs_in(found.get("requirements"), f"{at}/requirements")
    return DelegatedTask(found["id"], found["type"], found["payload"], needs, found)


def task_of_tool(given: JsonObject, identifier: str, at: str) -> DelegatedTask:
    """The task that the arguments of `taskAssign` are, which stand at `at`."""
    if given.get("deadline") is not None:
        seconds_of(given["deadline"], f"{at}/deadline")
    limits = ("deadline", "priority", "maxTokens", "maxCost", "minScore")
    needs: JsonObject = {"constraints": {name: given[name] for name in limits if given.get(name) is not None}}
    if given.get("capabilities") is not None:
        needs["capabilities"] = given["capabilities"]
    message = given.get("message")
    payload = given.get("payload") if message is None else {"messages": [{"text": message}]}
    return task_in({"id": identifier, "type": given.get("type", "task"), "payload": payload, "requirements": needs})


class MessageNeeds(msgspec.Struct, frozen=True):
    """What a message's payload says of the message. `requirements`: as it was sent, None without any."""

    session: str | None = None
    requirements: JsonObject | None = None
    needs: WorkNeeds = WorkNeeds()


def told_in(payload: Json, at: str = "/content/payload") -> MessageNeeds:
    """Read a payload as far as possible; one that is not an object says nothing.

    An agent's own payload may have the same keys with other meanings: what does not have the form of Payload at all
    (a context that is no object, say) is not read, only a requirement that has it and does not fit is refused.
    Raises RpcError as `read`, with the path below `at`.
    """
    if not isinstance(payload, dict):
        return MessageNeeds()
    context, requirements = payload.get("context"), payload.get("requirements")
    session = context.get("sessionId") if isinstance(context, dict) else None
    session = session if isinstance(session, str) and session else None
    if not isinstance(requirements, dict) or not isinstance(requirements.get("constraints"), dict | None):
        return MessageNeeds(session)
    checked({"requirements": requirements}, "Payload", at)
    return MessageNeeds(session, requirements, needs_in(requirements, f"{at}/requirements"))
