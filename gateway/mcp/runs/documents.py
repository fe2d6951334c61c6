"""Input and output documents of agents where the protocol wants objects, and agents as tools.

An agent whose schema says that it takes or gives something else is published with an object around it,
`{"input": ...}`, `{"output": ...}`; one whose schema says nothing is taken to mean objects. An agent of the client's
own protocol is published as it was.
"""

from __future__ import annotations

from typing import Final

from gateway.core.delta.values import escape_lines
from gateway.core.errors import Invalid
from gateway.core.types import Agent, Json, JsonObject
from gateway.mcp import versions
from gateway.mcp.runs import schemas
from gateway.mcp.runs.keys import PUBLISHED

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
        """The schema of the agent's output to a client."""
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
        """The output schema of that tool."""
        return _tool_schema(self.output_schema(agent))

    def _wraps(self, agent: Agent, schema: JsonObject) -> bool:
        return self.native(agent) is None and not (schemas.of_objects(schema) or schemas.of_anything(schema))

    def _published(self, agent: Agent, schema: JsonObject, name: str) -> JsonObject:
        return schemas.wrapped(schema, name) if self._wraps(agent, schema) else schemas.as_object(schema)


def wrap(raw: bytes) -> bytes:
    """`{"output": raw}`."""
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
    published = schemas.plain_properties(published)
    required = published.get("required")
    if required is None or (isinstance(required, list) and all(isinstance(each, str) for each in required)):
        return published
    return {key: value for key, value in published.items() if key != "required"}
