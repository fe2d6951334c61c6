"""The event alphabet: everything that can happen in a run. See stream.py for which may follow which.

Events are numbered from 1 within their run by the engine; the number is not part of the event. `origin` is
what the wire said beyond the fields here (codec's own form), sent on verbatim by an encoder of the same
protocol and ignored by every other.
"""

import msgspec

from gateway.core.types import (
    NULL,
    Answer,
    Artifact,
    Failure,
    Interrupt,
    Json,
    JsonObject,
    Role,
    StopReason,
)


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="event"):
    """Base of all events."""

    origin: JsonObject | None = None


class RunStarted(Event, frozen=True, kw_only=True, tag="run_started"):
    """Always number 1."""


class MessageStarted(Event, frozen=True, kw_only=True, tag="message_started"):
    message: str
    role: Role = Role.ASSISTANT


class PartStarted(Event, frozen=True, kw_only=True, tag="part_started"):
    """`kind`: text, thought, data (any JSON) or file (`value` holds its description from the start)."""

    part: str
    message: str
    kind: str = "text"
    value: Json = None


class PartDelta(Event, frozen=True, kw_only=True, gc=False, tag="part_delta"):
    """`delta` is combined with the part so far (delta.py); for text and thought a string to append.

    The garbage collector does not count it: there are many, and JSON refers to nothing else.
    """

    part: str
    delta: Json


class PartReplaced(Event, frozen=True, kw_only=True, tag="part_replaced"):
    """The value at `pointer` (JSON pointer, "" the whole part) is now `value`."""

    part: str
    pointer: str = ""
    value: Json = None


class PartEnded(Event, frozen=True, kw_only=True, tag="part_ended"):
    part: str


class MessageEnded(Event, frozen=True, kw_only=True, tag="message_ended"):
    message: str


class ToolCallStarted(Event, frozen=True, kw_only=True, tag="tool_call_started"):
    """`call` is unique in the run (agents reuse ids: the codec adds the occurrence)."""

    call: str
    name: str
    title: str = ""
    kind: str = "other"
    input: Json = None


class ToolCallUpdated(Event, frozen=True, kw_only=True, tag="tool_call_updated"):
    """`input`: the call's, where it is known only now, or is another than it began with."""

    call: str
    status: str | None = None
    title: str | None = None
    input: Json = None
    content: Json = None


class ToolCallEnded(Event, frozen=True, kw_only=True, tag="tool_call_ended"):
    call: str
    failed: bool = False
    output: Json = None


class PlanEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`status`: pending, in_progress or completed."""

    content: str
    status: str = "pending"
    priority: str = "medium"
    id: str | None = None
    detail: JsonObject = {}


class PlanUpdated(Event, frozen=True, kw_only=True, tag="plan_updated"):
    """The whole plan as it is now."""

    entries: tuple[PlanEntry, ...] = ()


class ArtifactAdded(Event, frozen=True, kw_only=True, tag="artifact_added"):
    artifact: Artifact


class Interrupted(Event, frozen=True, kw_only=True, tag="interrupted"):
    interrupt: Interrupt


class Resumed(Event, frozen=True, kw_only=True, tag="resumed"):
    interrupt: str
    answer: Answer


class UsageReported(Event, frozen=True, kw_only=True, tag="usage_reported"):
    """Token counts so far in the run; `detail` is the agent's own report."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    detail: JsonObject = {}


class Custom(Event, frozen=True, kw_only=True, tag="custom"):
    """Whatever no other event can say, verbatim. `name` says which protocol's or agent's it is."""

    name: str
    data: Json = None


class RunFinished(Event, frozen=True, kw_only=True, tag="run_finished"):
    """`output` is the final document, encoded; it wins over the folded deltas. Without it (`NULL`) the fold is it."""

    output: msgspec.Raw = NULL
    stop_reason: StopReason = StopReason.END_TURN


class RunFailed(Event, frozen=True, kw_only=True, tag="run_failed"):
    failure: Failure
    timeout: bool = False


class RunCancelled(Event, frozen=True, kw_only=True, tag="run_cancelled"):
    reason: str = ""


AnyEvent = (
    RunStarted
    | MessageStarted
    | PartStarted
    | PartDelta
    | PartReplaced
    | PartEnded
    | MessageEnded
    | ToolCallStarted
    | ToolCallUpdated
    | ToolCallEnded
    | PlanUpdated
    | ArtifactAdded
    | Interrupted
    | Resumed
    | UsageReported
    | Custom
    | RunFinished
    | RunFailed
    | RunCancelled
)
TERMINAL = (RunFinished, RunFailed, RunCancelled)
TOOL_CALL_ENDS = (ToolCallStarted, ToolCallEnded)
"""Where a tool call begins and where it ends."""
TOOL_CALL = (ToolCallStarted, ToolCallUpdated, ToolCallEnded)
DONE_BESIDE = (*TOOL_CALL, PlanUpdated, ArtifactAdded, UsageReported, Custom)
"""What an agent does beside what it says."""
OF_MESSAGES: frozenset[type[Event]] = frozenset({MessageStarted, PartStarted, PartDelta, PartEnded, MessageEnded})
"""Messages and what they are made of."""
BESIDE: frozenset[type[Event]] = frozenset({Custom, ArtifactAdded})
"""Events that are no part of the output."""

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
encode = _encoder.encode
"""An event as one line of JSON (bytes)."""
decode = _decoder.decode
"""The event that `encode` wrote."""
