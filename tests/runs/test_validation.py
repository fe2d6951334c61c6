"""What is judged quickly is judged as the full validator judges it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway.agents.validation import TYPES, Schema, fits
from gateway.core.errors import Invalid

MESSAGE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "title": "Input",
    "properties": {"message": {"type": "string", "description": "What to say"}, "times": {"type": ["integer", "null"]}},
    "required": ["message"],
}

names = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
types = st.sampled_from(sorted(TYPES))
schemas: st.SearchStrategy[Any] = st.recursive(
    st.just(True) | st.just(False) | st.fixed_dictionaries({}, optional={"type": types, "minimum": st.integers(0, 3)}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
            "properties": st.dictionaries(names, inner, max_size=3),
            "required": st.lists(names, max_size=2, unique=True),
            "items": inner,
            "title": st.just("Any"),
            "additionalProperties": st.booleans(),
        },
    ),
    max_leaves=5,
)


@given(schemas, values)
def test_whatever_certainly_fits_is_valid(schema: Any, value: Any) -> None:
    Draft202012Validator.check_schema(schema)
    quick = fits(schema)
    if quick is not None and quick(value):
        assert Draft202012Validator(schema).is_valid(value)


def test_a_plain_schema_is_judged_quickly() -> None:
    quick = fits(MESSAGE)
    assert quick is not None
    assert quick({"message": "hi", "times": 3, "more": []})
    assert not quick({"times": 3})
    assert not quick({"message": "hi", "times": True})
    assert not quick([])


@pytest.mark.parametrize("more", [{"minimum": 1}, {"$ref": "#/x"}, {"additionalProperties": False}, {"pattern": "x"}])
def test_a_schema_with_any_other_keyword_is_left_to_the_full_validator(more: dict[str, Any]) -> None:
    assert fits({**MESSAGE, **more}) is None
    assert fits({"properties": {"message": more}}) is None
    assert fits({"items": more}) is None


def test_what_does_not_fit_is_refused_in_the_full_validators_words() -> None:
    schema = Schema(MESSAGE)
    schema.check({"message": "hi"}, "/input")
    with pytest.raises(Invalid) as refused:
        schema.check({"message": 1}, "/input")
    assert refused.value.path == "/input/message"
    assert "is not of type 'string'" in str(refused.value)


def test_an_integer_written_as_a_float_is_one() -> None:
    Schema(MESSAGE).check({"message": "hi", "times": 2.0}, "/input")


def test_a_reference_out_of_the_schema_is_not_followed_and_judges_nothing() -> None:
    fetched: list[str] = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fetched.append(self.path)
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Listening) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            outside = {"type": "object", "properties": {"a": {"$ref": f"http://127.0.0.1:{server.server_port}/a.json"}}}
            Schema(outside).check({"a": 1}, "/input")
        finally:
            server.shutdown()
            thread.join()
    assert fetched == []
