"""Lines <-> core events. Pure: no clock, no ids, no IO."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from adapters.example.wire import Ask, ExampleLine, FileLine, ToldAnswer
from gateway.core import events as e
from gateway.core.errors import (
    AgentBroken,
    AgentBusy,
    AgentError,
    AgentTimeout,
    Conflict,
    Denied,
    InterlinguaError,
    Limited,
    NotFound,
    Refused,
    TooLarge,
    Unauthenticated,
    Unavailable,
    lookup,
)
from gateway.core.types import Answer, Failure, Interrupt, Outcome

ERRORS: dict[type[InterlinguaError], int] = {
    InterlinguaError: 500,
    Refused: 422,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    Denied: 403,
    Unauthenticated: 401,
    AgentError: 502,
    AgentBusy: 503,
    AgentTimeout: 504,
    Unavailable: 503,
    Limited: 429,
}
"""Error -> HTTP status; the body is `{"error": text}`."""

LOSSES: dict[type[e.Event], str] = {
    e.ToolCallStarted: "tool_call",
    e.PlanUpdated: "plan",
    e.UsageReported: "usage",
    e.Custom: "custom",
}
"""Events without a line, and the names of these losses."""

_lines = msgspec.json.Decoder(ExampleLine)


def status(error: InterlinguaError) -> int:
    """Return the HTTP status of an error."""
    return lookup(ERRORS, error)


def parse(line: bytes) -> ExampleLine:
    """Decode a line from an agent. Raises AgentBroken."""
    try:
        return _lines.decode(line)
    except (ValueError, RecursionError) as error:
        raise AgentBroken(f"not a line of the example protocol: {error}") from error


def decode(line: ExampleLine) -> list[e.Event]:
    """Convert a line to events. Questions and files are not events: the outbound half asks, and stores."""
    if line.delta is not UNSET:
        return [e.PartDelta(part=line.part or "output", delta=line.delta)]
    if line.value is not UNSET:
        return [e.PartReplaced(part=line.part or "output", pointer=line.pointer, value=line.value)]
    if line.error is not UNSET:
        return [e.RunFailed(failure=Failure(code="agent_failed", message=str(line.error)))]
    if line.cancelled:
        return [e.RunCancelled(reason="cancelled by the agent")]
    if bytes(line.done):
        return [e.RunFinished(output=line.done.copy())]
    return []


def question(ask: Ask) -> Interrupt:
    """Convert an agent's question to an interrupt."""
    return Interrupt(id=ask.id, kind=ask.kind, payload=ask.payload, message=ask.question, answer_schema=ask.schema)


def answered(run: str, ask: str, answer: Answer) -> ToldAnswer:
    """Convert the answer to a question of an agent's."""
    return ToldAnswer(run=run, id=ask, answer=answer.value, declined=answer.outcome is not Outcome.ANSWERED)


def encode(number: int, event: e.Event) -> ExampleLine | None:
    """Convert an event to a line; None if the protocol has no line for it."""
    match event:
        case e.PartDelta():
            return ExampleLine(n=number, part=event.part, delta=event.delta)
        case e.PartReplaced():
            return ExampleLine(n=number, part=event.part, pointer=event.pointer, value=event.value)
        case e.Interrupted(interrupt=i):
            ask = Ask(id=i.id, question=i.message, kind=i.kind, payload=i.payload, schema=i.answer_schema)
            return ExampleLine(n=number, ask=ask)
        case e.ArtifactAdded(artifact=a):
            return ExampleLine(n=number, file=FileLine(id=a.id, name=a.name, media_type=a.media_type, size=a.size))
        case e.RunFinished():
            return ExampleLine(n=number, done=event.output)
        case e.RunFailed():
            return ExampleLine(n=number, error=event.failure.message)
        case e.RunCancelled():
            return ExampleLine(n=number, cancelled=True)
        case _:
            return None


dump = msgspec.json.Encoder().encode
"""Encode a message of the wire."""
