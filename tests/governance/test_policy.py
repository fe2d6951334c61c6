"""What is decided: the tables of docs/governance.md."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.governance.manifests import Budget, Signer, ToolGrant
from gateway.governance.matching import action_matches, subject_matches
from gateway.governance.policy import Decision, Kind, Need, PolicyRules, Signatory
from gateway.governance.posture import Approver, Level, RegisteredPolicy
from tests.governance.postures import ANN, BOB, bound, decide, level, operator, policy, posture

# --- matching --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "action", "risk", "matches"),
    [
        ("tool.call", "tool.call", 0, True),
        ("tool.call", "tool.calls", 0, False),
        ("tool.*", "tool.call", 0, True),
        ("tool.*", "tool.call.read", 0, True),
        ("tool.*", "tool", 0, False),
        ("tool.*.read", "tool.call.read", 0, True),
        ("tool.*.read", "tool.read", 0, False),
        ("tool.*.read", "tool.a.b.read", 0, False),
        ("tool.wr*", "tool.write", 0, True),
        ("tool.wr*", "tool.read", 0, False),
        ("tool.wr*", "tool.write.all", 0, False),
        ("*", "anything.at.all", 0, True),
        ("mutates", "tool.call", 1, True),
        ("mutates", "tool.call", 0, False),
        ("irreversible", "tool.call", 3, True),
        ("irreversible", "tool.call", 2, False),
        ("t.[ab]", "t.a", 0, False),
    ],
)
def test_an_action_matches_segment_by_segment(pattern: str, action: str, risk: int, matches: bool) -> None:
    assert action_matches(pattern, action, risk) is matches


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        (None, "anything", True),
        ("*", "anything", True),
        ("send", "send", True),
        ("send", "sender", False),
        ("send-*", "send-mail", True),
        ("workspace:/finance/**", "workspace:/finance/q2/budget.md", True),
        ("workspace:/finance/**", "/finance/q2.md", True),
        ("workspace:/finance/**", "finance/q2.md", True),
        ("workspace:/finance/**", "/public/../finance/q2.md", True),
        ("workspace:/finance/**", "//finance//./q2.md", True),
        ("workspace:/finance/**", "/finance/../public/q2.md", False),
        ("workspace:/finance/**", "/finances/q2.md", False),
        ("workspace:/finance/**", "/finance", True),
        ("/a/*/c", "/a/b/c", True),
        ("/a/*/c", "/a/b/b/c", False),
        ("/a/*.md", "/a/x.md", True),
        ("/a/*.md", "/a/b/x.md", False),
        ("/a/[b].md", "/a/b.md", False),
        ("/**", "/a/b", True),
        ("/", "/", True),
    ],
)
def test_a_subject_matches_as_an_id_or_as_a_path(pattern: str | None, subject: str, matches: bool) -> None:
    assert subject_matches(pattern, subject) is matches


# --- policies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [kind.value for kind in Kind])
def test_a_policy_that_matches_decides(decision: str) -> None:
    found = decide(level(bound(policy("p", decision))))
    assert (found.kind, found.policy) == (decision, "p")


def test_a_policy_that_does_not_match_decides_nothing() -> None:
    others = [
        bound(policy("a", "deny", action="workspace.write")),
        bound(policy("b", "deny", subject="read")),
        bound(policy("c", "deny", risk_min=2)),
        bound(policy("d", "deny"), applies_to="deploy.scheduled"),
        bound(policy("e", "deny"), applies_to="irreversible"),
    ]
    assert decide(level(*others, default="auto")).kind is Kind.ALLOW


def test_among_equals_the_narrowest_policy_is_named() -> None:
    exact, glob, wide = (
        policy("a-exact", "deny", subject="write"),
        policy("b-glob", "deny", subject="wr*"),
        policy("c-wide", "deny"),
    )
    assert decide(level(*map(bound, (exact, wide, glob)))).policy == "a-exact"
    assert decide(level(*map(bound, (wide, glob)))).policy == "b-glob"
    assert decide(level(*map(bound, (wide, policy("a-risky", "deny", risk_min=1))))).policy == "a-risky"


def test_a_policy_above_its_autonomy_escalates_but_a_denial_stays_one() -> None:
    found = decide(level(bound(policy("p", autonomy=2)), autonomy=3))
    assert found.kind is Kind.ESCALATE and found.signers == (Signer(role="ws://operators/chief"),)
    asked = decide(level(bound(policy("p", "require-approval", autonomy=2, signers=(Signer(role="cfo"),))), autonomy=3))
    assert asked.kind is Kind.ESCALATE and asked.signers == (Signer(role="cfo"),)
    assert decide(level(bound(policy("p", "deny", autonomy=0)), autonomy=3)).kind is Kind.DENY


@pytest.mark.parametrize(("autonomy", "rung"), [("autonomous", 3), ("supervised", 2), ("gated", 0)])
def test_where_no_posture_says_an_operators_class_is_its_autonomy(autonomy: str, rung: int) -> None:
    for bound_to in range(5):
        found = decide(
            level(bound(policy("p", autonomy=bound_to))), risk=0, of=operator(autonomy, ToolGrant(tool="write"))
        )
        assert found.kind is (Kind.ALLOW if rung <= bound_to else Kind.ESCALATE)
    nobody = decide(level(bound(policy("p", autonomy=1))), risk=0)
    assert nobody.kind is Kind.ESCALATE and decide(level(bound(policy("p", autonomy=2))), risk=0).kind is Kind.ALLOW


def test_what_is_only_told_does_not_decide() -> None:
    found = decide(level(bound(policy("p", "deny"), severity="warn"), default="auto"))
    assert (found.kind, found.policy, found.notes) == (Kind.ALLOW, None, ("warn: p says deny",))
    assert decide(level(bound(policy("p", "deny"), severity="info"), default="always")).kind is Kind.ASK


# --- defaults, autonomy, ceilings ------------------------------------------------------------------------------------


def kinds(**keys: Any) -> list[str]:
    """By risk, 0 to 3."""
    return [decide(level(**keys), risk=risk).kind.value[:1] for risk in range(4)]


@pytest.mark.parametrize(
    ("autonomy", "default", "wanted"),
    [
        (None, None, "arrr"),
        (0, None, "arrr"),
        (1, None, "arrr"),
        (2, None, "arrr"),
        (3, None, "aaaa"),
        (None, "auto", "aaaa"),
        (0, "auto", "arrr"),
        (1, "auto", "arrr"),
        (2, "auto", "aaar"),
        (3, "auto", "aaaa"),
        (3, "on-mutate", "arrr"),
        (3, "always", "rrrr"),
        (None, "always", "rrrr"),
    ],
)
def test_what_no_policy_matches_goes_by_the_default_within_the_ceiling(
    autonomy: int | None, default: str | None, wanted: str
) -> None:
    assert kinds(autonomy=autonomy, default=default) == list(wanted)


@pytest.mark.parametrize(("autonomy", "wanted"), [(0, "arrr"), (1, "arrr"), (2, "aaar"), (3, "aaaa")])
def test_the_ceiling_bounds_what_a_policy_allows(autonomy: int, wanted: str) -> None:
    allowed = level(bound(policy("p")), autonomy=autonomy)
    assert [decide(allowed, risk=risk).kind.value[:1] for risk in range(4)] == list(wanted)


def test_a_default_may_be_a_policy() -> None:
    named = bound(policy("the-default", "deny", action="never.matches"))
    assert decide(level(named, default="policy:the-default")).policy == "the-default"


def test_a_default_is_the_policy_of_that_id_before_one_of_that_slug() -> None:
    never = {"action": "never.matches"}
    slug = RegisteredPolicy(id="other", policy=policy("strict", "allow", **never))
    id_ = RegisteredPolicy(id="strict", policy=policy("another", "deny", **never))
    for order in ((slug, id_), (id_, slug)):
        assert decide(level(*order, default="policy:strict")).policy == "another"
    assert decide(level(slug, default="policy:strict")).policy == "strict"


@pytest.mark.parametrize(("autonomy", "wanted"), [("autonomous", "aaaa"), ("supervised", "arrr"), ("gated", "arrr")])
def test_an_operators_class_bounds_what_it_may_do(autonomy: str, wanted: str) -> None:
    free = level(bound(policy("p")))
    assert [decide(free, risk=n, of=operator(autonomy)).kind.value[:1] for n in range(4)] == list(wanted)
    assert [decide(risk=n, of=operator(autonomy)).kind.value[:1] for n in range(4)] == list(wanted)


def test_a_call_is_asked_where_an_amount_is_limited_since_its_cost_is_not_known() -> None:
    rules = PolicyRules(
        posture(level(bound(policy("p", budget=Budget(amount=True))))), operator("autonomous", ToolGrant(tool="pay"))
    )
    unknown = rules.call("pay", risk=0, at=0.0)
    assert (unknown.kind, unknown.why) == (Kind.ASK, "p asks: it limits an amount, and nobody knows what this costs")


def test_what_nobody_can_approve_takes_somebody_and_is_never_released() -> None:
    nobody = Decision(kind=Kind.ESCALATE, policy=None, why="", needs=(Need(policy="", ways=()),))
    assert nobody.quorum == 1 and not nobody.released([ANN, BOB])


def test_only_a_gated_operator_needs_approval_for_a_turn() -> None:
    alone = PolicyRules(None, operator("gated")).turn()
    assert (alone.kind, alone.released([ANN]), alone.released([])) == (Kind.ASK, True, False)
    assert PolicyRules(None, operator("supervised")).turn().kind is Kind.ALLOW
    assert PolicyRules(None, None).turn().kind is Kind.ALLOW
    lead = Approver(id="lead", may=("operator.turn",))
    found = PolicyRules(posture(level(approvers=(lead,)), level(approvers=(lead,))), operator("gated")).turn()
    assert found.kind is Kind.ASK and found.signers == (Signer(role="lead"),)
    assert PolicyRules(posture(level(approvers=(Approver(id="x"),))), operator("gated")).turn().kind is Kind.ESCALATE


def test_without_governance_reading_is_free_and_changing_is_asked() -> None:
    assert [decide(risk=risk).kind.value[:1] for risk in range(4)] == list("arrr")


@pytest.mark.parametrize("risk", [-1, 4])
def test_there_is_no_such_risk(risk: int) -> None:
    with pytest.raises(ValueError, match="risk is 0 to 3"):
        decide(risk=risk)


# --- who approves ----------------------------------------------------------------------------------------------------


def test_a_quorum_is_of_different_people_in_the_policys_roles() -> None:
    signers = (Signer(role="cfo"), Signer(role="security"), Signer(user="eve"))
    found = decide(level(bound(policy("p", "require-approval", signers=signers, quorum=2))))
    assert (found.quorum, set(found.signers)) == (2, set(signers))
    assert not found.released([ANN])
    assert not found.released([ANN, ANN])
    assert not found.released([ANN, Signatory(id="zoe")])
    assert found.released([ANN, BOB])
    assert found.released([ANN, Signatory(id="eve")])


def test_every_policy_that_asks_has_to_be_satisfied() -> None:
    one = bound(policy("a", "require-approval", signers=(Signer(role="cfo"),)))
    two = bound(policy("b", "require-approval", signers=(Signer(role="security"),)))
    found = decide(level(one, two))
    assert not found.released([ANN]) and not found.released([BOB]) and found.released([ANN, BOB])


def test_the_defaults_approvers_are_those_of_that_class() -> None:
    approvers = (
        Approver(id="founder", role="ws://operators/founder", may=("mutates",)),
        Approver(id="board", role="board", may=("tool.call",), quorum=2),
        Approver(id="gone", role="cfo", may=()),
    )
    found = decide(level(default="always", approvers=approvers), risk=1)
    assert found.kind is Kind.ASK
    assert found.released([Signatory(id="ws://operators/founder")])
    board = [Signatory(id=name, roles=frozenset({"board"})) for name in "xy"]
    assert not found.released(board[:1]) and found.released(board)
    assert not found.released([ANN])
    reading = decide(level(default="always", approvers=approvers), risk=0)
    assert not reading.released([Signatory(id="ws://operators/founder")]) and reading.released(board)


def test_without_approvers_whoever_is_asked_may_approve() -> None:
    assert decide(level(default="always")).released([Signatory(id="anybody")])
    assert [decide(level(default=default)).quorum for default in ("always", "auto")] == [1, 0]
    assert not decide(level(default="always")).released([])


def test_an_operators_class_asks_the_approvers_of_the_posture() -> None:
    lead = Approver(id="lead", may=("mutates",))
    free = level(bound(policy("p")), approvers=(lead,))
    found = decide(free, of=operator("supervised"))
    assert found.kind is Kind.ASK and found.released([Signatory(id="lead")]) and not found.released([ANN])
    turn = PolicyRules(posture(free), operator("gated")).turn()  # a turn changes nothing yet
    assert turn.kind is Kind.ESCALATE and not turn.released([Signatory(id="lead")])


def test_a_decision_names_a_policy_only_if_one_says_so() -> None:
    gated = operator("gated")
    both = decide(level(bound(policy("p", "require-approval"))), of=gated)
    assert (both.kind, both.policy) == (Kind.ASK, "p")
    rules = PolicyRules(None, gated)
    assert [found.policy for found in (rules.turn(), PolicyRules(None).turn(), rules.call("x", risk=0, at=0.0))] == [
        None
    ] * 3


def test_what_no_approver_may_approve_is_escalated() -> None:
    found = decide(level(default="always", approvers=(Approver(id="x", may=("deploy.scheduled",)),)))
    assert found.kind is Kind.ESCALATE
    assert found.released([Signatory(id="ws://operators/chief")]) and not found.released([ANN])


@pytest.mark.parametrize(
    ("escalation", "released_by"),
    [
        (("operator", "founder"), {"founder", "chief"}),  # an approver's id: that one, and `escalateTo`
        (("operator", "deploy.scheduled"), {"board", "chief"}),  # a class: whoever may approve that
        (("operator", "auditor"), {"auditor", "chief"}),  # neither: somebody in that role
        (("tool.call", "founder"), {"founder", "chief"}),
        (("tool.*", "founder"), {"founder", "chief"}),
        (("mutates", "founder"), {"founder", "chief"}),
        (("irreversible", "founder"), {"chief"}),  # not of that class
        (("workspace.write", "founder"), {"chief"}),
    ],
)
def test_what_no_approver_may_approve_goes_where_the_posture_says(
    escalation: tuple[str, str], released_by: set[str]
) -> None:
    approvers = (
        Approver(id="founder", role="ws://operators/founder", may=("workspace.write",)),
        Approver(id="board", may=("deploy.scheduled",)),
        Approver(id="gone", role="auditor", may=()),
    )
    found = decide(level(default="always", approvers=approvers, escalation=escalation))
    ids = {"founder": "ws://operators/founder", "chief": "ws://operators/chief"}
    people = ("founder", "chief", "board", "auditor", "ann")
    assert found.kind is Kind.ESCALATE
    assert {who for who in people if found.released([Signatory(id=ids.get(who, who))])} == released_by


def test_an_escalation_leaves_alone_what_somebody_may_approve() -> None:
    approvers = (Approver(id="ann", may=("tool.call",)), Approver(id="founder", may=("mutates",), quorum=2))
    found = decide(level(default="always", approvers=approvers, escalation=("operator", "founder")), risk=0)
    assert found.kind is Kind.ASK and found.released([ANN])


def test_where_nobody_is_an_approver_it_goes_where_the_posture_says_and_not_to_whoever_is_asked() -> None:
    found = decide(level(default="always", escalation=("operator", "founder")))
    assert found.kind is Kind.ESCALATE
    assert found.released([Signatory(id="founder")]) and not found.released([ANN])


def test_of_those_to_whom_it_goes_there_have_to_be_as_many_as_of_them_it_takes() -> None:
    approvers = (Approver(id="board", may=("deploy.scheduled",), quorum=2),)
    found = decide(level(default="always", approvers=approvers, escalation=("operator", "board")))
    two = [Signatory(id=name, roles=frozenset({"board"})) for name in "xy"]
    assert found.released(two) and not found.released(two[:1])


def test_a_denial_is_released_by_nobody() -> None:
    assert not decide(level(bound(policy("p", "deny")))).released([ANN, BOB])


def test_an_escalation_to_nobody_is_released_by_nobody() -> None:
    nowhere = Level(effective={}, policies=(bound(policy("p", "escalate")),), approvers=())
    found = decide(nowhere)
    assert found.kind is Kind.ESCALATE and not found.released([ANN, BOB])


# --- tools -----------------------------------------------------------------------------------------------------------


def test_an_operator_runs_only_the_tools_that_it_has() -> None:
    grants = (ToolGrant(tool="notes"), ToolGrant(server="github", allow=("list",)), ToolGrant(server="clock"))
    rules = PolicyRules(posture(level(default="auto")), operator("autonomous", *grants))

    def may(tool: str, server: str | None = None) -> bool:
        return rules.call(tool, server=server, risk=0, at=0.0).kind is Kind.ALLOW

    assert may("notes") and may("list", "github") and may("now", "clock") and may("anything", "clock")
    assert not may("note") and not may("delete", "github") and not may("list") and not may("notes", "github")
    assert not may("list", "gitlab")
    assert rules.grant("list", "github") == grants[1]


def test_an_operator_without_tools_runs_none() -> None:
    found = PolicyRules(posture(level(default="auto")), operator()).call("notes", risk=0, at=0.0)
    assert (found.kind, found.why) == (Kind.DENY, "coder has no tool notes")


def test_a_tool_that_an_operator_has_is_still_subject_to_policy() -> None:
    rules = PolicyRules(posture(level(bound(policy("p", "deny")))), operator("autonomous", ToolGrant(tool="notes")))
    assert rules.call("notes", risk=0, at=0.0).policy == "p"


def test_without_an_operator_tools_are_a_matter_of_policy_alone() -> None:
    assert PolicyRules(posture(level(default="auto"))).call("any", server="x", risk=0, at=0.0).kind is Kind.ALLOW
