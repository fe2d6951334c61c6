"""Values held against schemas that others wrote: nothing is fetched, and a schema that cannot be applied says so."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from adapters.agent_connect.decode import RunQuestion, interrupt
from gateway.contract.fitting import LIMITS, TYPES, Inapplicable, SchemaJudge, quick
from gateway.core.errors import Invalid
from gateway.core.types import Agent, InterruptSpec

COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}}


def test_what_fits_has_no_mistake_and_what_does_not_has_its_most_telling_one() -> None:
    judge = SchemaJudge(COUNT)
    assert judge.fits({"n": 1}) and judge.misfit({"n": 1}) is None
    assert not judge.fits({"n": "x"})
    found = judge.misfit({"n": "x"})
    assert found is not None and list(found.absolute_path) == ["n"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/nowhere"},
        {"$ref": "other.json"},
        {"pattern": "("},
        {"type": "thing"},
        {"required": 5},
        {"$ref": "#"},
    ],
)
def test_a_schema_that_cannot_be_applied_says_so(schema: dict[str, Any]) -> None:
    for judged in (SchemaJudge.fits, SchemaJudge.misfit):
        with pytest.raises(Inapplicable):
            judged(SchemaJudge(schema), "text" if "pattern" in schema else {"a": 1})


def test_an_agent_cannot_make_the_gateway_fetch_what_its_schema_refers_to() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        elsewhere = {"$ref": f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"}
        with pytest.raises(Inapplicable):
            SchemaJudge(elsewhere).fits(1)
        spec = InterruptSpec(kind="approval", payload_schema=elsewhere, answer_schema={})
        agent = Agent(name="a", input_schema={}, output_schema={}, interrupts=(spec,))
        assert interrupt(RunQuestion("?"), agent, "run", 0).kind == "input"
        with pytest.raises(BlockingIOError):
            listener.accept()


DOUBLING: dict[str, Any] = {
    "$ref": "#/$defs/0",
    "$defs": {
        **{str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}, {"$ref": f"#/$defs/{n + 1}"}]} for n in range(40)},
        "40": {},
    },
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (DOUBLING, {}),
        ({"pattern": "^(a|a|b?)*c$"}, "a" * 60 + "b"),
        ({"patternProperties": {"^(a|a|b?)*c$": {}}}, {"a" * 60 + "b": 1}),
        ({"patternProperties": {"^(a|a|b?)*c$": {}}, "additionalProperties": False}, {"a" * 60 + "b": 1}),
        ({"patternProperties": {"^(a|a|b?)*c$": {}}, "unevaluatedProperties": False}, {"a" * 60 + "b": 1}),
        ({"uniqueItems": True}, [{"n": n} for n in range(20_000)]),
    ],
)
def test_a_schema_cannot_hold_the_gateway_up(schema: dict[str, Any], value: Any) -> None:
    before = time.thread_time()
    for judged in (SchemaJudge.fits, SchemaJudge.misfit):
        with contextlib.suppress(Inapplicable):
            judged(SchemaJudge(schema), value)
    assert time.thread_time() - before < 10


@pytest.mark.parametrize(
    ("schema", "good", "bad", "told"),
    [
        ({"pattern": r"^\p{Lu}\d+$"}, "Ä1", "a1", "'a1' does not match"),
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"n1": 1, "x": "y"}, {"n1": "x"}, "'x' is not of type"),
        (
            {"properties": {"a": {}}, "patternProperties": {"^n": {}}, "additionalProperties": False},
            {"a": 1, "n1": 1},
            {"a": 1, "x": 1},
            "('x' was unexpected)",
        ),
        (
            {"patternProperties": {"^n": {}}, "additionalProperties": {"type": "null"}},
            {"n": 1, "x": None},
            {"x": 1},
            "1",
        ),
        ({"uniqueItems": True}, [1, True, {"a": 1}], [{"a": 1}, {"a": 1}], "non-unique"),
    ],
)
def test_what_is_judged_with_a_limit_is_judged_as_the_draft_says(
    schema: dict[str, Any], good: Any, bad: Any, told: str
) -> None:
    judge = SchemaJudge(schema)
    assert judge.misfit(good) is None
    found = judge.misfit(bad)
    assert found is not None and told in found.message


# --- what is judged quickly is judged as the full validator judges it ------------------------------------------------


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
    st.just(True)
    | st.just(False)
    | st.fixed_dictionaries(
        {}, optional={"type": types, "multipleOf": st.just(2), "enum": st.lists(values, max_size=3)}
    )
    | st.fixed_dictionaries({}, optional={name: st.integers(0, 3) for name in LIMITS}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
            "properties": st.dictionaries(names, inner, max_size=3),
            "required": st.lists(names, max_size=2, unique=True),
            "items": inner,
            "title": st.just("Any"),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "additionalProperties": st.booleans(),
        },
    ),
    max_leaves=5,
)


@given(schemas, values)
def test_whatever_certainly_fits_is_valid(schema: Any, value: Any) -> None:
    Draft202012Validator.check_schema(schema)
    found = quick(schema)
    if found is not None and found(value):
        assert Draft202012Validator(schema).is_valid(value)


def test_a_plain_schema_is_judged_quickly() -> None:
    found = quick(MESSAGE)
    assert found is not None
    assert found({"message": "hi", "times": 3, "more": []})
    assert not found({"times": 3})
    assert not found({"message": "hi", "times": True})
    assert not found([])


@pytest.mark.parametrize("more", [{"multipleOf": 1}, {"$ref": "#/x"}, {"const": "hi"}, False])
def test_a_schema_with_any_other_keyword_is_left_to_the_full_validator(more: Any) -> None:
    assert more is False or quick({**MESSAGE, **more}) is None
    for schema, value in ({"properties": {"message": more}}, {"message": "hi"}), ({"items": more}, ["hi"]):
        certainly = quick(schema)
        assert certainly is not None
        assert not certainly(value)


@pytest.mark.parametrize("value", ["a", "a\n", "ab", "", 5])
def test_a_pattern_is_judged_quickly_and_its_end_is_the_value_s(value: Any) -> None:
    schema = {"pattern": "^[a-c]$"}
    certainly = quick(schema)
    assert certainly is not None
    assert certainly(value) is SchemaJudge(schema).fits(value) is (value in ("a", 5))


def test_what_is_no_pattern_is_left_to_the_full_validator() -> None:
    certainly = quick({"pattern": "("})
    assert certainly is not None and not certainly("a")


def test_what_has_nothing_where_a_schema_says_much_is_judged_quickly() -> None:
    more = {"properties": {**MESSAGE["properties"], "when": {"multipleOf": 1}}, "additionalProperties": False}
    certainly = quick({**MESSAGE, **more})
    assert certainly is not None
    assert [certainly({"message": "hi", **rest}) for rest in ({}, {"when": 2}, {"else": 2})] == [True, False, False]


def test_what_does_not_fit_is_refused_in_the_full_validators_words() -> None:
    judge = SchemaJudge(MESSAGE)
    judge.check({"message": "hi"}, "/input")
    with pytest.raises(Invalid) as refused:
        judge.check({"message": 1}, "/input")
    assert refused.value.path == "/input/message"
    assert "is not of type 'string'" in str(refused.value)


def test_an_integer_written_as_a_float_is_one() -> None:
    SchemaJudge(MESSAGE).check({"message": "hi", "times": 2.0}, "/input")


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
            SchemaJudge(outside).check({"a": 1}, "/input")
        finally:
            server.shutdown()
            thread.join()
    assert fetched == []
