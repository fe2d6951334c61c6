"""`bind`: an ACP.md and all that it names, read together; and a route of routes.yaml that names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Config, load
from gateway.governance.binding import Binding, bind
from gateway.governance.policy import Kind, PolicyRules
from gateway.yaml_document import DocumentError
from tests.governance.support import OPERATOR, SANDBOX, governance, manifest, policy, told, with_, write
from tests.support.processes import ROOT

GOVERNED = {"audit_log": "audit:all", "autonomy": "autonomous"}


def world(base: Path, **keys: object) -> Path:
    """A workspace with a posture, an operator and a server's manifest; the manifest."""
    governance(base, policies=[policy(base, "send", decision="deny", match={"subject": "send"})])
    write(base / "operators" / "coder" / "OPERATOR.md", with_(OPERATOR, tools=["send", "draft"], **keys))
    return manifest(
        base / "coder", {"operator": "operators/coder/OPERATOR.md", "tier": "governance-aware"}, kind="server"
    )


def refused(path: Path, base: Path) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        bind(path, base)
    return told(caught.value, base)


def test_everything_that_a_manifest_names_is_read(tmp_path: Path) -> None:
    found = bind(world(tmp_path, governance={**GOVERNED, "policies": ["policy:send"]}), tmp_path)
    assert found.operator is not None and found.operator.policies == ("send",)
    assert found.governance is not None and found.governance.path == tmp_path / "GOVERNANCE.md"
    assert found.governed and found.audit_folder == tmp_path and found.sandbox is None
    rules = PolicyRules(found.governance, found.operator)
    assert rules.call("send", risk=0, at=0.0).policy == "send"
    assert rules.call("draft", risk=0, at=0.0).kind is Kind.ALLOW
    assert rules.call("other", risk=0, at=0.0).kind is Kind.DENY
    assert found.roots.admit(f"{tmp_path}/x") == f"{tmp_path}/x"


def test_the_posture_in_the_operators_folder_governs_before_that_of_the_workspace(tmp_path: Path) -> None:
    path = world(tmp_path, governance=GOVERNED)
    own = governance(
        tmp_path / "operators" / "coder", extends="../../GOVERNANCE.md", appliesTo=["ws://operators/coder"], name="own"
    )
    found = bind(path, tmp_path).governance
    assert found is not None and found.path == own and len(found.chain) == 2
    named = manifest(
        tmp_path / "coder",
        {"operator": "operators/coder/OPERATOR.md", "governance": "./../GOVERNANCE.md", "tier": "governance-aware"},
        kind="server",
    )
    explicit = bind(named, tmp_path).governance
    assert explicit is not None and explicit.path == tmp_path / "GOVERNANCE.md"


def test_a_view_for_another_operator_is_a_caution(tmp_path: Path) -> None:
    path = world(tmp_path, governance=GOVERNED)
    for consumer in ("operators/painter", "companies/house"):
        (tmp_path / consumer).mkdir(parents=True)
    for consumers, codes in (
        (["ws://operators/painter"], ["governance_view_of_another"]),
        (["ws://operators/painter", "ws://operators/coder"], []),
        (["ws://operators/painter", "ws://companies/house"], []),
        (["ws://operators/painter", "../painter"], []),
    ):
        governance(tmp_path / "operators" / "coder", extends="../../GOVERNANCE.md", appliesTo=consumers)
        assert [caution.code for caution in bind(path, tmp_path).cautions] == codes


def test_the_mistakes_of_all_files_are_told_together(tmp_path: Path) -> None:
    governance(tmp_path, autonomy={"level": 9})
    write(tmp_path / "coder" / "OPERATOR.md", with_(OPERATOR, version="one"))
    write(tmp_path / "coder" / "SANDBOX.md", with_(SANDBOX, provider=""))
    aip44 = {"operator": "./OPERATOR.md", "sandbox": "./SANDBOX.md", "tier": "sandboxed"}
    told_of = refused(manifest(tmp_path / "coder", aip44), tmp_path)
    assert [one.partition(":")[0] for one in told_of] == ["coder/OPERATOR.md", "coder/SANDBOX.md", "GOVERNANCE.md"]


def test_a_policy_that_the_operator_must_consult_is_registered(tmp_path: Path) -> None:
    path = world(tmp_path, governance={**GOVERNED, "policies": ["policy:send", "policy:sned"]})
    (mistake,) = refused(path, tmp_path)
    assert mistake.startswith("operators/coder/OPERATOR.md:")
    assert mistake.endswith("governance.policies[1]: GOVERNANCE.md registers no 'sned'; have send (policy.not_found)")


def test_a_policy_without_any_posture_that_registers_it_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path / "coder" / "OPERATOR.md", with_(OPERATOR, governance={**GOVERNED, "policies": ["policy:x"]}))
    path = manifest(tmp_path / "coder", {"operator": "./OPERATOR.md", "tier": "governance-aware"})
    (mistake,) = refused(path, tmp_path)
    assert mistake.endswith("governance.policies[0]: there is no GOVERNANCE.md that registers it (policy.not_found)")


def test_the_lowest_tier_is_not_for_what_is_governed(tmp_path: Path) -> None:
    governance(tmp_path)
    assert refused(manifest(tmp_path / "coder"), tmp_path) == [
        "coder/ACP.md:10 metadata.aip44.tier: basic is for what nothing governs: write governance-aware"
    ]


def test_what_is_governed_cannot_have_its_audit_off(tmp_path: Path) -> None:
    governance(tmp_path)
    path = manifest(tmp_path / "coder", {"tier": "governance-aware", "audit": {"kind": "off"}})
    assert refused(path, tmp_path) == [
        "coder/ACP.md:12 metadata.aip44.audit.kind: what is governed is audited: write governance or external"
    ]


def test_a_manifest_alone_governs_nothing_and_is_not_audited(tmp_path: Path) -> None:
    found = bind(manifest(tmp_path / "coder"), tmp_path)
    assert (found.governed, found.audit_folder, found.cautions) == (False, None, ())


def test_an_audit_log_is_written_where_the_documents_say(tmp_path: Path) -> None:
    coder, own = tmp_path / "operators" / "coder", {"operator": "operators/coder/OPERATOR.md"}
    write(coder / "OPERATOR.md", with_(OPERATOR, governance=GOVERNED))

    def folder(**audit: str) -> Path | None:
        path = manifest(tmp_path / "coder", {**own, "tier": "governance-aware", "audit": audit}, kind="server")
        return bind(path, tmp_path).audit_folder

    assert folder() == coder
    governance(tmp_path)
    assert folder() == tmp_path
    governance(tmp_path, audit={"storage": "file:///var/log/x"})
    assert folder() == Path("/var/log/x")
    assert folder(kind="external", ref="file:///var/log/y") == Path("/var/log/y")


def test_bindings_of_the_same_files_are_equal_and_of_changed_ones_are_not(tmp_path: Path) -> None:
    path = world(tmp_path)
    before = bind(path, tmp_path)
    assert bind(path, tmp_path) == before
    governance(tmp_path, title="Another")
    assert bind(path, tmp_path) != before


# --- routes.yaml -----------------------------------------------------------------------------------------------------


def routes(base: Path, *manifests: str) -> Path:
    lines = [
        f"  - {{name: r{n}, target: {{protocol: example, url: 'http://x'}}, manifest: {name}}}"
        for n, name in enumerate(manifests)
    ]
    file = base / "routes.yaml"
    file.write_text("\n".join(["routes:", *lines, ""]))
    return file


def bindings(config: Config) -> list[Binding | None]:
    return [route.binding for route in config.routes]


def test_a_route_has_what_its_manifest_comes_to(tmp_path: Path) -> None:
    path = world(tmp_path / "agents")
    found = load(routes(tmp_path, "agents/coder/ACP.md"))
    assert bindings(found) == [bind(path, tmp_path / "agents")]


def test_a_route_whose_documents_have_changed_is_another_route(tmp_path: Path) -> None:
    world(tmp_path / "agents")
    file = routes(tmp_path, "agents/coder/ACP.md")
    first, again = load(file), load(file)
    assert first.routes == again.routes
    governance(tmp_path / "agents", title="Another")
    second = load(file)
    assert second.routes != first.routes
    write(tmp_path / "agents" / "operators" / "coder" / "OPERATOR.md", with_(OPERATOR, version="2.0.0"))
    assert load(file).routes != second.routes


def test_mistakes_of_manifests_are_told_after_the_files_own(tmp_path: Path) -> None:
    manifest(tmp_path / "coder", {"tier": "bassic"}, id="X")
    file = routes(tmp_path, "coder/ACP.md", "gone/ACP.md", "7")
    file.write_text(file.read_text() + "  - {name: a b, target: {protocol: example, url: 'http://x'}, manifest: 3}\n")
    with pytest.raises(DocumentError) as caught:
        load(file)
    assert [str(one).replace(f"{tmp_path}/", "") for one in caught.value.mistakes] == [
        "routes.yaml:3 routes[1].manifest: there is no file gone/ACP.md",
        "routes.yaml:4 routes[2].manifest: should be text, not a whole number: put it in quotes",
        "routes.yaml:5 routes[3].name: 'a b' is not a name: letters, digits, '_' and '-' only",
        "routes.yaml:5 routes[3].manifest: should be text, not a whole number: put it in quotes",
        "coder/ACP.md:2 id: 'X' does not look like ^[a-z0-9][a-z0-9\\-]{1,63}$",
        "coder/ACP.md:10 metadata.aip44.tier: should be one of basic, governance-aware, sandboxed, not 'bassic'; "
        "did you mean 'basic'?",
    ]


def test_references_lead_into_the_folder_of_the_routes_and_no_further(tmp_path: Path) -> None:
    write(tmp_path / "OPERATOR.md", OPERATOR)
    manifest(tmp_path / "in" / "coder", {"operator": "../../OPERATOR.md"})
    with pytest.raises(DocumentError, match="leads out of the workspace"):
        load(routes(tmp_path / "in", "coder/ACP.md"))
    load(routes(tmp_path, "in/coder/ACP.md"))


def test_the_example_governs() -> None:
    found = bind(ROOT / "examples" / "governed" / "mailcomposer" / "ACP.md")
    assert found.governed and found.cautions == ()
    decided = PolicyRules(found.governance, found.operator).call("smtp-send", risk=2, at=0.0)
    assert (decided.kind, decided.policy) == (Kind.ASK, "send-mail")
