"""Values held against schemas that others wrote: nothing is fetched, and a schema that cannot be applied says so."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

import pytest

from adapters.agent_connect.decode import RunQuestion, interrupt
from gateway.contract.fitting import Inapplicable, SchemaJudge
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
