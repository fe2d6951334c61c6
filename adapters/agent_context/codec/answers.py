"""The answers of the gateway that appendix B of the protocol shows, as they are there."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.agent_context.wire.constants import AGENT, DIRECTORY, META, REGISTERED, SERVED
from gateway.core import delta
from gateway.core.types import JsonObject
from gateway.mcp import versions


def registered() -> JsonObject:
    """The result of `agent/register`."""
    return {"status": REGISTERED, "directory": DIRECTORY, "capabilities": {AGENT: dict(SERVED)}}


def found_agents(found: Sequence[JsonObject], version: str, *, native: bool) -> JsonObject:
    """The result of the tool `agentSearch`: the agents as appendix B has them, under `_meta`.

    As structured content too, where the revision of MCP (`version`) knows that. A client that is not of this protocol
    (`native`) may show its model the content only, so there they are as JSON text as well.
    """
    count = len(found)
    said = f"Found {count} matching agent{'' if count == 1 else 's'}" if count else "No matching agents"
    agents: JsonObject = {"agents": list(found)}
    result: JsonObject = {"content": [{"type": "text", "text": said}], META: agents}
    if not native:
        result["content"].append({"type": "text", "text": delta.encode(agents).decode()})
    if versions.has_structured_output(version):
        result["structuredContent"] = agents
    return result
