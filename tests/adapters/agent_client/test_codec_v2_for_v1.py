"""What a client of version 1 is told of an agent of version 2: only what version 1 knows, and nothing wrong."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client import ADAPTER
from adapters.agent_client.codec import updates_out_v1 as out
from adapters.agent_client.codec.updates_out_v1 import V1UpdateEncoder
from adapters.agent_client.codec.v2.memory import SessionMemory
from adapters.agent_client.codec.v2.updates_in import V2SpokenSession
from adapters.agent_client.wire import PROTOCOL
from gateway.core import events as e
from gateway.core.stream import coalesce
from tests.adapters.agent_client.codec_cases import dumped, text_of, unhurried, valid
from tests.adapters.agent_client.codec_v2_cases import NEWER, UPDATES, note_of, read
from tests.adapters.agent_client.codec_v2_client import Client
from tests.core.json_values import SOUND


class Heard:
    """One run, told in batches of a size."""

    def __init__(self, events: list[e.Event], *, size: int = 3, bursts: bool = False) -> None:
        self.encoder, self.updates = V1UpdateEncoder(NEWER), list[Any]()
        numbered = [(number, event) for number, event in enumerate(events, 1) if note_of(event) is None]
        for at in range(0, len(numbered), size):
            batch = numbered[at : at + size]
            for update in self.encoder.feed(coalesce(batch) if bursts else batch):
                self.updates.append(valid("SessionUpdate", json.loads(update)))
        self.losses: Counter[str] = self.encoder.losses
        assert self.losses.keys() <= ADAPTER.losses.keys()

    @property
    def text(self) -> str:
        return text_of(self.updates)


@unhurried
@given(st.lists(UPDATES, max_size=10), st.integers(1, 9), st.booleans())
def test_every_update_is_one_of_version_1(updates: list[Any], size: int, bursts: bool) -> None:
    Heard(read(updates), size=size, bursts=bursts)


@unhurried
@given(st.lists(UPDATES, max_size=8))
def test_so_is_every_one_between_runs(updates: list[Any]) -> None:
    known = SessionMemory()
    for update in updates:
        for note in V2SpokenSession(known).stray(dumped(update)):
            if note.protocol == PROTOCOL:
                valid("SessionUpdate", json.loads(out.update(note.data)))


def chunk(id: str, text: str, kind: str = "agent_message") -> Any:
    return {"sessionUpdate": f"{kind}_chunk", "messageId": id, "content": {"type": "text", "text": text}}


def whole(id: str, *texts: str, kind: str = "agent_message") -> Any:
    content = [{"type": "text", "text": text} for text in texts]
    return {"sessionUpdate": kind, "messageId": id, "content": content}


_TEXT = SOUND.filter(bool) | st.sampled_from(["x", "xx"])
_SPOKEN = st.builds(chunk, st.sampled_from("ab"), _TEXT) | st.builds(
    lambda id, texts: whole(id, *texts), st.sampled_from("ab"), st.lists(_TEXT, min_size=1, max_size=3)
)


@unhurried
@given(st.lists(_SPOKEN, max_size=10), st.integers(1, 9), st.booleans())
def test_the_newest_message_in_the_place_of_another_says_what_it_says(
    updates: list[Any], size: int, bursts: bool
) -> None:
    newest: dict[str, tuple[str, str]] = {}
    for update in Heard(read(updates), size=size, bursts=bursts).updates:
        name, text = update["messageId"], update["content"]["text"]
        place = name.partition("#")[0]
        before = newest.get(place)
        newest[place] = (name, (before[1] if before is not None and before[0] == name else "") + text)
    wanted = {key.split(" ")[1]: message["content"][0]["text"] for key, message in Client(updates).messages.items()}
    assert {place: text for place, (_, text) in newest.items()} == wanted


# --- messages ----------------------------------------------------------------------------------------------------


def test_it_may_be_rewritten_again_after_others_were_said() -> None:
    heard = Heard(read([chunk("m", "Won"), chunk("n", "Too"), whole("m", "One"), whole("m", "1"), whole("n", "Two")]))
    names = [(update["messageId"], update["content"]["text"]) for update in heard.updates]
    assert [each for each in names if each[1] != "\n\n"] == [
        ("m", "Won"),
        ("n", "Too"),
        ("m#2", "One"),
        ("m#3", "1"),
        ("n#2", "Two"),
    ]
    assert heard.losses == {"rewrite": 3}


def test_what_is_taken_back_stays_and_is_counted() -> None:
    heard = Heard(read([chunk("m", "secret"), whole("m"), chunk("m", "public")]))
    assert heard.updates == [chunk("m", "secret"), chunk("m", "public")]
    assert heard.losses == {"deletion": 1}


def test_a_message_of_an_earlier_run_that_is_rewritten_is_another() -> None:
    known = SessionMemory()
    read([chunk("m", "Won")], known)
    heard = Heard(read([whole("m", "One"), chunk("m", "!")], known))
    assert heard.updates == [chunk("m#2", "One"), chunk("m#2", "!")]


def test_the_users_message_that_is_the_prompt_is_not_told_and_a_further_one_is() -> None:
    prompt = whole("u", "Do", "it", kind="user_message")
    heard = Heard(read([prompt, chunk("m", "Doing"), whole("v", "Stop", kind="user_message")]))
    assert heard.updates == [chunk("m", "Doing"), chunk("v", "Stop", "user_message")]


# --- tool calls --------------------------------------------------------------------------------------------------


def call(**said: Any) -> Any:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "c", **said}


def shown(heard: Heard) -> list[str]:
    return [item["content"]["text"] for update in heard.updates for item in update.get("content", [])]


def test_words_that_version_1_has_not_are_told_as_the_nearest_it_has() -> None:
    heard = Heard(read([call(title="x", kind="_dream", status="_odd"), call(status="cancelled")]))
    assert [update.get("status") for update in heard.updates] == [None, "failed"]
    assert heard.updates[0]["kind"] == "other" and heard.losses == {"unknown_word": 2}


def test_what_is_cleared_is_cleared_where_version_1_can() -> None:
    content = [{"type": "content", "content": {"type": "text", "text": "x"}}]
    started = call(title="x", content=content, locations=[{"path": "/a"}], rawInput=1)
    heard = Heard(read([started, call(content=None, locations=None, title=None, rawInput=None)]))
    assert heard.updates[1] == {"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": [], "locations": []}
    assert heard.losses == {"deletion": 2}


def test_a_change_of_files_is_told_as_its_patch_or_else_as_a_list() -> None:
    moved = {"operation": "move", "oldPath": "/a", "path": "/b"}
    patched = {"type": "diff", "changes": [moved], "patch": {"format": "git_patch", "text": "diff --git /a /b\n"}}
    heard = Heard(read([call(title="x", content=[patched, {"type": "diff", "changes": [moved]}])]))
    assert shown(heard) == ["```diff\ndiff --git /a /b\n```", "move /a /b"]
    assert not heard.losses


# --- everything else ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "loss"),
    [
        ({"sessionUpdate": "_weather", "sky": "blue"}, "unknown_update"),
        ({"sessionUpdate": "plan_update", "plan": {"type": "_graph", "planId": "p"}}, "unknown_update"),
        (chunk("m", "x") | {"content": {"type": "_chart"}}, "unknown_content"),
        ({"sessionUpdate": "agent_message", "messageId": "m", "_meta": None}, None),
        ({"sessionUpdate": "state_update", "state": "_dreaming"}, None),
    ],
)
def test_what_version_1_has_no_word_for_is_counted(update: Any, loss: str | None) -> None:
    heard = Heard(read([update]))
    assert heard.updates == [] and dict(heard.losses) == ({loss: 1} if loss else {})
    assert heard.encoder.lossy is (loss is not None)


def test_hints_that_version_1_does_not_know_are_left_out_of_content() -> None:
    block = {"type": "text", "text": "x", "annotations": {"audience": ["_bot"]}}
    heard = Heard(read([chunk("m", "x") | {"content": block}]))
    assert heard.updates == [chunk("m", "x")]
