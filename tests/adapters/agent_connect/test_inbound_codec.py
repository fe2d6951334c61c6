"""What the codec makes of records: statuses, errors, outputs, answers."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from adapters.agent_connect import codec
from gateway.core import errors
from gateway.core.types import Failure, Interrupt, RunStatus, agent_id
from tests.adapters.agent_connect.api import hold
from tests.adapters.agent_connect.test_inbound_encoder import RUN

MINE = replace(RUN, request=replace(RUN.request, creation={"agent_id": "x", "input": {"message": "hi"}}))


def waited(run: Any, **how: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(codec.encode_wait(run, **how))
    return told


def test_every_status_is_one_of_the_five() -> None:
    five = {"pending", "error", "success", "timeout", "interrupted"}
    assert set(codec.STATUS) == set(RunStatus)
    assert set(codec.STATUS.values()) == five == set(codec.STATUSES)
    assert {status for wanted in codec.STATUSES.values() for status in wanted} == set(RunStatus)


def every_error(cls: type[errors.InterlinguaError] = errors.InterlinguaError) -> list[type[errors.InterlinguaError]]:
    ours = [sub for sub in cls.__subclasses__() if sub.__module__ == errors.__name__]
    return [cls, *(found for sub in ours for found in every_error(sub))]


@pytest.mark.parametrize("cls", every_error())
def test_every_error_of_the_tree_has_a_status_and_a_code(cls: type[errors.InterlinguaError]) -> None:
    assert 400 <= errors.lookup(codec.ERRORS, cls("x")) < 600
    assert codec.errcode(Failure(code=cls.code, message="x")) == codec.ERRORS[cls]


def test_an_error_tells_its_path_once_and_its_detail_never() -> None:
    assert codec.error_text(errors.Invalid("no", path="/a/b", detail="secret")) == "/a/b: no"
    assert codec.error_text(errors.Invalid("/a/b: no", path="/a/b")) == "/a/b: no"
    assert codec.error_text(errors.NotFound("gone")) == "gone"


def test_the_output_document_is_spliced_and_never_parsed() -> None:
    odd = b'{"b" : 1.0,"a":12345678901234567890123}'
    raw = codec.encode_wait(replace(MINE, status=RunStatus.SUCCESS, output=msgspec.Raw(odd)), bare=True)
    assert raw.count(odd) == 2


def test_a_result_without_a_document_has_no_values() -> None:
    assert waited(replace(MINE, status=RunStatus.SUCCESS))["output"] == {"type": "result"}


def test_a_timeout_and_a_cancel_are_errors_that_say_why() -> None:
    late = replace(MINE, status=RunStatus.TIMEOUT, failure=Failure(code="agent_timeout", message="too late"))
    assert waited(late)["output"]["description"] == "too late"
    gone = replace(MINE, status=RunStatus.CANCELLED, cancel_reason="the client has gone")
    assert waited(gone)["output"]["description"] == "cancelled: the client has gone"
    assert waited(gone)["run"]["status"] == "error"


def test_a_run_of_another_protocol_is_shown_as_the_request_it_would_have_been() -> None:
    foreign = replace(MINE, request=replace(MINE.request, protocol="other", input={"message": "hi"}, config={"a": 1}))
    told = hold(json.loads(codec.encode_run(foreign)), "RunStateless")
    assert told["creation"] == {
        "agent_id": agent_id("scripted"),
        "input": {"message": "hi"},
        "metadata": {},
        "config": {"configurable": {"a": 1}},
    }


# --- questions and answers ---

ASKED = Interrupt(
    id="1", kind="approval", payload={"q": 1}, answer_schema={"properties": {"approved": {"type": "boolean"}}}
)
NAMED = Interrupt(id="2", kind="name", answer_schema={"properties": {"name": {"type": "string"}}})


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ({"q": 1}, {"approval": {"q": 1}}),
        ("text", {"approval": "text"}),
        (None, {"approval": None}),
        ({"approval": {"q": 1}}, {"approval": {"q": 1}}),
        ({"interrupt_type": "approval", "q": 1}, {"interrupt_type": "approval", "q": 1}),
    ],
)
def test_a_question_is_keyed_by_its_kind_unless_it_says_its_kind_itself(payload: Any, shown: Any) -> None:
    assert codec.interrupt_payload(replace(ASKED, payload=payload)) == shown


@pytest.mark.parametrize(
    ("body", "value", "ident"),
    [
        ({"approved": True}, {"approved": True}, "1"),
        ({"approval": {"approved": True}}, {"approved": True}, "1"),
        ("yes", "yes", "1"),
        (False, False, "1"),
        ({"interrupt_type": "name", "resume_payload": {"name": "Ada"}}, {"name": "Ada"}, "2"),
        ({"resume_payload": 5}, 5, "1"),
        ({"resume_payload": 5, "x": 1}, {"resume_payload": 5, "x": 1}, "1"),
        ({"name": "Ada"}, {"name": "Ada"}, "1"),
    ],
)
def test_an_answer_is_found_in_every_form(body: Any, value: Any, ident: str) -> None:
    answer, interrupt = codec.resume(body, (ASKED, NAMED))
    assert (answer.value, interrupt) == (value, ident)


def test_an_answer_to_what_was_not_asked_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="approval, name"):
        codec.resume({"interrupt_type": "other", "resume_payload": 1}, (ASKED, NAMED))
    with pytest.raises(errors.Invalid):
        codec.resume(None, (ASKED,))
