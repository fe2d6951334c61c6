"""What a person is told of a call that needs approval, and whose answer counts."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.contract.governing import APPROVAL, APPROVALS
from gateway.core.errors import Denied
from gateway.core.types import Answer, Identity, Interrupt, Outcome
from gateway.governance.enforcing.calls import (
    AskedApproval,
    GovernedCall,
    approvers,
    approves,
    check,
    own,
    question,
    recalled,
    signatory,
    whom,
    why_not,
)
from gateway.governance.manifests import Signer
from gateway.governance.matching import TURN
from gateway.governance.policy import ApprovalWay, Decision, Kind, Need, Signatory

EDITOR, ANN = Signer(role="editor"), Signer(user="ann")


def asking(*ways: ApprovalWay, policy: str | None = "sends", kind: Kind = Kind.ASK) -> Decision:
    return Decision(kind=kind, policy=policy, why="mail goes out", needs=(Need(policy="sends", ways=ways),))


def sending(decision: Decision, **fields: Any) -> GovernedCall:
    return GovernedCall(id="c1", tool="send", risk=2, arguments={"to": "all"}, decision=decision, **fields)


@pytest.mark.parametrize(
    ("decision", "names", "said"),
    [
        (asking(), [], "nobody may approve it"),
        (asking(ApprovalWay()), [], "anybody may"),
        (asking(ApprovalWay(quorum=2)), [], "it takes 2 people"),
        (asking(ApprovalWay(signers=(EDITOR,))), ["editor"], "it takes editor"),
        (asking(ApprovalWay(signers=(EDITOR, ANN, EDITOR))), ["editor", "ann"], "it takes editor, ann"),
        (asking(ApprovalWay(signers=(EDITOR, ANN), quorum=2)), ["editor", "ann"], "it takes 2 of editor, ann"),
    ],
)
def test_a_question_says_who_may_approve(decision: Decision, names: list[str], said: str) -> None:
    assert approvers(decision) == names and whom(decision) == said
    asked = question(sending(decision), "approval-c1")
    assert asked.message == f"May the tool send be called? mail goes out; {said}."
    assert asked.payload == {
        "call": "c1", "tool": "send", "arguments": {"to": "all"}, "risk": 2, "approvers": names,
        "why": "mail goes out", "policy": "sends",
    }  # fmt: skip
    assert (asked.id, asked.kind, asked.answer_schema) == ("approval-c1", APPROVAL, APPROVALS.answer_schema)


@pytest.mark.parametrize(
    ("turn", "kind", "policy", "said"),
    [
        (False, Kind.DENY, "sends", "the tool send is refused by policy sends: mail goes out"),
        (False, Kind.DENY, None, "the tool send is refused: mail goes out"),
        (True, Kind.DENY, None, "the turn is refused: mail goes out"),
        (False, Kind.ASK, "sends", "the tool send was not approved, which is asked for by policy sends: mail goes out"),
        (True, Kind.ESCALATE, None, "the turn was not approved, which is asked for: mail goes out"),
    ],
)
def test_a_refusal_says_what_is_refused_and_by_which_policy(
    turn: bool, kind: Kind, policy: str | None, said: str
) -> None:
    assert why_not(sending(asking(policy=policy, kind=kind), turn=turn)) == said


@pytest.mark.parametrize("call", [
    GovernedCall(id="c1", tool="send", server="mail", risk=2, arguments={"to": "all"}),
    GovernedCall(id="c1", tool="send"),
    GovernedCall(id=TURN, tool=TURN, turn=True),
])  # fmt: skip
def test_a_question_of_before_a_restart_is_about_the_call_that_it_was_about(call: GovernedCall) -> None:
    call.decision = asking(ApprovalWay(signers=(EDITOR,)), policy=None)
    asked = question(call, "q")
    assert "policy" not in asked.payload and ("server" in asked.payload) is (call.server is not None)
    assert asked.message is not None and asked.message.startswith("May the agent take its turn?") is call.turn
    found = recalled(asked)
    assert found is not None and found.same(call) and call.same(found)
    assert (found.id, found.turn) == (call.id, call.turn)
    disguised = own(asked)
    assert recalled(disguised) is None, "an agent that asks the same is not the gateway"
    assert disguised.answer_schema["title"] == "The agent's own question"
    assert disguised.answer_schema["properties"] == asked.answer_schema["properties"]


@pytest.mark.parametrize(
    "asked",
    [
        Interrupt(id="q", kind="permission", payload={"call": "c"}, answer_schema=APPROVALS.answer_schema),
        Interrupt(id="q", kind=APPROVAL, payload={"call": "c"}, answer_schema={"type": "object"}),
        Interrupt(id="q", kind=APPROVAL, payload=None, answer_schema=APPROVALS.answer_schema),
    ],
)
def test_what_only_resembles_a_question_of_ours_is_left_as_it_is(asked: Interrupt) -> None:
    assert recalled(asked) is None and own(asked) is asked


def test_what_a_question_leaves_out_has_its_default() -> None:
    found = recalled(
        Interrupt(id="q", kind=APPROVAL, payload={"call": "c", "tool": "t"}, answer_schema=APPROVALS.answer_schema)
    )
    assert found is not None and (found.risk, found.server, found.arguments, found.turn) == (0, None, None, False)


@pytest.mark.parametrize(
    ("answer", "yes"),
    [
        (Answer(value={"decision": "approve"}), True),
        (Answer(value={"decision": "reject"}), False),
        (Answer(value={}), False),
        (Answer(value="approve"), False),
        (Answer(value=None), False),
        (Answer(outcome=Outcome.DECLINED, value={"decision": "approve"}), False),
        (Answer(outcome=Outcome.CANCELLED, value={"decision": "approve"}), False),
    ],
)
def test_only_an_answer_that_says_so_is_an_approval(answer: Answer, yes: bool) -> None:
    assert AskedApproval(sending(asking(ApprovalWay()))).yes(answer) is yes
    if answer.outcome is Outcome.ANSWERED:
        assert approves(answer) is yes


@pytest.mark.parametrize(
    ("decision", "by", "refusal"),
    [
        (asking(ApprovalWay(signers=(EDITOR,))), Identity(id="cat", roles=("editor",)), ""),
        (asking(ApprovalWay(signers=(EDITOR,), quorum=2)), Identity(id="cat", roles=("editor",)), ""),
        (asking(ApprovalWay(signers=(EDITOR,)), ApprovalWay(signers=(ANN,))), Identity(id="ann"), ""),
        (asking(ApprovalWay()), None, ""),
        (asking(ApprovalWay(signers=(EDITOR,)), kind=Kind.ALLOW), None, ""),
        (asking(ApprovalWay(signers=(EDITOR,))), Identity(id="bob"), "bob may not approve send: it takes editor"),
        (
            asking(ApprovalWay(signers=(EDITOR,))),
            None,
            "who is not authenticated may not approve send: it takes editor",
        ),
        (asking(), Identity(id="ann"), "ann may not approve send: nobody may approve it"),
        (
            asking(ApprovalWay(signers=(EDITOR,)), kind=Kind.ESCALATE),
            Identity(id="bob"),
            "bob may not approve send: it takes",
        ),
    ],
)
def test_a_yes_counts_only_of_those_whom_the_decision_names(
    decision: Decision, by: Identity | None, refusal: str
) -> None:
    who: Signatory = signatory(Answer(value={"decision": "approve"}, by=by))
    assert (who.id, who.roles) == ("" if by is None else by.id, frozenset(() if by is None else by.roles))
    if not refusal:
        check(sending(decision), who)
        return
    with pytest.raises(Denied, match=refusal):
        check(sending(decision), who)
