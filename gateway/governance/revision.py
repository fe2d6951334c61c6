"""The revision of the Agent Client Protocol that is spoken here, and whether a manifest pins another (`acp_rev`)."""

from __future__ import annotations

from typing import Final

from gateway.core.types import Agent

REVISION: Final = "b7f0005493b98de32fabee3e9540e2b64da68535"
"""The commit of agentclientprotocol/agent-client-protocol that the gateway's schemas are those of."""
ANOTHER: Final = "acp_rev_differs"


def stated(agent: Agent) -> str | None:
    """The revision that an agent says it tracks (`_meta.aip44.acp_rev` of its `initialize`), if it says one."""
    for extra in agent.extra.values():
        found = extra.get("_meta")
        for step in ("aip44", "acp_rev"):
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, str):
            return found
    return None


def same(one: str, other: str) -> bool:
    """Whether two revisions, each of which may be abbreviated, are one."""
    return one.startswith(other) or other.startswith(one)


def spoken(revision: str) -> bool:
    """Whether a pinned revision, which may be abbreviated, is the one that is spoken here.

    Commits have no order that could be seen from here: another one may be older, newer, or say the same.
    """
    return REVISION.startswith(revision)
