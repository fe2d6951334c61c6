"""What a manifest promises, what of it may be said, and what an agent does not keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.governance.front_matter import MarkdownPage
from gateway.governance.manifests import Manifest
from gateway.governance.tiers import TIERS, effective, promised, promised_but_missing
from gateway.yaml_document import Document

ALL = {
    "client": {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True},
    "agent": {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True},
    },
}


def manifest(tier: str, capabilities: dict[str, Any] | None = None) -> Manifest:
    return Manifest(
        page=MarkdownPage(Path("/w/a/ACP.md"), {}, "", Document("ACP.md")),
        id="a",
        kind="bridge",
        transports=("stdio",),
        acp_rev="b7f0005",
        tier=tier,
        workspace=Path("/w"),
        capabilities=capabilities,
        operator=None,
        governance=None,
        sandbox=None,
        audit_kind="governance",
        audit_ref=None,
        mcp_servers=(),
    )


@pytest.mark.parametrize(
    ("tier", "stands_for"),
    [
        ("basic", {}),
        ("governance-aware", {"agent": {"loadSession": True}}),
        ("sandboxed", {"agent": {"loadSession": True, "mcpCapabilities": {"http": True}}}),
    ],
)
def test_a_tier_is_short_for_a_map(tier: str, stands_for: dict[str, Any]) -> None:
    assert promised(manifest(tier)) == stands_for


def test_an_explicit_map_overrides_the_tier_leaf_by_leaf() -> None:
    explicit = {"agent": {"mcpCapabilities": {"http": False, "sse": True}}, "client": {"terminal": True}}
    assert promised(manifest("sandboxed", explicit)) == {
        "agent": {"loadSession": True, "mcpCapabilities": {"sse": True}},
        "client": {"terminal": True},
    }
    assert promised(manifest("governance-aware", {"agent": {"loadSession": False}})) == {}


def test_what_may_be_said_is_what_both_can() -> None:
    one = manifest("sandboxed", {"agent": {"promptCapabilities": {"image": True, "audio": False}}})
    assert effective(one, ALL) == promised(one)
    assert effective(one, {}) == {}
    assert effective(one, {"agent": {"loadSession": True, "promptCapabilities": {"audio": True}}}) == {
        "agent": {"loadSession": True}
    }


def test_what_is_promised_and_not_kept_is_named() -> None:
    one = manifest("sandboxed", {"agent": {"promptCapabilities": {"image": True}}})
    assert promised_but_missing(one, ALL) == ()
    assert promised_but_missing(one, {"agent": {"loadSession": True, "mcpCapabilities": {"http": False}}}) == (
        "agent.mcpCapabilities.http",
        "agent.promptCapabilities.image",
    )
    assert promised_but_missing(one, {"agent": None}) == (
        "agent.loadSession",
        "agent.mcpCapabilities.http",
        "agent.promptCapabilities.image",
    )
    assert promised_but_missing(manifest("basic"), {}) == ()


FLAG = st.sampled_from([True, False])
MAPS = st.fixed_dictionaries(
    {},
    optional={
        "client": st.fixed_dictionaries(
            {}, optional={"terminal": FLAG, "fs": st.dictionaries(st.just("readTextFile"), FLAG)}
        ),
        "agent": st.fixed_dictionaries(
            {},
            optional={
                "loadSession": FLAG,
                "promptCapabilities": st.dictionaries(st.sampled_from(["image", "audio"]), FLAG),
                "mcpCapabilities": st.dictionaries(st.sampled_from(["http", "sse"]), FLAG),
            },
        ),
    },
)


def leaves(given_map: Any, way: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not isinstance(given_map, dict):
        return {way} if given_map else set()
    return {leaf for key, value in given_map.items() for leaf in leaves(value, (*way, key))}


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(list(TIERS)), MAPS, MAPS)
def test_nothing_is_said_that_is_not_promised_and_done(tier: str, explicit: Any, can: Any) -> None:
    one = manifest(tier, explicit)
    said, missing = leaves(effective(one, can)), {tuple(way.split(".")) for way in promised_but_missing(one, can)}
    assert said == leaves(promised(one)) & leaves(can)
    assert missing == leaves(promised(one)) - leaves(can)
