"""What agents of other protocols ask, put to a client of this one: as a choice, as a form, in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from adapters.agent_client.codec import questions
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, Outcome
from tests.adapters.agent_client.codec_cases import ANY, unhurried, valid
from tests.core.json_values import SOUND

OPTIONS = [
    {"optionId": "ok", "name": "Allow", "kind": "allow_once"},
    {"optionId": "ever", "name": "Always", "kind": "allow_always"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
PARAMS = {
    "sessionId": "s",
    "toolCall": {"toolCallId": "c", "title": "Delete /etc", "rawInput": {"path": "/etc"}},
    "options": OPTIONS,
    "_meta": {"x": 1},
}
CANCELLED = {"outcome": {"outcome": "cancelled"}}


def selected(option_id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


def asked(schema: Any, *, kind: str = "input", message: str = "Which?", payload: Any = None) -> Interrupt:
    return Interrupt(id="q", kind=kind, message=message, payload=payload, answer_schema=schema)


def fits(interrupt: Interrupt, answer: Answer) -> bool:
    """Whether the gateway takes the answer."""
    return Draft202012Validator(interrupt.answer_schema).is_valid(answer.value)


# --- what agents of other protocols ask --------------------------------------------------------------------------

_CHOICES = st.one_of(
    st.just({"type": "boolean"}),
    st.lists(ANY, min_size=1, max_size=4).map(lambda values: {"enum": values}),
    st.lists(st.fixed_dictionaries({"const": ANY, "title": SOUND}), min_size=1, max_size=3).map(
        lambda all: {"oneOf": all}
    ),
)
_LEAVES = st.one_of(
    _CHOICES,
    st.just({"type": "string", "title": "T", "minLength": 1, "format": "email", "default": "x"}),
    st.just({"type": "string", "format": "ipv4", "pattern": None}),
    st.just({"type": "integer", "minimum": 0, "default": 2.5}),
    st.just({"type": ["number", "null"]}),
    st.just({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}),
)
_NESTED = st.just({"type": "object", "properties": {"x": {"type": "object"}}})
SCHEMAS: st.SearchStrategy[Any] = (
    _LEAVES
    | _NESTED
    | st.just({})
    | st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": [name for name in required if name in properties],
        },
        st.dictionaries(st.sampled_from(["a", "b", "value"]), _LEAVES | _NESTED, max_size=3),
        st.lists(st.sampled_from(["a", "b", "value"]), unique=True),
    )
)


@unhurried
@given(SCHEMAS, SOUND, ANY)
def test_every_question_that_is_asked_is_one_of_the_protocols(schema: Any, message: str, payload: Any) -> None:
    interrupt = asked(schema, message=message, payload=payload)
    permission = questions.as_permission(interrupt)
    if permission is not None:
        valid("RequestPermissionRequest", {"sessionId": "s", **permission})
        call = json.loads(questions.asked_call(interrupt) or b"")
        valid("SessionUpdate", call)
        assert call["toolCallId"] == permission["toolCall"]["toolCallId"]
        for answer in (Answer(value=1), Answer(outcome=Outcome.DECLINED)):
            end = valid("SessionUpdate", json.loads(questions.answered_call(interrupt, answer) or b""))
            assert end["toolCallId"] == call["toolCallId"]
    form = questions.as_elicitation(interrupt, {"form", "url"})
    if form is not None:
        valid("CreateElicitationRequest", {"sessionId": "s", **form})
    assert questions.as_elicitation(interrupt, ()) is None
    assert message in questions.as_text(interrupt)


@unhurried
@given(_CHOICES, st.booleans(), st.data())
def test_each_option_of_a_choice_stands_for_its_value_and_no_other_does(schema: Any, wrapped: bool, data: Any) -> None:
    whole = {"type": "object", "properties": {"pick": schema}, "required": ["pick"]} if wrapped else schema
    interrupt = asked(whole)
    params = questions.as_permission(interrupt)
    assert params is not None
    ids = [option["optionId"] for option in params["options"]]
    assert len(set(ids)) == len(ids)
    answers = [questions.permission_answer(interrupt, selected(option_id)) for option_id in ids]
    values = [answer.value["pick"] if wrapped else answer.value for answer in answers]
    wanted = (
        [True, False]
        if schema.get("type") == "boolean"
        else schema.get("enum") or [part["const"] for part in schema["oneOf"]]
    )
    assert all(any(delta.same(value, each) for each in values) for value in wanted)
    assert all(any(delta.same(value, each) for each in wanted) for value in values)
    stranger = data.draw(SOUND.filter(lambda text: text not in ids))
    assert questions.permission_answer(interrupt, selected(stranger)).outcome is Outcome.DECLINED


def test_yes_and_no_are_options_to_allow_and_to_reject() -> None:
    params = questions.as_permission(
        asked({"type": "object", "properties": {"approved": {"type": "boolean"}, "why": {}}, "required": ["approved"]})
    )
    assert params is not None
    assert [(option["name"], option["kind"]) for option in params["options"]] == [
        ("Yes", "allow_once"),
        ("No", "reject_once"),
    ]


def test_what_is_no_choice_is_no_permission() -> None:
    schemas: list[Any] = [
        {},
        {"type": "string"},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"enum": []},
    ]
    for schema in schemas:
        assert questions.as_permission(asked(schema)) is None
    two = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}, "required": ["a", "b"]}
    assert questions.as_permission(asked(two)) is None
    assert questions.as_permission(asked({"enum": list(range(31))})) is None


def test_a_form_asks_for_values_that_are_no_text_by_their_names() -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"enum": [1, 2, "1"]}, "sure": {"type": "boolean"}},
        "required": ["size"],
    }
    form = questions.as_elicitation(asked(schema), {"form"})
    assert form is not None
    assert form["requestedSchema"]["properties"]["size"]["oneOf"] == [
        {"const": "1", "title": "1"},
        {"const": "2", "title": "2"},
        {"const": "1'", "title": "1"},
    ]
    accepted = {"action": "accept", "content": {"size": "1'", "sure": True}}
    assert questions.elicitation_answer(asked(schema), accepted).value == {"size": "1", "sure": True}
    accepted = {"action": "accept", "content": {"size": "2"}}
    assert questions.elicitation_answer(asked(schema), accepted).value == {"size": 2}


def test_one_plain_value_is_asked_with_a_form_of_one_field() -> None:
    interrupt = asked({"type": "integer"})
    form = questions.as_elicitation(interrupt, {"form"})
    assert form is not None and form["requestedSchema"]["required"] == ["value"]
    assert questions.elicitation_answer(interrupt, {"action": "accept", "content": {"value": 3.0}}).value == 3
    assert questions.elicitation_answer(interrupt, {"action": "accept"}).outcome is Outcome.CANCELLED


def test_what_no_form_can_hold_is_not_asked_with_one() -> None:
    nested = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}, "required": ["a"]}
    assert questions.as_elicitation(asked(nested), {"form"}) is None
    optional = {"type": "object", "properties": {"a": {"type": "object"}, "b": {"type": "string"}}, "required": ["b"]}
    form = questions.as_elicitation(asked(optional), {"form"})
    assert form is not None and list(form["requestedSchema"]["properties"]) == ["b"]


# --- in words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["ok", "OK", " Allow ", "allow", "1", "1."])
def test_a_choice_is_named_by_value_label_or_number(text: str) -> None:
    assert questions.answer_from_text(questions.permission(PARAMS, "q"), text) == Answer(value={"optionId": "ok"})


@pytest.mark.parametrize("text", ["", "4", "0", "yes", "al", "Allow Always", "-1", "99999999999999999999", "²"])
def test_what_names_no_option_is_asked_again(text: str) -> None:
    with pytest.raises(Invalid, match="Allow, Always, Reject"):
        questions.answer_from_text(questions.permission(PARAMS, "q"), text)


def test_a_name_that_two_options_have_is_unclear() -> None:
    same = [{**OPTIONS[0], "name": "Go"}, {**OPTIONS[2], "name": "Go"}]
    with pytest.raises(Invalid):
        questions.answer_from_text(questions.permission({**PARAMS, "options": same}, "q"), "go")


@unhurried
@given(_CHOICES, st.data())
def test_every_option_can_be_named_by_its_number_unless_that_is_a_value(schema: Any, data: Any) -> None:
    interrupt = asked(schema)
    params = questions.as_permission(interrupt)
    assert params is not None
    names = {name for option in params["options"] for name in (option["optionId"], option["name"])}
    for number, option in enumerate(params["options"], 1):
        if str(number) in names:
            continue
        by_number = questions.answer_from_text(interrupt, str(number))
        assert delta.same(by_number.value, questions.permission_answer(interrupt, selected(option["optionId"])).value)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "boolean"}, "false", False),
        ({"enum": [2, 1]}, "1", 1),
        ({"type": "string"}, " as it is ", " as it is "),
        ({}, "anything", "anything"),
        ({"type": "object", "properties": {"input": {"type": "string"}}}, "do it", {"input": "do it"}),
        ({"type": "object", "properties": {"input": {"type": "string"}}}, '{"input": "x"}', {"input": "x"}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, "7", {"n": 7}),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, '```json\n{"a": 1}\n```', {"a": 1}),
    ],
)
def test_an_answer_in_words(schema: Any, text: str, value: Any) -> None:
    assert questions.answer_from_text(asked(schema), text) == Answer(value=value)


def test_words_where_json_was_asked_for_are_asked_again() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    with pytest.raises(Invalid):
        questions.answer_from_text(asked(schema), "seven")
    assert "- a: a whole number, optional\n" in questions.as_text(asked(schema))
    assert questions.answer_from_text(asked(schema), "b: 7").value == {"b": 7}


def test_a_question_in_words_lists_what_can_be_answered() -> None:
    text = questions.as_text(questions.permission(PARAMS, "q"))
    assert "Delete /etc" in text and "1. Allow" in text and "3. Reject" in text


def test_a_question_about_an_agents_own_tool_call_needs_no_other() -> None:
    interrupt = questions.permission(PARAMS, "q")
    assert questions.asked_call(interrupt) is None and questions.answered_call(interrupt, Answer()) is None
