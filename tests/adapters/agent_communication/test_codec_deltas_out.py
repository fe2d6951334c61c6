"""Events to deltas: what they add up to, whatever the agent says and however its events are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_communication.codec.deltas_out import DeltaEncoder
from gateway.core import events as e
from gateway.core.delta import ABSENT, NO_DIFF, diff, encode, same, sound
from gateway.core.output import Output
from gateway.core.stream import coalesce
from gateway.core.types import Agent
from tests.adapters.agent_communication.codec_documents import (
    AGENTS,
    Told,
    alike,
    cut,
    document_of,
    ended,
    growing,
    histories,
    of_snapshots,
    published,
    speech,
    states,
    tell,
    unhurried,
)
from tests.adapters.agent_communication.codec_documents import once as had
from tests.mcp.runs.documents import ANY, MESSAGE, Numbered, numbered, run_of

# --- what deltas add up to ---------------------------------------------------------------------------------------


@unhurried
@given(growing(objects=False))
def test_the_deltas_of_documents_that_only_grow_add_up_to_the_output(snapshots: list[Any]) -> None:
    events, output = ended(ANY, of_snapshots(snapshots), encode(sound(snapshots[-1])))
    told, encoder = tell(ANY, events, output)
    assert same(told.output, {"output": document_of(output)})
    assert not encoder.losses


@unhurried
@given(histories(objects=False))
def test_what_was_rewritten_is_right_in_the_end_wherever_a_delta_can_say_it(snapshots: list[Any]) -> None:
    for agent in (MESSAGE, ANY):
        events, output = ended(agent, of_snapshots(snapshots), encode(sound(snapshots[-1])))
        told, encoder = tell(agent, events, output)
        wanted = published(agent, document_of(output))
        if not alike(told.output, wanted):
            assert diff(told.output, wanted) is NO_DIFF
            assert encoder.losses["rewrite"]


@unhurried
@given(histories())
def test_whatever_a_client_has_in_between_was_so_at_some_time(snapshots: list[Any]) -> None:
    events, _ = ended(MESSAGE, of_snapshots(snapshots), encode(sound(snapshots[-1])))
    told, encoder = Told(), DeltaEncoder(MESSAGE)
    known = [published(MESSAGE, each) for each in states(MESSAGE, events)]
    for at in range(len(events)):
        told.hear(encoder.feed(events[at : at + 1]))
        assert told.document is ABSENT or had(told.document, [{}, *known])


@unhurried
@given(growing())
def test_while_nothing_is_rewritten_a_client_has_every_document_in_turn(snapshots: list[Any]) -> None:
    events = of_snapshots(snapshots)
    told, encoder, output = Told(), DeltaEncoder(MESSAGE), Output(MESSAGE)
    for number, event in events:
        output.apply(event)
        told.hear(encoder.feed([(number, event)]))
        assert same(told.output, {} if output.empty else output.document)


@unhurried
@given(histories(), st.data())
def test_however_events_are_cut_the_same_is_said(snapshots: list[Any], data: st.DataObject) -> None:
    events, _ = ended(MESSAGE, of_snapshots(snapshots), encode(sound(snapshots[-1])))
    whole, pieces = DeltaEncoder(MESSAGE), DeltaEncoder(MESSAGE)
    said = [each for piece in data.draw(cut(events)) for each in pieces.feed(piece)]
    assert said == whole.feed(events)
    assert pieces.losses == whole.losses


@unhurried
@given(histories())
def test_events_that_were_joined_for_a_client_that_lags_say_the_same(snapshots: list[Any]) -> None:
    events, output = ended(MESSAGE, of_snapshots(snapshots), encode(sound(snapshots[-1])))
    assert same(tell(MESSAGE, coalesce(events), output)[0].output, tell(MESSAGE, events, output)[0].output)


@unhurried
@given(histories(), st.data())
def test_a_client_that_comes_late_is_told_what_adds_up_to_the_output(snapshots: list[Any], data: st.DataObject) -> None:
    events, output = ended(MESSAGE, of_snapshots(snapshots), encode(sound(snapshots[-1])))
    start = data.draw(st.integers(0, len(events)))
    document = Output(MESSAGE)
    for _, event in events[:start]:
        document.apply(event)
    told, encoder = Told(), DeltaEncoder(MESSAGE)
    for piece in data.draw(cut(events[start:])):
        for _, event in piece:
            document.apply(event)
        told.hear(encoder.feed(piece, document if data.draw(st.booleans()) else None))
    told.hear(encoder.finish(run_of(MESSAGE, output)))
    wanted = published(MESSAGE, document_of(output))
    if not alike(told.output, wanted):
        assert diff(told.output, wanted) is NO_DIFF
        assert encoder.losses["rewrite"]


# --- text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
@unhurried
@given(events=speech(rewrites=True), data=st.data())
def test_text_that_is_rewritten_is_right_in_the_end_wherever_a_delta_can_say_it(
    agent: Agent, events: Numbered, data: st.DataObject
) -> None:
    whole, final = ended(agent, events)
    told, encoder = tell(agent, whole, final)
    wanted = published(agent, document_of(final))
    if not alike(told.output, wanted):
        assert diff(told.output, wanted) is NO_DIFF
        assert encoder.losses["rewrite"]
    again = DeltaEncoder(agent)
    assert [each for piece in data.draw(cut(whole)) for each in again.feed(piece)] == DeltaEncoder(agent).feed(whole)


# --- in particular -----------------------------------------------------------------------------------------------


def said(encoder: DeltaEncoder, *events: e.Event) -> list[Any]:
    return [json.loads(b'{"delta":' + each + b"}") for each in encoder.feed(numbered(events))]


def told_of(agent: Agent, *events: e.Event) -> list[Any]:
    return [each["delta"] for each in said(DeltaEncoder(agent), *events)]


def test_a_flag_that_flips_holds_up_nothing_else() -> None:
    agent, events = (
        MESSAGE,
        of_snapshots(
            [
                {"message": "a", "busy": True, "steps": [{"done": False}]},
                {"message": "ab", "busy": False, "steps": [{"done": False}]},
                {"message": "abc", "busy": False, "steps": [{"done": True}, {"done": False}]},
                {"message": "abcd", "busy": False, "steps": [{"done": True}, {"done": True}]},
            ]
        ),
    )
    encoder = DeltaEncoder(agent)
    told = [json.loads(each) for each in encoder.feed(events)]
    assert told == [
        {"message": "a", "busy": True, "steps": [{"done": False}]},
        {"message": "b"},
        {"message": "c", "steps": [None, {"done": False}]},
        {"message": "d"},
    ]
    assert encoder.losses["rewrite"]


def test_what_is_rewritten_back_goes_on_where_it_was() -> None:
    encoder = DeltaEncoder(MESSAGE)
    told = said(
        encoder,
        e.PartStarted(part="p", message="m", kind="data"),
        e.PartDelta(part="p", delta={"message": "a", "state": {"now": "look"}}),
        e.PartReplaced(part="p", pointer="/state/now", value="write"),
        e.PartDelta(part="p", delta={"message": "b", "state": {"now": " it"}}),
        e.PartReplaced(part="p", pointer="/state", value={"now": "looking", "more": "x"}),
        e.PartDelta(part="p", delta={"state": {"now": " on", "more": "y"}}),
    )
    assert [each["delta"] for each in told] == [
        {"message": "a", "state": {"now": "look"}},
        {"message": "b"},
        {"state": {"now": "ing", "more": "x"}},
        {"state": {"now": " on", "more": "y"}},
    ]


def test_an_inner_item_that_changes_with_the_whole_document_is_counted() -> None:
    encoder = DeltaEncoder(MESSAGE)
    told = said(
        encoder,
        e.PartStarted(part="p", message="m", kind="data", value={"list": [1, 2]}),
        e.PartReplaced(part="p", value={"list": [3, 2, 4]}),
    )
    assert [each["delta"] for each in told] == [{"list": [1, 2]}, {"list": [None, 4]}]
    assert encoder.losses == {"rewrite": 1}


def test_items_are_reached_as_far_as_a_delta_reaches() -> None:
    encoder = DeltaEncoder(MESSAGE)
    told = said(
        encoder,
        e.PartStarted(part="p", message="m", kind="data"),
        e.PartDelta(part="p", delta={"list": [{"t": "a"}, {"t": "b"}]}),
        e.PartReplaced(part="p", pointer="/list/1/t", value="bc"),
        e.PartReplaced(part="p", pointer="/list/0/t", value="aa"),
        e.PartReplaced(part="p", pointer="/list/-", value=[None, 1]),
        e.PartReplaced(part="p", pointer="/list/3", value="x"),
        e.PartDelta(part="p", delta={"list": ["y"]}),
    )
    assert [each["delta"] for each in told] == [
        {"list": [{"t": "a"}, {"t": "b"}]},
        {"list": [{"t": "c"}]},
        {"list": [None, [None, None, 1]]},
        {"list": [None, "x"]},
        {"list": ["y"]},
    ]
    assert encoder.losses == {"rewrite": 1}


def test_an_output_that_is_nested_deep_is_told_whole_or_in_the_result_only() -> None:
    """How deep is too deep is the interpreter's to say: Python 3.13 goes further."""
    deep = b'{"a":' * 500 + b"1" + b"}" * 500
    for before in ([], [e.PartDelta(part="t", delta="x")]):
        encoder = DeltaEncoder(MESSAGE)
        told = [*encoder.feed(numbered(before)), *encoder.finish(run_of(MESSAGE, deep))]
        assert all(deep in each for each in told if b'"a"' in each)


def test_who_joins_a_run_is_told_its_document_whatever_is_said_beside_it() -> None:
    output, encoder = Output(MESSAGE), DeltaEncoder(MESSAGE)
    begun = [e.MessageStarted(message="m"), e.PartStarted(part="t", message="m"), e.PartDelta(part="t", delta="Hi")]
    beside = [
        e.PartStarted(part="d", message="m", kind="data", value=1),
        e.PartDelta(part="d", delta={"n": 1}),
        e.PartReplaced(part="d", pointer="/a", value=1),
        e.PartDelta(part="t", delta="!"),
    ]
    for event in (*begun, *beside):
        output.apply(event)
    (said,) = encoder.feed(list(enumerate(beside, 5)), output)
    assert json.loads(said) == {"message": "Hi!"}


def test_a_text_that_has_begun_before_the_output_is_told_beside_it() -> None:
    text = [e.PartStarted(part="t", message="m"), e.PartStarted(part="d", message="m", kind="data", value={"n": 1})]
    said = [
        e.PartDelta(part="t", delta="Hi"),
        e.PartReplaced(part="t", value="Ho"),
        e.PartDelta(part="d", delta={"n": 1}),
    ]
    told = DeltaEncoder(MESSAGE).feed(list(enumerate([e.MessageStarted(message="m"), *text, *said], 1)))
    wire = [json.loads(b'{"delta":' + one + b"}") for one in told]
    assert [each["delta"] for each in wire] == [{"n": 1}, {}, {}, {"n": 1}]
