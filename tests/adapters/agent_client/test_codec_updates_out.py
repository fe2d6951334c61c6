"""What a client of this protocol is told of a run, beside its text."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec import updates_out_v1 as out
from adapters.agent_client.codec.updates_out import envelope
from adapters.agent_client.codec.updates_out_v1 import V1UpdateEncoder
from adapters.agent_client.wire import PARAMS_META
from gateway.core import events as e
from gateway.core.types import Artifact, Role
from tests.adapters.agent_client import codec_v2_cases as newer
from tests.adapters.agent_client.codec_cases import ANY, FOREIGN, NATIVE, read, unhurried, written
from tests.adapters.agent_client.codec_told import Told
from tests.core.json_values import SOUND

_CALLS = st.sampled_from(["a", "b"])
ANY_EVENTS = st.lists(
    st.one_of(
        st.builds(
            lambda c, n, k, i: e.ToolCallStarted(call=c, name=n, kind=k, input=i),
            st.uuids().map(str),
            SOUND,
            st.sampled_from(["read", "web", ""]),
            ANY,
        ),
        st.builds(
            lambda c, s, t, v: e.ToolCallUpdated(call=c, status=s, title=t, content=v),
            _CALLS,
            st.none() | st.sampled_from(["running", "completed", "odd"]),
            st.none() | SOUND,
            ANY | st.just([{"type": "diff", "path": "/x", "newText": "y", "oldText": 7}]),
        ),
        st.builds(
            lambda entries: e.PlanUpdated(entries=tuple(entries)),
            st.lists(
                st.builds(lambda c, s, p: e.PlanEntry(content=c, status=s, priority=p), SOUND, SOUND, SOUND), max_size=2
            ),
        ),
        st.builds(
            lambda d, o: e.UsageReported(detail=d, output_tokens=o),
            st.dictionaries(SOUND, ANY, max_size=2),
            st.none() | st.integers(0, 9),
        ),
        st.builds(lambda n, d: e.Custom(name=n, data=d), st.sampled_from(["agent_client", "x"]), ANY),
        st.builds(
            lambda v: e.PartStarted(part="f", message="m", kind="file", value=v),
            ANY | st.just({"url": "http://x/y.pdf", "media_type": 7}),
        ),
        st.builds(lambda n: e.ArtifactAdded(artifact=Artifact(id=n, name=n, url="http://x/y")), SOUND),
        st.just(e.ToolCallEnded(call="z", output="text")),
    ),
    max_size=8,
)


@unhurried
@given(ANY_EVENTS)
def test_whatever_happens_every_update_is_one_of_the_protocols(events: Any) -> None:
    seen: set[str] = set()
    legal = []
    for event in events:  # a call ends once
        if isinstance(event, e.ToolCallEnded) and event.call in seen:
            continue
        if isinstance(event, e.ToolCallEnded):
            seen.add(event.call)
        legal.append(event)
    Told(legal)  # judges each


def test_losses_are_counted_anew_each_time_they_are_asked_for() -> None:
    for agent in (FOREIGN, NATIVE):
        encoder = V1UpdateEncoder(agent)
        before = encoder.losses
        encoder.feed([(1, e.Custom(name="x"))])
        assert encoder.losses - before == {"custom": 1}


def test_words_of_a_system_or_a_tool_are_counted_and_the_users_are_not_repeated() -> None:
    events: list[e.Event] = []
    for role in (Role.SYSTEM, Role.TOOL, Role.USER):
        events += [
            e.MessageStarted(message=role.value, role=role),
            e.PartStarted(part=f"p{role}", message=role.value),
            e.PartDelta(part=f"p{role}", delta="x"),
        ]
    told = Told(events)
    assert told.updates == [] and told.losses == {"other_roles": 2}


def test_a_run_of_an_agent_that_is_not_known_any_more_is_still_told() -> None:
    assert Told([e.PartDelta(part="p", delta="text")], None).text == "text"
    document = e.PartStarted(part="d", message="m", kind="data", value={"message": "of another protocol's"})
    assert Told([document], None).text == "of another protocol's"


def test_a_run_of_an_agent_of_this_protocol_that_is_not_known_any_more_is_told_as_it_spoke() -> None:
    chunk = {"sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": {"type": "text", "text": "a"}}
    own = {"sessionUpdate": "_weather", "sky": "blue"}
    for updates in ([chunk, own, chunk], [own, chunk]):
        assert written(read(updates), None) == updates


def test_a_word_of_this_protocol_is_told_though_the_first_words_did_not_show_that_it_is_this_protocols() -> None:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}}
    own = {"sessionUpdate": "_weather", "sky": "blue"}
    assert written(read([chunk, own]), None, size=1) == [chunk, own]
    told = newer.written(newer.read([own]), None, size=1)  # its run has started, which shows nothing
    assert told == [own]


# --- whole messages ----------------------------------------------------------------------------------------------


def test_what_stood_beside_an_update_stands_beside_it_again() -> None:
    update = {"sessionUpdate": "plan", "entries": [], PARAMS_META: {"trace": 1}}
    said = out.text(f'"{PARAMS_META}"')  # an agent that only speaks of it
    told = [json.loads(whole)["params"] for whole in envelope("s")([msgspec.json.encode(update), said])]
    plan = {"sessionUpdate": "plan", "entries": []}
    assert told[0] == {"sessionId": "s", "update": plan, "_meta": {"trace": 1}}
    assert told[1] == {"sessionId": "s", "update": json.loads(said)}


@pytest.mark.parametrize("text", ["a\u2028b\u2029c\x85d\r\ne", "😀", '"\\'])
def test_text_is_one_line_however_lines_are_split(text: str) -> None:
    line = out.text(text).decode()
    assert len(line.splitlines()) == 1 and json.loads(line)["content"]["text"] == text
