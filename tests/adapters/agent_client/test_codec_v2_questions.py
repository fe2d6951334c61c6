"""Permissions and forms between agents and clients of either version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_client.codec import questions as v1
from adapters.agent_client.codec.v2 import version
from adapters.agent_client.codec.v2.version import V2
from gateway.contract.governing import APPROVAL
from gateway.core import delta
from gateway.core.types import Interrupt, Outcome
from gateway.wire import jsonrpc
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


def asked(params: Any) -> Interrupt:
    valid("RequestPermissionRequest", {"sessionId": "s", **params})
    _, said = V2.from_agent(v1.PERMISSION, jsonrpc.raw({"sessionId": "s", **params}), 1)
    return V2.permission(jsonrpc.unpack(said), "q", None)


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


@pytest.mark.parametrize("subject", [None, {"type": "_spell"}, {"type": "command"}, {"type": "tool_call"}])
def test_a_question_about_nothing_that_is_known_is_a_call_of_its_own(subject: Any) -> None:
    call = version.tool_call_of({**ASKED, "subject": subject}, "q")
    assert call == {"toolCallId": "q", "title": "Run this script?", "kind": "other"}


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
