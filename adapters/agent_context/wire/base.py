"""The base of all models of the wire, and params read as models: what does not fit is refused with where it does not,
what was expected, and what came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Raw
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from adapters.agent_context.wire import INVALID
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Json
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

# --- the base of all models -------------------------------------------------------------------------------------------


class Wire(BaseModel):
    """Base of every model. Keys are in camel case there; strict as JSON Schema is; unknown keys are kept."""

    model_config = ConfigDict(
        extra="allow", alias_generator=to_camel, strict=True, frozen=True, defer_build=True, hide_input_in_errors=True
    )


ID_PATTERN: Final = r"^[a-zA-Z0-9-_]+$"
ID_LENGTH: Final = 200

AgentIdentifier = TypeAliasType(
    "AgentIdentifier", Annotated[str, Field(pattern=ID_PATTERN, description="A unique identifier for an agent")]
)
"""Appendix A. The names of routes follow the same pattern."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)


def seconds_of(text: str) -> float:
    if not _TIME.fullmatch(text):
        raise ValueError("not a date-time with a time zone, such as 2025-02-22T00:00:00Z")
    try:
        return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError):
        raise ValueError("no such date or time") from None


def _as_written(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    handler(value)
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _date_time(text: str) -> str:
    seconds_of(text)
    return text


DateTime = Annotated[str, AfterValidator(_date_time), Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339, as it was written; `seconds_of` is its value."""
Whole = Annotated[int, BeforeValidator(_whole)]
"""An integer as JSON Schema has it: 5.0 is one."""
Number = Annotated[float, WrapValidator(_as_written)]
"""A number as it was written: 8 stays 8, and does not become 8.0."""
Unit = Annotated[float, Field(ge=0, le=1), WrapValidator(_as_written)]
Score = Annotated[float, Field(ge=0, le=10), WrapValidator(_as_written)]
Positive = Annotated[float, Field(ge=0), WrapValidator(_as_written)]
Text = Annotated[str, Field(min_length=1)]


class MessageMeta(Wire):
    """The `_meta` of a message. Further keys are kept."""

    correlation_id: Text | None = Field(default=None, description="The same in all messages about one piece of work.")
    progress_token: str | Whole | None = Field(
        default=None, description="Progress is told by notifications/progress with it."
    )
    traceparent: str | None = Field(default=None, description="W3C trace context of the sender.")


class Params(Wire):
    """Base of all params and results."""

    meta: MessageMeta | None = Field(default=None, alias="_meta")

    @property
    def correlation_id(self) -> str | None:
        return self.meta.correlation_id if self.meta is not None else None

    @property
    def beside(self) -> dict[str, Any]:
        """The whole `_meta`, as it was sent."""
        return self.meta.model_dump(by_alias=True, exclude_unset=True) if self.meta is not None else {}


# --- reading ----------------------------------------------------------------------------------------------------------


M = TypeVar("M", bound=BaseModel)

_NONE: Final = Raw(b"{}")
_SHOWN: Final = 60
"""Characters of a value that does not fit."""
_SECRET: Final = "auth"
"""Member whose content is never shown."""


def read(raw: Raw | bytes, model: type[M]) -> M:
    """Params as `model`; none at all count as an empty object.

    Raises RpcError -32001 with `details {expected, received}` and the JSON pointer to the first mistake.
    """
    try:
        value = delta.sound(jsonrpc.unpack(raw or _NONE))
    except (msgspec.DecodeError, RecursionError):
        raise refused("", "no JSON that can be read", "JSON", "other") from None
    return checked(value, model)


def checked(value: Json, model: type[M], at: str = "") -> M:
    """The same of a value in sound text that was read already and stands at the pointer `at`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _told(error, value, model, at) from None


def _told(error: ValidationError, value: Json, model: type[BaseModel], at: str) -> RpcError:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = _place(first["loc"], value, missing=first["type"] == "missing")
    path = delta.join([str(step) for step in place])
    return refused(at + path, _complaint(first), _expected(model, place), _shown(value, path))


def refused(path: str, complaint: str, expected: str, received: str) -> RpcError:
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
        return _shown(delta.sound(jsonrpc.unpack(raw or _NONE)), path)
    except (msgspec.DecodeError, RecursionError, ValueError, Invalid):
        return None


def _complaint(first: Any) -> str:
    said = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "missing":
        return "is missing"
    if first["type"] == "model_type":
        return "must be an object"
    return said.replace("Input should be", "must be").replace("String should", "must").replace("should be", "must be")


def _place(location: Sequence[int | str], value: Json, *, missing: bool) -> list[int | str]:
    """Where it is in the value, or where it is missing: pydantic also names the branch of a union that it tried."""
    place: list[int | str] = []
    for at, step in enumerate(location):
        absent = missing and at == len(location) - 1
        if isinstance(value, dict) and (step in value or absent) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            continue
        place.append(step)
    return place


def _shown(document: Json, path: str) -> str:
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


# --- what the schema says of a place ---------------------------------------------------------------------------------


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


def _expected(model: type[BaseModel], place: Sequence[int | str]) -> str:
    root: Mapping[str, Any] = _schema(model)
    node = root
    for step in place:
        inside = _resolved(node, root)
        node = inside.get("items", {}) if isinstance(step, int) else inside.get("properties", {}).get(step, {})
    said = node.get("description")  # of the member, before that of its type
    node = _resolved(node, root)
    words = [str(said or node.get("description") or "").strip().removesuffix("."), _rules(node, root)]
    return "; ".join(word for word in words if word) or "another value"


def _resolved(node: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself: references followed, null as an alternative left out."""
    while True:
        if "$ref" in node:
            node = {**root["$defs"][node["$ref"].rpartition("/")[2]], **{k: v for k, v in node.items() if k != "$ref"}}
            continue
        choices = [each for each in node.get("anyOf", ()) if each.get("type") != "null"]
        if len(choices) != 1:
            return node
        node = {**{k: v for k, v in node.items() if k != "anyOf"}, **choices[0]}


_RULES: Final = {
    "pattern": "matching {}",
    "minLength": "of at least {} characters",
    "minimum": "at least {}",
    "exclusiveMinimum": "greater than {}",
    "maximum": "at most {}",
    "format": "({})",
}


def _rules(node: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    if "enum" in node:
        return "one of " + ", ".join(map(str, node["enum"]))
    if "const" in node:
        return str(node["const"])
    if "anyOf" in node:
        choices = (_rules(_resolved(each, root), root) for each in node["anyOf"] if each.get("type") != "null")
        return " or ".join(dict.fromkeys(choices))
    if node.get("required"):
        return "object with " + ", ".join(node["required"])
    rules = [_RULES[key].format(node[key]) for key in _RULES if key in node]
    return " ".join([str(node.get("type", "")), *rules]).strip()
