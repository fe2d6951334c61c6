"""Input and output documents of agents where the protocol wants objects, their schemas, and
agents as tools.

An agent whose schema says that it takes or gives something else is published with an object around it,
`{"input": ...}`, `{"output": ...}`; one whose schema says nothing is taken to mean objects. An agent of the client's
own protocol is published as it was.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core import delta
from gateway.core.delta.values import escape_lines
from gateway.core.errors import Invalid
from gateway.core.types import Agent, Json, JsonObject
from gateway.mcp import versions
from gateway.mcp.runs.keys import PUBLISHED

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


INPUT: Final = "input"
OUTPUT: Final = "output"


class Documents:
    """As one protocol publishes them: `protocol` is its key in `Agent.extra`. Has no state."""

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol

    def native(self, agent: Agent | None) -> JsonObject | None:
        """The description that an agent of this protocol published, None for any other agent."""
        return None if agent is None else agent.extra.get(self._protocol)

    def wraps_input(self, agent: Agent) -> bool:
        """Whether its input is published with an object around it."""
        return self._wraps(agent, agent.input_schema)

    def wraps_output(self, agent: Agent) -> bool:
        """The same of its output."""
        return self._wraps(agent, agent.output_schema)

    def input_schema(self, agent: Agent) -> JsonObject:
        """The schema of a client's input to the agent: it says `"type": "object"`."""
        return self._published(agent, agent.input_schema, INPUT)

    def output_schema(self, agent: Agent) -> JsonObject:
        return self._published(agent, agent.output_schema, OUTPUT)

    def input_of(self, agent: Agent, given: Json) -> Json:
        """The agent's input for the `input` (or a tool's `arguments`) that a client gave. Raises Invalid (`/input`)."""
        if not isinstance(given, dict):
            raise Invalid("/input: it must be an object", path="/input")
        if not self.wraps_input(agent):
            return given
        if INPUT not in given:
            raise Invalid(f"/input/{INPUT}: is missing", path=f"/input/{INPUT}")
        return given[INPUT]

    def output_of(self, agent: Agent, raw: bytes) -> bytes:
        """The document as `output` of an answer, for the agent's own document `raw` (JSON).

        An object in any case: one that does not follow its schema is put into one too. No document at all is `{}`. On
        one line however lines are split, if `raw` is.
        """
        raw = escape_lines(raw)
        if not self.wraps_output(agent):
            if raw.lstrip()[:1] == b"{":
                return raw
            if raw.strip() == b"null":
                return b"{}"
        return wrap(raw)

    def tool_of(self, agent: Agent, version: str) -> JsonObject:
        """The tool that it is for clients of any MCP server, in words that the revision knows."""
        tool: JsonObject = {
            "name": agent.name,
            "description": agent.description,
            "inputSchema": _tool_schema(self.input_schema(agent)),
        }
        if versions.has_structured_output(version):
            tool["outputSchema"] = self.tool_output(agent)
            tool = with_meta(tool, agent)
        return tool

    def tool_output(self, agent: Agent) -> JsonObject:
        return _tool_schema(self.output_schema(agent))

    def _wraps(self, agent: Agent, schema: JsonObject) -> bool:
        return self.native(agent) is None and not (of_objects(schema) or of_anything(schema))

    def _published(self, agent: Agent, schema: JsonObject, name: str) -> JsonObject:
        return wrapped(schema, name) if self._wraps(agent, schema) else as_object(schema)


def wrap(raw: bytes) -> bytes:
    return b'{"output":' + raw + b"}"


def with_meta(entry: JsonObject, agent: Agent) -> JsonObject:
    """A published agent or tool with what there is no key for, in its `_meta`."""
    beyond: JsonObject = {"version": agent.version}
    if agent.labels:
        beyond["labels"] = agent.labels
    if agent.interrupts:
        beyond["interrupts"] = [
            {"kind": each.kind, "payloadSchema": each.payload_schema, "answerSchema": each.answer_schema}
            for each in agent.interrupts
        ]
    meta = entry.get("_meta")
    return {**entry, "_meta": {**(meta if isinstance(meta, dict) else {}), PUBLISHED: beyond}}


def _tool_schema(published: JsonObject) -> JsonObject:
    published = plain_properties(published)
    required = published.get("required")
    if required is None or (isinstance(required, list) and all(isinstance(each, str) for each in required)):
        return published
    return {key: value for key, value in published.items() if key != "required"}
