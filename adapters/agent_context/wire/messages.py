"""What is read of the protocol's messages (sections 3.1 to 3.5, 4.2) besides that they fit the schema.

tools.json has the definitions of the standard tools: `agentSearch` in the protocol's own words, the others in its
manner.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from adapters.agent_context.wire import CORRELATION
from adapters.agent_context.wire.base import checked, received_in, refused, seconds_of
from gateway.contract import fitting
from gateway.core import delta
from gateway.core.types import Json, JsonObject

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


class Constraints(msgspec.Struct, frozen=True):
    """Limits of a piece of work; None where there is none. `deadline_at`: the deadline as seconds since the epoch."""

    deadline: str | None = None
    deadline_at: float | None = None
    max_tokens: int | None = None
    priority: int = 0
    max_cost: float | None = None
    min_score: float | None = None


class WorkNeeds(msgspec.Struct, frozen=True):
    """`requirements` of a piece of work."""

    capabilities: tuple[str, ...] = ()
    limits: Constraints = Constraints()


def needs_in(requirements: JsonObject | None, at: str) -> WorkNeeds:
    """Requirements that fit, which stand at `at`. Raises RpcError for a deadline that is none."""
    given = requirements or {}
    said = given.get("constraints") or {}
    deadline, tokens = said.get("deadline"), said.get("maxTokens")
    limits = Constraints(
        deadline=deadline,
        deadline_at=None if deadline is None else seconds_of(deadline, f"{at}/constraints/deadline"),
        max_tokens=None if tokens is None else int(tokens),
        priority=int(said.get("priority") or 0),
        max_cost=said.get("maxCost"),
        min_score=said.get("minScore"),
    )
    return WorkNeeds(tuple(given.get("capabilities") or ()), limits)


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
