"""A run that has ended as the answer of `agents/run`."""

from __future__ import annotations

from msgspec import Raw

from adapters.agent_communication.codec.agents import native, output_of
from adapters.agent_communication.codec.errors import ERRORS
from gateway.core import errors
from gateway.core import events as e
from gateway.core.types import Agent, JsonObject, Run, RunStatus
from gateway.mcp.runs.keys import told
from gateway.wire.jsonrpc import INTERNAL_ERROR, REQUEST_CANCELLED, RpcError

_META = "_meta"


def run_result(agent: Agent, run: Run, end: e.Event | None = None) -> JsonObject:
    """The result for a run that has ended; `end` is its last event, where it was seen.

    `_meta` names the run and counts what could not be said; the further members of an agent of this protocol come
    along. Raises RpcError, which is the answer, for a run that did not succeed: see `failed`.
    """
    if run.status is not RunStatus.SUCCESS:
        raise failed(agent, run, end)
    beyond = end.origin if native(agent) is not None and isinstance(end, e.RunFinished) else None
    beyond = beyond or {}
    own = beyond.get(_META)
    result = {key: value for key, value in beyond.items() if key != _META}
    result["output"] = Raw(output_of(agent, bytes(run.output)))
    result[_META] = {**(own if isinstance(own, dict) else {}), **told(run)}
    return result


def failed(agent: Agent, run: Run, end: e.Event | None = None) -> RpcError:
    """The error for a run that did not succeed.

    An agent of this protocol fails in its own words. `data` has the run, the code of the error tree, and the output
    so far.
    """
    if run.status is RunStatus.CANCELLED:
        code, message = REQUEST_CANCELLED, "Request cancelled"
    else:
        code, message = INTERNAL_ERROR, "the run failed"
    data: JsonObject = {"run": run.id}
    failure = run.failure
    if failure is not None:
        message = failure.message
        data["code"] = failure.code
        code = CODES.get(failure.code, code)
        if failure.retryable:
            data["retryable"] = True
    if bytes(run.output) != b"null":
        data["output"] = Raw(output_of(agent, bytes(run.output)))
    if run.losses:
        data["lost"] = dict(run.losses)
    said = end.origin.get("error") if native(agent) is not None and end is not None and end.origin else None
    if isinstance(said, dict) and isinstance(said.get("code"), int):
        own = said.get("data")
        if own is not None and not isinstance(own, dict):
            return RpcError(said["code"], str(said.get("message", message)), own)
        return RpcError(said["code"], str(said.get("message", message)), {**data, **(own or {})})
    return RpcError(code, message, data)


CODES = {cls.code: code for cls, code in ERRORS.items() if cls is not errors.InterlinguaError}
"""Code of the error tree -> JSON-RPC code, where it is not an internal error."""
