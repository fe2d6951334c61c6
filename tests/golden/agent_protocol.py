"""Agent Protocol: an agent's recorded answers read as events, events written as the steps a client is given."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from adapters.agent_protocol import codec, wire
from adapters.agent_protocol.legs import cut
from adapters.agent_protocol.steps import run_steps
from adapters.agent_protocol.upstream import step_events
from gateway.core import events as e
from gateway.core.delta import encode
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.types import Agent, Run, RunRequest, RunStatus

TASK = "83b110e8-561c-4c07-ad8d-9dd932f53744"
AGENT = Agent(
    name="writer",
    input_schema=MESSAGE_SCHEMA,
    output_schema=MESSAGE_OUTPUT_SCHEMA,
    text_input="/message",
    text_output="/message",
)


def _lines(chunks: Iterable[bytes]) -> list[bytes]:
    return [line for line in b"".join(chunks).split(b"\n") if line]


def _executed(chunks: Iterable[bytes]) -> list[e.Event]:
    """One answer of `POST steps` a line."""
    steps = [wire.Step.model_validate_json(line) for line in _lines(chunks)]
    return [event for step in steps for event in step_events(step)]


def _listed(chunks: Iterable[bytes]) -> list[e.Event]:
    """One answer of `GET steps` a line."""
    lists = [msgspec.json.decode(line)["steps"] for line in _lines(chunks)]
    return [codec.plan([wire.Step.model_validate(step) for step in steps]) for steps in lists]


def _served(events: list[tuple[int, e.Event]]) -> bytes:
    """The steps of `GET steps`, one a line, of a run that an Agent Protocol client started with `{"input": "1"}`."""
    request = RunRequest(
        agent="writer", input={"message": "1"}, protocol=codec.PROTOCOL, thread=TASK, creation={"input": "1"}
    )
    run = Run(
        id="5f6a1f0e-3d0f-4a53-9a3b-2f6f4a3f9b10",
        request=request,
        status=RunStatus.SUCCESS,
        created_at=0,
        updated_at=0,
    )
    legs = cut(event for _, event in events)
    return b"".join(encode(step) + b"\n" for step in run_steps(TASK, run, legs, AGENT))


READ = {"executed steps": _executed, "listed steps": _listed}
WRITE = {"served steps": _served}
