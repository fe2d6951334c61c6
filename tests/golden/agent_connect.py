"""Agent Connect: what a recorded server answered, read; what the real SDK was given, written.

What was recorded through the gateway was recorded with `agntcy-acp` 1.5.2, which read all of it back. A document ends
with a line feed here that it does not have on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from adapters.agent_connect import codec, codec_agents, codec_threads, decode
from adapters.agent_connect.codec_stream import StreamEncoder
from adapters.agent_connect.decode import RunFailure, RunQuestion, RunSuccess, StreamDecoder, Verdict, interrupt
from gateway.contract import Batch
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.projection import MESSAGE_OUTPUT_SCHEMA, MESSAGE_SCHEMA
from gateway.core.types import Agent, Artifact, Run
from gateway.wire import sse

RIG = Agent(name="rig", input_schema=MESSAGE_SCHEMA, output_schema=MESSAGE_OUTPUT_SCHEMA)


def _said(verdict: Verdict | None, run_id: str | None) -> list[e.Event]:
    """What the outbound half makes of a verdict. A question goes through `RunContext.ask`."""
    match verdict:
        case RunSuccess():
            return decode.finished(verdict)
        case RunFailure():
            return [decode.failed(verdict)]
        case RunQuestion():
            return [e.Interrupted(interrupt=interrupt(verdict, RIG, run_id or "", 0))]
    return []


# --- reads: a server's answers -----------------------------------------------------------------------------------


def _streamed(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """The body of `POST /runs/stream`: its events, then what its last word amounts to."""
    frames, messages = sse.SseDecoder(), StreamDecoder()
    events: list[e.Event] = []
    for chunk in chunks:
        events += messages.feed([frame.data for frame in frames.feed(chunk)], "the stream")
    assert messages.broken is None, messages.broken
    return events + _said(messages.verdict, messages.run_id)


def _waited(chunks: Iterable[bytes], given: Any) -> list[e.Event]:
    """An answer of `.../wait`."""
    record, verdict = decode.waited(b"".join(chunks), "the wait")
    assert record is not None
    return _said(verdict, record.run_id)


def _described(chunks: Iterable[bytes], given: Any) -> Any:
    """An answer of `GET /agents/{id}/descriptor`, as the agent it describes; its own words, kept whole, left out."""
    descriptor = msgspec.json.decode(b"".join(chunks))
    found = codec_agents.agent(descriptor, "the descriptor")
    assert found.extra == {"agent_connect": descriptor}
    return msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(found, extra={})))


def _found(chunks: Iterable[bytes], given: Any) -> Any:
    """An answer of `POST /agents/search`, as (id, name, version) of each."""
    return [list(agent) for agent in codec_agents.found(msgspec.json.decode(b"".join(chunks)), "the search")]


# --- writes: what clients are given ------------------------------------------------------------------------------


def _stream(events: list[tuple[int, e.Event]], given: Any) -> bytes:
    """The body of `POST /runs/stream`. Given: the run, its agent, the modes."""
    agent, run = msgspec.convert(given["agent"], Agent), _run(given["run"])
    encoder, output, out = StreamEncoder(run.id, agent, given["modes"]), Output(agent), b""
    for number, event in events:
        output.apply(event)
        out += encoder.feed(Batch(events=((number, event),), last=number, snapshot=output), run, 0.0)
    return out


def _wait(value: Any, given: Any) -> bytes:
    """The answer of `POST /runs/wait` for a run that has stopped. Given: its files, the pointer to its text."""
    run = _run(value)
    files = msgspec.convert((given or {}).get("artifacts", []), list[Artifact])
    return (
        codec.encode_wait(run, codec_threads.file_messages(files, run.output, (given or {}).get("text_output"))) + b"\n"
    )


def _descriptor(value: Any, given: Any) -> bytes:
    """The answer of `GET /agents/{id}/descriptor`."""
    return codec_agents.encode_descriptor(msgspec.convert(value, Agent)) + b"\n"


def _search(value: Any, given: Any) -> bytes:
    """The answer of `POST /agents/search`."""
    return codec_agents.encode_agents(msgspec.convert(value, list[Agent])) + b"\n"


def _run(value: Any) -> Run:
    return msgspec.json.decode(msgspec.json.encode(value), type=Run)


READ = {"stream": _streamed, "wait": _waited, "descriptor": _described, "search": _found}
WRITE = {"stream": _stream, "wait": _wait, "descriptor": _descriptor, "search": _search}
