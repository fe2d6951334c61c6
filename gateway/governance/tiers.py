"""Capabilities that a manifest promises, and those of them that may be declared (AIP-44, "Capability negotiation").

A map of capabilities is `{"client": {...}, "agent": {...}}` with the names of the Agent Client Protocol's
`initialize`; what is left out is not supported. A tier is short for such a map; an explicit one overrides it, leaf by
leaf.

A manifest also pins a revision of the Agent Client Protocol (`acp_rev`), which may differ from the one spoken here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from gateway.core.types import Agent, JsonObject
from gateway.governance.front_matter import at
from gateway.governance.manifests import Manifest

REVISION: Final = "b7f0005493b98de32fabee3e9540e2b64da68535"
"""The commit of agentclientprotocol/agent-client-protocol that the gateway's schemas are those of."""
ANOTHER: Final = "acp_rev_differs"

BASIC: Final = "basic"
GOVERNANCE_AWARE: Final = "governance-aware"
SANDBOXED: Final = "sandboxed"
TIERS: Final[Mapping[str, JsonObject]] = MappingProxyType(
    {
        BASIC: {},
        GOVERNANCE_AWARE: {"agent": {"loadSession": True}},
        # "mcpCapabilities enabled" says not which: HTTP is the one that is not deprecated.
        SANDBOXED: {"agent": {"loadSession": True, "mcpCapabilities": {"http": True}}},
    }
)

LENT: Final = ("fs", "terminal")
"""The abilities of a client that `capabilities.client` can name."""


def promised(manifest: Manifest) -> JsonObject:
    """The map that a manifest stands for: its tier's, with its own on top. What is false is left out."""
    return _only_true(_over(TIERS[manifest.tier], manifest.capabilities or {}))


def effective(manifest: Manifest, can: JsonObject) -> JsonObject:
    """Return the capabilities for `initialize`: those that the manifest promises and the agent has."""
    return _both(promised(manifest), can)


def lent(manifest: Manifest, can: JsonObject) -> JsonObject:
    """Of what a client can do (`clientCapabilities`), what its agent may be told and use: of files and terminals only
    what the manifest's `capabilities.client` has. All of it where the manifest says nothing of clients.
    """
    stated = (manifest.capabilities or {}).get("client")
    if stated is None:
        return can
    others = {key: value for key, value in can.items() if key not in LENT}
    return others | _both(_only_true(stated), can)


def promised_but_missing(manifest: Manifest, can: JsonObject) -> tuple[str, ...]:
    """Capabilities that are promised and that the agent does not have, as `agent.mcpCapabilities.http`.

    Any of them is a failed start.
    """
    return tuple(".".join(way) for way in _leaves(promised(manifest)) if at(can, way) is not True)


def _over(base: JsonObject, top: JsonObject) -> JsonObject:
    result = dict(base)
    for key, value in top.items():
        inner = result.get(key)
        result[key] = _over(inner if isinstance(inner, dict) else {}, value) if isinstance(value, dict) else value
    return result


def _only_true(given: JsonObject) -> JsonObject:
    found = {key: _only_true(value) if isinstance(value, dict) else value for key, value in given.items()}
    return {key: value for key, value in found.items() if value}


def _both(one: JsonObject, other: Any) -> JsonObject:
    result: JsonObject = {}
    for key, value in one.items():
        theirs = other.get(key) if isinstance(other, dict) else None
        if isinstance(value, dict):
            if inner := _both(value, theirs):
                result[key] = inner
        elif theirs is True:
            result[key] = True
    return result


def _leaves(given: JsonObject, way: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in given.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*way, key))
        else:
            yield (*way, key)


def revision_of(agent: Agent) -> str | None:
    """The revision that an agent says it tracks (`_meta.aip44.acp_rev` of its `initialize`), if it says one."""
    told = (at(extra, ("_meta", "aip44", "acp_rev")) for extra in agent.extra.values())
    return next((revision for revision in told if isinstance(revision, str)), None)


def same_revision(one: str, other: str) -> bool:
    """Whether two revisions, each of which may be abbreviated, are one."""
    return one.startswith(other) or other.startswith(one)


def speaks(revision: str) -> bool:
    """Whether a pinned revision, which may be abbreviated, is the one that is spoken here.

    Commits have no order that could be seen from here: another one may be older, newer, or say the same.
    """
    return REVISION.startswith(revision)
