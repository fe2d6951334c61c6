"""What an agent of this protocol asks: nothing is approval but the choice of an option that was offered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from adapters.agent_client.codec import questions
from gateway.core import choices, delta
from gateway.core import events as e
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, Outcome
from gateway.mcp import forms
from gateway.mcp.runs.tools import Refusals
from tests.adapters.agent_client.codec_cases import ANY, META, PARAMS, extended, selected, unhurried, valid
from tests.adapters.agent_client.outbound_agent import OPTIONS
from tests.core.json_values import SOUND

CANCELLED = {"outcome": {"outcome": "cancelled"}}


def fits(interrupt: Interrupt, answer: Answer) -> bool:
    """Whether the gateway takes the answer."""
    return Draft202012Validator(interrupt.answer_schema).is_valid(answer.value)


@pytest.mark.parametrize(
    ("name", "kind", "refuses"),
    [
        ("Not today", "reject_once", True),
        ("Nie wieder", "reject_always", True),
        ("Reject", "reject_once", True),
        ("Go ahead", "allow_once", False),
    ],
)
def test_an_option_refuses_by_its_kind_whatever_it_is_called(name: str, kind: str, refuses: bool) -> None:
    options = [OPTIONS[0], {"optionId": "other", "name": name, "kind": kind}]
    interrupt = questions.permission({**PARAMS, "options": options}, "q")
    found = choices.offered(interrupt.answer_schema)
    assert found is not None and [choice.refuses for choice in found[0]] == [False, refuses]
    refusals = Refusals()
    refusals.feed([(1, e.Interrupted(interrupt=interrupt))])
    refusals.feed([(2, e.Resumed(interrupt="q", answer=Answer(value={"optionId": "other"})))])
    told = refusals.told({"content": []})["content"]
    assert [name in text["text"] for text in told] == ([True] if refuses else [])


# --- permissions, from an agent and back -------------------------------------------------------------------------

_OPTION_IDS = st.sampled_from(["ok", "no", "1", "", "Ok"])
_KINDS = st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always"])
_OFFERED = st.lists(extended({"optionId": _OPTION_IDS, "name": SOUND, "kind": _KINDS}), min_size=1, max_size=4)
_STRANGE = st.lists(ANY | extended({"optionId": _OPTION_IDS | ANY, "name": ANY, "kind": ANY | _KINDS}), max_size=4)
_VALUES = (
    ANY
    | _OPTION_IDS
    | st.fixed_dictionaries({"optionId": ANY | _OPTION_IDS}, optional={"_answer": ANY, "outcome": ANY})
    | st.builds(lambda a, b: {"optionId": a, "_answer": selected(b)}, _OPTION_IDS, _OPTION_IDS)
)
_ANSWERS = st.builds(Answer, outcome=st.sampled_from(list(Outcome)), value=_VALUES)


@unhurried
@given(_OFFERED | _STRANGE, _ANSWERS)
def test_an_answer_that_was_not_offered_is_never_approval(options: Any, answer: Answer) -> None:
    result = questions.permission_result(answer, {"toolCall": {"toolCallId": "c"}, "options": options})
    valid("RequestPermissionResponse", result)
    if result["outcome"]["outcome"] == "cancelled":
        return
    chosen = result["outcome"]["optionId"]
    said = answer.value.get("optionId") if isinstance(answer.value, dict) else answer.value
    kinds = [o.get("kind") for o in options if isinstance(o, dict) and o.get("optionId") == chosen]
    assert kinds, "it was offered"
    if not (answer.outcome is Outcome.ANSWERED and said == chosen):
        assert all(kind in ("reject_once", "reject_always") for kind in kinds)


@unhurried
@given(_OFFERED, st.data())
def test_the_option_that_a_client_selects_is_the_one_that_the_agent_hears(options: Any, data: Any) -> None:
    interrupt = questions.permission({**PARAMS, "options": options}, "q")
    chosen = data.draw(st.sampled_from(options))["optionId"]
    extra = data.draw(st.fixed_dictionaries({}, optional={"_meta": META}))
    result = valid("RequestPermissionResponse", {**selected(chosen), **extra})
    answer = questions.permission_answer(interrupt, result)
    assert fits(interrupt, answer)
    assert delta.same(questions.permission_result(answer, interrupt.payload), result)


@unhurried
@given(
    _OFFERED, ANY | st.fixed_dictionaries({"outcome": ANY | extended({"outcome": ANY, "optionId": ANY | _OPTION_IDS})})
)
def test_whatever_a_client_answers_is_no_approval_unless_it_selects_what_was_offered(options: Any, result: Any) -> None:
    interrupt = questions.permission({**PARAMS, "options": options}, "q")
    answer = questions.permission_answer(interrupt, result)
    if answer.outcome is Outcome.ANSWERED:
        assert result["outcome"]["outcome"] == "selected"
        assert result["outcome"]["optionId"] in [option["optionId"] for option in options]
        assert fits(interrupt, answer)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (Answer(value={"optionId": "ok"}), selected("ok")),
        (Answer(value="ever"), selected("ever")),
        (Answer(value={"optionId": "OK"}), selected("no")),
        (Answer(value=True), selected("no")),
        (Answer(value=None), selected("no")),
        (Answer(outcome=Outcome.DECLINED), selected("no")),
        (Answer(outcome=Outcome.CANCELLED), CANCELLED),
        (Answer(outcome=Outcome.CANCELLED, value={"optionId": "ok"}), CANCELLED),
    ],
)
def test_answers_to_a_permission_request(answer: Answer, result: Any) -> None:
    assert questions.permission_result(answer, PARAMS) == result


def test_without_an_option_to_reject_a_refusal_is_cancelled() -> None:
    declined = Answer(outcome=Outcome.DECLINED)
    assert questions.permission_result(declined, {"options": OPTIONS[:2]}) == CANCELLED
    always = {"optionId": "never", "name": "Never", "kind": "reject_always"}
    assert questions.permission_result(declined, {"options": [OPTIONS[0], always]}) == selected("never")
    both = {**OPTIONS[0], "kind": "reject_once"}
    assert questions.permission_result(declined, {"options": [OPTIONS[0], both]}) == CANCELLED


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"options": OPTIONS}, "/toolCall"),
        ({"toolCall": {"title": "x"}, "options": OPTIONS}, "/toolCall"),
        ({"toolCall": {"toolCallId": "c"}}, "/options"),
        ({"toolCall": {"toolCallId": "c"}, "options": []}, "/options"),
        ({"toolCall": {"toolCallId": "c"}, "options": [{"name": "x"}]}, "/options"),
    ],
)
def test_a_permission_request_that_is_none_is_refused(params: Any, path: str) -> None:
    with pytest.raises(Invalid) as raised:
        questions.permission(params, "q")
    assert raised.value.path == path


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (["Running: ls", " "], "\n\nRunning: ls"),
        (["a", "b"], "\n\na\n\nb"),
        (["x" * 5000, "y"], f"\n\n{'x' * 4000}..."),
        ([], ""),
    ],
)
def test_a_permission_question_has_the_texts_of_its_call(content: list[str], shown: str) -> None:
    texts = [{"type": "content", "content": {"type": "text", "text": text}} for text in content]
    others = [{"type": "diff", "path": "/x"}, {"type": "content", "content": 1}, None]
    call = {**PARAMS["toolCall"], "content": [*others, *texts]}
    message = questions.permission({**PARAMS, "toolCall": call}, "q").message
    assert message == f"The agent asks for permission: Delete /etc{shown}"


# --- forms, from an agent and back -------------------------------------------------------------------------------

FORM = {
    "sessionId": "s",
    "toolCallId": "c",
    "mode": "form",
    "message": "How?",
    "requestedSchema": {
        "type": "object",
        "title": None,
        "properties": {
            "strategy": {"type": "string", "enum": ["safe", "fast"], "title": None, "_meta": {"x": 1}},
            "level": {"type": "integer", "minimum": 1, "maximum": None},
            "odd": {"type": "_slider", "from": 1},
        },
        "required": ["strategy"],
    },
}
URL = {"sessionId": "s", "mode": "url", "elicitationId": "e", "url": "https://x.example/y", "message": "Please log in."}


def test_a_form_is_a_question_whose_answer_is_its_content() -> None:
    valid("CreateElicitationRequest", FORM)
    interrupt = questions.elicitation(FORM, "q")
    assert (interrupt.kind, interrupt.message) == ("elicitation", "How?")
    Draft202012Validator.check_schema(interrupt.answer_schema)
    answer = Answer(value={"strategy": "safe", "level": 2, "odd": {"x": 1}})
    assert fits(interrupt, answer) and not fits(interrupt, Answer(value={"strategy": "best"}))
    result = questions.elicitation_result(answer, interrupt.payload)
    assert result == {"action": "accept", "content": {"strategy": "safe", "level": 2}}
    asking = questions.as_elicitation(interrupt, {"form"})
    assert asking is not None and {"sessionId": "s", **asking} == FORM
    assert questions.as_elicitation(interrupt, {"url"}) is None


def test_a_url_is_a_question_for_consent() -> None:
    interrupt = questions.elicitation(URL, "q")
    assert questions.elicitation_result(Answer(value={}), interrupt.payload) == {"action": "accept"}
    assert questions.as_elicitation(interrupt, {"form"}) is None
    assert questions.as_elicitation(interrupt, {"url"}) == {
        key: value for key, value in URL.items() if key != "sessionId"
    }
    assert "https://x.example/y" in questions.as_text(interrupt)
    assert questions.answer_from_text(interrupt, " Done ") == Answer(value={})
    assert questions.answer_from_text(interrupt, "no").outcome is Outcome.DECLINED
    with pytest.raises(Invalid):
        questions.answer_from_text(interrupt, "what?")


@unhurried
@given(_ANSWERS, st.sampled_from([FORM, URL]))
def test_the_answer_to_a_form_is_always_one_of_the_protocols(answer: Answer, params: Any) -> None:
    result = questions.elicitation_result(answer, params)
    valid("CreateElicitationResponse", result)
    if answer.outcome is not Outcome.ANSWERED:
        assert result["action"] != "accept"


@pytest.mark.parametrize("result", [None, [], {}, {"action": "yes"}, {"action": True, "content": {"strategy": "safe"}}])
def test_an_unclear_answer_to_a_form_is_none(result: Any) -> None:
    assert forms.elicitation_answer(questions.elicitation(FORM, "q"), result).outcome is Outcome.CANCELLED
