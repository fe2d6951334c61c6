"""Questions as the terminal shows them: what may be typed, and which answer it makes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.cli.talk import as_answer, asks

COLOURS = {"oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}, {"const": 3}]}
INSIDE = {"type": "object", "properties": {"colour": COLOURS}, "required": ["colour"]}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (COLOURS, ("r (Red)", "g (Green)", "3")),
        (INSIDE, ("r (Red)", "g (Green)", "3")),
        ({"anyOf": [{"const": True}, {"const": False}]}, ("yes", "no")),
        ({"type": "boolean"}, ("yes", "no")),
        ({"type": "object", "properties": {"sure": {"type": "boolean"}}}, ("yes", "no")),
        ({"enum": ["a", 2, None], "enumNames": ["A", "Two", "None"]}, ("a (A)", "2 (Two)", "null (None)")),
        ({"type": "string"}, ()),
    ],
)
def test_a_question_lists_the_values_that_its_answer_may_be(schema: dict[str, Any], shown: tuple[str, ...]) -> None:
    assert asks("?", schema).choices == shown


def test_values_that_only_the_payload_offers_are_listed_by_their_names() -> None:
    schema = {"type": "object", "properties": {"optionId": {"type": "string"}}, "required": ["optionId"]}
    payload = {"options": [{"optionId": "y", "name": "Yes, do"}, {"optionId": "n"}]}
    assert asks(payload, schema).choices == ("y (Yes, do)", "n")


@pytest.mark.parametrize(
    ("typed", "schema", "answer"),
    [
        ("r", COLOURS, "r"),
        ("Green", COLOURS, "g"),
        ("3", COLOURS, 3),
        ("1", COLOURS, 1),
        ("g", INSIDE, {"colour": "g"}),
        ("yes", {"type": "boolean"}, True),
        ("n", {"type": "boolean"}, False),
        ("1", {"type": "boolean"}, 1),
        ("3", {"type": "string"}, "3"),
        ("3", {"type": "string", "enum": ["3"]}, "3"),
        ("null", {"enum": ["a", None]}, None),
    ],
)
def test_what_is_typed_is_the_value_that_it_names(typed: str, schema: dict[str, Any], answer: Any) -> None:
    assert as_answer(typed, schema) == answer
    assert type(as_answer(typed, schema)) is type(answer)
