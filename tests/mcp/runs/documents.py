"""Agents with documents of every form, runs that ended with one, and events as the engine numbers them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.core import events as e
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.stream import Opener
from gateway.core.types import Agent, Run, RunRequest, RunStatus

Numbered = list[tuple[int, e.Event]]

MESSAGE = Agent(name="writer", input_schema=MESSAGE_SCHEMA, output_schema=MESSAGE_OUTPUT_SCHEMA, text_output="/message")
_EVERY = {"type": ["object", "array", "string", "number", "boolean", "null"]}
ANY = Agent(name="any", input_schema=_EVERY, output_schema=_EVERY)
CHAT = Agent(
    name="chat",
    input_schema=MESSAGE_SCHEMA,
    output_schema={
        "type": "object",
        "properties": {
            "messages": {
                "type": "array",
                "items": {"type": "object", "properties": {"role": {"type": "string"}, "content": {"type": "string"}}},
            }
        },
    },
    text_output="/messages/-/content",
)
BARE = Agent(name="bare", input_schema=MESSAGE_SCHEMA, output_schema={"type": "string"}, text_output="")


def run_of(agent: Agent, output: bytes, **fields: Any) -> Run:
    """A run that has succeeded with an output."""
    return Run(
        id="r1",
        request=RunRequest(agent=agent.name, input={}, protocol="agent_communication"),
        status=fields.pop("status", RunStatus.SUCCESS),
        created_at=1.0,
        updated_at=2.0,
        output=msgspec.Raw(output),
        **fields,
    )


def numbered(events: Sequence[e.Event]) -> Numbered:
    """What the engine makes of the events an adapter emits."""
    return list(enumerate(Opener().feed(events), 1))
