"""The ACP.md that is printed: valid for any agent, and no more than the gateway says to `initialize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.types import Agent
from gateway.governance import schemas, tiers
from gateway.governance.binding import bind
from gateway.governance.manifests import load_manifest
from gateway.governance.printing import bridge, capabilities, page
from gateway.yaml_document import Document
from tests.governance.support import governance, manifest

BOTH = ("stdio", "websocket")


def agent(name: str = "coder", said: Any = None, **keys: Any) -> Agent:
    extra = {} if said is None else {"any_protocol": {"agentCapabilities": said}}
    return Agent(name=name, input_schema={}, output_schema={}, extra=extra, **keys)


def loaded(front: dict[str, Any], base: Path) -> Any:
    """It comes back from a file as it was."""
    file = base / front["name"] / "ACP.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(front, "# It"))
    found = load_manifest(file, base)
    assert found.raw == front
    return found


@settings(max_examples=80, deadline=None)
@given(
    name=st.from_regex(r"[a-zA-Z0-9_-]{1,90}", fullmatch=True),
    version=st.sampled_from(["1.2.3", "1", "1.2", "v3", "", "1.2.3-rc.1", "²", "1.0.0.0"]) | st.text(max_size=9),
    description=st.text(max_size=40) | st.just("x" * 3000),
    said=st.sampled_from([None, 7, {}, {"loadSession": False, "promptCapabilities": {"image": True, "video": True}}]),
)
def test_any_agent_gets_a_manifest_that_is_valid(name: str, version: str, description: str, said: Any) -> None:
    front = bridge(agent(name, said, version=version, description=description), None, BOTH)
    document = Document("ACP.md")
    schemas.validate(document, front, schemas.MANIFEST)
    assert document.mistakes == []


def test_it_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    front = bridge(agent(description="Says: 'no' \u00e9 \U0001f600\n---\nmore", version="1.0"), None, BOTH)
    found = loaded(front, tmp_path)
    assert (found.kind, found.transports, found.raw["version"], found.audit_kind) == ("bridge", BOTH, "1.0.0", "off")
    text = (tmp_path / "coder/ACP.md").read_text()
    assert text.startswith("---\nname: coder\n") and "\u00e9" in text, "as somebody would have written it"
    assert loaded(bridge(agent(), None, ("stdio",)), tmp_path).raw["transport"] == "stdio"


def test_agents_whose_names_differ_have_different_ids() -> None:
    names = ["a-b", "A-b", "a_b", "a--b", "-", "_", "a", "a" * 64 + "b", "a" * 64 + "c"]
    ids = [bridge(agent(name), None, BOTH)["id"] for name in names]
    assert len(set(ids)) == len(names) and ids[0] == "a-b"
    for plain in ("ab", "a" * 64):
        assert bridge(agent(plain), None, BOTH)["id"] == plain


def test_what_nothing_governs_is_basic_and_says_that_it_is_not_audited() -> None:
    own = bridge(agent(said={"loadSession": True}), None, BOTH)["metadata"]["aip44"]
    assert (own["tier"], own["audit"]) == ("basic", {"kind": "off"})


def test_a_governed_agent_keeps_its_manifest_and_promises_what_both_can_do(tmp_path: Path) -> None:
    governance(tmp_path)
    path = manifest(
        tmp_path / "coder",
        {
            "tier": "sandboxed",
            "sandbox": "./SANDBOX.md",
            "ours": {"kept": ["as", "is"]},
            "capabilities": {
                "agent": {"promptCapabilities": {"image": True, "audio": True}},
                "client": {"terminal": True},
            },
        },
        vendor={"x": 1},
    )
    (tmp_path / "coder" / "SANDBOX.md").write_text("---\nprovider: local\nconfig: {}\n---\n")
    binding = bind(path, tmp_path)
    front = bridge(agent("r", {"promptCapabilities": {"image": True}}), binding, BOTH)
    own = front["metadata"]["aip44"]
    assert own["capabilities"] == {
        "agent": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False},
            "mcpCapabilities": {"http": False},
        },
        "client": {"terminal": True},
    }
    assert (own["ours"], own["tier"], front["vendor"], front["name"]) == (
        {"kept": ["as", "is"]},
        "sandboxed",
        {"x": 1},
        "coder",
    )
    said = tiers.promised(loaded(front, tmp_path))
    assert said == {"agent": {"loadSession": True, "promptCapabilities": {"image": True}}, "client": {"terminal": True}}
    assert binding.manifest.raw["metadata"]["aip44"]["capabilities"]["agent"]["promptCapabilities"]["audio"] is True


def test_what_a_tier_stands_for_and_its_manifest_denies_is_denied_in_what_is_printed(tmp_path: Path) -> None:
    governance(tmp_path)
    denies = {"agent": {"mcpCapabilities": {"http": False}}}
    path = manifest(tmp_path / "coder", {"tier": "sandboxed", "sandbox": "./SANDBOX.md", "capabilities": denies})
    (tmp_path / "coder" / "SANDBOX.md").write_text("---\nprovider: local\nconfig: {}\n---\n")
    front = bridge(agent("r", {"mcpCapabilities": {"http": True}}), bind(path, tmp_path), BOTH)
    own = front["metadata"]["aip44"]["capabilities"]["agent"]
    assert own == {"loadSession": True, "mcpCapabilities": {"http": False}}
    assert tiers.promised(loaded(front, tmp_path)) == {"agent": {"loadSession": True}}


CAN = [
    None,
    {},
    {"loadSession": False, "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True}},
    {"promptCapabilities": {"audio": True, "ours": True}, "mcpCapabilities": {"http": True, "sse": False}, "_meta": {}},
]


@pytest.mark.parametrize("said", CAN)
def test_the_map_is_what_editors_are_told(said: Any) -> None:
    from adapters.agent_client import ADAPTER
    from adapters.agent_client.codec.agents import agent_of, initialize_result

    assert ADAPTER.editors
    one = agent() if said is None else agent_of({"protocolVersion": 1, "agentCapabilities": said}, "test")
    told = initialize_result(one)["agentCapabilities"]
    known = {key: told.get(key, {}) for key in ("loadSession", "promptCapabilities", "mcpCapabilities")}
    flags = {
        key: {name for name, can in value.items() if can is True} if isinstance(value, dict) else value
        for key, value in known.items()
    }
    ours = capabilities(one)["agent"]
    assert flags["loadSession"] is ours["loadSession"] is True
    assert ours.get("promptCapabilities", {}) == dict.fromkeys(flags["promptCapabilities"] - {"ours"}, True)
    assert ours.get("mcpCapabilities", {}) == dict.fromkeys(flags["mcpCapabilities"], True)
