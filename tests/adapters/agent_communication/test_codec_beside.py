"""What is told beside deltas: further members of the params, and events that no output can say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from adapters.agent_communication.codec.deltas_in import DeltaDecoder
from adapters.agent_communication.codec.deltas_out import DeltaEncoder, progress
from gateway.core import events as e
from gateway.core.types import Agent, Artifact
from tests.adapters.agent_communication.codec_documents import TEXT, bee, folded, params
from tests.mcp.runs.documents import numbered


def test_further_members_of_the_params_come_along_and_go_out_again() -> None:
    decoder, encoder = DeltaDecoder(bee()), DeltaEncoder(bee())
    events = [
        *decoder.feed(params({"text": "a"}, _meta={"x/y": [1]}, stage="early")),
        *decoder.feed(params({}, _meta={"x/y": 2})),
        *decoder.feed(params({"text": "b"}, _meta={})),
    ]
    said = encoder.feed(numbered(events))
    assert [json.loads(b'{"delta":' + each + b"}") for each in said] == [
        {"delta": {"text": "a"}, "_meta": {"x/y": [1]}, "stage": "early"},
        {"delta": {}, "_meta": {"x/y": 2}},
        {"delta": {"text": "b"}},
    ]


BESIDE: list[e.Event] = [
    e.PartStarted(part="th", message="m", kind="thought"),
    e.PartDelta(part="th", delta="hm\u2028"),
    e.PartReplaced(part="th", value="hm, no"),
    e.ToolCallStarted(call="c", name="look", input={"a": 1}),
    e.ToolCallUpdated(call="c", status="in_progress"),
    e.ToolCallEnded(call="c", output=[1]),
    e.PlanUpdated(entries=(e.PlanEntry(content="step"),)),
    e.UsageReported(input_tokens=3),
    e.Custom(name="other.thing", data={"x": None}),
    e.MessageStarted(message="u", role="user"),  # type: ignore[arg-type]
    e.PartStarted(part="asked", message="u", value="what?"),
    e.PartDelta(part="asked", delta=" and why?"),
    e.PartStarted(part="pic", message="m", kind="file", value={"uri": "http://x/1"}),
]


def test_what_no_output_can_say_comes_through_two_gateways_as_it_was() -> None:
    far = Agent(name="far", input_schema=TEXT, output_schema=TEXT, text_output="/text")
    log = numbered([e.PartDelta(part="t", delta="Hi"), *BESIDE, e.PartDelta(part="t", delta="!")])
    encoder, decoder = DeltaEncoder(far), DeltaDecoder(bee())
    said = encoder.feed(log)
    assert b"\xe2\x80\xa8" not in b"".join(said), "one line, however lines are split"
    wire = [json.loads(progress("t", each))["params"] for each in said]
    events = [event for each in wire for event in decoder.feed(Raw(json.dumps(each).encode()))]
    assert [event for event in events if getattr(event, "part", "") != "output"] == BESIDE
    assert folded(bee(), events) == {"text": "Hi!"}
    assert not decoder.losses and not encoder.losses
    again = DeltaEncoder(bee()).feed(numbered(events))
    assert [json.loads(b'{"delta":' + each + b"}") for each in again] == [
        {key: value for key, value in each.items() if key != "progressToken"} for each in wire
    ]


def test_a_file_of_another_gateway_is_told_at_once_and_is_where_that_has_it() -> None:
    far = Agent(name="far", input_schema=TEXT, output_schema=TEXT, text_output="/text")
    file = Artifact(id="f1", name="a.png", url="http://far/artifacts/f1", media_type="image/png", size=3)
    begin = [e.MessageStarted(message="m"), e.PartStarted(part="t", message="m")]
    said = DeltaEncoder(far).feed(numbered([e.ArtifactAdded(artifact=file), *begin, e.PartDelta(part="t", delta="Hi")]))
    wire = [json.loads(progress(0, each))["params"] for each in said]
    decoder = DeltaDecoder(bee())
    (first, *_), text = (decoder.feed(Raw(json.dumps(each).encode())) for each in wire)
    assert isinstance(first, e.PartStarted) and first.kind == "file"
    assert first.value["uri"] == "http://far/artifacts/f1"
    assert wire[1]["delta"]["text"] == "Hi"
    assert folded(bee(), text) == {"text": "Hi", "artifacts": [{"name": "a.png", "url": "http://far/artifacts/f1"}]}


@pytest.mark.parametrize(
    "told",
    [
        {"event": "run_finished"},
        {"event": "interrupted", "interrupt": {"id": "q", "kind": "k"}},
        {"event": "part_delta", "part": "output", "delta": {"text": "no"}},
        {"event": "part_started", "part": "output", "message": "m", "kind": "thought"},
        {"event": "part_started", "part": "p", "message": "m", "kind": "text"},
        {"event": "part_delta", "part": "never started", "delta": "x"},
        {"event": "message_started", "message": "m"},
        {"event": "nothing of ours"},
        "text",
        None,
    ],
)
def test_nobody_gets_into_the_run_by_way_of_meta(told: Any) -> None:
    decoder = DeltaDecoder(bee())
    events = decoder.feed(params({"text": "a"}, _meta={"interlingua/event": told}))
    assert folded(bee(), events) == {"text": "a"}
    assert [type(event) for event in events] == [e.PartStarted, e.PartDelta]
    assert decoder.losses == {"bad_event": 1}


def test_a_thought_is_text() -> None:
    decoder = DeltaDecoder(bee())
    start = {"event": "part_started", "part": "th", "message": "m", "kind": "thought"}
    assert len(decoder.feed(params({}, _meta={"interlingua/event": start}))) == 1
    odd = {"event": "part_delta", "part": "th", "delta": {"no": "text"}}
    assert decoder.feed(params({}, _meta={"interlingua/event": odd})) == [
        e.PartStarted(part="output", message="message", kind="data"),
        e.PartDelta(part="output", delta={}),
    ]
