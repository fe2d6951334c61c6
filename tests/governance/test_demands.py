"""What a posture demands of its audit log is done, or the table that names it is not taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.config import DocumentError, load
from gateway.governance.audit import Terms
from gateway.governance.binding import Binding, bind
from gateway.governance.enforcing import RouteGovernor
from gateway.governance.enforcing.journal import Journal
from gateway.governance.tiers import REVISION
from tests.governance.support import Keys, governance, manifest, spends_nothing
from tests.support.scripted import AGENT


def bound(base: Path, aip44: Keys | None = None, **posture: Keys) -> Binding:
    governance(base, **posture)
    return bind(manifest(base / "coder", {"tier": "governance-aware", **(aip44 or {})}), base)


def cautions(binding: Binding, base: Path) -> list[str]:
    return [str(one).replace(f"{base}/", "") for one in binding.cautions]


@pytest.mark.parametrize(
    ("posture", "key", "told"),
    [
        (
            {"audit": {"headPointerSign": True}},
            False,
            "audit.headPointerSign: has the log's head signed: say with which key in the route table's audit.key",
        ),
        (
            {"signing": {"required": True}},
            False,
            "signing.required: has every audit entry signed: say with which key in the route table's audit.key",
        ),
        (
            {"signing": {"algo": "ecdsa-p256"}},
            True,
            "signing.algo: 'ecdsa-p256' is not what is signed with here: write ed25519",
        ),
        (
            {"audit": {"hashAlgo": "blake3"}},
            False,
            "audit.hashAlgo: 'blake3' is nothing that an audit event can name: write sha256 or sha512 or blake2b-256",
        ),
        (
            {"audit": {"retention": "days:0"}},
            True,
            "audit.retention: would keep nothing: write days:1 or more, or forever",
        ),
    ],
)
def test_what_is_not_done_is_refused_with_file_and_line(tmp_path: Path, posture: Keys, key: bool, told: str) -> None:
    (mistake,) = bound(tmp_path, **posture).unmet(key=key)
    assert str(mistake).replace(f"{tmp_path}/", "") == f"GOVERNANCE.md:8 {told}"
    elsewhere = {"audit": {"kind": "external", "ref": "file:///var/log/agents"}}
    assert len([*bound(tmp_path / "else", elsewhere, **posture).unmet(key=key)]) == 1


@pytest.mark.parametrize(
    ("posture", "key"),
    [
        ({"audit": {"headPointerSign": True, "retention": "days:1"}}, True),
        ({"audit": {"headPointerSign": False, "retention": "forever", "hashAlgo": "sha512"}}, False),
        ({"signing": {"algo": "rsa-pss-sha256", "required": False}}, False),  # nothing is signed
        ({}, False),
    ],
)
def test_what_is_done_is_not_refused(tmp_path: Path, posture: Keys, key: bool) -> None:
    assert [*bound(tmp_path, **posture).unmet(key=key)] == []


@pytest.mark.parametrize("demand", [{"signing": {"required": True}}, {"audit": {"headPointerSign": True}}])
def test_another_algorithm_is_refused_wherever_something_is_to_be_signed(tmp_path: Path, demand: Keys) -> None:
    signing = {**demand.get("signing", {}), "algo": "rsa-pss-sha256"}
    found = bound(tmp_path, **{**demand, "signing": signing}).unmet(key=False)
    assert {mistake.where for mistake in found} > {"signing.algo"}


def test_what_no_posture_governs_has_a_log_as_usual(tmp_path: Path) -> None:
    free = bind(manifest(tmp_path / "coder"), tmp_path)
    assert (free.terms, [*free.unmet(key=False)], free.cautions) == (Terms(), [], ())
    assert bound(tmp_path, audit={"retention": "forever"}).terms == Terms()


def test_a_line_of_an_ancestor_is_named_where_it_demands_it(tmp_path: Path) -> None:
    governance(tmp_path, audit={"headPointerSign": True})
    governance(tmp_path / "coder", extends="./../GOVERNANCE.md", audit={"retention": "days:9"})
    named = {"tier": "governance-aware", "governance": "./GOVERNANCE.md"}
    found = bind(manifest(tmp_path / "coder", named), tmp_path)
    (mistake,) = found.unmet(key=False)
    assert (Path(mistake.file).name, mistake.line) == ("GOVERNANCE.md", 8) and "coder" not in mistake.file
    assert found.terms == Terms(days=9, pointer=True)


def test_a_route_table_that_names_such_a_posture_is_refused(tmp_path: Path) -> None:
    bound(tmp_path, audit={"headPointerSign": True})
    route = "{name: a, target: {protocol: example, url: 'http://127.0.0.1:1'}, manifest: coder/ACP.md}"
    also = route.replace("name: a", "name: b")
    (tmp_path / "routes.yaml").write_text(f"routes: [{route}, {also}]")
    with pytest.raises(DocumentError) as caught:
        load(tmp_path / "routes.yaml")
    (mistake,) = caught.value.mistakes
    assert (Path(mistake.file).name, mistake.line, mistake.where) == ("GOVERNANCE.md", 8, "audit.headPointerSign")
    (tmp_path / "routes.yaml").write_text(f"routes: [{route}]\naudit: {{key: k.pem}}")
    assert load(tmp_path / "routes.yaml").audit.key == "k.pem"


def test_a_log_that_nothing_may_be_deleted_of_is_kept_and_that_is_said(tmp_path: Path) -> None:
    found = bound(tmp_path, audit={"appendOnly": True, "retention": "days:30"})
    assert found.terms.days is None
    assert cautions(found, tmp_path) == [
        "GOVERNANCE.md:9 audit.retention: nothing is removed after 30 days: audit.appendOnly lets nothing be deleted"
    ]


@pytest.mark.parametrize("storage", ["s3://bucket/audit", "file://./audit/audit-log.jsonl"])
def test_a_log_that_is_not_written_where_the_posture_says_is_told(tmp_path: Path, storage: str) -> None:
    (told,) = cautions(bound(tmp_path, audit={"storage": storage}), tmp_path)
    assert told.startswith("GOVERNANCE.md:8 audit.storage: the log is written to ")
    assert cautions(bound(tmp_path, audit={"storage": f"file://{tmp_path}/x"}), tmp_path) == []


@pytest.mark.parametrize("revision", [REVISION, REVISION[:7]])
def test_the_revision_that_is_spoken_is_no_caution(tmp_path: Path, revision: str) -> None:
    assert bound(tmp_path, {"acp_rev": revision}).cautions == ()


@pytest.mark.parametrize("revision", ["abc1234", f"{REVISION[:-1]}0"])
def test_another_revision_is_told_with_file_and_line(tmp_path: Path, revision: str) -> None:
    (told,) = cautions(bound(tmp_path, {"acp_rev": revision}), tmp_path)
    assert told == (
        f"coder/ACP.md:9 metadata.aip44.acp_rev: pins {revision}, and b7f0005493b9 is spoken here: "
        "what differs between them is not known (acp_rev_differs)"
    )


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({"agent_client": {"_meta": {"aip44": {"acp_rev": "abc1234"}}}}, True),
        ({"agent_client": {"_meta": {"aip44": {"acp_rev": REVISION}}}}, False),
        ({"agent_client": {"_meta": {"aip44": {"acp_rev": 7}}}}, False),
        ({"agent_client": {"_meta": ["aip44"]}}, False),
        ({}, False),
    ],
)
def test_an_agent_that_says_that_it_tracks_another_revision_is_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, extra: Keys, told: bool
) -> None:
    governor = RouteGovernor(bound(tmp_path, {"acp_rev": REVISION[:7]}), Journal(None, spend=spends_nothing))
    for _ in range(2):
        governor.broken(replace(AGENT, name="mail", extra=extra))
    line = "coder/ACP.md:9 metadata.aip44.acp_rev: pins b7f0005, and agent mail tracks abc1234"
    assert (line in caplog.text) is told and caplog.text.count("tracks") == told
