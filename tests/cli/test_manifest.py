"""`interlingua manifest`, and what `check` says of manifests, mostly in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli.check import check
from gateway.cli.run import print_manifest
from gateway.governance.binding import bind
from tests.cli.conftest import interlingua
from tests.support.processes import ROOT

EXAMPLE = ROOT / "examples" / "governed"
PLAIN = "target: {protocol: example, url: 'http://127.0.0.1:1'}"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "routes.yaml"
    file.write_text(
        "routes:\n"
        f"  - {{name: Free_one, {PLAIN}}}\n"
        f"  - {{name: governed, {PLAIN}, manifest: {EXAMPLE}/mailcomposer/ACP.md}}\n"
        "  - {name: gone, target: {protocol: agent_connect, url: 'http://127.0.0.1:1', agent: x}}\n"
    )
    return file


def printed(agent: str, table: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """What is printed, as a file in a folder of the manifest's name."""
    assert print_manifest(agent, table) == 0
    text = capsys.readouterr().out
    (name,) = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("name: ")]
    file = table.parent / name / "ACP.md"
    file.parent.mkdir()
    file.write_text(text)
    return file


def test_any_agent_has_a_manifest_that_can_be_used(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = bind(printed("Free_one", table, capsys))
    assert (found.manifest.kind, found.manifest.tier, found.governed) == ("bridge", "basic", False)
    assert "interlingua stdio Free_one" in found.manifest.page.body


def test_a_governed_agents_manifest_is_its_own(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = bind(EXAMPLE / "mailcomposer" / "ACP.md").manifest
    assert print_manifest("governed", table) == 0
    text = capsys.readouterr().out
    assert f"operator: {own.raw['metadata']['aip44']['operator']}" in text and "tier: governance-aware" in text
    assert "loadSession: true" in text


@pytest.mark.parametrize(("agent", "code", "told"), [("nobody", 2, "nobody"), ("gone", 1, "127.0.0.1:1")])
def test_an_agent_that_cannot_be_asked_has_none(agent: str, code: int, told: str, table: Path) -> None:
    done = interlingua("manifest", agent, "--routes", str(table))
    assert (done.returncode, done.stdout) == (code, "") and told in done.stderr


def test_check_says_what_governs_an_agent(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(table) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  governed ->")]
    assert line.endswith("  bridge, governance-aware, governed by operator mail-operator and mail-room")


def test_check_tells_cautions_and_passes(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = table.parent / "view"
    folder.mkdir()
    (folder / "GOVERNANCE.md").write_text(
        "---\nschema: governance.workspace/v1\nname: view\ntitle: V\ndescription: V\nversion: 1.0.0\n"
        "extends: ../gone/GOVERNANCE.md\n---\n"
    )
    text = (EXAMPLE / "mailcomposer" / "ACP.md").read_text()
    text = text.replace("    operator: ../operators/mail-operator/OPERATOR.md\n", "").replace("../GOV", "./GOV")
    (folder / "ACP.md").write_text(text.replace("name: mailcomposer", "name: view"))
    table.write_text(f"routes: [{{name: a, {PLAIN}, manifest: view/ACP.md}}]\n")
    assert check(table) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("caution: ")]
    line, exposed = lines
    assert "routes[0].manifest: its clients have to be authenticated on a network" in exposed
    assert "view/GOVERNANCE.md:7 extends: there is no " in line and line.endswith("(governance_extends_missing)")


def test_check_fails_on_a_mistake_in_a_document_far_away(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = table.parent / "mailcomposer"
    folder.mkdir()
    text = (EXAMPLE / "mailcomposer" / "ACP.md").read_text()
    (folder / "ACP.md").write_text(text.replace("tier: governance-aware", "tier: sandboxed"))
    table.write_text(f"routes: [{{name: a, {PLAIN}, manifest: mailcomposer/ACP.md}}]\n")
    with pytest.raises(SystemExit) as left:
        check(table)
    told = capsys.readouterr().err.replace(f"{table.parent}/", "").splitlines()
    assert left.value.code == 1
    assert told == [
        "mailcomposer/ACP.md:9 metadata.aip44.sandbox: required",
        "mailcomposer/ACP.md:12 metadata.aip44.operator: there is no operators/mail-operator/OPERATOR.md",
        "mailcomposer/ACP.md:13 metadata.aip44.governance: there is no GOVERNANCE.md",
    ]
