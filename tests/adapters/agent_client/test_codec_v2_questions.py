"""Permissions and forms between agents and clients of either version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec import questions as v1
from adapters.agent_client.codec.v2 import version
from gateway.contract.governing import APPROVAL
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, Outcome
from tests.adapters.agent_client.codec_cases import ANY, META, extended, unhurried
from tests.adapters.agent_client.codec_cases import valid as valid_v1
from tests.adapters.agent_client.codec_v2_cases import CALLS, valid
from tests.core.json_values import SOUND

OPTIONS = [
    {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
    {"optionId": "no", "name": "Deny", "kind": "reject_once"},
]
ASKED: dict[str, Any] = {
    "title": "Run this script?",
    "description": "It deletes things.",
    "subject": {"type": "tool_call", "toolCall": {"toolCallId": "c", "title": "Execute", "kind": "execute"}},
    "options": OPTIONS,
}
COMMAND = {"type": "command", "command": "cargo test", "cwd": "/w", "toolCallId": "c"}


def asked(params: Any) -> Interrupt:
    return version.permission(
        {"sessionId": "s", **valid("RequestPermissionRequest", {"sessionId": "s", **params})}, "q"
    )


_CALL = CALLS.filter(lambda update: update["sessionUpdate"] == "tool_call_update").map(
    lambda update: {key: value for key, value in update.items() if key != "sessionUpdate"}
)
_SUBJECTS = (
    extended({"type": st.just("tool_call"), "toolCall": _CALL})
    | extended({"type": st.just("command"), "command": SOUND, "cwd": st.just("/w")}, {"toolCallId": st.none() | SOUND})
    | extended({"type": st.just("_spell")}, {"power": ANY})
    | st.none()
)
_KINDS = st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "_maybe"])
QUESTIONS = st.fixed_dictionaries(
    {
        "title": SOUND,
        "options": st.lists(extended({"optionId": SOUND, "name": SOUND, "kind": _KINDS}), min_size=1, max_size=3),
    },
    optional={"description": st.none() | SOUND, "subject": _SUBJECTS, "_meta": st.none() | META, "x-extra": ANY},
)


@unhurried
@given(QUESTIONS)
def test_what_an_agent_of_version_2_asks_is_asked_as_it_was(params: Any) -> None:
    told = version.as_permission(asked(params))
    assert told is not None and delta.same(told, params)


@unhurried
@given(QUESTIONS)
def test_and_in_version_1_it_is_a_question_of_version_1(params: Any) -> None:
    told = v1.as_permission(asked(params))
    assert told is not None
    valid_v1("RequestPermissionRequest", {"sessionId": "s", **told})
    assert "title" not in told and "subject" not in told


def test_whoever_is_asked_in_words_reads_title_and_description() -> None:
    question = asked(ASKED)
    assert question.message == "Run this script?\n\nIt deletes things."
    assert question.payload["toolCall"] == {"toolCallId": "c", "title": "Execute", "kind": "execute"}
    assert question.answer_schema["properties"]["optionId"]["enum"] == ["yes", "no"]


def test_a_client_of_version_1_reads_them_in_the_tool_call() -> None:
    told = v1.as_permission(asked(ASKED))
    assert told is not None and told["toolCall"]["title"] == "Execute"
    assert told["toolCall"]["content"] == [
        {"type": "content", "content": {"type": "text", "text": "Run this script?\n\nIt deletes things."}}
    ]


def test_an_option_of_a_kind_that_version_1_has_not_counts_as_approval_there() -> None:
    odd = {"optionId": "x", "name": "Maybe", "kind": "_maybe"}
    told = v1.as_permission(asked({**ASKED, "options": [odd]}))
    assert told is not None and told["options"] == [{**odd, "kind": "allow_once"}]


def test_a_command_is_a_tool_call_that_executes_it() -> None:
    question = asked({**ASKED, "subject": COMMAND})
    assert question.payload["toolCall"] == {
        "toolCallId": "c",
        "title": "cargo test",
        "kind": "execute",
        "rawInput": {"command": "cargo test", "cwd": "/w"},
    }
    assert question.payload["subject"] == COMMAND


@pytest.mark.parametrize("subject", [None, {"type": "_spell"}, {"type": "command"}, {"type": "tool_call"}])
def test_a_question_about_nothing_that_is_known_is_a_call_of_its_own(subject: Any) -> None:
    call = version.tool_call_of({**ASKED, "subject": subject}, "q")
    assert call == {"toolCallId": "q", "title": "Run this script?", "kind": "other"}


@pytest.mark.parametrize(
    ("params", "path"),
    [({**ASKED, "title": None}, "/title"), ({**ASKED, "options": []}, "/options"), ({"title": "x"}, "/options")],
)
def test_a_question_without_title_or_options_is_invalid(params: Any, path: str) -> None:
    with pytest.raises(Invalid) as caught:
        version.permission(params, "q")
    assert caught.value.path == path


def test_what_an_agent_of_version_1_asks_has_a_title_and_a_subject() -> None:
    call: Any = {"toolCallId": "c", "title": "Edit", "kind": None, "content": []}
    question = v1.permission({"sessionId": "s", "toolCall": call, "options": OPTIONS, "_meta": {"a": 1}}, "q")
    told = version.as_permission(question)
    assert valid("RequestPermissionRequest", {"sessionId": "s", **(told or {})}) == {
        "sessionId": "s",
        "title": "Edit",
        "subject": {"type": "tool_call", "toolCall": {"toolCallId": "c", "title": "Edit", "content": []}},
        "options": OPTIONS,
        "_meta": {"a": 1},
    }
    nameless = v1.permission({"toolCall": {"toolCallId": "c"}, "options": OPTIONS}, "q", "Edit main.py")
    assert (version.as_permission(nameless) or {})["title"] == "The agent asks for permission: Edit main.py"


def test_any_other_choice_needs_no_tool_call() -> None:
    schema = {"type": "object", "properties": {"go": {"type": "boolean"}}, "required": ["go"]}
    question = Interrupt(id="q", kind="ask", payload={"tool": "rm"}, message="Go on?", answer_schema=schema)
    told = valid("RequestPermissionRequest", {"sessionId": "s", **(version.as_permission(question) or {})})
    assert told["title"] == "Go on?" and "subject" not in told and '"tool":"rm"' in told["description"]
    chosen = {"outcome": {"outcome": "selected", "optionId": told["options"][0]["optionId"]}}
    assert v1.permission_answer(question, chosen).value == {"go": True}
    words = Interrupt(id="q", kind="ask", payload=None, message="Why?", answer_schema={"type": "string"})
    assert version.as_permission(words) is None


def test_whether_a_tool_may_be_called_is_asked_about_that_call() -> None:
    payload = {"call": "c1", "tool": "rm", "arguments": {"path": "/"}, "why": "It deletes.", "risk": 2}
    question = Interrupt(
        id="q",
        kind=APPROVAL,
        payload=payload,
        message="May rm be called?",
        answer_schema={"type": "object", "properties": {"go": {"type": "boolean"}}, "required": ["go"]},
    )
    told = valid("RequestPermissionRequest", {"sessionId": "s", **(version.as_permission(question) or {})})
    call = told["subject"]["toolCall"]
    assert (told["title"], told["description"]) == ("May rm be called?", "It deletes.")
    assert (call["toolCallId"], call["title"], call["rawInput"]) == ("c1", "rm", {"path": "/"})


@pytest.mark.parametrize(
    "result", [{"outcome": {"outcome": "_perhaps", "optionId": "yes"}}, {"outcome": {"outcome": "selected"}}, {}, None]
)
def test_an_outcome_that_is_not_understood_is_no_approval(result: Any) -> None:
    question = asked(ASKED)
    answer = v1.permission_answer(question, result)
    assert answer.outcome is Outcome.DECLINED
    told = v1.permission_result(answer, question.payload)
    assert valid("RequestPermissionResponse", told)["outcome"] == {"outcome": "selected", "optionId": "no"}


def test_what_is_chosen_is_what_the_agent_hears() -> None:
    question = asked(ASKED)
    chosen = {"outcome": {"outcome": "selected", "optionId": "yes"}}
    assert v1.permission_result(v1.permission_answer(question, chosen), question.payload) == chosen
    cancelled = v1.permission_result(Answer(outcome=Outcome.CANCELLED), question.payload)
    assert valid("RequestPermissionResponse", cancelled) == {"outcome": {"outcome": "cancelled"}}


def test_forms_are_those_of_version_2() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "pattern": "^a"},
            "age": {"type": "integer", "minimum": 0},
            "pick": {"type": "string", "enum": ["a", "b"]},
            "many": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "ok": {"type": "boolean", "default": True},
        },
        "required": ["name", "age"],
    }
    question = Interrupt(id="q", kind="ask", payload=None, message="Who?", answer_schema=schema)
    told = v1.as_elicitation(question, frozenset({"form"}))
    assert told is not None
    valid("CreateElicitationRequest", {"sessionId": "s", **told})
    answer = {"action": "accept", "content": {"name": "ab", "age": 3}}
    assert v1.elicitation_answer(question, valid("CreateElicitationResponse", answer)).value == answer["content"]
    params = {"sessionId": "s", "mode": "form", "message": "Who?", "requestedSchema": told["requestedSchema"]}
    mine = v1.elicitation(valid("CreateElicitationRequest", params), "q")
    valid("CreateElicitationResponse", v1.elicitation_result(Answer(value={"name": "ab", "age": 3}), mine.payload))
    assert v1.elicitation_modes({"elicitation": {"form": {}, "url": None}}) == {"form"}
