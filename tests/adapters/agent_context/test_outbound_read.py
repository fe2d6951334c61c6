"""What agents answer, read: pure functions."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from adapters.agent_context.outbound import answers
from adapters.agent_context.outbound.answers import (
    ACKNOWLEDGED,
    BROKEN,
    AgentWord,
    GrowingText,
    SideEvents,
    error_of,
    message_of,
    result_of,
    told_in,
)
from gateway.core import events as e
from gateway.core.stream import Opener, State
from gateway.core.types import Artifact

HI = {"messages": [{"text": "hi"}]}
RESULTS: list[tuple[Any, Any]] = [
    ({"content": {"type": "response", "payload": HI}}, AgentWord("response", HI)),
    ({"content": {"payload": HI}}, AgentWord("response", HI)),
    ({"payload": HI, "status": "completed"}, AgentWord("response", HI)),
    (
        {"content": [{"type": "text", "text": "hi"}]},
        AgentWord("response", {"messages": [{"type": "text", "text": "hi"}]}),
    ),
    ({"content": "hi"}, AgentWord("response", "hi")),
    ({"content": {"type": "update", "payload": HI}}, AgentWord("update", HI)),
    ({"content": {"type": "request", "payload": HI}}, AgentWord("request", HI)),
    (HI, AgentWord("response", HI)),
    ({"answer": 42, "_meta": {"a": 1}}, AgentWord("response", {"answer": 42})),
    ({"status": "ok", "answer": 42}, AgentWord("response", {"status": "ok", "answer": 42})),
    ({"status": "completed"}, AgentWord("response")),
    ({"status": "whatever"}, AgentWord(ACKNOWLEDGED)),
    ({"status": "ACCEPTED", "id": "m-1"}, AgentWord(ACKNOWLEDGED)),
    ({}, AgentWord(ACKNOWLEDGED)),
    ({"resultType": "complete"}, AgentWord(ACKNOWLEDGED)),
    ({"task": {"id": "t", "status": "awaiting_approval"}}, AgentWord(ACKNOWLEDGED)),
    ({"task": {"id": "t", "status": "running", "result": None}}, AgentWord(ACKNOWLEDGED)),
    ({"task": {"id": "t", "status": "completed", "result": HI}}, AgentWord("response", HI)),
    ({"task": {"id": "t", "status": "completed", "result": {"payload": HI}}}, AgentWord("response", HI)),
    ({"task": {"id": "t", "status": "completed", "result": {"content": {"payload": HI}}}}, AgentWord("response", HI)),
    ({"task": {"id": "t", "status": "completed"}}, AgentWord("response")),
]


@pytest.mark.parametrize(("result", "said"), RESULTS)
def test_an_answer_is_read(result: Any, said: Any) -> None:
    assert result_of(result) == said


@pytest.mark.parametrize(
    ("result", "code", "message"),
    [
        ({"error": {"code": -5, "message": "m"}}, -5, "m"),
        ({"error": "words"}, -32008, "words"),
        ({"error": 5}, -32008, "the agent failed"),
        ({"status": "cancelled"}, -32800, "the agent says that it was cancelled"),
        ({"task": {"status": "expired"}}, -32006, "the agent says that it was too late"),
        ({"task": {"status": "failed", "reason": "r"}}, -32008, "r"),
        ({"content": {"type": "error", "payload": {"message": "m"}}}, -32008, "m"),
        ({"content": {"type": "response", "payload": {"error": {"message": "m", "code": True}}}}, -32008, "m"),
    ],
)
def test_an_answer_that_is_a_failure_is_read(result: Any, code: int, message: str) -> None:
    said = result_of(result)
    assert said.kind == BROKEN and said.error is not None
    assert (said.error.code, said.error.message) == (code, message)


def test_an_answer_with_an_error_among_other_things_is_a_response() -> None:
    payload = {"error": {"message": "m"}, "messages": [{"text": "but see"}]}
    assert message_of({"content": {"type": "response", "payload": payload}}) == AgentWord("response", payload)


def test_the_details_of_an_error_are_kept() -> None:
    found = error_of({"code": "bad", "message": "m", "details": {"expected": "a"}, "data": {"x": 1}})
    assert found.data == {"x": 1, "details": {"expected": "a"}, "code": "bad"}


@pytest.mark.parametrize(
    ("payload", "text", "only"),
    [
        ("a", "a", True),
        (HI, "hi", True),
        ({"messages": [{"text": "a"}, "b", {"x": 1}, 5]}, "a\nb", False),
        ({"messages": [{"text": "a", "role": "x"}]}, "a", False),
        ({"text": "a"}, "a", True),
        ({"message": "a", "n": 1}, "a", False),
        ({"messages": 5}, "", False),
        ({"messages": [5]}, "", False),
        (None, "", True),
        ([1], "", False),
    ],
)
def test_the_text_of_a_payload(payload: Any, text: str, only: bool) -> None:
    assert told_in(payload) == (text, only)


@pytest.mark.parametrize(
    ("params", "correlation", "head"),
    [
        (
            b'{"source":"a","target":"b","content":{"type":"update"},"_meta":{"correlationId":"c"}}',
            "c",
            ("a", "b", "update"),
        ),
        (b'{"source":1,"target":null,"content":[],"_meta":{"correlationId":5}}', None, (None, None, None)),
        (b'{"_meta":{"correlationId":""}}', None, (None, None, None)),
        (b'{"_meta":[],"correlationId":"c"}', None, (None, None, None)),
        (b"[1]", None, (None, None, None)),
        (b"", None, (None, None, None)),
        (b'{"source":"\\ud800","_meta":{"correlationId":"c"}}', "c", None),
    ],
)
def test_the_head_of_a_message_is_read_whatever_it_is(params: bytes, correlation: Any, head: Any) -> None:
    assert answers.correlation("agent/message", Raw(params)) == correlation
    found = answers.marks(Raw(params))
    assert found.correlation == correlation
    assert head is None or (found.target, found.kind) == head[1:]


def told(event: e.Event) -> dict[str, Any]:
    return {"interlingua/event": msgspec.to_builtins(event)}


def test_thoughts_and_files_of_another_gateway_are_told_once() -> None:
    beside = SideEvents()
    first = beside.read(told(e.PartDelta(part="p", delta="hm")))
    assert [type(event) for event in first] == [e.MessageStarted, e.PartStarted, e.PartDelta]
    assert len(beside.read(told(e.PartDelta(part="p", delta="m")))) == 1
    artifact = Artifact(id="1", name="n", url="http://x/1", media_type="text/plain", size=3)
    (file,) = beside.read(told(e.ArtifactAdded(artifact=artifact)))
    assert isinstance(file, e.PartStarted) and file.value["uri"] == "http://x/1"
    assert beside.files([{"url": "http://x/1"}, {"name": "no url"}, 5]) == [] and beside.files("x") == []
    (other,) = beside.files([{"url": "http://x/two"}])
    assert isinstance(other, e.PartStarted) and other.value["name"] == "two"


@pytest.mark.parametrize(
    "event",
    [
        e.RunFinished(),
        e.RunCancelled(),
        e.PartReplaced(part="p", value="x"),
        e.PartDelta(part="p", delta={"a": 1}),
        e.PartStarted(part="p", message="m", kind="text"),
    ],
)
def test_no_event_of_another_gateway_ends_or_rewrites_the_run(event: e.Event) -> None:
    assert SideEvents().read(told(event)) == []
    assert SideEvents().read({"interlingua/event": {"event": "nonsense"}}) == []


def test_whatever_another_gateway_tells_follows_what_it_told_before() -> None:
    """Every order of three events about one call, part and file is legal once it was read."""
    artifact = Artifact(id="1", name="n", url="http://x/1")
    events = [
        e.ToolCallStarted(call="c", name="t"),
        e.ToolCallUpdated(call="c", status="odd"),
        e.ToolCallEnded(call="c"),
        e.PartStarted(part="p", message="m", kind="thought"),
        e.PartStarted(part="p", message="m", kind="file", value=5),
        e.PartDelta(part="p", delta="s"),
        e.PartDelta(part="output", delta="s"),
        e.ArtifactAdded(artifact=artifact),
        e.PartEnded(part="p"),
        e.MessageEnded(message="m"),
        e.PlanUpdated(),
        e.RunStarted(),
    ]
    taken = 0
    for order in itertools.product(events, repeat=3):
        beside, opener, state = SideEvents(), Opener(), State()
        for event in opener.feed([e.RunStarted()]):
            state.advance(event)
        for event in order:
            for legal in opener.feed([*beside.read(told(event)), e.PartDelta(part="output", delta="x")]):
                state.advance(legal)
                taken += 1
    assert taken > 10_000


def test_text_that_is_said_again_is_told_once() -> None:
    text = GrowingText("p")
    assert text.add("one ") == [e.PartDelta(part="p", delta="one ")]
    assert text.add("two") == [e.PartDelta(part="p", delta="two")]
    text.again()
    assert text.add("one ") == [] and text.add("two") == []
    assert text.add(" three") == [e.PartDelta(part="p", delta=" three")]
    text.again()
    assert text.add("one ") == []
    text.again()
    assert text.add("one two") == [] and text.add(" other") == [e.PartReplaced(part="p", value="one two other")]
    assert text.add("!") == [e.PartDelta(part="p", delta="!")]
