"""An agent's deltas and answers to events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.agent_communication.codec.deltas_in import MOST, DeltaDecoder
from adapters.agent_communication.codec.deltas_out import DeltaEncoder
from gateway.core import delta
from gateway.core import events as e
from gateway.core.delta import ABSENT, Fold, combine, encode, same, sound
from gateway.core.errors import AgentBroken
from gateway.core.types import JsonObject
from tests.adapters.agent_communication.codec_documents import (
    Dice,
    Told,
    bee,
    document_of,
    ended,
    folded,
    heard,
    unhurried,
)
from tests.mcp.runs.documents import numbered, run_of


@st.composite
def deltas(draw: st.DrawFn) -> list[JsonObject]:
    """Deltas that can be combined one after the other."""
    dice = Dice(draw)
    first = dice.object()
    changes, document = [first], combine(ABSENT, first)
    for _ in range(dice(7)):
        change = dice.delta(document)
        if isinstance(change, dict):
            changes.append(change)
            document = combine(document, change)
    return changes


# --- deltas ------------------------------------------------------------------------------------------------------


@unhurried
@given(deltas())
def test_a_client_of_the_same_protocol_is_told_the_same_deltas(changes: list[JsonObject]) -> None:
    """Word for word, but for halves of characters and for deltas of nothing."""
    agent, decoder, encoder = bee(), DeltaDecoder(bee()), DeltaEncoder(bee())
    told, document = Told(), ABSENT
    events = heard(decoder, *changes)
    for number, event in numbered(events):
        told.hear(encoder.feed([(number, event)]))
    for change in changes:
        document = combine(document, change)
    output = encode(sound(document))
    log, final = ended(agent, numbered(events), output)
    told.hear(encoder.feed(log[len(numbered(events)) :]))
    told.hear(encoder.finish(run_of(agent, final)))
    assert same(told.output, document_of(output))
    assert not encoder.losses
    if all(same(change, sound(change)) for change in changes):
        assert told.deltas == [change for change in changes if change]


@unhurried
@given(st.data())
def test_whatever_deltas_an_agent_sends_become_events_that_can_be_folded(data: st.DataObject) -> None:
    dice = Dice(data.draw)
    decoder = DeltaDecoder(bee())
    events = heard(decoder, *[dice.object() for _ in range(dice(7))])
    document = folded(bee(), events)
    assert same(document, None if decoder._fold.absent else decoder._fold.document())
    assert all(e.decode(e.encode(event)) == event for event in events)


# --- what does not fit -------------------------------------------------------------------------------------------


def test_a_delta_of_another_type_loses_only_what_does_not_fit() -> None:
    decoder = DeltaDecoder(bee())
    events = heard(
        decoder,
        {"text": "a", "n": 1, "items": [{"x": "1"}]},
        {"text": "b", "n": "two", "items": [{"x": 5, "y": "new"}, "more"]},
        {"text": ["c"]},
        {"text": "d"},
    )
    assert folded(bee(), events) == {"text": "abd", "n": 1, "items": [{"x": "1", "y": "new"}, "more"]}
    assert decoder.losses == {"bad_delta": 2}


def test_a_flag_that_flips_is_replaced() -> None:
    decoder = DeltaDecoder(bee())
    events = heard(
        decoder, {"text": "a", "done": False, "of": [{"ok": False}]}, {"text": "b", "done": True, "of": [{"ok": True}]}
    )
    assert folded(bee(), events) == {"text": "ab", "done": True, "of": [{"ok": True}]}
    assert not decoder.losses
    assert [event.pointer for event in events if isinstance(event, e.PartReplaced)] == ["/done", "/of/0/ok"]


def test_an_agent_whose_deltas_never_quite_fit_is_not_paid_for_with_its_document(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = DeltaDecoder(bee())
    heard(decoder, {"text": "x" * (1 << 20), "done": False, "list": [{"ok": True, "n": 1}]})
    monkeypatch.delattr(Fold, "document")
    monkeypatch.delattr(Fold, "get")
    events = heard(
        decoder, *[{"text": "y", "done": at % 2 == 0, "list": [{"ok": at % 2 == 1, "n": "one"}]} for at in range(200)]
    )
    assert len([event for event in events if isinstance(event, e.PartReplaced)]) == 400
    assert [event.delta for event in events if isinstance(event, e.PartDelta)] == [{"text": "y"}] * 200
    assert decoder.losses == {"bad_delta": 200}


def test_of_a_delta_in_which_hardly_anything_fits_nothing_is_taken() -> None:
    decoder = DeltaDecoder(bee())
    heard(decoder, {"text": "a", **{f"k{at}": 1 for at in range(3 * MOST)}})
    assert heard(decoder, {"text": "b", **{f"k{at}": "x" for at in range(3 * MOST)}}) == []
    assert decoder.losses == {"bad_delta": 1}


# --- the answer --------------------------------------------------------------------------------------------------


def test_half_a_character_in_the_answer_is_mended() -> None:
    end = DeltaDecoder(bee()).result(Raw(b'{"output":{"text":"\\ud83d"}}'))
    assert delta.decode(bytes(end.output)) == {"text": ""}


def test_progress_after_the_answer_is_left_out_and_counted() -> None:
    decoder = DeltaDecoder(bee())
    decoder.result(Raw(b'{"output":{"text":"a"}}'))
    assert heard(decoder, {"text": "b"}) == []
    assert decoder.losses == {"late_progress": 1}


@pytest.mark.parametrize("answer", [b"{}", b"[]", b"null", b"", b'{"result":{}}', b'{"output":'])
def test_an_answer_without_an_output_is_the_agents_mistake(answer: bytes) -> None:
    with pytest.raises(AgentBroken):
        DeltaDecoder(bee()).result(Raw(answer))
