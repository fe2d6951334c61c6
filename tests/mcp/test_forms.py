"""Elicitation: questions as forms of every revision, and what is filled in as answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, JsonObject, Outcome
from gateway.mcp import forms
from gateway.mcp.forms import (
    as_elicitation,
    dialect,
    elicitation,
    elicitation_answer,
    elicitation_modes,
    elicitation_result,
)
from tests.support.mcp_schemas import valid

WITH_FORMS = ("2025-06-18", "2025-11-25", "2026-07-28")
BOTH = frozenset((forms.FORM, forms.URL))
unhurried = settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])


def asks(schema: JsonObject, **fields: Any) -> Interrupt:
    return Interrupt(id="q1", kind=fields.pop("kind", "input"), message="Which?", answer_schema=schema, **fields)


def form_of(interrupt: Interrupt, version: str, modes: frozenset[str] = BOTH) -> JsonObject | None:
    """The form, which is one of that revision."""
    params = as_elicitation(interrupt, modes, dialect(version))
    if params is not None:
        valid(version, "ElicitRequest", {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params})
    return params


def accepted(interrupt: Interrupt, **content: Any) -> Answer:
    return elicitation_answer(interrupt, {"action": "accept", "content": content})


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("version", WITH_FORMS)
def test_a_number_is_a_field_with_its_bounds(kind: str, version: str) -> None:
    schema = {"type": "object", "properties": {"depth": {"type": kind, "minimum": 1, "maximum": 9}}}
    form = form_of(asks(schema), version)
    assert form is not None
    assert form["requestedSchema"]["properties"] == {"depth": {"type": kind, "minimum": 1, "maximum": 9}}


# --- which questions have a form ---------------------------------------------------------------------------------

TEXTS = st.text("ab é", max_size=4)
FIELDS: Any = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={
            "title": TEXTS,
            "description": TEXTS,
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(3, 9),
            "default": TEXTS | st.integers(),
            "format": st.sampled_from(["email", "uri", "date", "uuid"]),
            "pattern": st.just(".*"),
        },
    ),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={"minimum": st.integers(-3, 0), "maximum": st.integers(0, 3), "default": st.integers(0, 1)},
    ),
    st.fixed_dictionaries({"type": st.just("boolean")}, optional={"default": st.booleans()}),
    st.fixed_dictionaries({"enum": st.lists(TEXTS | st.integers(0, 3) | st.booleans(), min_size=1, max_size=4)}),
    st.fixed_dictionaries(
        {
            "oneOf": st.lists(
                st.fixed_dictionaries({"const": TEXTS | st.integers(0, 3)}, optional={"title": TEXTS}),
                min_size=1,
                max_size=3,
                unique_by=lambda part: repr(part["const"]),
            )
        },
        optional={"default": TEXTS},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("array"),
            "items": st.fixed_dictionaries({"enum": st.lists(st.integers(0, 5) | TEXTS, min_size=1, max_size=3)}),
        },
        optional={"minItems": st.just(0), "maxItems": st.integers(1, 3)},
    ),
    st.just({"type": "object"}),
    st.just({}),
    st.just(True),
)
QUESTIONS = FIELDS.filter(lambda each: each is not True) | st.dictionaries(
    st.sampled_from(["a", "b", "c d"]), FIELDS, max_size=3
).flatmap(
    lambda properties: st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.just(properties)},
        optional={"required": st.lists(st.sampled_from(sorted(properties) or ["x"]), max_size=2)},
    )
)


def _filled(field: JsonObject, pick: int) -> Any:
    """What a client puts into a field."""
    options = field.get("enum") or [each["const"] for each in field.get("oneOf", [])]
    if options:
        return options[pick % len(options)]
    match field["type"]:
        case "boolean":
            return bool(pick % 2)
        case "integer" | "number":
            return field.get("maximum", 1)
        case "array":
            items = field["items"]
            return [(items.get("enum") or [each["const"] for each in items["anyOf"]])[0]]
    return "abc"


@pytest.mark.parametrize("version", WITH_FORMS)
@unhurried
@given(schema=QUESTIONS, pick=st.integers(0, 5))
def test_every_form_is_one_of_its_revision_and_what_is_filled_in_fits_the_question(
    version: str, schema: JsonObject, pick: int
) -> None:
    interrupt = asks(schema)
    params = form_of(interrupt, version)
    if params is None:
        return
    content = {name: _filled(field, pick) for name, field in params["requestedSchema"]["properties"].items()}
    valid(version, "ElicitResult", {"action": "accept", "content": content})
    answer = accepted(interrupt, **content)
    assert answer.outcome is Outcome.ANSWERED
    Draft202012Validator(schema).validate(answer.value)


def test_a_field_is_asked_as_far_as_the_revision_knows_it() -> None:
    schema = {
        "type": "object",
        "properties": {
            "size": {"oneOf": [{"const": 1, "title": "One"}, {"const": 2, "title": "Two"}], "default": 2},
            "tags": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 1},
            "name": {"type": "string", "default": "me", "maxLength": 4},
        },
        "required": ["size"],
    }
    new, old = form_of(asks(schema), "2025-11-25"), form_of(asks(schema), "2025-06-18")
    assert new is not None and old is not None
    assert new["mode"] == "form"
    assert new["requestedSchema"]["properties"] == {
        "size": {
            "type": "string",
            "oneOf": [{"const": "1", "title": "One"}, {"const": "2", "title": "Two"}],
            "default": "2",
        },
        "tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "maxItems": 1},
        "name": {"type": "string", "default": "me", "maxLength": 4},
    }
    assert "mode" not in old
    assert old["requestedSchema"] == {
        "type": "object",
        "properties": {
            "size": {"type": "string", "enum": ["1", "2"], "enumNames": ["One", "Two"]},
            "name": {"type": "string", "maxLength": 4},
        },
        "required": ["size"],
    }
    assert accepted(asks(schema), size="2", name="x").value == {"size": 2, "name": "x"}


def test_a_value_that_may_be_null_is_left_out_or_of_its_one_other_type() -> None:
    fields: JsonObject = {"n": {"type": ["integer", "null"]}, "x": {"type": ["string", "integer"]}}
    form = form_of(asks({"type": "object", "properties": fields}), "2025-11-25")
    assert form is not None and form["requestedSchema"]["properties"] == {"n": {"type": "integer"}}
    answer = accepted(asks({"type": "object", "properties": fields}), n=4.0)
    assert answer.value == {"n": 4} and type(answer.value["n"]) is int
    for schema in (fields["n"], {"anyOf": [{"type": "integer"}, {"type": "null"}]}):
        form = form_of(asks(schema), "2025-11-25")
        assert form is not None and form["requestedSchema"]["properties"] == {"value": {"type": "integer"}}
        assert type(accepted(asks(schema), value=4.0).value) is int


def test_a_question_that_needs_what_a_form_cannot_ask_has_none() -> None:
    several = {"type": "object", "properties": {"t": {"type": "array", "items": {"enum": ["x"]}}}, "required": ["t"]}
    assert form_of(asks(several), "2025-06-18") is None
    assert form_of(asks(several), "2025-11-25") is not None
    nested = {"type": "object", "properties": {"t": {"type": "object"}}, "required": ["t"]}
    assert form_of(asks(nested), "2025-11-25") is None
    assert form_of(asks({"type": "string"}), "2025-11-25", frozenset(("url",))) is None


def test_a_plain_value_is_the_one_field_of_its_form() -> None:
    interrupt = asks({"type": "boolean"})
    params = form_of(interrupt, "2025-06-18")
    assert params == {
        "message": "Which?",
        "requestedSchema": {"type": "object", "properties": {"value": {"type": "boolean"}}, "required": ["value"]},
    }
    assert accepted(interrupt, value=False).value is False
    assert accepted(interrupt).outcome is Outcome.CANCELLED


@pytest.mark.parametrize(
    "result", [{"action": "cancel"}, {"action": "decline"}, {}, None, "accept", {"action": "accept "}, {"action": True}]
)
def test_nothing_but_accept_is_an_answer(result: Any) -> None:
    answer = elicitation_answer(asks({"type": "boolean"}), result)
    assert answer.outcome is (Outcome.DECLINED if result == {"action": "decline"} else Outcome.CANCELLED)


# --- what clients declare ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "declared", "modes"),
    [
        ("2025-03-26", {}, set()),
        ("2025-06-18", {}, {"form"}),
        ("2025-06-18", {"url": {}}, {"form"}),
        ("2025-06-18", None, set()),
        ("2025-11-25", {}, {"form"}),
        ("2025-11-25", {"form": {}, "url": {}}, {"form", "url"}),
        ("2025-11-25", {"url": {}}, {"url"}),
        ("2025-11-25", {"form": None}, set()),
        ("2026-07-28", {"form": {}}, {"form"}),
    ],
)
def test_a_client_is_asked_only_in_modes_that_it_declared(version: str, declared: Any, modes: set[str]) -> None:
    assert elicitation_modes({"elicitation": declared}, version) == modes
    assert elicitation_modes({}, version) == set()


# --- forms that come from servers --------------------------------------------------------------------------------

OLD = {
    "message": "Which size?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
            "count": {"type": "integer"},
            "share": {"type": "number"},
        },
        "required": ["size"],
    },
}
NEW = {
    "mode": "form",
    "message": "Which sizes?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "one": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}], "default": "s"},
            "more": {"type": "array", "items": {"anyOf": [{"const": "m", "title": "Medium"}]}},
        },
    },
    "_meta": {"x/y": 1},
}
LINK = {"mode": "url", "message": "Sign in", "url": "https://x/1", "elicitationId": "e1"}


@pytest.mark.parametrize("params", [OLD, NEW])
def test_a_form_is_shown_word_for_word_to_a_client_that_knows_it(params: JsonObject) -> None:
    interrupt = elicitation(params, "q1")
    assert interrupt.kind == "elicitation" and interrupt.message == params["message"]
    assert form_of(interrupt, "2025-11-25") == {"mode": "form", **params}
    result = {"action": "accept", "content": {"size": "m"}, "_meta": {"a": 1}}
    assert elicitation_result(elicitation_answer(interrupt, result), interrupt.payload) == result


def test_objects_inside_are_fields_of_their_own_and_are_put_together_again() -> None:
    place = {"type": "object", "properties": {"zip": {"type": "integer"}, "street": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/place"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["place"],
        "$defs": {"place": {**place, "required": ["zip"]}},
    }
    asked = Interrupt(id="q", kind="input", answer_schema=schema)
    params = as_elicitation(asked, {forms.FORM}, dialect("2025-11-25"))
    assert params is not None and params["requestedSchema"]["required"] == ["place.zip"]
    assert list(params["requestedSchema"]["properties"]) == ["place.zip", "place.street", "note"]
    answer = elicitation_answer(asked, {"action": "accept", "content": {"place.zip": 10117.0, "note": "n"}})
    assert answer.value == {"place": {"zip": 10117}, "note": "n"}


def test_a_form_is_made_anew_for_a_client_of_an_older_revision() -> None:
    titled = {"type": "object", "properties": {"one": NEW["requestedSchema"]["properties"]["one"]}}
    for asked in (NEW, {**NEW, "requestedSchema": titled}):
        form = form_of(elicitation(asked, "q1"), "2025-06-18")
        assert form is not None
        named = {"type": "string", "enum": ["s"], "enumNames": ["Small"]}
        assert form["requestedSchema"]["properties"] == {"one": named}
    assert form_of(elicitation(OLD, "q1"), "2025-06-18") == OLD


def test_what_is_null_or_unknown_in_a_form_says_nothing_of_its_answer() -> None:
    fields = {"a": {"type": "number", "minimum": None, "maximum": 3, "_meta": {}}, "b": {"type": "tuple"}, "c": 7}
    interrupt = elicitation({"message": "m", "requestedSchema": {"type": "object", "properties": fields}}, "q1")
    assert interrupt.answer_schema["properties"] == {"a": {"type": "number", "maximum": 3}, "b": {}, "c": {}}


@pytest.mark.parametrize("payload", [{"mode": "form"}, {"mode": "video"}, {"requestedSchema": []}])
def test_what_is_called_an_elicitation_and_is_none_is_asked_like_any_other_question(payload: JsonObject) -> None:
    form = form_of(asks({"type": "boolean"}, kind="elicitation", payload=payload), "2025-11-25")
    assert form is not None and form["requestedSchema"]["properties"] == {"value": {"type": "boolean"}}


def test_what_belongs_to_the_servers_own_request_is_not_passed_on() -> None:
    params = {**OLD, "task": {"ttl": 1}, "_meta": {"progressToken": 7, "x/y": 1}}
    form = form_of(elicitation(params, "q1"), "2025-11-25")
    assert form == {"mode": "form", **OLD, "_meta": {"x/y": 1}}


def test_a_link_is_opened_only_by_a_client_that_opens_links() -> None:
    interrupt, unnamed = elicitation(LINK, "q1"), {key: LINK[key] for key in ("mode", "message", "url")}
    assert form_of(interrupt, "2025-11-25") == LINK
    assert form_of(interrupt, "2025-11-25", frozenset(("form",))) is None
    assert form_of(elicitation(unnamed, "q9"), "2025-11-25") == {**LINK, "elicitationId": "q9"}
    assert form_of(elicitation(unnamed, "q9"), "2026-07-28") == unnamed
    assert elicitation_result(elicitation_answer(interrupt, {"action": "accept"}), interrupt.payload) == {
        "action": "accept"
    }


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "/message"),
        ({"message": 1, "requestedSchema": {}}, "/message"),
        ({"message": "m"}, "/requestedSchema"),
        ({"message": "m", "requestedSchema": {"properties": []}}, "/requestedSchema"),
        ({"message": "m", "mode": "url"}, "/url"),
        ({"message": "m", "mode": "video"}, "/mode"),
    ],
)
def test_an_elicitation_that_is_none_is_refused_with_the_place(params: JsonObject, path: str) -> None:
    with pytest.raises(Invalid) as refused:
        elicitation(params, "q")
    assert refused.value.path == path


@pytest.mark.parametrize("value", [None, "text", {"a": {"nested": 1}, "b": [1], "c": "kept", "d": 1.5}])
def test_the_answer_of_any_client_is_content_that_a_form_may_have(value: Any) -> None:
    result = elicitation_result(Answer(value=value), {"mode": "form"})
    assert result["action"] == "accept"
    valid("2025-11-25", "ElicitResult", {**result, "content": {k: v for k, v in result["content"].items() if k != "d"}})
    assert result["content"] == ({"c": "kept", "d": 1.5} if isinstance(value, dict) else {})


def test_no_answer_is_said_as_what_it_is() -> None:
    assert elicitation_result(forms.DECLINED, {}) == {"action": "decline"}
    assert elicitation_result(forms.CANCELLED, {}) == {"action": "cancel"}
