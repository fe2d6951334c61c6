"""The one output document of a run, from its events."""

from __future__ import annotations

import json

import msgspec
import pytest

from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.output import SEPARATOR, Output, OutputParts, PartOf
from gateway.core.stream import Opener
from gateway.core.types import Agent, Artifact, Json, Role

MESSAGE = Agent(
    name="a",
    input_schema=projection.MESSAGE_SCHEMA,
    output_schema=projection.MESSAGE_OUTPUT_SCHEMA,
    text_output="/message",
)


def _folded(*events: e.Event, agent: Agent = MESSAGE) -> Output:
    output = Output(agent)
    for event in Opener().feed(events):
        output.apply(event)
    return output


def _document(*events: e.Event, agent: Agent = MESSAGE) -> Json:
    output = _folded(*events, agent=agent)
    assert json.loads(output.encoded) == output.document
    return output.document


def test_text_is_put_where_the_schema_wants_it() -> None:
    assert _document(e.PartDelta(part="t", delta="Hel"), e.PartDelta(part="t", delta="lo")) == {"message": "Hello"}


def test_what_a_change_is_said_to_have_added_is_what_it_has_added_and_no_text_adds_nothing() -> None:
    output, before = Output(MESSAGE), delta.ABSENT
    said = ["Hel", "lo", "", "!", "\ud83d", "\ude00", "ö", ""]
    texts: list[e.Event] = [e.PartDelta(part="t", delta=text) for text in said]
    made = Artifact(id="a", name="n", run="r", created_at=0.0, url="u")
    other = [e.PartDelta(part="o", delta="more"), e.PartDelta(part="o", delta=""), e.PartDelta(part="o", delta="s")]
    for event in Opener().feed([*texts, e.ArtifactAdded(artifact=made), *texts, *other]):
        changed = output.apply(event)
        after = output.document if not output.empty else delta.ABSENT
        if not changed:
            assert after == before
        elif output.delta is not delta.ABSENT:
            assert delta.combine(before, output.delta) == after
        before = after
    assert output.document["message"] == "Hello!😀ö" * 2 + "mores"


def test_a_text_that_says_nothing_before_a_data_part_begins_is_no_part_of_the_document_whatever_its_name() -> None:
    text, data = e.PartStarted(part="", message="m"), e.PartStarted(part="d", message="m", kind="data")
    notes = [e.PartDelta(part="d", delta={"note": piece}) for piece in "xyz"]
    hello, after = e.PartDelta(part="", delta="Hel"), e.PartDelta(part="", delta="lo")
    assert _document(e.MessageStarted(message="m"), text, data, hello, *notes, after) == {"note": "xyz"}


def test_messages_are_a_blank_line_apart_and_only_the_assistants_count() -> None:
    assert _document(
        e.MessageStarted(message="u", role=Role.USER),
        e.PartStarted(part="asked", message="u"),
        e.PartDelta(part="asked", delta="ignored"),
        e.PartStarted(part="p1", message="m1"),
        e.PartDelta(part="p1", delta="one"),
        e.MessageEnded(message="m1"),
        e.PartStarted(part="p2", message="m2"),
        e.PartDelta(part="p2", delta="two"),
    ) == {"message": "one\n\ntwo"}


def test_thoughts_are_not_part_of_the_document() -> None:
    assert _document(
        e.PartStarted(part="th", message="m", kind="thought"),
        e.PartDelta(part="th", delta="hm"),
        e.PartDelta(part="t", delta="Hi"),
    ) == {"message": "Hi"}


def test_a_data_part_is_the_document_as_it_is() -> None:
    assert _document(
        e.PartDelta(part="d", delta={"n": 1, "s": "a"}), e.PartDelta(part="d", delta={"n": 2, "s": "b"})
    ) == {"n": 3, "s": "ab"}


def test_a_replaced_flag_replaces_one_field() -> None:
    assert _document(
        e.PartDelta(part="d", delta={"done": False, "s": "a"}), e.PartReplaced(part="d", pointer="/done", value=True)
    ) == {"done": True, "s": "a"}


@pytest.mark.parametrize(("part", "expected"), [("p1", "ONE+\n\ntwo"), ("p2", "one\n\nONE+")], ids=["first", "last"])
def test_replaced_and_late_text_of_any_message_finds_its_place(part: str, expected: str) -> None:
    start = [
        e.PartStarted(part="p1", message="m1"),
        e.PartDelta(part="p1", delta="one"),
        e.PartStarted(part="p2", message="m2"),
        e.PartDelta(part="p2", delta="two"),
    ]
    assert _document(*start, e.PartReplaced(part=part, value="ONE"), e.PartDelta(part=part, delta="+")) == {
        "message": expected
    }


def test_files_are_listed_beside_the_text() -> None:
    file = Artifact(id="1", name="out.txt", url="/artifacts/r/1")
    assert _document(e.PartDelta(part="t", delta="Hi"), e.ArtifactAdded(artifact=file)) == {
        "message": "Hi",
        "artifacts": [{"name": "out.txt", "url": "/artifacts/r/1"}],
    }


def test_the_final_result_wins_over_what_was_streamed() -> None:
    output = _folded(e.PartDelta(part="d", delta={"s": "draft"}))
    final = e.RunFinished(output=msgspec.Raw(b'{"s": "final"}'))
    assert output.correction(final) == e.PartReplaced(part="d", value={"s": "final"})
    assert output.finish(final) == b'{"s": "final"}'
    assert output.document == {"s": "final"}


def test_a_final_result_that_says_the_same_in_other_bytes_is_no_correction() -> None:
    output = _folded(e.PartDelta(part="d", delta={"s": "x"}))
    assert output.correction(e.RunFinished(output=msgspec.Raw(b'{ "s" : "x" }'))) is None


def test_a_run_that_said_nothing_has_an_empty_text() -> None:
    output = _folded()
    assert output.empty
    assert json.loads(output.finish(e.RunFinished())) == {"message": ""}


def test_a_conversation_as_output_gets_one_message_that_grows() -> None:
    schema = {
        "type": "object",
        "properties": {
            "messages": {
                "type": "array",
                "items": {"type": "object", "properties": {"role": {"type": "string"}, "content": {"type": "string"}}},
            }
        },
    }
    agent = Agent(name="a", input_schema={}, output_schema=schema, text_output=projection.text_pointer(schema))
    document = _document(e.PartDelta(part="t", delta="Hel"), e.PartDelta(part="t", delta="lo"), agent=agent)
    assert document == {"messages": [{"role": "assistant", "content": "Hello"}]}


def test_a_bare_string_as_output_is_the_text() -> None:
    agent = Agent(name="a", input_schema={}, output_schema={"type": "string"}, text_output="")
    assert _document(e.PartDelta(part="t", delta="a"), e.PartDelta(part="t", delta="b"), agent=agent) == "ab"


# --- which parts are the output's -----------------------------------------------------------------------------------


def parts(*starts: tuple[str, str, Role], speaking: bool = True) -> list[PartOf]:
    """What parts are that start one after the other, each in a message of its own: (name, kind, whose)."""
    decided = OutputParts()
    found = []
    for name, kind, role in starts:
        decided.message(e.MessageStarted(message=f"m-{name}", role=role))
        found.append(what := decided.start(e.PartStarted(part=name, message=f"m-{name}", kind=kind)))
        if what is PartOf.TEXT and speaking:
            decided.speak(name)
    return found


def test_the_first_data_part_is_the_output_unless_text_came_first() -> None:
    data, text = ("d", "data", Role.ASSISTANT), ("t", "text", Role.ASSISTANT)
    assert parts(data, text) == [PartOf.DATA, PartOf.BESIDE]
    assert parts(text, data) == [PartOf.TEXT, PartOf.BESIDE]
    assert parts(text, data, speaking=False) == [PartOf.TEXT, PartOf.DATA], "a text that says nothing is none"
    assert parts(data, ("d2", "data", Role.ASSISTANT)) == [PartOf.DATA, PartOf.BESIDE]


def test_what_others_than_the_assistant_say_is_no_output() -> None:
    starts = [(kind, kind, role) for role in (Role.USER, Role.SYSTEM) for kind in ("text", "data")]
    assert parts(*starts) == [PartOf.USER, PartOf.USER, PartOf.OTHERS, PartOf.OTHERS]


def test_messages_stand_a_blank_line_apart_once_something_was_said() -> None:
    decided = OutputParts()
    gaps = []
    for name, role in (("a", Role.ASSISTANT), ("b", Role.ASSISTANT), ("u", Role.USER), ("c", Role.ASSISTANT)):
        decided.message(e.MessageStarted(message=name, role=role))
        if role is Role.ASSISTANT:
            gaps += [decided.speak(name), decided.speak(f"{name}2")]
    assert gaps == ["", "", SEPARATOR, "", SEPARATOR, ""]
    assert decided.newest == "c2"


def test_a_file_that_comes_before_the_output_is_listed_beside_text_and_is_no_part_of_an_agents_own_document() -> None:
    file = e.ArtifactAdded(artifact=Artifact(id="1", name="out.txt", url="/artifacts/r/1"))
    listed = {"artifacts": [{"name": "out.txt", "url": "/artifacts/r/1"}]}
    assert _document(file, e.PartDelta(part="t", delta="H"), e.PartDelta(part="t", delta="i")) == {
        "message": "Hi",
        **listed,
    }
    assert _document(file, e.PartDelta(part="d", delta={"n": 1})) == {"n": 1}
    assert _document(file, e.PartDelta(part="d", delta=[1])) == [1]
    assert json.loads(_folded(file).finish(e.RunFinished())) == {"message": "", **listed}


@pytest.mark.parametrize("place", ["", "/-/content", "/1", "/artifacts", "/artifacts/-/name"])
def test_a_document_that_has_no_room_for_a_list_of_files_is_its_text_alone(place: str) -> None:
    file = e.ArtifactAdded(artifact=Artifact(id="1", name="out.txt", url="/artifacts/r/1"))
    agent = Agent(name="a", input_schema={}, output_schema={}, text_output=place)
    text = [e.PartDelta(part="t", delta="H"), e.PartDelta(part="t", delta="i")]
    assert _document(file, *text, file, agent=agent) == projection.wrap("Hi", place, {})


def test_a_text_that_is_no_text_is_the_agents_mistake() -> None:
    for before in ([], [e.PartDelta(part="t", delta="a")]):
        with pytest.raises(delta.DeltaError):
            _folded(e.PartStarted(part="t", message="m"), *before, e.PartDelta(part="t", delta={"a": 1}))
