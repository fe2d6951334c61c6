"""What an agent of this protocol says, as events: and back again, to the same JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec.updates_in import SpokenSession, UpdateDecoder
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentBroken
from gateway.core.output import Output
from gateway.core.stream import State
from gateway.core.types import Role
from tests.adapters.agent_client.codec_cases import (
    NATIVE,
    ODD,
    STRANGE,
    UPDATES,
    dumped,
    read,
    text_of,
    unhurried,
    valid,
    written,
)
from tests.core.json_values import HALVED


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, **more}


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {**said(text, **more), "sessionUpdate": "agent_thought_chunk"}


def called(id: str = "c", **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call", "toolCallId": id, "title": "Read", **more}


def updated(**more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c", **more}


def message_of(events: list[e.Event]) -> str:
    """The text of the run's output document."""
    output = Output(NATIVE)
    for event in events:
        output.apply(event)
    document = msgspec_document(output)
    return str(document["message"])


def msgspec_document(output: Output) -> Any:
    return json.loads(output.encoded)


def of(events: list[e.Event], kind: type[e.Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


# --- the same JSON again -----------------------------------------------------------------------------------------


@unhurried
@given(st.lists(UPDATES, max_size=8), st.integers(1, 5))
def test_whatever_the_schema_allows_is_told_to_a_client_of_the_protocol_as_it_was_said(updates: Any, size: int) -> None:
    told = written(read(updates), size=size)
    assert len(told) == len(updates)
    for update, again in zip(updates, told, strict=True):
        assert delta.same(again, update), (update, again)
        valid("SessionUpdate", again)


TRICKY = [
    said("a", _meta={}),
    said("a", _meta=None),
    said("a", extra=1),
    said("a", messageId=None),
    said("a", messageId=7),
    said("a", messageId=""),
    said(""),
    {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": "a", "annotations": {"priority": 1.0}},
    },
    {"sessionUpdate": "agent_message_chunk", "content": {"text": "a"}},
    {"sessionUpdate": "agent_message_chunk", "content": "a"},
    {"sessionUpdate": "agent_message_chunk"},
    {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "image", "data": "", "mimeType": "x"},
        "_meta": {"n": 1},
    },
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "video"}, "messageId": "m"},
    {"sessionUpdate": "agent_thought_chunk", "content": {"type": "image", "data": "", "mimeType": "x"}},
    {"sessionUpdate": "user_message_chunk", "content": {"type": "resource_link", "name": "n", "uri": "u"}},
    called(status="pending"),
    called(status="in_progress"),
    called(status="completed", content=[{"type": "diff", "path": "p", "newText": "n"}], rawOutput=None),
    called(kind="made_up", rawInput=None, locations=[{"path": "p", "line": 1}]),
    called(rawInput={"n": 1, "x": 1.0}),
    called(content=[{"type": "text", "text": "as the documentation has it"}]),
    called(title=""),
    updated(),
    updated(status=None, title=None, content=None),
    updated(status="cancelled"),
    updated(status="failed", title="t", rawOutput={"a": None}, _meta={"x": 1}),
    updated(content=[]),
    {"sessionUpdate": "plan", "entries": [{"content": "x", "priority": "urgent", "status": "cancelled", "_meta": {}}]},
    {"sessionUpdate": "plan", "entries": [{"content": "x"}]},
    {"sessionUpdate": "plan", "entries": ["x"]},
    {"sessionUpdate": "plan"},
    {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 0.5, "currency": "USD"}, "x": None},
    {"sessionUpdate": "usage_update", "used": True, "size": 2},
    {"sessionUpdate": "usage_update"},
    {"sessionUpdate": "something_new", "x": [1]},
]


@pytest.mark.parametrize("update", TRICKY, ids=lambda update: json.dumps(update)[:60])
def test_what_is_told_again_is_what_was_said_to_the_last_key(update: Any) -> None:
    for updates in ([update], [said("x"), update, said("y")], [called(), update, updated(title="z")], [update, update]):
        told = written(read(updates), size=1)
        assert len(told) == len(updates)
        for again, first in zip(told, updates, strict=True):
            assert delta.same(again, first), (first, again)


@unhurried
@given(st.lists(UPDATES | STRANGE | ODD, max_size=6))
def test_and_so_is_what_it_does_not_allow(updates: Any) -> None:
    told = written(read(updates))
    assert len(told) == len(updates)
    for update, again in zip(updates, told, strict=True):
        assert delta.same(again, update), (update, again)


@unhurried
@given(st.lists(st.tuples(HALVED, st.booleans(), st.sampled_from([None, "a"])), max_size=8))
def test_text_survives_in_any_chunking_even_with_characters_cut_in_two(pieces: Any) -> None:
    updates = [
        said(text, **({"_meta": {"n": 1}} if extra else {}), **({} if id is None else {"messageId": "a"}))
        for text, extra, id in [(text, extra, pieces[0][2]) for text, extra, _ in pieces]
    ]
    whole = delta.sound(
        "".join(text for text, _, _ in pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )
    events = read(updates)
    joined = "".join(event.delta for event in of(events, e.PartDelta))
    assert joined.replace("\ufffd", "") == whole.replace("\ufffd", "")
    assert text_of(written(events)) == joined


def test_a_character_that_was_cut_in_two_is_one_again() -> None:
    events = read([said("a\ud83d", _meta={}), said("\ude00b"), said("c")])
    assert [event.delta for event in of(events, e.PartDelta)] == ["a", "😀b", "c"]
    assert text_of(written(events)) == "a😀bc"


def test_half_a_character_at_the_end_is_no_character() -> None:
    assert message_of(read([said("a\ud83d")])) == "a\ufffd"


# --- messages ----------------------------------------------------------------------------------------------------


def test_chunks_are_one_message_by_their_id() -> None:
    updates = [said("a", messageId="1"), called(), said("b", messageId="1"), said("c", messageId="2")]
    assert message_of(read(updates)) == "ab\n\nc"


def test_a_thought_does_not_part_the_message_it_comes_in() -> None:
    events = read([said("a"), thought("hm"), said("b")])
    assert message_of(events) == "ab"
    assert len(of(events, e.MessageStarted)) == 1
    assert [part.kind for part in of(events, e.PartStarted)] == ["text", "thought", "text"]


def test_the_prompt_that_an_agent_echoes_is_the_users_and_no_output() -> None:
    events = read([{**said("do it"), "sessionUpdate": "user_message_chunk"}, said("done")])
    assert [start.role for start in of(events, e.MessageStarted)] == [Role.USER, Role.ASSISTANT]
    assert message_of(events) == "done"
    assert text_of(written(events, replay=True), "user_message_chunk") == ""


def test_a_file_in_a_message_is_a_part_with_the_block_for_its_value() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    part = of(read([{"sessionUpdate": "agent_message_chunk", "content": image}]), e.PartStarted)[0]
    assert (part.kind, part.value, part.origin) == ("file", image, None)


def test_events_are_legal_without_repair_up_to_the_end_of_the_run() -> None:
    decoder = UpdateDecoder()
    events = [
        event
        for update in [
            said("a"),
            called(),
            said("b"),
            thought("c"),
            {**said("d"), "sessionUpdate": "user_message_chunk"},
        ]
        for event in decoder.feed(dumped(update))
    ]
    state = State()
    for event in [e.RunStarted(), *events, *decoder.close()]:
        assert isinstance(event, e.Event)
        state.advance(event)
    assert {kind for kind, _ in state.opened()} == {"part", "message"}  # the end closes them (`Opener`)


# --- tool calls --------------------------------------------------------------------------------------------------


def test_a_call_that_is_updated_before_it_starts_starts_then() -> None:
    events = read([updated(status="in_progress", title="Write")])
    assert [(start.call, start.title) for start in of(events, e.ToolCallStarted)] == [("c", "Write")]


def test_what_is_said_of_a_call_that_has_ended_is_kept_for_clients_of_the_protocol() -> None:
    late = updated(status="completed", title="late")
    events = read([called(), updated(status="completed"), late])
    assert [custom.data for custom in of(events, e.Custom)] == [late]


# --- the rest ----------------------------------------------------------------------------------------------------


def test_a_plan_is_the_plan_and_usage_the_usage() -> None:
    entry = {"content": "x", "priority": "high", "status": "completed"}
    usage = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
    plan, used = read([{"sessionUpdate": "plan", "entries": [entry]}, usage])[1:3]
    assert plan == e.PlanUpdated(entries=(e.PlanEntry(content="x", priority="high", status="completed"),))
    assert used == e.UsageReported(detail=usage)


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"update":1}', b'{"sessionUpdate":7}', b"null", b'{"a":' * 5000])
def test_what_is_no_update_is_the_agents_mistake(raw: bytes) -> None:
    with pytest.raises(AgentBroken):
        UpdateDecoder().feed(raw)
    with pytest.raises(AgentBroken):
        SpokenSession().stray(raw)
