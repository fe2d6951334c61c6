"""A thread's state from its checkpoints, and what a patch of it adds."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from gateway.core import thread_state
from gateway.core.errors import Invalid
from gateway.core.types import Agent, ChatMessage, Checkpoint, JsonObject, Role


def point(*texts: str, **given: Any) -> Checkpoint:
    said = tuple(ChatMessage(role=Role.USER, content=text) for text in texts)
    return Checkpoint(id="c", thread="t", created_at=0.0, messages=said, **given)


def texts(state: Checkpoint) -> list[str]:
    return [one.content for one in state.messages]


def test_a_state_is_what_its_checkpoints_added_since_the_last_replacement() -> None:
    points = [point("a"), point("b", values={"k": 1}), point("c", replaces=True), point("d", values={})]
    states = thread_state.Accumulated(points)
    assert [texts(one) for one in states] == [["a"], ["a", "b"], ["c"], ["c", "d"]]
    assert [one.values for one in states] == [None, {"k": 1}, {"k": 1}, {}]


def test_a_state_of_a_long_thread_is_made_without_those_of_all_other_turns() -> None:
    points = [point("a", "b") for _ in range(5000)]
    tracemalloc.start()
    states = thread_state.Accumulated(points)
    assert [len(states[at].messages) for at in (0, -1)] == [2, 10_000]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10_000_000, "each of them in its whole would be 200 MB"
    assert [len(one.messages) for one in states[-2:]] == [9998, 10_000]


def test_a_record_of_an_older_version_has_outputs_that_are_no_state_and_its_own_mark() -> None:
    points = [point("a", run="r", values={"message": "output"}), point("b", metadata={"x.replaces_messages": True})]
    first, second = thread_state.Accumulated(points)
    assert (thread_state.kept(first), texts(second)) == ({"messages": [{"role": "user", "content": "a"}]}, ["b"])
    assert second.metadata == {}


@pytest.mark.parametrize(
    ("values", "added", "replaces"),
    [
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, ["b"], False),
        ({"messages": [{"role": "user", "content": "x", "id": "1", "metadata": {"k": 1}}]}, ["x"], True),
        ({"colour": "blue"}, [], False),
    ],
)
def test_a_patch_adds_messages_or_replaces_them(values: JsonObject, added: list[str], replaces: bool) -> None:
    now = point("a", values={"size": 1})
    patch = thread_state.patched(now, now, values, None, strict=True)
    assert (texts(patch), patch.replaces) == (added, replaces)
    (_, after) = thread_state.Accumulated([now, patch])
    assert thread_state.kept(after) == {"messages": [{"role": "user", "content": "a"}], **values}


@pytest.mark.parametrize("values", [{"messages": ["a"]}, {"messages": {}}, [1], "text"])
def test_what_is_no_state_is_refused_where_the_gateway_keeps_it(values: Any) -> None:
    now = point("a")
    with pytest.raises(Invalid, match=r"the state|messages"):
        thread_state.patched(now, now, values, None, strict=True)
    assert thread_state.patched(now, now, values, None, strict=False).values == values


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"description": "Other words", "examples": [{}]}, True),
        ({"properties": {"messages": {"type": "array", "items": {"type": "string"}}}}, False),
        ({"properties": {**thread_state.SCHEMA["properties"], "title": {"type": "string"}}}, False),
        ({"required": ["messages"]}, False),
    ],
)
def test_schemas_are_the_same_whatever_they_say_for_people(change: JsonObject, same: bool) -> None:
    assert thread_state.same_schema(thread_state.SCHEMA, {**thread_state.SCHEMA, **change}) is same


def test_what_was_given_before_any_run_goes_to_an_agent_where_its_schema_has_it() -> None:
    (state,) = thread_state.Accumulated([point("a", values={"k": 1})])
    said = [{"role": "user", "content": "a"}]

    def given(schema: JsonObject) -> tuple[Any, list[str]]:
        agent = Agent(name="x", input_schema={}, output_schema={}, thread_schema=schema)
        told = thread_state.as_given(state, agent)
        return told.values, texts(told)

    assert given(thread_state.SCHEMA) == ({"k": 1, "messages": said}, [])
    assert given({"properties": {"turns": {}}}) == given({}) == ({"k": 1}, ["a"])
