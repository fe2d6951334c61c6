"""What a client of version 2 is told of agents of other protocols, and of version 1."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client import ADAPTER
from adapters.agent_client.codec.v2.updates_out import V2UpdateEncoder
from gateway.core import events as e
from gateway.core import projection
from gateway.core.output import Output
from gateway.core.stream import Opener, coalesce
from gateway.core.types import Agent, Failure, Json, Role, RunStatus
from tests.adapters.agent_client.codec_cases import FOREIGN, unhurried
from tests.adapters.agent_client.codec_told import run
from tests.adapters.agent_client.codec_v2_cases import valid
from tests.adapters.agent_client.codec_v2_client import Client
from tests.adapters.agent_client.test_codec_foreign_text import CHAT, TEXT_EVENTS, data_events
from tests.adapters.agent_client.test_codec_updates_out import ANY_EVENTS
from tests.core.json_values import SOUND

_END = e.RunFinished()


class Told:
    """What a client of version 2 was told of a run of an agent of another protocol, from first event to last."""

    def __init__(
        self,
        events: list[e.Event],
        agent: Agent = FOREIGN,
        *,
        size: int = 2,
        output: Json = None,
        bursts: bool = False,
        status: RunStatus = RunStatus.SUCCESS,
    ) -> None:
        self.output, self.updates, opener = Output(agent), list[Any](), Opener()
        end = _END if output is None else e.RunFinished(output=msgspec.Raw(msgspec.json.encode(output)))
        over = bool(events) and isinstance(events[-1], e.TERMINAL)
        legal = self.legal = opener.feed(events if over else [*events, end])
        self.encoder = V2UpdateEncoder(agent, run="r")
        numbered = list(enumerate(legal, 1))
        for at in range(0, len(numbered), size):
            batch = numbered[at : at + size]
            for _, event in batch:
                self.output.apply(event)
            self._take(self.encoder.feed(coalesce(batch) if bursts else batch, self.output))
        self.before = Client(self.updates)
        last = run(status=status, output=msgspec.Raw(self.output.encoded))
        self._take(self.encoder.finish(last))
        assert self.encoder.finish(last) == []
        assert self.encoder.end is legal[-1]
        self.client = Client(self.updates)
        self.losses = dict(self.encoder.losses)
        assert self.losses.keys() <= ADAPTER.losses.keys()

    def _take(self, updates: list[bytes]) -> None:
        for update in updates:
            assert b"\n" not in update
            self.updates.append(valid("SessionUpdate", json.loads(update)))

    @property
    def kinds(self) -> list[str]:
        return [update["sessionUpdate"] for update in self.updates]


def said(events: list[e.Event]) -> str:
    """The assistant's messages in the order in which they began to speak, a blank line apart."""
    roles: dict[str, Role] = {}
    of: dict[str, str] = {}  # part -> message
    spoken: dict[str, str] = {}  # part -> text, in the order in which they began to speak
    for event in events:
        match event:
            case e.MessageStarted(message=name, role=role):
                roles[name] = role
            case e.PartStarted(part=part, message=name, kind="text", value=value) if roles[name] is Role.ASSISTANT:
                of[part] = name
                spoken |= {part: value} if value else {}
            case e.PartDelta(part=part, delta=text) if part in of and text:
                spoken[part] = spoken.get(part, "") + text
            case e.PartReplaced(part=part, value=text) if part in of and (text or part in spoken):
                spoken[part] = text
    messages: dict[str, str] = {}
    for part, text in spoken.items():
        messages[of[part]] = messages.get(of[part], "") + text
    return "\n\n".join(text for text in messages.values() if text)


# --- text --------------------------------------------------------------------------------------------------------


@unhurried
@given(TEXT_EVENTS, st.integers(1, 13), st.booleans())
def test_a_client_is_told_each_message_as_it_is(events: Any, size: int, bursts: bool) -> None:
    told = Told(events, size=size, bursts=bursts)
    assert told.before.text() == said(told.legal)
    assert told.client.seen == told.before.seen and "rewrite" not in told.losses


@unhurried
@given(TEXT_EVENTS, SOUND)
def test_the_agents_final_result_wins(events: Any, final: str) -> None:
    told = Told(events, output={"message": final, "score": 1})
    assert told.client.text() == final


@unhurried
@given(data_events(), st.integers(1, 8))
def test_of_a_data_part_a_client_ends_with_the_text_inside(events: Any, size: int) -> None:
    told = Told(events, size=size)
    wanted = projection.text_of(told.output.document, FOREIGN.text_output)
    if wanted is not None:
        assert told.client.text() == wanted


@unhurried
@given(ANY_EVENTS)
def test_whatever_happens_every_update_is_one_of_the_protocols(events: Any) -> None:
    seen: set[str] = set()
    legal = []
    for event in events:  # a call ends once
        if not (isinstance(event, e.ToolCallEnded) and event.call in seen):
            legal.append(event)
        if isinstance(event, e.ToolCallEnded):
            seen.add(event.call)
    Told(legal)  # judges each


def test_a_rewrite_is_told_at_once_as_the_whole_message_anew() -> None:
    told = Told(
        [
            e.PartStarted(part="p", message="a", value="Won"),
            e.PartStarted(part="f", message="a", kind="file", value={"url": "http://x/y.pdf"}),
            e.PartReplaced(part="p", value="One"),
            e.PartDelta(part="p", delta="!"),
        ],
        size=1,
    )
    assert told.kinds == ["agent_message_chunk", "agent_message_chunk", "agent_message", "agent_message"]
    link = {"type": "resource_link", "uri": "http://x/y.pdf", "name": "y.pdf"}
    assert told.updates[2] == {
        "sessionUpdate": "agent_message",
        "messageId": "r-a",
        "content": [{"type": "text", "text": "One"}, link],
    }
    assert told.updates[3]["content"] == [{"type": "text", "text": "One!"}, link]  # a chunk would follow the file
    assert not told.losses


def test_a_rewrite_that_only_goes_on_is_a_chunk() -> None:
    told = Told([e.PartDelta(part="p", delta="One"), e.PartReplaced(part="p", value="One, two")])
    assert [update["content"]["text"] for update in told.updates] == ["One", ", two"]


def test_a_document_that_rewrites_its_text_is_told_anew_before_the_end() -> None:
    events: list[e.Event] = [
        e.PartDelta(part="d", delta={"message": "Won"}),
        e.PartReplaced(part="d", pointer="/message", value="One"),
        e.PartDelta(part="d", delta={"message": "!"}),
    ]
    told = Told(events, size=1)
    assert told.kinds == ["agent_message_chunk", "agent_message", "agent_message_chunk"]
    assert told.before.text() == "One!" and not told.losses


def test_of_a_conversation_each_new_message_of_the_assistants_is_one() -> None:
    deltas: list[Json] = [
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "He"}]},
        {"messages": [{"content": "llo"}]},
        {"messages": [None, {"role": "tool", "content": "42"}, {"role": "assistant", "content": "It is 42."}]},
    ]
    told = Told([e.PartDelta(part="d", delta=each) for each in deltas], CHAT, size=1)
    assert told.client.text() == "Hello\n\nIt is 42."
    assert len(told.client.messages) == 2


def test_a_document_without_text_is_told_as_json_at_the_end_of_a_run_that_succeeded() -> None:
    told = Told([e.PartDelta(part="d", delta={"score": 3})])
    assert told.client.text() == '```json\n{"score":3}\n```'
    failed = e.RunFailed(failure=Failure(code="x", message="y"))
    assert Told([e.PartDelta(part="d", delta={"score": 3}), failed], status=RunStatus.ERROR).updates == []


def test_an_output_that_was_never_streamed_is_told_at_the_end() -> None:
    assert Told([], output={"message": "all at once"}).client.text() == "all at once"


# --- what else there is ------------------------------------------------------------------------------------------


def test_what_cannot_be_said_is_counted() -> None:
    told = Told(
        [
            e.MessageStarted(message="s", role=Role.SYSTEM),
            e.PartStarted(part="s1", message="s", value="rules"),
            e.PartStarted(part="p", message="m", value="text"),
            e.PartStarted(part="d", message="m", kind="data", value={"a": 1}),
            e.PartStarted(part="f", message="m", kind="file", value={"a": 1}),
            e.Custom(name="x", data=1),
        ]
    )
    assert told.losses == {"other_roles": 1, "beside_output": 1, "file": 1, "custom": 1}
    assert told.encoder.lossy


# --- the gateway's own -------------------------------------------------------------------------------------------
