"""What agents of other protocols ask, put to a client of this one: as a choice, as a form, in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec import questions
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, Outcome
from tests.adapters.agent_client.codec_cases import ANY, PARAMS, selected, unhurried, valid
from tests.adapters.agent_client.outbound_agent import OPTIONS
from tests.core.json_values import SOUND


def asked(schema: Any, *, kind: str = "input", message: str = "Which?", payload: Any = None) -> Interrupt:
    return Interrupt(id="q", kind=kind, message=message, payload=payload, answer_schema=schema)


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


def test_a_question_about_an_agents_own_tool_call_needs_no_other() -> None:
    interrupt = questions.permission(PARAMS, "q")
    assert questions.asked_call(interrupt) is None and questions.answered_call(interrupt, Answer()) is None
