"""Results of tools, for a model to read and for a program."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.agent_context.codec.errors import data_of
from adapters.agent_context.wire.constants import AGENT, DIRECTORY, META, REGISTERED, SERVED
from gateway.core import delta
from gateway.core.errors import InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions
from gateway.mcp.runs import keys
from gateway.mcp.server.contract import McpCall
from gateway.wire.jsonrpc import RpcError


def result(call: McpCall, text: str, structured: JsonObject, meta: JsonObject | None = None) -> JsonObject:
    """A tool's result: for a model to read, and for a program where the revision has a place for that."""
    blocks = [{"type": "text", "text": said} for said in (text, delta.encode(structured).decode())]
    told: JsonObject = {"content": blocks, "isError": False}
    if versions.has_structured_output(call.client.version):
        told["structuredContent"] = structured
    return told if meta is None else {**told, META: meta}


def failed(error: InterlinguaError, meta: JsonObject | None = None) -> JsonObject:
    """The result for what failed."""
    failure: JsonObject = {"code": error.code, "message": str(error), "retryable": error.retryable}
    if isinstance(error, RpcError):
        failure = {"message": str(error), **(data_of(error.error) or {}), "errorCode": error.error.code}
    text = str(error)
    return {
        "content": [{"type": "text", "text": text}],
        "isError": True,
        META: {**(meta or {}), keys.FAILURE: failure},
    }


# --- the answers that appendix B of the protocol shows, as they are there --------------------------------------------


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
