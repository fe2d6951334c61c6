"""Every example of the specifications loads, or its mistake is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.governance.manifests import Manifest, load_manifest, load_operator, load_policy
from gateway.governance.posture import DRIFT, Governance, load_workspace
from gateway.yaml_document import DocumentError
from tests.governance.support import OPERATOR, POLICY, SANDBOX, governance, told, with_, write

UPSTREAM = Path(__file__).parent / "upstream"
PLACES = {
    "agentik-org": ".",
    "junior-eng-view": "operators/junior-eng",
    "acme-tenancy": "companies/acme",
    "finance-team": "teams/finance",
    "junior-finance-view": "operators/junior-finance",
}


def examples(number: int) -> Iterator[tuple[str, str]]:
    """(name, text) of the documents in one page of examples."""
    page = (UPSTREAM / f"aip-{number}.EXAMPLES.md").read_text()
    for found in re.finditer(r"^```(?:md|yaml)\n(---\n.*?)^```$", page, re.MULTILINE | re.DOTALL):
        front = yaml.safe_load(found[1].split("---\n")[1])
        yield front.get("slug") or front.get("id") or front["name"], found[1]


MANIFESTS, OPERATORS, POSTURES = dict(examples(44)), dict(examples(9)), dict(examples(7))


def put(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def org(tmp_path: Path) -> Path:
    """The workspace of AIP-7's examples, with the policies and folders that they only mention."""
    for name, text in POSTURES.items():
        folder = tmp_path / (PLACES.get(name) or f"policies/{name}")
        put(folder / ("GOVERNANCE.md" if name in PLACES else "POLICY.md"), text)
    mentioned = [f"policies/{name}" for name in ("write-protected", "external-network", "production-deploy")]
    mentioned += [f"companies/acme/policies/{name}" for name in ("acme-production-deploy", "data-residency")]
    for named in mentioned:
        match = {"action": "deploy.scheduled"}
        write(tmp_path / named / "POLICY.md", with_(POLICY, slug=Path(named).name, match=match, decision="deny"))
    (tmp_path / "companies" / "internal-finance").mkdir(parents=True)
    return tmp_path


def test_there_are_as_many_as_the_pages_have() -> None:
    assert (len(MANIFESTS), len(OPERATORS), len(POSTURES)) == (4, 7, 8)


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_loads(name: str, tmp_path: Path) -> None:
    found = load_operator(put(tmp_path / "OPERATOR.md", OPERATORS[name]))
    assert found.id == name
    assert "## " in found.page.body or "# " in found.page.body


@pytest.mark.parametrize("name", [name for name in POSTURES if name not in PLACES])
def test_every_policy_loads(name: str, org: Path) -> None:
    assert load_policy(org / "policies" / name / "POLICY.md").slug == name


@pytest.mark.parametrize("name", [name for name in PLACES if name != "acme-tenancy"])
def test_every_posture_loads(name: str, org: Path) -> None:
    found = load_workspace(org / PLACES[name] / "GOVERNANCE.md", org)
    assert found.effective["name"] == name
    assert found.effective["audit"]["appendOnly"] and found.effective["signing"]["required"]


def test_the_example_whose_default_names_no_policy_is_told_so(org: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        load_workspace(org / "companies/acme/GOVERNANCE.md", org)
    (mistake,) = told(caught.value, org)
    assert mistake == (
        "companies/acme/GOVERNANCE.md:18 autonomy.defaultApproval: no policy 'acme-deploy-class' is registered; have "
        "write-protected-paths, external-network, production-deploy, acme-data-residency (policy.not_found)"
    )


def expected() -> Any:
    """The effective posture that AIP-7 prints under "Resulting effective config"."""
    page = (UPSTREAM / "aip-7.EXAMPLES.md").read_text()
    (found,) = re.findall(r"### Resulting effective config.*?```yaml\n(.*?)```", page, re.DOTALL)
    return yaml.safe_load(found)


def resembles(given: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; lists in order, entry by entry."""
    if isinstance(wanted, dict):
        return all(key in given and resembles(given[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(given) == len(wanted) and all(map(resembles, given, wanted))
    return bool(given == wanted)


def test_three_levels_merge_to_what_the_specification_prints(org: Path) -> None:
    found = load_workspace(org / "operators/junior-finance/GOVERNANCE.md", org)
    assert resembles(found.effective, expected())
    assert [page.raw["name"] for page in found.chain] == ["agentik-org", "finance-team", "junior-finance-view"]
    said = {key: origin.path.parent.name for key, origin in found.origin.items()}
    assert said["autonomy.level"] == "junior-finance" and said["policies.finance-write"] == "junior-finance"
    assert said["approvers.cfo"] == "finance" and said["executor"] == "finance"
    assert said["audit.appendOnly"] == said["signing.required"] == org.name
    assert found.origin["signing.required"].line == 22


def test_a_keyring_of_a_view_with_keys_that_its_parent_has_not_is_a_caution(org: Path) -> None:
    put(org / ".well-known/governance-keys.json", '{"keys": [{"id": "a"}]}')
    put(org / "operators/junior-eng/.well-known/junior-keys.json", '{"keys": [{"id": "a"}, {"id": "b"}]}')
    view = org / "operators/junior-eng/GOVERNANCE.md"
    (caution,) = [one for one in load_workspace(view, org).cautions if one.code == DRIFT]
    assert caution.where == "signing.keyring" and caution.message.endswith(": b")


Load = Callable[[str], Manifest | Governance]


@pytest.fixture
def manifest(tmp_path: Path) -> Load:
    """Loads one of AIP-44's examples, with the files that it refers to beside it."""

    def load(name: str) -> Manifest:
        folder = tmp_path / name
        governance(folder)
        write(folder / "OPERATOR.md", OPERATOR)
        write(folder / "SANDBOX.md", SANDBOX)
        put(folder / "mcp" / "workspace.MCP.md", "")
        return load_manifest(put(folder / "ACP.md", MANIFESTS[name]), tmp_path)

    return load


@pytest.mark.parametrize("name", [name for name in MANIFESTS if name != "hermes-acp"])
def test_every_manifest_loads(name: str, manifest: Load) -> None:
    found = manifest(name)
    assert isinstance(found, Manifest)
    assert (found.raw["name"], found.raw["metadata"]["aip44"]["acp_rev"]) == (name, "abc1234")


def test_the_example_of_a_server_without_an_operator_is_told_so(manifest: Load, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        manifest("hermes-acp")
    (mistake,) = told(caught.value, tmp_path)
    assert mistake == "hermes-acp/ACP.md:10 metadata.aip44.operator: required: a server exposes an operator"
