"""What an agent of version 2 says, as events, and as a client of version 2 is told them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec.v2 import updates
from adapters.agent_client.codec.v2.memory import SessionMemory
from adapters.agent_client.codec.v2.updates_in import V2UpdateDecoder, stray
from adapters.agent_client.codec.v2.wire import WHOLE
from adapters.agent_client.wire import ORIGIN_V2
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import AgentBroken
from gateway.core.types import Role
from tests.adapters.agent_client.codec_cases import dumped, unhurried
from tests.adapters.agent_client.codec_v2_cases import NEWER, ODD, UPDATES, note_of, read, valid, written
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
            notes = [note for update in said for note in stray(dumped(update), known)]
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


@pytest.mark.parametrize("update", [b"", b"[]", b"{}", b'{"sessionUpdate":1}', b'{"sessionUpdate":'])
def test_what_is_no_update_is_an_error_of_the_agents(update: bytes) -> None:
    with pytest.raises(AgentBroken):
        V2UpdateDecoder().feed(update)
    with pytest.raises(AgentBroken):
        stray(update)


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


def test_chunks_of_a_message_are_deltas_without_a_word_more() -> None:
    events = read([chunk("m", "Hel"), chunk("m", "lo")])
    assert [event.delta for event in events if isinstance(event, e.PartDelta)] == ["Hel", "lo"]
    assert all(event.origin is None for event in events if isinstance(event, e.PartDelta))


def test_plain_chunks_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(V2UpdateDecoder, "_slowly", lambda self, update: pytest.fail("the long way"))
    decoder = V2UpdateDecoder()
    for update in (chunk("m", "a"), chunk("m", "b"), chunk("n", "c"), chunk("n", "d", "agent_thought")):
        assert decoder.feed(dumped(update))


def test_a_whole_message_is_a_message_of_its_blocks() -> None:
    picture = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    update = {**whole("m", "See: "), "content": [{"type": "text", "text": "See: "}, picture]}
    events = read([update])
    assert said(events) == "See: "
    assert [event.value for event in events if isinstance(event, e.PartStarted) and event.kind == "file"] == [picture]


def test_a_rewritten_message_replaces_what_was_said_even_after_it_ended() -> None:
    events = read([chunk("m", "Won"), chunk("n", "Two."), whole("m", "One."), chunk("m", " And more.")])
    assert said(events) == "One.|Two.| And more."
    assert [type(event) for event in events].count(e.PartReplaced) == 1


def test_a_message_that_is_said_again_and_goes_on_is_a_delta() -> None:
    events = read([chunk("m", "One"), whole("m", "One, two"), whole("m", "One, two", ", three"), whole("m", "One")])
    assert [event.delta for event in events if isinstance(event, e.PartDelta)] == ["One", ", two", ", three"]
    assert [event.value for event in events if isinstance(event, e.PartReplaced)] == ["One"]


def test_so_is_one_that_was_said_in_pieces() -> None:
    events = read([chunk("m", "One"), chunk("m", ", two"), chunk("m", ", three"), whole("m", "One, two, three, four")])
    assert [event.delta for event in events if isinstance(event, e.PartDelta)] == ["One", ", two", ", three", ", four"]


@pytest.mark.parametrize("content", [None, []])
def test_a_cleared_message_is_empty(content: Any) -> None:
    assert said(read([chunk("m", "secret"), {**whole("m"), "content": content}])) == ""


def test_a_message_without_content_changes_nothing() -> None:
    update = {"sessionUpdate": "agent_message", "messageId": "m", "_meta": {"a": 1}}
    events = read([chunk("m", "said"), update, chunk("m", " on")])
    assert said(events) == "said on"
    assert [event.data for event in events if isinstance(event, e.Custom)] == [update]


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
    notes = stray(dumped(nameless))
    assert [note.data["content"]["text"] for note in notes if isinstance(note.data, dict)] == ["who", "le"]
    assert not any(ORIGIN_V2 in (note.data or ()) for note in notes), "what was said so is not to be told again"
    del nameless["content"]
    with pytest.raises(AgentBroken):
        V2UpdateDecoder().feed(dumped(nameless))
    with pytest.raises(AgentBroken):
        stray(dumped(nameless))


def test_what_the_user_said_is_the_users() -> None:
    events = read([whole("u", "Do it", kind="user_message"), chunk("m", "Done")])
    assert [event.role for event in events if isinstance(event, e.MessageStarted)] == [Role.USER, Role.ASSISTANT]


# --- tool calls --------------------------------------------------------------------------------------------------


def call(**said: Any) -> Any:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c", **said}


def piece(text: str) -> Any:
    content = {"type": "content", "content": {"type": "text", "text": text}}
    return {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": content}


def test_the_first_update_of_a_call_starts_it_and_a_final_status_ends_it() -> None:
    events = read([call(title="Look", kind="read"), call(status="in_progress"), call(status="completed", rawOutput=4)])
    kinds = [type(event) for event in events if "ToolCall" in type(event).__name__]
    assert kinds == [e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded]
    started, _, ended = (event for event in events if "ToolCall" in type(event).__name__)
    assert isinstance(started, e.ToolCallStarted) and (started.title, started.kind) == ("Look", "read")
    assert isinstance(ended, e.ToolCallEnded) and (ended.failed, ended.output) == (False, 4)


def test_a_cancelled_call_has_failed() -> None:
    ended = [event for event in read([call(), call(status="cancelled")]) if isinstance(event, e.ToolCallEnded)]
    assert [event.failed for event in ended] == [True]


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


def test_content_that_comes_piece_by_piece_is_told_as_it_is_then() -> None:
    events = read([call(title="Run"), piece("1"), piece("2"), call(status="completed")])
    shown = [event.content for event in events if isinstance(event, e.ToolCallUpdated) and event.content]
    assert [[item["content"]["text"] for item in content] for content in shown] == [["1"], ["1", "2"]]


def test_content_that_grows_large_is_told_ever_more_rarely_and_whole_in_the_end() -> None:
    events = read([call(title="Run"), *[piece("x" * 100)] * 1000, call(status="completed")])
    shown = [event.content for event in events if isinstance(event, e.ToolCallUpdated) and event.content]
    assert len(shown[-1]) == 1000 and len(shown) < 60
    assert sum(map(len, shown)) < 10_000
    assert written(events)[1:-1] == [piece("x" * 100)] * 1000


def test_content_that_is_owed_when_the_run_ends_is_told() -> None:
    events = read([call(title="Run"), *[piece("x" * 100)] * 50])
    shown = [event.content for event in events if isinstance(event, e.ToolCallUpdated) and event.content]
    assert len(shown[-1]) == 50
    assert written(events)[1:] == [piece("x" * 100)] * 50


# --- plans, and what else there is -------------------------------------------------------------------------------


def plan(id: str, *entries: str, **more: Any) -> Any:
    found = [{"content": content, "priority": "high", "status": "pending"} for content in entries]
    return {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": id, "entries": found, **more}}


def test_plans_are_one_to_everyone_else() -> None:
    events = read(
        [plan("a", "1"), plan("b", "2"), plan("a", "1", "3"), {"sessionUpdate": "plan_removed", "planId": "b"}]
    )
    plans = [[entry.content for entry in event.entries] for event in events if isinstance(event, e.PlanUpdated)]
    assert plans == [["1"], ["1", "2"], ["1", "3", "2"], ["1", "3"]]


def test_a_plan_that_is_no_list_takes_the_place_of_one_that_was() -> None:
    markdown = {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "a", "content": "# Plan"}}
    events = read([plan("a", "1"), markdown])
    plans = [[entry.content for entry in event.entries] for event in events if isinstance(event, e.PlanUpdated)]
    assert plans == [["1"], []]
    assert written(events)[1] == markdown


@pytest.mark.parametrize("state", ["running", "requires_action", "idle"])
def test_a_plain_state_is_no_event(state: str) -> None:
    assert V2UpdateDecoder().feed(dumped({"sessionUpdate": "state_update", "state": state})) == []
    (note,) = stray(dumped({"sessionUpdate": "state_update", "state": state}))
    assert (note.protocol, note.kind, note.kept) == (ORIGIN_V2, "state_update", False)


def test_terminals_and_unknown_variants_are_customs_of_their_own() -> None:
    updates = [
        {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "aGk="},
        {"sessionUpdate": "_weather", "sky": "blue"},
    ]
    customs = [event for event in read(updates) if isinstance(event, e.Custom)]
    assert [(event.name, event.data) for event in customs[:2]] == [(ORIGIN_V2, update) for update in updates]
    assert [event.origin for event in customs[2:]] == [{ORIGIN_V2: {"silent": True, "lost": ["terminal"]}}]


def test_the_option_that_is_the_mode_is_told_as_a_mode_too() -> None:
    option = {
        "configId": "m",
        "name": "Mode",
        "category": "mode",
        "type": "select",
        "currentValue": "ask",
        "options": [{"value": "ask", "name": "Ask"}],
    }
    events = read([{"sessionUpdate": "config_option_update", "configOptions": [option]}])
    options, mode = (note for note in map(note_of, events) if note is not None)
    assert options.kind == "config_option_update" and options.data["configOptions"][0]["id"] == "m"
    assert mode.kind == "current_mode_update" and mode.data["currentModeId"] == "ask"


def test_words_between_runs_are_kept() -> None:
    (note,) = stray(dumped(chunk("m", "Still here")))
    assert (note.kind, note.kept, note.data) == ("output", True, chunk("m", "Still here"))


def test_a_message_between_runs_is_told_once_to_each_version() -> None:
    update = whole("m", "A", "B")
    notes = stray(dumped(update))
    assert [note.data["content"]["text"] for note in notes] == ["A", "B"]
    assert [one for one in map(updates.told, notes) if one is not None] == [update]


def test_a_title_that_was_heard_is_known() -> None:
    decoder = V2UpdateDecoder()
    decoder.feed(dumped(call(title="Look")))
    decoder.feed(dumped(call(title="Look again")))
    assert decoder.title("c") == "Look again"


def test_half_a_character_waits_for_the_other_half() -> None:
    head, tail = (json.dumps(chunk("m", "X")).replace("X", half).encode() for half in ("\\ud83d", "\\ude00"))
    decoder = V2UpdateDecoder()
    events = [event for update in (head, tail) for event in decoder.feed(update)]
    assert "".join(event.delta for event in events if isinstance(event, e.PartDelta)) == "😀"


def test_an_agent_of_version_2_is_described_by_both() -> None:
    assert NEWER.extra[ORIGIN_V2]["protocolVersion"] == 2
    assert NEWER.extra["agent_client"]["protocolVersion"] == 1


def test_a_piece_of_content_that_was_recorded_as_a_difference_is_told_as_it_was_said() -> None:
    """As logs from before have it."""
    said = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": content("b")}
    more = {"sessionUpdate": said["sessionUpdate"], "content": said["content"]}
    event = e.ToolCallUpdated(call="c", content=[content("a"), content("b")], origin={ORIGIN_V2: {"more": more}})
    assert written([event]) == [said]


def content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}
