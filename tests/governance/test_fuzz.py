"""Whatever a document contains, it loads or is refused with its mistakes; nothing else comes out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.governance.binding import bind
from gateway.governance.declined import Driven, cautions, declined
from gateway.governance.front_matter import read
from gateway.yaml_document import DocumentError
from tests.governance.support import ACP, GOVERNANCE, OPERATOR, POLICY, SANDBOX, Keys, with_, write

FILES: dict[str, Keys] = {
    "coder/ACP.md": {
        **ACP,
        "name": "coder",
        "tags": ["a"],
        "metadata": {
            "aip44": {
                "acp_rev": "b7f0005",
                "tier": "sandboxed",
                "operator": "./OPERATOR.md",
                "governance": "./GOVERNANCE.md",
                "sandbox": "./SANDBOX.md",
                "capabilities": {"agent": {"promptCapabilities": {"image": True}}, "client": {"fs": {}}},
                "audit": {"kind": "governance", "ref": "x"},
                "mcp_servers": [{"name": "a", "transport": "stdio", "ref": "./A.MCP.md"}],
            }
        },
    },
    "coder/A.MCP.md": {
        "kind": "mcp",
        "transport": "stdio",
        "server": {"kind": "binary", "path": "./SANDBOX.md", "args": ["a"], "env": {"A": "b"}},
    },
    "coder/OPERATOR.md": with_(
        OPERATOR,
        tools=["a-tool", {"id": "b", "scope": {"network": ["x"]}}, {"kind": "mcp", "server": "s", "allow": ["t"]}],
        skills=["a-skill", {"id": "b-skill", "allow": ["u"]}],
        memory={"kind": "external", "external": {"uri": "x"}},
        governance={"audit_log": "audit:x", "autonomy": "gated", "policies": ["policy:one"]},
    ),
    "coder/SANDBOX.md": with_(
        SANDBOX,
        mounts=[{"source": "workspace", "at": "/a"}, {"source": {"file": "./OPERATOR.md"}, "at": "/b"}],
        network={"egress": ["x"]},
    ),
    "coder/GOVERNANCE.md": with_(
        GOVERNANCE,
        extends="./../GOVERNANCE.md",
        appliesTo=["ws://operators/coder"],
        autonomy={"level": 1, "defaultApproval": "policy:one"},
        policies=[{"id": "one", "ref": "../policy/POLICY.md", "severity": "warn", "params": {"a": 1}}],
        approvers=[{"id": "x", "canApprove": ["tool.call"], "quorum": "2-of-3"}],
        metadata={"a": {"b": 1}},
    ),
    "GOVERNANCE.md": with_(
        GOVERNANCE,
        autonomy={"level": 2, "approvalEscalation": {"from": "a", "to": "b"}},
        signing={"required": True, "keyring": "keys.json"},
        audit={"appendOnly": True},
        policies=[{"id": "one", "ref": "policy/POLICY.md", "severity": "error"}],
        metadata={"a": {"c": 1}},
    ),
    "policy/POLICY.md": with_(
        POLICY,
        slug="one",
        decision="require-approval",
        signers=[{"role": "a"}, {"userId": "b"}],
        quorum=2,
        budget={"max_per_day": 3},
    ),
}
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    "../../..",
    [],
    [None],
    [[]],
    {},
    {"id": 1},
    {"a": {"b": []}},
    "é\n",
]


def ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a document."""
    if way:
        yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from ways(inner, (*way, key))


PLACES = [(file, way) for file, keys in FILES.items() for way in ways(keys)]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    for file, keys in FILES.items():
        write(tmp_path / file, keys)
    for name in ("a-skill", "b-skill"):
        write(tmp_path / "skills" / name / "SKILL.md", {"name": name, "description": "For trying."})
    return tmp_path


def test_the_documents_fit_together(world: Path) -> None:
    found = bind(world / "coder" / "ACP.md", world)
    assert found.governance is not None and len(found.governance.chain) == 2 and found.sandbox is not None


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(place=st.sampled_from(PLACES), value=st.sampled_from([*VALUES, ...]))
def test_any_value_in_any_place_loads_or_is_refused_in_its_file(
    place: tuple[str, tuple[Any, ...]], value: Any, world: Path
) -> None:
    file, way = place
    keys = copy.deepcopy(FILES[file])
    inner: Any = keys
    for step in way[:-1]:
        inner = inner[step]
    if value is ...:
        del inner[way[-1]]
    else:
        inner[way[-1]] = value
    write(world / file, keys)
    try:
        found = bind(world / "coder" / "ACP.md", world)
        for driven in (
            Driven(native=True, url="", near=True, served=True),
            Driven(native=False, url="http://127.0.0.1:1", near=True, served=True),
        ):
            assert all(one.line and one.message for one in (*declined(found, driven), *cautions(found, driven)))
    except DocumentError as error:
        assert error.mistakes and all(mistake.message and mistake.line for mistake in error.mistakes)
    finally:
        write(world / file, FILES[file])


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.binary(max_size=60) | st.text("---\n :[]{}&*!|>'\"#%@`a1\t\r", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_told(tmp_path: Path, content: bytes) -> None:
    for text in (content, b"---\n" + content + b"\n---\n"):
        (tmp_path / "x.md").write_bytes(text)
        page = read(tmp_path / "x.md")
        assert bool(page.raw) or page.document.mistakes or page.document.value == {}
