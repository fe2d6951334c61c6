"""Requests that run an agent, and their answers beside the deltas of its output."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from adapters.agent_communication.codec.deltas_out import NOTIFICATION
from adapters.agent_communication.wire import PROTOCOL
from gateway.contract import RunContext
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import Invalid
from gateway.core.types import Failure, Json, JsonObject
from gateway.mcp.wire import META, PROGRESS_TOKEN, passed_on
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

OF_THE_CALL: Final = frozenset({"name", "input", "config", META, "inputResponses", "requestState", "task"})
"""Members of `params` that the gateway says itself."""


def params(context: RunContext, name: str, given: Json, *, configured: bool) -> JsonObject:
    """The params of `agents/run` for the agent `name` and the input `given`. Raises Invalid for one that is no object.

    What a client of the same protocol sent besides goes along as it is. So does, with `configured`, the run's
    configuration: the protocol has no place for it, but another gateway reads it, and nobody minds.
    """
    check(given)
    request = context.run.request
    said = request.creation if request.protocol == PROTOCOL else {}
    meta = said.get(META)
    meta = {**(meta if isinstance(meta, dict) else {}), **request.metadata}
    if meta:
        meta = {key: value for key, value in meta.items() if passed_on(key, value)}
    if context.traceparent is not None:
        meta["traceparent"] = context.traceparent
    extra = {key: value for key, value in said.items() if key not in OF_THE_CALL} if said else {}
    if configured and request.config:
        extra["config"] = request.config
    return {**extra, "name": name, "input": given, **({META: meta} if meta else {})}


def check(given: Json) -> None:
    """Raises Invalid for an input that is no object."""
    if not isinstance(given, dict):  # which ends acp-sdk's server for Python
        raise Invalid("the agent's input is an object", path="/input")


def told(method: str, params: Raw) -> list[e.Event]:
    """Another notification about the run, for clients of the same protocol; nothing where it cannot be read."""
    try:
        data = jsonrpc.unpack(params) if params else None
        if isinstance(data, dict):
            data.pop(PROGRESS_TOKEN, None)
        return [e.Custom(name=PROTOCOL, data=delta.sound({NOTIFICATION: method, "params": data}))]
    except (ValueError, RecursionError):
        return []


def failed(error: RpcError) -> e.RunFailed:
    """The end of a run that was answered with an error; clients of the same protocol hear it in the agent's words."""
    said = error.error
    origin: JsonObject = {"code": said.code, "message": delta.sound(said.message)}
    data = data_of(error)
    if data is not None:
        origin["data"] = data
    failure = Failure(code=error.code, message=delta.sound(str(error)) or "the agent failed")
    return e.RunFailed(failure=failure, origin={"error": origin})


def data_of(error: RpcError) -> Json:
    """The data of an error; None where there is none, or it cannot be read."""
    data = error.error.data
    try:
        return delta.sound(jsonrpc.unpack(data) if isinstance(data, Raw) else data)
    except (ValueError, RecursionError):
        return None
