"""What a client's words make of an agent's input, and what is left to ask."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.contract import fitting
from gateway.contract.filling import Filled, Filling, joined
from gateway.contract.fitting import SchemaJudge
from gateway.core import wording
from gateway.core.projection import MESSAGE_SCHEMA, text_pointer

Object = dict[str, Any]

UNITS: Object = {"enum": ["celsius", "fahrenheit"]}
DAYS: Object = {"type": "integer", "minimum": 1, "maximum": 7}


def obj(properties: Object, *required: str, **more: Any) -> Object:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def fill(schema: Object, words: str, document: Any = None) -> Filled:
    found = Filling(schema, text_pointer(schema)).filled(words, document)
    with patch.object(fitting, "quick", return_value=None):
        judged = Filling(schema, text_pointer(schema)).filled(words, document)
    assert replace(judged, fits=found.fits) == found  # by whatever way it is found, but for what the quick one knows
    return found


CITY = obj({"city": {"type": "string"}, "units": UNITS, "days": DAYS}, "city", "units", "days")
SUM = obj({"a": {"type": "number"}, "b": {"type": "number"}}, "a", "b")
NESTED = obj(
    {
        "place": {"$ref": "#/$defs/Place"},
        "tags": {"type": "array", "items": {"enum": ["new", "old", "rare"]}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    },
    "place",
    "tags",
    **{
        "$defs": {
            "Place": obj(
                {"street": {"type": "string"}, "zip": {"type": "integer"}, "country": {"const": "DE"}},
                *("street", "zip", "country"),
            )
        }
    },
)


@pytest.mark.parametrize(
    ("schema", "words", "document"),
    [
        (MESSAGE_SCHEMA, "Hello", {"message": "Hello"}),
        (MESSAGE_SCHEMA, '{"message": "Hello"}', {"message": "Hello"}),
        (MESSAGE_SCHEMA, '{"other": 1}', {"message": '{"other": 1}'}),
        (MESSAGE_SCHEMA, "message: Hello", {"message": "message: Hello"}),
        (MESSAGE_SCHEMA, "[1, 2]", {"message": "[1, 2]"}),
        (MESSAGE_SCHEMA, "", {"message": ""}),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({}, "Hello", "Hello"),
        ({}, "[1, 2]", [1, 2]),
        ({"type": "object"}, "Hello", {"message": "Hello"}),
        ({"type": "object"}, '{"any": 1}', {"any": 1}),
        ({"type": "integer"}, "5", 5),
        ({"type": "array", "items": {"type": "number"}}, "1, 2.5", [1, 2.5]),
        (CITY, '{"city": "Bonn", "units": "celsius", "days": 2}', {"city": "Bonn", "units": "celsius", "days": 2}),
        (
            CITY,
            '```json\n{"city": "Bonn", "units": "celsius", "days": 2}\n```',
            {"city": "Bonn", "units": "celsius", "days": 2},
        ),
        (CITY, "city: Bonn\nunits: celsius\ndays: 2", {"city": "Bonn", "units": "celsius", "days": 2}),
        (
            obj({"message": {"type": "string"}, "title": {"type": "string", "default": "t"}}, "message", "title"),
            "one\ntwo",
            {"message": "one\ntwo", "title": "t"},
        ),
        (SUM, "1\n2.5", {"a": 1, "b": 2.5}),
        (SUM, "b: 1\na = 2", {"a": 2, "b": 1}),
        (obj({"a": {"type": "number"}}, "a"), "7", {"a": 7}),
        (obj({"u": UNITS}, "u"), "2", {"u": "fahrenheit"}),
        (obj({"limit": {"type": "integer"}}), "7", {"limit": 7}),
        (obj({"limit": {"type": "integer"}}), "", {}),
        (obj({"limit": {"type": "integer", "default": 3}, "q": {"type": "string"}}, "q"), "x", {"q": "x", "limit": 3}),
        (obj({"kind": {"const": "k"}, "one": {"enum": [1]}, "q": {"type": "string"}}, "kind", "one", "q"), "x",
         {"kind": "k", "one": 1, "q": "x"}),
        (NESTED, "street: Main\nzip: 10117\ntags: new, rare",
         {"place": {"street": "Main", "zip": 10117, "country": "DE"}, "tags": ["new", "rare"], "note": None}),
    ],
)  # fmt: skip
def test_words_that_say_all_are_the_input(schema: Object, words: str, document: Any) -> None:
    found = fill(schema, words)
    if "note" in schema.get("properties", {}):
        document = {key: value for key, value in document.items() if key != "note"}
    assert (found.document, found.form, found.why, found.unsaid) == (document, None, "", False)


@pytest.mark.parametrize(
    ("schema", "words", "before", "document", "form"),
    [
        (CITY, "Bonn", None, {"city": "Bonn"}, obj({"units": UNITS, "days": DAYS}, "units", "days")),
        (CITY, "Bonn", {"days": 2}, {"city": "Bonn", "days": 2}, obj({"units": UNITS}, "units")),
        (CITY, '{"city": "Bonn", "days": 3}', None, {"city": "Bonn", "days": 3}, obj({"units": UNITS}, "units")),
        (SUM, "add them", None, {}, SUM),
        (SUM, "", None, {}, SUM),
        (SUM, '{"a": 1}', None, {"a": 1}, obj({"b": {"type": "number"}}, "b")),
        (SUM, "a: 1", None, {"a": 1}, obj({"b": {"type": "number"}}, "b")),
        (obj({"n": DAYS}), "all", None, {}, {"type": "object", "properties": {"n": DAYS}}),
        ({"type": "integer"}, "many", None, None, {"type": "integer"}),
        (
            NESTED, '{"tags": ["new"], "place": {"zip": 1}}', None,
            {"tags": ["new"], "place": {"zip": 1, "country": "DE"}},
            obj({"place": obj({"street": {"type": "string"}}, "street")}, "place"),
        ),
    ],
)  # fmt: skip
def test_what_the_words_leave_out_is_the_form(
    schema: Object, words: str, before: Any, document: Any, form: Object
) -> None:
    found = fill(schema, words, before)
    assert (found.document, found.form, found.why) == (document, form, "")


def test_a_value_that_does_not_fit_is_asked_for_again_with_the_reason() -> None:
    found = fill(CITY, '{"city": "Bonn", "units": "kelvin", "days": 9}')
    assert found.document == {"message": "..."} or found.form is not None
    again = Filling(CITY, "/city").completed({"city": "Bonn", "units": "kelvin", "days": 9})
    assert again.document == {"city": "Bonn"}
    assert again.form == obj({"units": UNITS, "days": DAYS}, "units", "days")
    assert "units: 'kelvin'" in again.why and "days: 9" in again.why


def test_words_without_a_place_in_an_input_that_takes_nothing_are_a_loss() -> None:
    found = fill({"type": "object", "properties": {}, "additionalProperties": False}, "hello")
    assert (found.document, found.form, found.unsaid) == ({}, None, True)


def test_of_several_kinds_of_objects_the_one_that_is_meant_is_completed() -> None:
    one = obj({"kind": {"const": "a"}, "x": {"type": "integer"}}, "kind", "x")
    other = obj({"kind": {"const": "b"}, "y": {"type": "integer"}, "z": {"type": "integer"}}, "kind", "y", "z")
    found = fill({"oneOf": [one, other]}, '{"kind": "b", "y": 1}')
    assert (found.document, found.form) == ({"kind": "b", "y": 1}, obj({"z": {"type": "integer"}}, "z"))


def test_a_form_says_in_words_what_it_wants() -> None:
    assert wording.listing(CITY).splitlines() == [
        "- city: text",
        "- units: celsius or fahrenheit",
        "- days: a whole number, at least 1, at most 7",
        "",
        wording.HOW,
    ]


SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 3},
        {"type": "string", "format": "date"},
        {"type": "integer", "minimum": 2, "maximum": 9},
        {"type": "number", "exclusiveMinimum": 0.5},
        {"type": "boolean"},
        {"enum": ["red", "green"]},
        {"enum": ["only"]},
        {"const": 7},
        {"type": "integer", "default": 4},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"type": "array", "items": {"enum": ["p", "q"]}, "minItems": 1},
        {"$ref": "#/$defs/leaf"},
    ]
)


def objects(parts: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    return st.dictionaries(st.sampled_from("abcdef"), parts, max_size=4).flatmap(
        lambda found: st.sets(st.sampled_from(sorted(found)) if found else st.nothing()).map(
            lambda required: obj(found, *sorted(required))
        )
    )


SCHEMAS = objects(st.recursive(SCALARS, objects, max_leaves=6)).map(
    lambda schema: {**schema, "$defs": {"leaf": obj({"n": {"type": "integer"}}, "n")}}
)
VALUES = st.one_of(st.none(), st.integers(0, 9), st.sampled_from(["red", "text", "2026-01-31", "x"]), st.booleans())
DOCUMENTS = st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from("abcdef"), inner, max_size=3))


@settings(max_examples=300, deadline=None)
@example(obj({"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}), "", {"a": {}})
@given(schema=SCHEMAS, words=st.sampled_from(["", "hello", "3", "a: 3", "1\n2", '{"a": 3}']), before=DOCUMENTS)
def test_a_filled_form_always_makes_an_input_that_fits(schema: Object, words: str, before: Any) -> None:
    filling = Filling(schema, text_pointer(schema))
    found = filling.filled(words, before if isinstance(before, dict) else None)
    for _ in range(3):
        if found.form is None:
            break
        answer = wording.example(found.form)
        SchemaJudge(found.form).check(answer, "")
        found = filling.completed(joined(found.document, answer))
    assert found.form is None
    SchemaJudge(schema).check(found.document, "")
