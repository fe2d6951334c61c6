"""How updates of version 2 are put together for history, and after a question has been answered."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec.v2.updates_out import V2UpdateEncoder
from adapters.agent_client.inbound.updates_v2 import MessageFolding
from gateway.core import events as e
from gateway.core.types import Agent
from tests.adapters.agent_client.codec_cases import FOREIGN, NATIVE
from tests.adapters.agent_client.v2_editor import check

Update = dict[str, Any]


def chunk(id: str, text: str, kind: str = "agent_message", **more: Any) -> Update:
    return {"sessionUpdate": f"{kind}_chunk", "messageId": id, "content": block(text), **more}


def whole(id: str, *texts: str, kind: str = "agent_message", **more: Any) -> Update:
    return {"sessionUpdate": kind, "messageId": id, "content": [block(text) for text in texts], **more}


def block(text: str) -> Update:
    return {"type": "text", "text": text}


def call(id: str) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id}


def fold(*batches: list[Update]) -> list[Update]:
    folding = MessageFolding()
    return [json.loads(one) for batch in batches for one in folding.fold([msgspec.json.encode(each) for each in batch])]


def named(*said: e.Event | None, agent: Agent = FOREIGN, id: str | None = None) -> list[Update]:
    """What a client is told of a message "m" that says this; None is an answer to a question."""
    encoder = V2UpdateEncoder(agent, run="run")
    origin = None if id is None else {"agent_client": {"messageId": id}}
    begun = [e.MessageStarted(message="m", origin=origin), e.PartStarted(part="p", message="m")]
    out = encoder.feed([*enumerate(begun)])
    for each in said:
        if each is None:
            encoder.answered()
        else:
            out += encoder.feed([(0, each)])
    return [json.loads(one) for one in out]


def shown(updates: list[Update]) -> list[tuple[str, str, str]]:
    """The messages as a client shows them, in the order in which they began: kind, id and text of each."""
    found: dict[tuple[str, str], list[str]] = {}
    for update in updates:
        kind = update["sessionUpdate"]
        if kind.endswith("_chunk"):
            found.setdefault((kind.removesuffix("_chunk"), update["messageId"]), []).append(update["content"]["text"])
        elif "messageId" in update:
            texts = found.setdefault((kind, update["messageId"]), [])
            if "content" in update:
                texts[:] = [each["text"] for each in update["content"] or []]
    return [(*key, "".join(texts)) for key, texts in found.items()]


# --- history ------------------------------------------------------------------------------------------------------


def test_the_chunks_of_a_message_are_the_message_where_it_began() -> None:
    told = fold([chunk("a", "1"), chunk("t", "x", "agent_thought"), call("c"), chunk("a", "2"), chunk("b", "3")])
    assert told == [whole("a", "12"), whole("t", "x", kind="agent_thought"), call("c"), whole("b", "3")]


def test_blocks_that_are_more_than_text_stay_blocks() -> None:
    marked = {"sessionUpdate": "agent_message_chunk", "messageId": "a", "content": {**block("!"), "_meta": {}}}
    (told,) = fold([chunk("a", "1"), marked, chunk("a", "2"), chunk("a", "3")])
    assert told["content"] == [block("1"), {**block("!"), "_meta": {}}, block("23")]


def test_a_message_that_comes_in_several_batches_goes_on_by_chunks() -> None:
    told = fold([chunk("a", "1"), chunk("a", "2")], [chunk("a", "3"), chunk("a", "4")], [chunk("a", "5")])
    assert told == [whole("a", "12"), chunk("a", "34"), chunk("a", "5")]


def test_what_says_more_than_a_chunk_does_keeps_its_place_in_the_message() -> None:
    told = fold(
        [chunk("a", "1"), chunk("a", "2", _meta={"acme": 1}), chunk("a", "3"), whole("a", "4"), chunk("a", "5")]
    )
    assert told == [
        whole("a", "1"),
        chunk("a", "2", _meta={"acme": 1}),
        chunk("a", "3"),
        whole("a", "4"),
        chunk("a", "5"),
    ]


KINDS = st.sampled_from(["agent_message", "agent_thought", "user_message"])
IDS = st.sampled_from(["a", "b"])
ANY = st.one_of(
    st.builds(chunk, IDS, st.text(max_size=3), KINDS),
    st.builds(lambda id, text, kind: chunk(id, text, kind, _meta={"acme": 1}), IDS, st.text(max_size=3), KINDS),
    st.builds(lambda id, text, kind: whole(id, text, kind=kind), IDS, st.text(max_size=3), KINDS),
    st.builds(lambda id, kind: {"sessionUpdate": kind, "messageId": id, "_meta": None}, IDS, KINDS),
    st.builds(call, IDS),
)


@given(st.lists(st.lists(ANY, max_size=6), max_size=4))
def test_whatever_was_said_a_client_shows_the_same(batches: list[list[Update]]) -> None:
    told = fold(*batches)
    assert shown(told) == shown([update for batch in batches for update in batch])
    for update in told:
        check("SessionUpdate", update)


# --- after an answer ----------------------------------------------------------------------------------------------


def more(text: str) -> e.Event:
    return e.PartDelta(part="p", delta=text)


def now(text: str) -> e.Event:
    return e.PartReplaced(part="p", value=text)


@pytest.mark.parametrize("agent", [FOREIGN, NATIVE], ids=["foreign", "native"])
def test_a_message_of_the_gateways_naming_begins_anew_with_each_answer(agent: Agent) -> None:
    told = named(more("1"), None, more("2"), None, more("3"), more("4"), agent=agent)
    assert shown(told) == [
        ("agent_message", "run-m", "1"),
        ("agent_message", "run-m-1", "2"),
        ("agent_message", "run-m-2", "34"),
    ]


def test_a_message_that_the_agent_has_named_goes_on() -> None:
    told = named(more("1"), None, more("2"), agent=NATIVE, id="mine")
    assert told == [chunk("mine", "1"), chunk("mine", "2")]


def test_a_message_that_began_behind_an_answer_and_is_told_whole_stays_there() -> None:
    told = named(None, more("1"), None, more("2"), now("new"), more("!"))
    assert shown(told) == [("agent_message", "run-m-1", "new"), ("agent_message", "run-m-2", "!")]


@pytest.mark.parametrize("agent", [FOREIGN, NATIVE], ids=["foreign", "native"])
def test_a_message_that_is_told_whole_has_all_of_it_again(agent: Agent) -> None:
    told = named(more("1"), None, more("2"), now("corrected"), more("!"), agent=agent)
    assert shown(told) == [("agent_message", "run-m", "corrected"), ("agent_message", "run-m-1", "!")]
