"""What a client of version 2 is told of agents of version 1, and of agents that are gone."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.core import delta
from tests.adapters.agent_client import codec_cases as v1
from tests.adapters.agent_client.codec_cases import NATIVE, unhurried
from tests.adapters.agent_client.codec_v2_cases import chunks, read, valid, written

V1_UPDATES = v1.UPDATES.filter(lambda update: update["sessionUpdate"] not in v1.NOTED)


@unhurried
@given(st.lists(V1_UPDATES, max_size=8), st.integers(1, 9), st.booleans())
def test_every_update_of_an_agent_of_version_1_is_one_of_version_2(updates: Any, size: int, bursts: bool) -> None:
    told = written(v1.read(updates), NATIVE, size=size, bursts=bursts)
    for update in told:
        valid("SessionUpdate", update)
    kept = [update for update in updates if update["sessionUpdate"] != "user_message_chunk"]
    assert bursts or len(told) == len([*kept])


def test_its_calls_and_plans_are_told_in_words_of_version_2() -> None:
    entry = {"content": "1", "priority": "high", "status": "pending"}
    updates = [
        {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "x", "status": "pending"},
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": None, "status": "completed"},
        {"sessionUpdate": "plan", "entries": [entry], "_meta": {"a": 1}},
    ]
    assert written(v1.read(updates), NATIVE) == [
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "x", "status": "pending"},
        {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"},
        {
            "sessionUpdate": "plan_update",
            "plan": {"type": "items", "planId": "main", "entries": [entry]},
            "_meta": {"a": 1},
        },
    ]


def test_its_change_of_a_file_is_told_as_a_patch_and_its_terminals_not_at_all() -> None:
    diff = {"type": "diff", "path": "/a", "oldText": "one\ntwo\n", "newText": "one\n2"}
    content = [diff, {"type": "terminal", "terminalId": "t"}]
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "x", "content": content}
    (told,) = written(v1.read([call]), NATIVE)
    text = "diff --git /a /a\n--- /a\n+++ /a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n\\ No newline at end of file\n"
    assert told["content"] == [
        {
            "type": "diff",
            "changes": [{"operation": "modify", "path": "/a", "fileType": "text"}],
            "patch": {"format": "git_patch", "text": text},
        }
    ]


# --- an agent that is not known any more -------------------------------------------------------------------------


@unhurried
@given(st.lists(chunks("agent_message_chunk"), min_size=1, max_size=6))
def test_what_an_agent_said_that_is_gone_is_told_as_it_was(updates: list[Any]) -> None:
    told = written(read(updates), None, size=100)
    assert len(told) == len(updates)
    for said, heard in zip(updates, told, strict=True):
        assert delta.same(said, heard)
