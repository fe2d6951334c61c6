"""Errors of the tree as JSON-RPC errors, and back (schema: ErrorCode)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core import errors
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError

__all__ = ["AUTH_REQUIRED", "ERRORS", "RESOURCE_NOT_FOUND", "cancelled", "from_rpc", "internal", "to_rpc"]

internal = jsonrpc.internal
AUTH_REQUIRED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002

ERRORS: Final[Mapping[type[errors.InterlinguaError], int]] = {
    errors.InterlinguaError: jsonrpc.INTERNAL_ERROR,
    errors.Refused: jsonrpc.INVALID_REQUEST,
    errors.Invalid: jsonrpc.INVALID_PARAMS,
    errors.TooLarge: jsonrpc.INVALID_PARAMS,
    errors.NotFound: RESOURCE_NOT_FOUND,
    errors.Conflict: jsonrpc.INVALID_REQUEST,
    errors.Unsupported: jsonrpc.METHOD_NOT_FOUND,
    errors.Denied: AUTH_REQUIRED,
    errors.Limited: jsonrpc.LIMITED,
}
"""JSON-RPC code of an error that keeps a request from being carried out. An RpcError has its own."""

_BACK: Final[Mapping[int, type[errors.InterlinguaError]]] = {
    jsonrpc.INVALID_PARAMS: errors.Invalid,
    jsonrpc.METHOD_NOT_FOUND: errors.Unsupported,
    RESOURCE_NOT_FOUND: errors.NotFound,
    AUTH_REQUIRED: errors.Denied,
}


def to_rpc(error: errors.InterlinguaError) -> RpcError:
    """The error answer for what a request raised (see `gateway.wire.jsonrpc.failing`)."""
    return jsonrpc.failing(error, ERRORS)


def cancelled() -> RpcError:
    """The answer of a request that was cancelled (docs: cancellation); a prompt is answered `cancelled` instead."""
    return RpcError(jsonrpc.REQUEST_CANCELLED, "Request cancelled")


def from_rpc(error: RpcError) -> errors.InterlinguaError:
    """The error of the tree that an agent's error answer to anything but a prompt amounts to.

    Invalid params -> Invalid, unknown method -> Unsupported, resource not found -> NotFound, auth required -> Denied,
    everything else stays the RpcError (an AgentFailed).
    """
    found = _BACK.get(error.error.code)
    return error if found is None else found(str(error), detail=error.detail)
