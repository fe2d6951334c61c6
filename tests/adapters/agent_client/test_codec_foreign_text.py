"""The output of agents of other protocols, told as text that only grows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec.updates_out_v1 import V1UpdateEncoder
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.output import Output
from gateway.core.types import Agent, Json, Role, RunStatus
from tests.adapters.agent_client.codec_cases import ANY, FOREIGN, text_of, unhurried
from tests.adapters.agent_client.codec_told import Told, run
from tests.core.json_values import SOUND

CHAT = Agent(
    name="chat",
    input_schema={},
    output_schema={
        "type": "object",
        "properties": {
            "messages": {
                "type": "array",
                "items": {"type": "object", "properties": {"role": {"type": "string"}, "content": {"type": "string"}}},
            }
        },
    },
    text_output="/messages/-/content",
)


# --- text --------------------------------------------------------------------------------------------------------

_PARTS = st.sampled_from(["p1", "p2", "p3"])
_MESSAGES = st.sampled_from(["m1", "m2"])
TEXT_EVENTS = st.lists(
    st.one_of(
        st.builds(lambda p, t: e.PartDelta(part=p, delta=t), _PARTS, SOUND),
        st.builds(lambda p, t: e.PartDelta(part=p, delta=t), _PARTS, SOUND),
        st.builds(lambda p, m, v: e.PartStarted(part=p, message=m, value=v), _PARTS, _MESSAGES, st.none() | SOUND),
        st.builds(lambda p, m: e.PartStarted(part=f"t{p}", message=m, kind="thought"), _PARTS, _MESSAGES),
        st.builds(lambda p, t: e.PartDelta(part=f"t{p}", delta=t), _PARTS, SOUND),
        st.builds(lambda m, r: e.MessageStarted(message=m, role=r), _MESSAGES, st.sampled_from(list(Role))),
        st.builds(lambda m: e.MessageEnded(message=m), _MESSAGES),
        st.builds(lambda p: e.PartEnded(part=p), _PARTS),
        st.builds(lambda p, t: e.PartReplaced(part=p, value=t), _PARTS, SOUND),
        st.builds(lambda c: e.ToolCallStarted(call=c, name=c), st.uuids().map(str)),
    ),
    max_size=12,
)


def judge(told: Told) -> None:
    """In total a client has exactly the text of the output document, or a last message that has."""
    wanted = projection.text_of(told.output.document, FOREIGN.text_output)
    if told.corrected is not None:
        assert told.corrected == wanted
        assert told.losses["rewrite"] > 0
    elif wanted == "" and told.text:  # nothing can be told that would take it back
        assert told.losses["rewrite"] > 0
    else:
        assert told.text == wanted


@unhurried
@given(TEXT_EVENTS, st.integers(1, 13))
def test_a_client_is_told_exactly_the_text_of_the_output(events: Any, size: int) -> None:
    told = Told(events, size=size)
    judge(told)
    if not any(isinstance(event, e.PartReplaced) for event in events) and told.corrected is not None:
        parts = [event.part for event in events if isinstance(event, e.PartDelta | e.PartStarted)]
        assert len(set(parts)) > 1, "only an earlier part that speaks again rewrites"


@unhurried
@given(st.lists(SOUND, max_size=8), st.integers(1, 9))
def test_text_survives_in_any_chunking(pieces: list[str], size: int) -> None:
    told = Told([e.PartDelta(part="p", delta=text) for text in pieces], size=size)
    assert told.text == "".join(pieces) and not told.losses and told.corrected is None


@st.composite
def data_events(draw: Any) -> list[e.Event]:
    """A data part that grows by legal deltas and is rewritten now and then."""
    fold, first = delta.Fold(), draw(st.none() | DOCUMENTS)
    events: list[e.Event] = [e.PartStarted(part="d", message="m", kind="data", value=first)]
    if first is not None:
        fold.set(first)
    for _ in range(draw(st.integers(0, 6))):
        event: e.Event
        if draw(st.integers(0, 4)) == 0:
            pointer = draw(st.sampled_from(["", "/message", "/score"]))
            value = draw(DOCUMENTS if pointer == "" else SOUND if pointer == "/message" else ANY)
            event = e.PartReplaced(part="d", pointer=pointer, value=value)
        else:
            grow = st.fixed_dictionaries({}, optional={"message": st.none() | SOUND, "list": st.lists(ANY, max_size=2)})
            event = e.PartDelta(part="d", delta=draw(grow))
        try:
            if isinstance(event, e.PartReplaced):
                fold.replace(event.pointer, event.value)
            else:
                fold.apply(event.delta)
        except (InterlinguaError, ValueError):
            continue
        events.append(event)
    return events


DOCUMENTS = st.fixed_dictionaries({}, optional={"message": SOUND, "score": ANY, "artifacts": st.just([])})


def test_an_earlier_message_that_speaks_again_is_not_told_out_of_place() -> None:
    events: list[e.Event] = []
    for name, text in (("a", "One"), ("b", "Two")):
        events += [e.PartStarted(part=name, message=name), e.PartDelta(part=name, delta=text)]
    told = Told([*events, e.PartDelta(part="a", delta=", too")], size=1)
    assert [update["content"]["text"] for update in told.updates] == ["One", "\n\nTwo", "\n\n", "One, too\n\nTwo"]
    assert told.losses == {"rewrite": 1}


def test_a_rewrite_that_only_goes_on_is_no_rewrite() -> None:
    told = Told(
        [
            e.PartDelta(part="a", delta="One"),
            e.PartReplaced(part="a", value="One, two"),
            e.PartDelta(part="a", delta="!"),
        ]
    )
    assert told.text == "One, two!" and not told.losses


def test_a_rewrite_is_told_as_a_new_message_before_the_end_and_counted() -> None:
    told = Told(
        [e.PartDelta(part="a", delta="Won"), e.PartReplaced(part="a", value="One"), e.PartDelta(part="a", delta="!")],
        size=9,
    )
    assert told.losses == {"rewrite": 1}
    assert [(update["content"]["text"], "messageId" in update) for update in told.updates] == [
        ("Won", False),
        ("\n\n", False),
        ("One!", True),
    ]


# --- conversations -----------------------------------------------------------------------------------------------


def test_of_a_conversation_the_assistants_new_messages_are_told_as_they_grow() -> None:
    deltas: list[Json] = [
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "He"}]},
        {"messages": [{"content": "llo"}]},
        {"messages": [None, {"role": "tool", "content": "42"}, {"role": "assistant", "content": "It is"}]},
        {"messages": [{"content": " 42."}]},
    ]
    told = Told([e.PartDelta(part="d", delta=each) for each in deltas], CHAT, size=1)
    assert told.text == "Hello\n\nIt is 42." and not told.losses


def test_of_a_conversation_what_was_said_before_the_last_prompt_is_not_told_again() -> None:
    history = [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "2"},
    ]
    told = Told(
        [
            e.PartStarted(part="d", message="m", kind="data", value={"messages": history}),
            e.PartDelta(part="d", delta={"messages": [None, {"type": "ai", "content": "two"}]}),
        ],
        CHAT,
    )
    assert told.text == "two"


def test_a_conversation_that_was_rewritten_is_looked_up() -> None:
    said = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "one"}]
    told = Told(
        [
            e.PartDelta(part="d", delta={"messages": said}),
            e.PartReplaced(part="d", pointer="/messages", value=[*said, {"role": "assistant", "content": "two"}]),
            e.PartDelta(part="d", delta={"messages": [{"content": "!"}]}),
        ],
        CHAT,
        size=1,
    )
    assert told.text == "one\n\ntwo!" and told.corrected is None


def test_content_blocks_in_a_conversation_are_looked_up() -> None:
    block = {"type": "text", "text": "Hello"}
    told = Told([e.PartDelta(part="d", delta={"messages": [{"role": "ai", "content": [block]}]})], CHAT, size=1)
    assert told.text == "Hello"


def test_a_large_document_is_looked_up_ever_more_rarely() -> None:
    agent = msgspec.structs.replace(FOREIGN, text_output="/choices/0/text")
    output, looks = Output(agent), 0
    encoder, told = V1UpdateEncoder(agent), ""

    class Counted:
        size = property(lambda self: output.size)
        empty = property(lambda self: output.empty)

        @property
        def encoded(self) -> bytes:
            nonlocal looks
            looks += 1
            return output.encoded

    events = [e.PartStarted(part="d", message="m", kind="data", value={"choices": [{"text": ""}]})]
    events += [e.PartDelta(part="d", delta={"choices": [{"text": "x" * 1000}]})] * 500  # type: ignore[list-item]
    for number, event in enumerate(events):
        output.apply(event)
        said = encoder.feed([(number, event)], Counted())
        told += text_of(json.loads(update) for update in said)
    assert looks < 100 and len(told) > 350_000
    said = encoder.finish(run(status=RunStatus.SUCCESS, output=msgspec.Raw(output.encoded)))
    assert told + text_of(json.loads(update) for update in said) == "x" * 500_000


def test_of_an_agent_without_a_place_for_text_the_likely_text_is_told() -> None:
    agent = msgspec.structs.replace(FOREIGN, text_output=None)
    told = Told(
        [e.PartDelta(part="d", delta={"answer": "4"}), e.PartDelta(part="d", delta={"answer": "2"})], agent, size=1
    )
    assert told.text == "42" and told.corrected is None
