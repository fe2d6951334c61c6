"""What a tool answers: for a model to read, and for a program."""

from __future__ import annotations

from adapters.agent_context.codec.errors import data_of
from adapters.agent_context.wire.constants import META
from gateway.core import delta
from gateway.core.errors import InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions
from gateway.mcp.runs import keys
from gateway.mcp.server.contract import Call
from gateway.wire.jsonrpc import RpcError


def result(call: Call, text: str, structured: JsonObject, meta: JsonObject | None = None) -> JsonObject:
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
