"""What an agent of version 2 says, as events, and as a client of version 2 is told them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec.v2 import updates
from adapters.agent_client.codec.v2.memory import SessionMemory
from adapters.agent_client.codec.v2.updates_in import V2SpokenSession, V2UpdateDecoder
from adapters.agent_client.codec.v2.wire import WHOLE
from adapters.agent_client.wire import ORIGIN_V2
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentBroken
from tests.adapters.agent_client.codec_cases import dumped, unhurried
from tests.adapters.agent_client.codec_v2_cases import ODD, UPDATES, read, valid, written
from tests.adapters.agent_client.codec_v2_client import Client

# --- whatever it is ----------------------------------------------------------------------------------------------


@unhurried
@given(st.lists(UPDATES, max_size=8), st.integers(1, 9))
def test_a_client_of_version_2_is_told_what_its_agent_said_update_by_update(updates: list[Any], size: int) -> None:
    for update in updates:
        valid("SessionUpdate", update)
    told = written(read(updates), size=size)
    assert len(told) == len(updates)
    for said, heard in zip(updates, told, strict=True):
        assert delta.same(said, heard), (said, heard)


@unhurried
@given(st.lists(UPDATES, max_size=10), st.integers(1, 9))
def test_a_client_that_is_told_in_bursts_ends_with_the_same(updates: list[Any], size: int) -> None:
    assert Client(written(read(updates), size=size, bursts=True)).seen == Client(updates).seen


@unhurried
@given(st.lists(st.lists(UPDATES, max_size=4), max_size=4))
def test_runs_of_a_session_and_what_is_said_between_them_are_told_as_they_were(turns: list[list[Any]]) -> None:
    known, told = SessionMemory(), []
    for at, said in enumerate(turns):
        if at % 2:
            notes = [note for update in said for note in V2SpokenSession(known).stray(dumped(update))]
            told += [one for one in map(updates.told, notes) if one is not None]
        else:
            told += written(read(said, known))
    wanted = [each for said in turns for each in said]
    assert len(told) == len(wanted)
    for said, heard in zip(wanted, told, strict=True):
        assert delta.same(said, heard), (said, heard)


@unhurried
@given(st.lists(ODD | UPDATES, max_size=6))
def test_what_no_schema_allows_is_passed_on_as_well(updates: list[Any]) -> None:
    updates = [each for each in updates if each["sessionUpdate"] not in WHOLE or isinstance(each["messageId"], str)]
    told = [update for update in written(read(updates)) if update["sessionUpdate"] != "state_update"]
    wanted = [update for update in updates if update["sessionUpdate"] != "state_update"]
    assert len(told) == len(wanted)
    for said, heard in zip(wanted, told, strict=True):
        if isinstance(said.get("messageId", ""), str):  # which is required, and else given
            assert delta.same(said, heard), (said, heard)


# --- messages ----------------------------------------------------------------------------------------------------


def chunk(id: str, text: str, kind: str = "agent_message") -> Any:
    return {"sessionUpdate": f"{kind}_chunk", "messageId": id, "content": {"type": "text", "text": text}}


def whole(id: str, *texts: str, kind: str = "agent_message", **more: Any) -> Any:
    content = [{"type": "text", "text": text} for text in texts]
    return {"sessionUpdate": kind, "messageId": id, "content": content, **more}


def said(events: list[e.Event]) -> str:
    """What the events make of the agent's text, part by part."""
    parts: dict[str, str] = {}
    for event in events:
        match event:
            case e.PartDelta(part=part, delta=text):
                parts[part] = parts.get(part, "") + text
            case e.PartReplaced(part=part, value=text):
                parts[part] = text
    return "|".join(parts.values())


def test_a_message_that_is_said_again_and_goes_on_is_a_delta() -> None:
    events = read([chunk("m", "One"), whole("m", "One, two"), whole("m", "One, two", ", three"), whole("m", "One")])
    assert [event.delta for event in events if isinstance(event, e.PartDelta)] == ["One", ", two", ", three"]
    assert [event.value for event in events if isinstance(event, e.PartReplaced)] == ["One"]


def test_so_is_one_that_was_said_in_pieces() -> None:
    events = read([chunk("m", "One"), chunk("m", ", two"), chunk("m", ", three"), whole("m", "One, two, three, four")])
    assert [event.delta for event in events if isinstance(event, e.PartDelta)] == ["One", ", two", ", three", ", four"]


def test_a_whole_message_without_an_id_is_one_by_itself_that_everybody_is_told() -> None:
    first, last = chunk("m", "a"), chunk("m", "b")
    del first["messageId"], last["messageId"]
    nameless = {key: value for key, value in whole("m", "who", "le").items() if key != "messageId"}
    events = read([first, nameless, {**nameless, "messageId": 5}, last])
    assert said(events) == "a|whole|whole|b"
    told = written(events)
    for update in told:
        valid("SessionUpdate", update)
    assert len({update["messageId"] for update in told}) == 4
    notes = V2SpokenSession().stray(dumped(nameless))
    assert [note.data["content"]["text"] for note in notes if isinstance(note.data, dict)] == ["who", "le"]
    assert not any(ORIGIN_V2 in (note.data or ()) for note in notes), "what was said so is not to be told again"
    del nameless["content"]
    with pytest.raises(AgentBroken):
        V2UpdateDecoder().feed(dumped(nameless))
    with pytest.raises(AgentBroken):
        V2SpokenSession().stray(dumped(nameless))


# --- tool calls --------------------------------------------------------------------------------------------------


def call(**said: Any) -> Any:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c", **said}


def test_a_call_of_an_earlier_run_that_goes_on_is_not_started_anew() -> None:
    known = SessionMemory()
    read([call(title="Watch")], known)
    (started,) = [event for event in read([call(status="in_progress")], known) if isinstance(event, e.ToolCallStarted)]
    assert started.title == "Watch"
    assert started.origin is not None and started.origin["agent_client"]["more"]["sessionUpdate"] == "tool_call_update"


def test_a_call_that_has_ended_and_works_again_is_another_call() -> None:
    again = [call(status="pending", rawInput="rm"), call(status="completed")]
    events = read([call(title="Run", kind="execute", rawInput="ls"), call(status="completed"), *again])
    started = [event for event in events if isinstance(event, e.ToolCallStarted)]
    assert [(event.call, event.title, event.kind, event.input) for event in started] == [
        ("c", "Run", "execute", "ls"),
        ("c#2", "Run", "execute", "rm"),
    ]
    assert [event.call for event in events if isinstance(event, e.ToolCallEnded)] == ["c", "c#2"]


def test_what_is_said_of_a_call_that_has_ended_starts_none() -> None:
    events = read([call(title="Run"), call(status="completed"), call(rawOutput=4), call(status="completed")])
    assert len([event for event in events if isinstance(event, e.ToolCallStarted)]) == 1


# --- plans, and what else there is -------------------------------------------------------------------------------


def test_half_a_character_waits_for_the_other_half() -> None:
    head, tail = (json.dumps(chunk("m", "X")).replace("X", half).encode() for half in ("\\ud83d", "\\ude00"))
    decoder = V2UpdateDecoder()
    events = [event for update in (head, tail) for event in decoder.feed(update)]
    assert "".join(event.delta for event in events if isinstance(event, e.PartDelta)) == "😀"


def test_a_piece_of_content_that_was_recorded_as_a_difference_is_told_as_it_was_said() -> None:
    """As logs from before have it."""
    said = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": content("b")}
    more = {"sessionUpdate": said["sessionUpdate"], "content": said["content"]}
    event = e.ToolCallUpdated(call="c", content=[content("a"), content("b")], origin={ORIGIN_V2: {"more": more}})
    assert written([event]) == [said]


def content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}
