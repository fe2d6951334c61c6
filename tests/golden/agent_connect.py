"""Agent Connect: a server's recorded streams read as events, events written as the stream a client is given."""

from __future__ import annotations

from collections.abc import Iterable

from adapters.agent_connect.codec_stream import StreamEncoder
from adapters.agent_connect.decode import StreamDecoder
from gateway.adapter import Batch
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.types import Agent, Run, RunRequest
from gateway.wire import sse

AGENT = Agent(
    name="rig",
    input_schema=MESSAGE_SCHEMA,
    output_schema=MESSAGE_OUTPUT_SCHEMA,
    text_output="/message",
    extra={"agent_connect": {}},
)
RUN = Run(
    id="5f6a1f0e-3d0f-4a53-9a3b-2f6f4a3f9b10",
    request=RunRequest(agent="rig", input={}, protocol="agent_connect"),
    created_at=0,
    updated_at=0,
)


def _stream(chunks: Iterable[bytes]) -> list[e.Event]:
    """The body of `POST /runs/stream`."""
    frames, messages = sse.Decoder(), StreamDecoder()
    return [
        event for chunk in chunks for event in messages.feed([frame.data for frame in frames.feed(chunk)], "the stream")
    ]


def _served(events: list[tuple[int, e.Event]]) -> bytes:
    """The body of `POST /runs/stream` with both modes, one event a batch."""
    encoder, output, out = StreamEncoder(RUN.id, AGENT, ("values", "custom")), Output(AGENT), b""
    for number, event in events:
        output.apply(event)
        out += encoder.feed(Batch(events=((number, event),), last=number, snapshot=output), RUN, 0.0)
    return out


READ = {"stream": _stream}
WRITE = {"stream": _served}
