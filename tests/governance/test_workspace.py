"""GOVERNANCE.md: chains of `extends`, how they merge, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.governance.front_matter import workspace_of
from gateway.governance.posture import CYCLE, DRIFT, LOOSER, MISSING, TOO_DEEP, Governance, load_workspace
from gateway.yaml_document import DocumentError
from tests.governance.support import Keys, governance, policy, told

UP = "./../GOVERNANCE.md"
"""The schema takes no `../GOVERNANCE.md`."""


def chain(base: Path, *levels: Keys) -> Path:
    """A root and views, each in a folder inside the one before; the last file."""
    folder, path = base, governance(base, **levels[0])
    for keys in levels[1:]:
        folder = folder / "view"
        path = governance(folder, extends=UP, **keys)
    return path


def merged(base: Path, *levels: Keys) -> Governance:
    return load_workspace(chain(base, *levels), base)


def refused(base: Path, *levels: Keys) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        merged(base, *levels)
    return told(caught.value, base)


# --- merging ---------------------------------------------------------------------------------------------------------


def test_a_root_is_as_it_is_written(tmp_path: Path) -> None:
    found = merged(tmp_path, {"autonomy": {"level": 1}})
    assert found.effective["autonomy"] == {"level": 1}
    assert [page.path for page in found.chain] == [tmp_path / "GOVERNANCE.md"] and found.cautions == ()


def test_leaves_override_each_by_itself_and_metadata_deeply(tmp_path: Path) -> None:
    found = merged(
        tmp_path,
        {
            "autonomy": {"level": 1, "defaultApproval": "always"},
            "audit": {"retention": "forever", "appendOnly": True},
            "display": {"showRetentionWarnings": True, "defaultDashboard": "one"},
            "metadata": {"a": {"x": 1, "y": [1]}, "b": 2},
            "executor": "ws://operators/one",
        },
        {
            "autonomy": {"level": 0},
            "audit": {"retention": "days:3"},
            "display": {"defaultDashboard": "two"},
            "metadata": {"a": {"y": [2], "z": {"q": 3}}},
            "executor": "ws://operators/two",
            "title": "View",
        },
    ).effective
    assert found["autonomy"] == {"level": 0, "defaultApproval": "always"}
    assert found["audit"] == {"retention": "days:3", "appendOnly": True}
    assert found["display"] == {"showRetentionWarnings": True, "defaultDashboard": "two"}
    assert found["metadata"] == {"a": {"x": 1, "y": [2], "z": {"q": 3}}, "b": 2}
    assert (found["executor"], found["title"], found["name"]) == ("ws://operators/two", "View", "house")


def test_lists_merge_by_id_the_childs_entry_whole_and_in_the_parents_place(tmp_path: Path) -> None:
    entries = [{**policy(tmp_path, name, decision="deny"), "severity": "warn"} for name in ("aa", "bb")]
    own = policy(tmp_path / "view", "aa", decision="deny")
    found = merged(
        tmp_path,
        {"policies": entries, "approvers": [{"id": "cfo", "canApprove": ["tool.call"]}]},
        {"policies": [{"id": "cc", "ref": "./" + own["ref"]}, {"id": "aa", "ref": "./" + own["ref"]}]},
    )
    assert [one.id for one in found.policies] == ["aa", "bb", "cc"]
    assert [one.severity for one in found.policies] == ["error", "warn", "error"]
    assert [one.policy.path.is_relative_to(tmp_path / "view") for one in found.policies] == [True, False, True]
    assert [one.id for one in found.levels[-1].approvers] == ["cfo"]


def test_whom_a_view_is_for_is_not_inherited(tmp_path: Path) -> None:
    (tmp_path / "operators" / "junior").mkdir(parents=True)
    found = merged(tmp_path, {}, {"appliesTo": ["ws://operators/junior"]}, {})
    assert "appliesTo" not in found.effective and "appliesTo" not in found.origin
    assert found.effective["extends"] == UP


def test_every_key_has_the_file_and_line_that_it_comes_from(tmp_path: Path) -> None:
    found = merged(
        tmp_path, {"signing": {"required": True}, "metadata": {"a": {"b": 1}}}, {"signing": {"algo": "ed25519"}}
    )
    for key, folder in (
        ("signing.required", tmp_path),
        ("signing.algo", tmp_path / "view"),
        ("metadata.a.b", tmp_path),
    ):
        origin = found.origin[key]
        assert origin.path == folder / "GOVERNANCE.md"
        line = origin.path.read_text().splitlines()[origin.line - 1]
        assert line.strip().startswith(key.rpartition(".")[2])


# --- one-way switches ------------------------------------------------------------------------------------------------

LOCKS = [
    ("audit", "appendOnly", "governance_append_only_relaxation"),
    ("signing", "required", "governance_signing_downgrade"),
]


@pytest.mark.parametrize(("section", "key", "code"), LOCKS)
@pytest.mark.parametrize("between", [(), ({},), ({}, {})])
def test_a_lock_is_not_opened_by_any_descendant(
    section: str, key: str, code: str, between: tuple[Keys, ...], tmp_path: Path
) -> None:
    levels: list[Keys] = [{section: {key: True}}, *between, {section: {key: False}}]
    (mistake,) = refused(tmp_path, *levels)
    folder = "view/" * (len(levels) - 1)
    assert mistake == (
        f"{folder}GOVERNANCE.md:9 {section}.{key}: cannot be turned off: {tmp_path}/GOVERNANCE.md:8 has locked it "
        f"({code})"
    ).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(("section", "key", "code"), LOCKS)
def test_a_lock_that_is_opened_and_closed_again_further_down_is_still_refused(
    section: str, key: str, code: str, tmp_path: Path
) -> None:
    (mistake,) = refused(tmp_path, {section: {key: True}}, {section: {key: False}}, {section: {key: True}})
    assert code in mistake


@pytest.mark.parametrize(("section", "key", "code"), LOCKS)
def test_a_lock_may_be_closed_further_down(section: str, key: str, code: str, tmp_path: Path) -> None:
    found = merged(tmp_path, {section: {key: False}}, {section: {key: True}}, {})
    assert found.effective[section][key] is True


SWITCH = st.sampled_from([None, True, False])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.tuples(SWITCH, SWITCH), min_size=1, max_size=5))
def test_no_chain_ends_looser_than_any_file_of_it(tmp_path: Path, said: list[tuple[Any, Any]]) -> None:
    levels: list[Keys] = []
    for append_only, required in said:
        audit = {} if append_only is None else {"audit": {"appendOnly": append_only}}
        levels.append(audit if required is None else {**audit, "signing": {"required": required}})
    opened = any(
        False in [later[index] for later in said[place:]]
        for index in (0, 1)
        for place, one in enumerate(said)
        if one[index] is True
    )
    if opened:
        assert refused(tmp_path, *levels)
        return
    found = merged(tmp_path, *levels)
    closed = [found.effective.get(section, {}).get(key, False) for section, key, _ in LOCKS]
    assert closed == [any(one[index] for one in said) for index in (0, 1)]


# --- broken chains ---------------------------------------------------------------------------------------------------


def test_a_parent_that_is_missing_is_a_caution(tmp_path: Path) -> None:
    path = governance(tmp_path / "view", extends=UP, autonomy={"level": 0})
    found = load_workspace(path, tmp_path)
    assert found.effective["autonomy"] == {"level": 0} and len(found.chain) == 1
    (caution,) = found.cautions
    assert (caution.code, caution.where, caution.line) == (MISSING, "extends", 7)


def test_a_cycle_is_a_caution_and_what_was_found_holds(tmp_path: Path) -> None:
    first = governance(tmp_path / "a", extends="../b/GOVERNANCE.md")
    governance(tmp_path / "b", extends="../a/GOVERNANCE.md", audit={"appendOnly": True})
    found = load_workspace(first, tmp_path)
    assert [caution.code for caution in found.cautions] == [CYCLE]
    assert found.effective["audit"]["appendOnly"]
    governance(tmp_path / "a", extends="../b/GOVERNANCE.md", audit={"appendOnly": False})
    with pytest.raises(DocumentError, match="governance_append_only_relaxation"):
        load_workspace(first, tmp_path)


def test_a_cycle_above_a_view_is_gone_round_once(tmp_path: Path) -> None:
    first = governance(tmp_path / "a", extends="../b/GOVERNANCE.md")
    governance(tmp_path / "b", extends="../c/GOVERNANCE.md")
    governance(tmp_path / "c", extends="../b/GOVERNANCE.md")
    found = load_workspace(first, tmp_path)
    assert [caution.code for caution in found.cautions] == [CYCLE] and len(found.chain) == 3


def test_a_file_that_extends_itself_by_a_link_is_a_cycle(tmp_path: Path) -> None:
    path = governance(tmp_path, extends="./again/GOVERNANCE.md")
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "GOVERNANCE.md").symlink_to(path)
    assert [caution.code for caution in load_workspace(path, tmp_path).cautions] == [CYCLE]


@pytest.mark.parametrize(("levels", "codes"), [(8, []), (9, [TOO_DEEP]), (11, [TOO_DEEP])])
def test_a_chain_has_at_most_eight_files(levels: int, codes: list[str], tmp_path: Path) -> None:
    found = merged(tmp_path, *({"metadata": {str(n): {}}} for n in range(levels)))
    assert [caution.code for caution in found.cautions] == codes
    assert len(found.chain) == 8


def test_a_parent_outside_of_the_workspace_is_a_mistake(tmp_path: Path) -> None:
    governance(tmp_path)
    path = governance(tmp_path / "view", extends=UP)
    with pytest.raises(DocumentError) as caught:
        load_workspace(path, tmp_path / "view")
    assert told(caught.value, tmp_path) == ["view/GOVERNANCE.md:7 extends: leads out of the workspace view"]


def test_a_wrong_parent_is_told_with_its_own_file_and_line(tmp_path: Path) -> None:
    assert refused(tmp_path, {"autonomy": {"level": 4}}, {"autonomy": {"level": 0}}) == [
        "GOVERNANCE.md:8 autonomy.level: should be at most 3, not 4 (governance_workspace_invalid)"
    ]


# --- what it refers to -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["ws://operators/nobody", "../nobody", "../../outside"])
def test_a_view_of_nobody_is_refused(reference: str, tmp_path: Path) -> None:
    (tmp_path.parent / "outside").mkdir(exist_ok=True)
    (mistake,) = refused(tmp_path, {}, {"appliesTo": [reference]})
    assert mistake == (
        f"view/GOVERNANCE.md:9 appliesTo[0]: there is no {reference} (governance_appliesto_unresolvable)"
    )


def test_a_view_of_somebody_without_a_parent_is_refused(tmp_path: Path) -> None:
    assert "extends: required (governance_workspace_invalid)" in refused(tmp_path, {"appliesTo": ["ws://skills/a"]})[0]


def test_a_consumer_without_a_folder_may_be_vouched_for(tmp_path: Path) -> None:
    path = chain(tmp_path, {}, {"appliesTo": ["ws://operators/coder"]})
    assert load_workspace(path, tmp_path, consumers=["ws://operators/coder"]).effective["appliesTo"]


def test_policies_and_ids_that_are_not_there_or_twice_are_refused(tmp_path: Path) -> None:
    entry = policy(tmp_path, "aa", decision="deny")
    wrong = policy(tmp_path, "bb", decision="perhaps")
    gone = {"id": "cc", "ref": "./policies/cc/POLICY.md"}
    (tmp_path.parent / "x.md").write_text("")
    out = {"id": "dd", "ref": "../../x.md"}
    found = refused(tmp_path / "x", {"policies": [gone, out]})
    assert [one.partition(" ")[2] for one in found] == [
        "policies[0].ref: there is no policies/cc/POLICY.md (policy.not_found)",
        "policies[1].ref: leads out of the workspace " + str(tmp_path / "x") + " (policy.not_found)",
    ]
    assert refused(
        tmp_path, {"policies": [entry, dict(entry), wrong], "autonomy": {"defaultApproval": "policy:zz"}}
    ) == ["GOVERNANCE.md:10 policies[1].id: 'aa' is in the list already (governance_workspace_invalid)"]
    assert refused(tmp_path, {"policies": [entry, wrong], "autonomy": {"defaultApproval": "policy:zz"}}) == [
        "policies/bb/POLICY.md:7 decision: should be one of allow, deny, require-approval, escalate, not 'perhaps' "
        "(schema.invalid)",
        "GOVERNANCE.md:13 autonomy.defaultApproval: no policy 'zz' is registered; have aa (policy.not_found)",
    ]


@pytest.mark.parametrize("name", ["tool.cal", "workspace.write", "workspace.*", "tool.call.x", "."])
def test_an_escalation_of_what_nobody_is_asked_about_is_refused(name: str, tmp_path: Path) -> None:
    escalation = {"approvalEscalation": {"from": name, "to": "founder"}}
    assert refused(tmp_path, {"autonomy": escalation}, {}) == [
        f"GOVERNANCE.md:9 autonomy.approvalEscalation.from: nobody is asked about '{name}' here: "
        "write tool.call or operator.turn, or a class such as mutates or *"
    ]


@pytest.mark.parametrize(
    "name", ["tool.call", "operator.turn", "tool.*", "*.call", "mutates", "irreversible", "*", "operator"]
)
def test_an_escalation_of_what_somebody_is_asked_about_is_taken(name: str, tmp_path: Path) -> None:
    escalation = {"from": name, "to": "founder"}
    assert merged(tmp_path, {"autonomy": {"approvalEscalation": escalation}}).levels[-1].escalation == (name, "founder")


def test_a_keyring_is_in_the_workspace_and_one_that_is_missing_is_a_caution(tmp_path: Path) -> None:
    found = merged(tmp_path / "w", {"signing": {"keyring": ".well-known/keys.json"}})
    assert [(caution.where, caution.message) for caution in found.cautions] == [
        ("signing.keyring", f"there is no {tmp_path}/w/.well-known/keys.json")
    ]
    (tmp_path / "keys.json").write_text('{"keys": []}')
    (mistake,) = refused(tmp_path / "w", {"signing": {"keyring": "../keys.json"}})
    assert "signing.keyring: leads out of the workspace" in mistake
    (tmp_path / "w" / "keys.json").write_text('{"keys": []}')
    found = merged(tmp_path / "w", {"signing": {"keyring": "keys.json"}}, {})
    assert found.cautions == ()


@pytest.mark.parametrize(
    ("rings", "drifted"),
    [
        (['{"keys": [{"id": "a"}]}', '{"keys": [{"id": "a"}, {"id": "b"}]}', None], ["view"]),
        (['{"keys": [{"id": "a"}]}', '{"keys": [{"id": "b"}]}', '{"keys": [{"id": "b"}]}'], ["view"]),
        (['{"keys": [{"id": "a"}]}', None, '{"keys": [{"id": "b"}]}'], ["view/view"]),
        (["no JSON", '{"keys": [{"id": "a"}]}'], ["view"]),
        (["[]", '{"keys": [5, {}, {"id": "a"}]}', "{}"], ["view"]),
        ([None, '{"keys": [{"id": "a"}]}', "5"], []),
    ],
)
def test_a_keyring_is_compared_with_the_nearest_one_above(
    tmp_path: Path, rings: list[str | None], drifted: list[str]
) -> None:
    for depth, ring in enumerate(rings):
        folder = tmp_path.joinpath(*["view"] * depth)
        folder.mkdir(exist_ok=True)
        if ring is not None:
            (folder / "keys.json").write_text(ring)
    found = merged(tmp_path, *({"signing": {"keyring": "./keys.json"}} if ring is not None else {} for ring in rings))
    assert [(caution.code, Path(caution.file).parent) for caution in found.cautions] == [
        (DRIFT, tmp_path / folder) for folder in drifted
    ]


def test_a_keyring_has_more_keys_than_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "view").mkdir()
    (tmp_path / "view" / "keys.json").write_text('{"keys": [{"id": "a"}]}')
    ring = {"signing": {"keyring": "./keys.json"}}
    assert [caution.code for caution in merged(tmp_path, ring, ring).cautions] == ["", DRIFT]


def test_what_a_view_says_more_loosely_is_a_caution(tmp_path: Path) -> None:
    entry, mild = policy(tmp_path, "aa", decision="deny"), policy(tmp_path, "mild", decision="escalate")
    found = merged(
        tmp_path,
        {"autonomy": {"level": 1, "defaultApproval": "always"}, "policies": [entry]},
        {
            "autonomy": {"level": 3, "defaultApproval": "auto"},
            "policies": [{"id": "aa", "ref": mild["ref"], "severity": "info"}],
        },
    )
    assert [(caution.code, caution.where) for caution in found.cautions] == [
        (LOOSER, "autonomy.level"),
        (LOOSER, "autonomy.defaultApproval"),
        (LOOSER, "policies[0].ref"),
        (LOOSER, "policies[0].severity"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "looser"),
    [(None, 3, False), (1, None, False), (1, 0, False), (1, 1, False), (1, 2, True), (0, 3, True)],
)
def test_a_view_with_more_autonomy_is_looser(
    tmp_path: Path, before: int | None, after: int | None, looser: bool
) -> None:
    levels = [{} if level is None else {"autonomy": {"level": level}} for level in (before, after)]
    assert [caution.where for caution in merged(tmp_path, *levels).cautions] == ["autonomy.level"] * looser


@pytest.mark.parametrize("before", [None, "auto", "on-mutate", "always", "policy:aa"])
@pytest.mark.parametrize("after", [None, "auto", "on-mutate", "always", "policy:aa"])
def test_a_view_that_has_less_approved_is_looser(tmp_path: Path, before: str | None, after: str | None) -> None:
    levels = [{} if name is None else {"autonomy": {"defaultApproval": name}} for name in (before, after)]
    levels[0]["policies"] = [policy(tmp_path, "aa", decision="deny")]
    looser = (before, after) in {("on-mutate", "auto"), ("always", "auto"), ("always", "on-mutate")}
    cautions = [caution.where for caution in merged(tmp_path, *levels).cautions]
    assert cautions == ["autonomy.defaultApproval"] * looser


@pytest.mark.parametrize(
    ("match", "wide"),
    [
        ({"action": "tool.*", "subject": "x"}, True),
        ({"action": "tool.call", "subject": "x.*"}, True),
        ({"action": "tool.call"}, True),
        ({"action": "tool.call", "subject": "x"}, False),
    ],
)
def test_an_allowance_without_a_budget_and_with_a_wildcard_is_a_caution(
    tmp_path: Path, match: Keys, wide: bool
) -> None:
    entry = policy(tmp_path, "aa", decision="allow", match=match)
    cautions = merged(tmp_path, {"policies": [entry]}).cautions
    assert [caution.where for caution in cautions] == ["policies[0].ref"] * wide
    assert all("without a budget" in caution.message for caution in cautions)


# --- the workspace ---------------------------------------------------------------------------------------------------


def test_the_workspace_is_the_nearest_root_above_else_the_documents_folder(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c"
    deep.mkdir(parents=True)
    assert workspace_of(deep / "ACP.md") == deep
    governance(tmp_path)
    governance(tmp_path / "a" / "b", extends="../../GOVERNANCE.md")
    assert workspace_of(deep / "ACP.md") == tmp_path
    governance(deep)
    assert workspace_of(deep / "ACP.md") == deep
    assert workspace_of(Path(os.path.relpath(deep / "ACP.md"))) == deep


def test_a_root_above_the_given_top_is_none(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    governance(tmp_path)
    assert workspace_of(deep / "ACP.md", tmp_path / "a") == tmp_path / "a"
    governance(deep)
    assert workspace_of(deep / "ACP.md", tmp_path / "a") == deep
    assert workspace_of(tmp_path / "a" / "ACP.md", deep) == tmp_path
