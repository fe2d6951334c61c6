"""ACP.md, OPERATOR.md, SANDBOX.md and POLICY.md: what is read, and what a wrong one is told."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.governance.front_matter import LIMIT, read
from gateway.governance.manifests import (
    Manifest,
    Mount,
    Signer,
    ToolGrant,
    load_manifest,
    load_operator,
    load_policy,
    load_sandbox,
)
from gateway.governance.schemas import schema
from gateway.yaml_document import DocumentError
from tests.governance.support import OPERATOR, POLICY, SANDBOX, Keys, manifest, told, with_, write
from tests.support.processes import ROOT

DIGESTS = {
    "ACP": "d1ffba522598d068079ebf085851eb1e99b62661b5f5399d88c2399e1b7d5cc5",
    "OPERATOR": "9006eabb802c20fc9225cf80e42c789ea9560ca5dee4a1c68d4190a548cfa43c",
    "GOVERNANCE": "e2a348d87b5375986219a1ad02a1ef18d32ab9668f3a55fea9346e87ac9789ee",
    "SKILL": "1c8b9f5ee562fbe0b176566ace8682a666cae8e75b1a8a16e98917e62d1a5a90",
    "MCP": "a7957bb1d1c92f91583d1adeac1f7435ef44ecc57e365027f28e536060b8fc75",
    "SANDBOX": "f91ec09153fe94febbcc67de74627d6f25b2f094c7e37cd644e7a5e512df08e5",
}


def mistakes(load: Callable[[Path], object], path: Path, base: Path) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        load(path)
    return told(caught.value, base)


@pytest.mark.parametrize(("name", "digest"), DIGESTS.items())
def test_the_schemas_are_the_published_ones_byte_for_byte(name: str, digest: str) -> None:
    file = ROOT / "gateway" / "governance" / "schemas" / f"{name}.schema.json"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == digest
    assert schema(name)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_schemas_are_installed_with_the_program() -> None:
    assert '"gateway.governance.schemas" = ["*.json"]' in (ROOT / "pyproject.toml").read_text()


# --- front matter ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "x.md:1: should begin with a line of '---' and have its front matter below"),
        (b"# Title\n---\na: 1\n---\n", "x.md:1: should begin with a line of '---' and have its front matter below"),
        (b"---\na: 1\n", "x.md:1: the front matter does not end: no second line of '---'"),
        (b"---\n- 1\n---\n", "x.md:1: the front matter should be a mapping of keys"),
        (b"---\n---\n", "x.md:1: the front matter should be a mapping of keys"),
        (b"---\na: [1\nb: 2\n---\n", "x.md:3:2: not YAML: did not find expected ',' or ']'"),
        (b"---\na: 1\n\na: 2\n---\n", "x.md:4 a: given twice, first on line 2"),
        (b"---\na: \xff\n---\n", "x.md:2: not UTF-8: byte 7 is wrong"),
        (b"---\na: " + b"x" * LIMIT + b"\n---\n", f"x.md: larger than {LIMIT} bytes"),
    ],
)
def test_what_is_no_front_matter_is_told_with_its_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.md").write_bytes(content)
    (mistake,) = read(tmp_path / "x.md").document.mistakes
    given, wanted = str(mistake).removeprefix(f"{tmp_path}/"), message
    if "not YAML" in wanted:  # the words are the library's
        assert given.startswith("x.md:3:") and "not YAML" in given
    else:
        assert given == wanted


def test_a_file_that_is_not_there_is_told_so(tmp_path: Path) -> None:
    (mistake,) = read(tmp_path / "x.md").document.mistakes
    assert mistake.message == "no such file"


def test_windows_line_ends_a_byte_order_mark_and_fences_in_the_text_are_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_bytes(b"\xef\xbb\xbf---\r\na: |\r\n  ---\r\nb: 2\r\n---\r\nbody\r\n---\r\n")
    page = read(tmp_path / "x.md")
    assert page.raw == {"a": "---\n", "b": 2} and page.document.line(("b",)) == 4
    assert page.body == "body\n---\n"


def test_values_are_those_of_yaml_1_2_and_nothing_is_filled_in(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("---\na: off\nb: yes\nc: true\nd: ${HOME} ${\ne: 2026-04-28\non: 1\n---\n")
    page = read(tmp_path / "x.md")
    assert page.document.mistakes == []
    assert page.raw == {"a": "off", "b": "yes", "c": True, "d": "${HOME} ${", "e": "2026-04-28", "on": 1}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[" * 1000, "nested too deeply"),
        ("!!binary aGk=", "!!binary is not for these files"),
        ("!!timestamp 2026-01-01", "!!timestamp is not for these files"),
        ("!!python/object/apply:os.getcwd []", "!!python"),
        ("!ours x", "could not determine a constructor"),
    ],
)
def test_what_would_be_no_plain_value_is_a_mistake(text: str, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text(f"---\na: {text}\n---\n")
    page = read(tmp_path / "x.md")
    if "python" in text:  # a list with a strange name is a list; nothing is made of it
        assert page.raw == {"a": []}
    else:
        assert wrong in page.document.mistakes[0].message


def test_aliases_of_aliases_do_not_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (tmp_path / "x.md").write_text("\n".join(["---", *lines, "---", ""]))
    (mistake,) = read(tmp_path / "x.md").document.mistakes
    assert "more than 100000 values" in mistake.message


# --- ACP.md ----------------------------------------------------------------------------------------------------------


def test_a_manifest_is_read_with_nothing_lost(tmp_path: Path) -> None:
    write(tmp_path / "OPERATOR.md", OPERATOR)
    path = manifest(
        tmp_path / "coder",
        {"operator": "../OPERATOR.md", "ours": {"x": [1]}, "audit": {"kind": "external", "ref": "s3://log"}},
        kind="server",
        transport=["stdio", "websocket"],
        tags=["a"],
        vendor={"deep": True},
    )
    found = load_manifest(path, tmp_path)
    assert (found.id, found.kind, found.transports) == ("coder", "server", ("stdio", "websocket"))
    assert (found.raw["name"], found.raw["tags"]) == ("coder", ["a"])
    assert (found.operator, found.audit_kind, found.audit_ref) == (tmp_path / "OPERATOR.md", "external", "s3://log")
    assert found.raw["vendor"] == {"deep": True} and found.raw["metadata"]["aip44"]["ours"] == {"x": [1]}


def test_every_mistake_of_a_manifest_is_told_at_once_with_its_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "coder" / "ACP.md"
    path.parent.mkdir()
    path.write_text(
        "---\n"
        "name: codre\n"
        "id: Coder\n"
        "description: ''\n"
        "version: 1.0\n"
        "kind: servant\n"
        "transport: [stdio, stdio]\n"
        "metadata:\n"
        "  aip44:\n"
        "    acp_rev: 1234567\n"
        "    tier: sandboxed\n"
        "    capabilities: {agent: {loadSessions: true, mcpCapabilities: {http: 1}}}\n"
        "    operator: ./OPERATOR.md\n"
        "    audit: {kind: on}\n"
        "    mcp_servers: [{name: a}]\n"
        "---\n"
    )
    assert mistakes(load_manifest, path, tmp_path) == [
        "coder/ACP.md:2 name: 'codre' is not the folder's name, 'coder'",
        "coder/ACP.md:3 id: 'Coder' does not look like ^[a-z0-9][a-z0-9\\-]{1,63}$",
        "coder/ACP.md:4 description: should not be empty",
        "coder/ACP.md:5 version: should be text, not a number: put it in quotes",
        "coder/ACP.md:6 kind: should be one of client, server, bridge, not 'servant'; did you mean 'server'?",
        "coder/ACP.md:7 transport: has the same twice",
        "coder/ACP.md:9 metadata.aip44.sandbox: required",
        "coder/ACP.md:10 metadata.aip44.acp_rev: should be text, not a whole number: put it in quotes",
        "coder/ACP.md:12 metadata.aip44.capabilities.agent.loadSessions: unknown key; did you mean 'loadSession'?",
        "coder/ACP.md:12 metadata.aip44.capabilities.agent.mcpCapabilities.http: "
        "should be true or false, not a whole number",
        "coder/ACP.md:13 metadata.aip44.operator: there is no coder/OPERATOR.md",
        "coder/ACP.md:14 metadata.aip44.audit.kind: should be one of governance, external, off, not 'on'",
        "coder/ACP.md:15 metadata.aip44.mcp_servers[0].transport: required",
    ]


@pytest.mark.parametrize(
    ("aip44", "keys", "told_of"),
    [
        ({"tier": "sandboxed"}, {}, "metadata.aip44.sandbox: required"),
        ({}, {"kind": "server"}, "metadata.aip44.operator: required: a server exposes an operator"),
        ({}, {"name": "painter"}, "name: 'painter' is not the folder's name, 'coder'"),
        ({}, {"transport": []}, "transport: should not be empty"),
        ({}, {"transport": "carrier pigeon"}, "transport: should be one of stdio, websocket, not 'carrier pigeon'"),
        ({}, {"metadata": {}}, "metadata.aip44: required"),
        ({}, {"metadata": []}, "metadata: should be a mapping, not a list"),
        ({}, {"metadata": {"aip44": 1}}, "metadata.aip44: should be a mapping, not a whole number"),
        ({"operator": 7}, {}, "metadata.aip44.operator: should be text, not a whole number: put it in quotes"),
        ({"mcp_servers": {}}, {}, "metadata.aip44.mcp_servers: should be a list, not a mapping"),
    ],
)
def test_a_rule_that_is_broken_is_named(aip44: Keys, keys: Keys, told_of: str, tmp_path: Path) -> None:
    if "metadata" in keys:
        path = manifest(tmp_path / "coder")
        path = write(path, with_(read(path).raw, **keys))
    elif "name" in keys:
        path = manifest(tmp_path / "coder")
        path = write(path, {**read(path).raw, **keys})
    else:
        path = manifest(tmp_path / "coder", aip44, **keys)
    (mistake,) = mistakes(load_manifest, path, tmp_path)
    assert mistake.partition(" ")[2] == told_of


# --- OPERATOR.md -----------------------------------------------------------------------------------------------------


def test_an_operators_tools_memory_and_governance_are_typed(tmp_path: Path) -> None:
    path = write(
        tmp_path / "OPERATOR.md",
        with_(
            OPERATOR,
            tools=[
                "notes-search",
                {"id": "dispatch", "scope": {"workspace": "/strategy/*", "network": [], "secrets": ["k"]}},
                {"kind": "mcp", "server": "github", "allow": ["list"]},
                {"kind": "mcp", "server": "clock"},
            ],
            skills=["a-skill", {"id": "voice", "allow": ["rewrite"]}],
            memory={"kind": "external", "policy": "redactable", "external": {"uri": "redis://x"}},
            governance={"audit_log": "audit:billing", "autonomy": "gated", "policies": ["policy:send"]},
        ),
    )
    found = load_operator(path)
    assert found.tools == (
        ToolGrant(tool="notes-search"),
        ToolGrant(tool="dispatch"),
        ToolGrant(server="github", allow=("list",)),
        ToolGrant(server="clock"),
        ToolGrant(tool="rewrite"),
    )
    assert (found.memory.kind, found.memory.uri, found.memory.lasting) == ("external", "redis://x", True)
    assert (found.policies, found.audit_log, found.autonomy) == (("send",), "billing", "gated")
    assert found.skills == ("a-skill", "voice") and found.ref == "ws://operators/coder"


def test_an_operator_who_says_nothing_keeps_a_thread_and_is_supervised(tmp_path: Path) -> None:
    found = load_operator(write(tmp_path / "OPERATOR.md", OPERATOR))
    assert (found.memory.kind, found.autonomy, found.tools, found.audit_log) == ("thread", "supervised", (), None)


@pytest.mark.parametrize(
    ("keys", "told_of"),
    [
        (
            {"governance": {"audit_log": "audit:x", "autonomy": "gated"}, "participation": {"mode": "proactive"}},
            "participation.mode: should be one of mention-only, silent, not 'proactive'",
        ),
        ({"runtime": {"kind": "agent-cli"}}, "runtime.ref: required"),
        ({"tools": [{"kind": "mcp", "allow": []}]}, "tools[0].server: required"),
        ({"tools": ["Not A Slug"]}, "tools[0]: 'Not A Slug' does not look like ^[a-z][a-z0-9-]*[a-z0-9]$"),
        ({"governance": {"autonomy": "gated"}}, "governance.audit_log: required"),
        ({"memory": {"kind": "ephemeral"}}, None),
        ({"profil": {}}, "profil: unknown key; did you mean 'profile'?"),
    ],
)
def test_a_wrong_operator_is_told_what_is_wrong(keys: Keys, told_of: str | None, tmp_path: Path) -> None:
    (mistake,) = mistakes(load_operator, write(tmp_path / "OPERATOR.md", with_(OPERATOR, **keys)), tmp_path)
    wanted = told_of or "memory.kind: should be one of none, thread, operator-context, external, not 'ephemeral'"
    assert mistake.partition(" ")[2] == wanted


def test_a_file_that_cannot_be_read_is_told_once_and_one_that_can_with_all_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "OPERATOR.md"
    assert mistakes(load_operator, path, tmp_path) == ["OPERATOR.md: no such file"]
    write(path, with_(OPERATOR, profil={}))
    path.write_text(path.read_text().replace("---\n", "---\nid: coder\n", 1))
    with pytest.raises(DocumentError) as caught:
        load_operator(path)
    lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert [line.split(": ")[0] for line in lines] == ["OPERATOR.md:4 id", "OPERATOR.md:11 profil"]


# --- SANDBOX.md and POLICY.md ----------------------------------------------------------------------------------------


def test_a_sandbox_has_its_mounts(tmp_path: Path) -> None:
    (tmp_path / "STORAGE.md").write_text("")
    mounts: list[Any] = [
        {"source": "workspace", "at": "/box"},
        {"source": {"file": "./STORAGE.md"}, "at": "/data", "mode": "read-only"},
        {"source": {"inline": {"whatever": 1}}, "at": "/cache"},
    ]
    path = write(tmp_path / "SANDBOX.md", with_(SANDBOX, mounts=mounts, network={"egress": ["a.example"]}))
    found = load_sandbox(path, tmp_path)
    assert found.mounts == (
        Mount(at="/box", writable=True),
        Mount(at="/data", writable=False),
        Mount(at="/cache", writable=True),
    )
    assert (found.provider, found.local, found.read_only) == ("local", True, False)


def test_a_mount_that_climbs_is_refused(tmp_path: Path) -> None:
    mounts = [{"source": "workspace", "at": "/box/../etc"}, {"source": {"file": "../x"}, "at": "/x"}]
    path = write(tmp_path / "in" / "SANDBOX.md", with_(SANDBOX, mounts=mounts))
    (tmp_path / "x").write_text("")
    assert [one.partition(" ")[2] for one in mistakes(lambda p: load_sandbox(p, p.parent), path, tmp_path)] == [
        "mounts[0].at: should be an absolute path without '..'",
        "mounts[1].source.file: leads out of the workspace in",
    ]


@pytest.mark.parametrize("mounts", [7, {}, [7], [{"source": 7}], [{"source": {"file": 7}}]])
def test_mounts_that_are_none_are_told(tmp_path: Path, mounts: Any) -> None:
    path = write(tmp_path / "SANDBOX.md", with_(SANDBOX, mounts=mounts))
    assert all(" mounts" in one for one in mistakes(lambda p: load_sandbox(p, p.parent), path, tmp_path))


def test_a_policy_that_says_no_more_needs_one_person_up_to_the_middle_of_the_ladder(tmp_path: Path) -> None:
    keys = with_(POLICY, slug="spend", decision="require-approval", signers=[{"userId": "ann"}])
    found = load_policy(write(tmp_path / "POLICY.md", keys))
    assert (found.quorum, found.autonomy, found.risk_min, found.subject, found.budget) == (1, 2, 0, None, None)
    signers = [{"userId": "ann"}, {"role": "cfo"}]
    assert load_policy(write(tmp_path / "POLICY.md", {**keys, "signers": signers, "quorum": 3})).quorum == 3


def test_a_policy_is_typed(tmp_path: Path) -> None:
    path = write(
        tmp_path / "POLICY.md",
        with_(
            POLICY,
            slug="spend",
            match={"action": "tool.*", "subject": "ads-*", "risk_level_min": 2},
            decision="require-approval",
            signers=[{"role": "cfo"}, {"userId": "morgan@example.com"}],
            quorum=2,
            autonomy=3,
            budget={"max_per_hour": 3, "max_amount_cents": 500, "currency": "EUR"},
        ),
    )
    found = load_policy(path)
    assert (found.action, found.subject, found.risk_min, found.quorum, found.autonomy) == ("tool.*", "ads-*", 2, 2, 3)
    assert found.signers == (Signer(role="cfo"), Signer(user="morgan@example.com"))
    assert found.budget is not None and found.budget.per_hour == 3 and found.budget.per_day is None
    assert found.budget.amount


@pytest.mark.parametrize(
    ("keys", "told_of"),
    [
        ({"decision": "require-approval"}, "signers: required (schema.invalid)"),
        ({"decision": "escalate", "signers": 7}, "signers: should be a list, not a whole number (schema.invalid)"),
        ({"decision": "allow", "autonomy": 0}, "autonomy: 0 would never let it allow what it allows"),
        (
            {"decision": "escalate", "signers": [{"userId": "a"}, {"userId": "a"}], "quorum": 2},
            "quorum: can never be met: 1 may sign",
        ),
        (
            {"match": {"action": "Tool"}},
            "match.action: 'Tool' does not look like ^[a-z][a-z0-9._*-]*$ (schema.invalid)",
        ),
        ({"budget": {"max_per_day": 0}}, "budget.max_per_day: should be at least 1, not 0 (schema.invalid)"),
        (
            {"decision": "escalate", "signers": [{"userId": "x" * 300}]},
            "signers[0].userId: should have at most 256, has 300 (schema.invalid)",
        ),
    ],
)
def test_a_wrong_policy_is_told_what_is_wrong(keys: Keys, told_of: str, tmp_path: Path) -> None:
    path = write(tmp_path / "POLICY.md", with_(POLICY, slug="spend", **keys))
    (mistake,) = mistakes(load_policy, path, tmp_path)
    assert mistake.partition(" ")[2] == told_of


# --- references ------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A workspace `in` with an operator, beside a secret that is none of its business."""
    write(tmp_path / "secret" / "OPERATOR.md", OPERATOR)
    write(tmp_path / "in" / "operators" / "coder" / "OPERATOR.md", OPERATOR)
    (tmp_path / "in" / "link.md").symlink_to(tmp_path / "secret" / "OPERATOR.md")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "secret")
    (tmp_path / "in" / "inner.md").symlink_to("operators/coder/OPERATOR.md")
    return tmp_path


def referring(world: Path, to: str) -> Manifest:
    return load_manifest(manifest(world / "in" / "coder", {"operator": to}, kind="server"), world / "in")


@pytest.mark.parametrize(
    "to",
    [
        "../operators/coder/OPERATOR.md",
        "operators/coder/OPERATOR.md",
        "ws://operators/coder",
        "./.././operators//coder/OPERATOR.md",
        "../inner.md",
    ],
)
def test_a_reference_inside_the_workspace_is_resolved(to: str, world: Path) -> None:
    found = referring(world, to).operator
    assert found is not None and found.samefile(world / "in" / "operators" / "coder" / "OPERATOR.md")


def test_a_workspace_that_is_reached_by_a_link_is_one(world: Path) -> None:
    (world / "alias").symlink_to("in")
    path = manifest(world / "in" / "coder", {"operator": "../operators/coder/OPERATOR.md"}, kind="server")
    found = load_manifest(world / "alias" / path.relative_to(world / "in"), world / "alias")
    assert found.operator == world / "alias" / "operators" / "coder" / "OPERATOR.md"


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("../../secret/OPERATOR.md", "leads out of the workspace in"),
        ("../operators/../../secret/OPERATOR.md", "leads out of the workspace in"),
        ("link.md", "leads out of the workspace in by a link"),
        ("folder/OPERATOR.md", "leads out of the workspace in by a link"),
        ("../folder/../../in/link.md", "leads out of the workspace in by a link"),
        ("/etc/passwd", "'/etc/passwd' is not a path inside the workspace: write ./FILE or ../FILE"),
        ("file:///etc/passwd", "'file:///etc/passwd' is not a path inside the workspace: write ./FILE or ../FILE"),
        ("operators\\coder", "'operators\\coder' is not a path inside the workspace: write ./FILE or ../FILE"),
        ("x\0y", "'x\0y' is not a path inside the workspace: write ./FILE or ../FILE"),
        ("../" + "x" * 300, f"there is no in/{'x' * 300}"),
        ("../operators", "in/operators is not a file"),
        ("OPERATOR.md", "there is no in/OPERATOR.md; beside this file it is written ./OPERATOR.md"),
        ("ws://operators/nobody", "there is no in/operators/nobody/OPERATOR.md"),
    ],
)
def test_no_reference_leads_out_of_the_workspace(to: str, why: str, world: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        referring(world, to)
    (mistake,) = told(caught.value, world)
    assert mistake.partition(" ")[2] == f"metadata.aip44.operator: {why}"
