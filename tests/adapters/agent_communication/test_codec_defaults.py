"""What agents made with the Python SDK repeat in every delta."""

from __future__ import annotations

from typing import Any

from adapters.agent_communication.codec.deltas_in import DeltaDecoder
from adapters.agent_communication.codec.deltas_out import DeltaEncoder
from gateway.core.delta import encode, same
from gateway.core.types import JsonObject
from tests.adapters.agent_communication.codec_documents import Told, bee, document_of, ended, folded, heard
from tests.mcp.runs.documents import numbered, run_of

MODEL: JsonObject = {
    "type": "object",
    "title": "Out",
    "properties": {
        "text": {"type": "string", "default": ""},
        "kind": {"type": "string", "default": "answer"},
        "score": {"type": "number", "default": 0.5},
        "done": {"type": "boolean", "default": False},
        "logs": {"type": "array", "default": [], "items": {"$ref": "#/$defs/Log"}},
        "meta": {"$ref": "#/$defs/Meta", "default": {"model": "m1", "steps": 0}},
    },
    "$defs": {
        "Log": {"type": "object", "properties": {"level": {"type": "string", "default": "info"}}},
        "Meta": {
            "type": "object",
            "properties": {"model": {"type": "string", "default": "m1"}, "steps": {"type": "integer", "default": 0}},
        },
    },
}


def dumped(**fields: Any) -> JsonObject:
    """A model as the Python SDK dumps it."""
    whole: JsonObject = {
        "text": "",
        "kind": "answer",
        "score": 0.5,
        "done": False,
        "logs": [],
        "meta": {"model": "m1", "steps": 0},
    }
    return {**whole, **fields}


def test_defaults_that_ride_along_in_every_delta_are_told_once_with_the_result() -> None:
    agent = bee(MODEL)
    decoder = DeltaDecoder(agent)
    events = heard(
        decoder,
        dumped(text="Hel", logs=[None, {"level": "info"}]),
        dumped(text="lo", logs=[None, {"level": "info"}], meta={"model": "m1", "steps": 2}),
        dumped(text="!", done=True),
    )
    assert folded(agent, events) == {
        "text": "Hello!",
        "logs": [{"level": "info"}, {"level": "info"}],
        "meta": {"steps": 2},
        "done": True,
    }
    assert decoder.losses == {"default": 3}
    final = encode(dumped(text="Hello!", logs=[{"level": "info"}] * 2, meta={"model": "m1", "steps": 2}, done=True))
    log, output = ended(agent, numbered(events), final)
    told, encoder = Told(), DeltaEncoder(agent)
    told.hear(encoder.feed(log))
    told.hear(encoder.finish(run_of(agent, output)))
    assert same(told.output, document_of(final)), "what was left out can still be said"
    assert not encoder.losses


def test_the_text_of_an_agent_that_sends_only_what_is_new_is_never_taken_for_a_default() -> None:
    decoder = DeltaDecoder(bee(MODEL))
    events = heard(decoder, {"kind": "ans"}, {"kind": "answer"}, {"kind": "answer", "text": "x"})
    assert folded(bee(), events) == {"kind": "ansansweranswer", "text": "x"}


def test_a_schema_of_one_field_has_no_default_that_could_ride_along() -> None:
    decoder = DeltaDecoder(bee({"type": "object", "properties": {"text": {"type": "string", "default": "the"}}}))
    assert folded(bee(), heard(decoder, {"text": "the"}, {"text": "the"})) == {"text": "thethe"}
