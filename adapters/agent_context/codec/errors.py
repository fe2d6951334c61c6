"""Errors of the tree as this protocol's errors, and an agent's own as errors of the tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters.agent_context import wire
from adapters.agent_context.wire.messages import received_at
from gateway.core import delta, errors
from gateway.core.types import Failure, JsonObject
from gateway.mcp.wire import META
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import (
    ErrorObject,
    RpcError,
)


class NoMatch(errors.NotFound):
    """No agent can do what is required."""

    code = "no_match"


class Expired(errors.Refused):
    """The deadline is past, or passed before the work was done."""

    code = "deadline"


ERRORS: Final[Mapping[type[errors.InterlinguaError], int]] = {
    errors.InterlinguaError: jsonrpc.INTERNAL_ERROR,
    errors.Refused: jsonrpc.INVALID_REQUEST,
    errors.Invalid: wire.INVALID,
    errors.NotFound: wire.NOT_FOUND,
    errors.Conflict: wire.CONFLICT,
    errors.Unsupported: jsonrpc.METHOD_NOT_FOUND,
    errors.TooLarge: jsonrpc.INVALID_REQUEST,
    errors.Denied: wire.DENIED,
    errors.AgentError: wire.AGENT_FAILED,
    errors.AgentGone: wire.UNAVAILABLE,
    errors.AgentTimeout: wire.DEADLINE,
    errors.Unavailable: wire.UNAVAILABLE,
    errors.Limited: jsonrpc.LIMITED,
    NoMatch: wire.NO_MATCH,
    Expired: wire.DEADLINE,
}
"""JSON-RPC code of an error; an RpcError has one of its own."""


def _classes(root: type[errors.InterlinguaError]) -> list[type[errors.InterlinguaError]]:
    return [root, *(each for below in root.__subclasses__() for each in _classes(below))]


_TREE: Final[Mapping[str, type[errors.InterlinguaError]]] = {
    cls.code: cls
    for cls in _classes(errors.InterlinguaError)
    if cls.__module__ in (errors.__name__, __name__) and cls is not errors.GatewayError
}
CODES: Final[Mapping[str, int]] = {
    code: next(ERRORS[each] for each in cls.__mro__ if each in ERRORS) for code, cls in _TREE.items()
}
"""Code of the error tree (`Failure.code`) -> JSON-RPC code."""

_THEIRS: Final[Mapping[int, type[errors.InterlinguaError]]] = {
    wire.INVALID: errors.Invalid,
    jsonrpc.INVALID_PARAMS: errors.Invalid,
    jsonrpc.METHOD_NOT_FOUND: errors.Unsupported,
    wire.NOT_FOUND: errors.NotFound,
    wire.DENIED: errors.Denied,
    wire.UNAVAILABLE: errors.AgentGone,
    wire.CONFLICT: errors.Conflict,
    wire.DEADLINE: Expired,
    wire.NO_MATCH: NoMatch,
}
"""Error of the tree for each code of an agent's; AgentFailed for any other. CANCELLED depends on who asked for it."""


WAITED_FOR: Final = "the correlationId of a message that waits for a response"

# --- ours ------------------------------------------------------------------------------------------------------------


def to_rpc(error: errors.InterlinguaError, correlation: str | None = None, params: Raw | None = None) -> RpcError:
    """The error answer for what a request raised.

    `data`: {"code": <code of the tree>, "retryable": ..., "retryAfter": <seconds, where they are known>,
    "path": <JSON pointer into the params, of Invalid>, "details": {"expected", "received"} where a value did not fit,
    "correlationId"}. An RpcError keeps what it says.
    `params`: of the request; what they have at the path is what was received.
    """
    if isinstance(error, RpcError):
        return answer(error, correlation)
    data: JsonObject = {"code": error.code, "retryable": error.retryable}
    if error.retry_after is not None:
        data["retryAfter"] = error.retry_after
    if isinstance(error, errors.Invalid):
        data["path"] = error.path
        received = None if params is None else received_at(params, error.path)
        data["details"] = {"expected": "a value that fits the schema", "received": received or str(error)}
    return answer(RpcError(errors.lookup(ERRORS, error), str(error), data), correlation)


def refusal(code: int, message: str, name: str, expected: str, received: Any, **data: Any) -> RpcError:
    """The error for what does not fit where it stands. `name`: its code of the tree; `data`: further members."""
    details = {"expected": expected, "received": received}
    return RpcError(code, message, {"code": name, "retryable": False, **data, "details": details})


def answer(error: RpcError, correlation: str | None) -> RpcError:
    """The same error with the correlation id in its data; as it is where there is none to tell, or no place."""
    if correlation is None:
        return error
    data = data_of(error.error)
    if data is None:
        return error
    return RpcError(error.error.code, error.error.message, {wire.CORRELATION: correlation, **data})


def failure_error(failure: Failure | None, message: str = "the run failed", **data: Any) -> RpcError:
    """The error answer for a run that failed; further members go into its data."""
    if failure is None:
        return RpcError(jsonrpc.INTERNAL_ERROR, message, {"code": "internal", "retryable": False, **data})
    code = CODES.get(failure.code, jsonrpc.INTERNAL_ERROR)
    if failure.retry_after is not None:
        data["retryAfter"] = failure.retry_after
    return RpcError(code, failure.message, {"code": failure.code, "retryable": failure.retryable, **data})


def note(error: RpcError, correlation: str | None = None, source: str | None = None) -> JsonObject:
    """The params of `agent/error` that tell the same where there is no answer to put it in."""
    data = data_of(error.error) or {}
    body: JsonObject = {"code": error.error.code, "message": error.error.message}
    details = data.get("details", {key: value for key, value in data.items() if key != wire.CORRELATION})
    if details:
        body["details"] = details
    params: JsonObject = {"error": body}
    if source is not None:
        params["source"] = source
    correlation = correlation or data.get(wire.CORRELATION)
    if correlation is not None:
        params[META] = {wire.CORRELATION: correlation}
    return params


# --- theirs ----------------------------------------------------------------------------------------------------------


def data_of(error: ErrorObject) -> JsonObject | None:
    """An error's data as an object: {} where there is none, None where it is something else."""
    data = error.data
    if isinstance(data, Raw):
        try:
            data = delta.sound(jsonrpc.unpack(data)) if data else {}
        except (msgspec.DecodeError, RecursionError):
            return None
    if data is None:
        return {}
    return data if isinstance(data, dict) else None


def tree_error(error: ErrorObject) -> errors.InterlinguaError:
    """The error of the tree for an agent's error answer; its message may be shown.

    Another gateway says which one it is in `data.code`; else the error code tells, and what no code tells is
    AgentFailed.
    """
    data = data_of(error) or {}
    said = data.get("code")
    cls = _TREE.get(said) if isinstance(said, str) else None
    if cls is None or issubclass(cls, errors.GatewayError) or cls is errors.InterlinguaError:
        cls = _THEIRS.get(error.code, errors.AgentFailed)
    message = jsonrpc.with_reason(error) or f"the agent answered with error {error.code}"
    if issubclass(cls, errors.Invalid):
        path = data.get("path")
        return cls(message, path=path if isinstance(path, str) else "")
    return cls(message)
