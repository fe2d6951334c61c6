"""Questions as forms and errors, and the calls that answer them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from gateway.core import errors
from gateway.core.types import Interrupt, Outcome, RunStatus
from gateway.mcp.runs import questions
from tests.mcp.runs.documents import MESSAGE, run_of

CHOICE = Interrupt(id="q.1", kind="approve", message="May I?", payload={"x": 1}, answer_schema={"type": "boolean"})
FREE = Interrupt(
    id="q2", kind="input", answer_schema={"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]}
)


def plain(value: Any) -> Any:
    return json.decode(json.encode(value))


# --- asking ------------------------------------------------------------------------------------------------------


def test_a_client_that_takes_none_gets_the_question_as_an_error_with_a_handle() -> None:
    run = run_of(MESSAGE, b"null", status=RunStatus.INTERRUPTED)
    error = questions.interrupted_error(run, CHOICE, b'{"message":"so far"}').error
    assert (error.code, error.message) == (-32050, "May I?")
    assert plain(error.data) == {
        "interrupt": {
            "id": "q.1",
            "kind": "approve",
            "message": "May I?",
            "payload": {"x": 1},
            "answerSchema": {"type": "boolean"},
        },
        "resume": "r1.q.1",
        "run": "r1",
        "output": {"message": "so far"},
    }
    bare = questions.interrupted_error(run, FREE).error
    assert bare.message == "the agent asks: input" and "output" not in bare.data


# --- answering ---------------------------------------------------------------------------------------------------


def test_a_handle_names_run_and_question_whatever_is_in_them() -> None:
    assert questions.resumed({"interlingua/resume": questions.handle("r1", "q.1")}) == ("r1", "q.1")
    assert questions.resumed({"other": 1}) is None


@pytest.mark.parametrize("handle", ["", "r1", "r1.", ".q", 5, None, ["r1.q"], {}])
def test_a_handle_that_is_none_is_refused(handle: Any) -> None:
    with pytest.raises(errors.Invalid) as refused:
        questions.resumed({"interlingua/resume": handle})
    assert refused.value.path == "/_meta/interlingua~1resume"


@pytest.mark.parametrize(
    ("interrupt", "value", "answer"),
    [
        (CHOICE, {"answer": True}, True),
        (CHOICE, True, True),
        (CHOICE, {"answer": True, "more": 1}, {"answer": True, "more": 1}),
        (FREE, {"a": {}}, {"a": {}}),
        (FREE, {"answer": {"a": {}}}, {"a": {}}),
        (Interrupt(id="q", kind="k", answer_schema={"properties": {"answer": {}}}), {"answer": 1}, {"answer": 1}),
        (Interrupt(id="q", kind="k"), {"answer": "yes"}, "yes"),
    ],
)
def test_an_answer_that_is_no_object_comes_in_one(interrupt: Interrupt, value: Any, answer: Any) -> None:
    given = questions.given(interrupt, value)
    assert given.outcome is Outcome.ANSWERED and given.value == answer and type(given.value) is type(answer)
