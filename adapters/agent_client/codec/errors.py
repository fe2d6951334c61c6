"""Errors of the tree as JSON-RPC errors, and back (schema: ErrorCode)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core import errors
from gateway.wire.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    RpcError,
    failing,
    internal,
)

__all__ = ["AUTH_REQUIRED", "ERRORS", "RESOURCE_NOT_FOUND", "cancelled", "from_rpc", "internal", "to_rpc"]

AUTH_REQUIRED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002

ERRORS: Final[Mapping[type[errors.InterlinguaError], int]] = {
    errors.InterlinguaError: INTERNAL_ERROR,
    errors.Refused: INVALID_REQUEST,
    errors.Invalid: INVALID_PARAMS,
    errors.TooLarge: INVALID_PARAMS,
    errors.NotFound: RESOURCE_NOT_FOUND,
    errors.Conflict: INVALID_REQUEST,
    errors.Unsupported: METHOD_NOT_FOUND,
    errors.Denied: AUTH_REQUIRED,
}
"""JSON-RPC code of an error that keeps a request from being carried out. An RpcError has its own."""

_BACK: Final[Mapping[int, type[errors.InterlinguaError]]] = {
    INVALID_PARAMS: errors.Invalid,
    METHOD_NOT_FOUND: errors.Unsupported,
    RESOURCE_NOT_FOUND: errors.NotFound,
    AUTH_REQUIRED: errors.Denied,
}


def to_rpc(error: errors.InterlinguaError) -> RpcError:
    """The error answer for what a request raised (see `gateway.wire.jsonrpc.failing`)."""
    return failing(error, ERRORS)


def cancelled() -> RpcError:
    """The answer of a request that was cancelled (docs: cancellation); a prompt is answered `cancelled` instead."""
    return RpcError(REQUEST_CANCELLED, "Request cancelled")


def from_rpc(error: RpcError) -> errors.InterlinguaError:
    """The error of the tree that an agent's error answer to anything but a prompt amounts to.

    Invalid params -> Invalid, unknown method -> Unsupported, resource not found -> NotFound, auth required -> Denied,
    everything else stays the RpcError (an AgentFailed).
    """
    found = _BACK.get(error.error.code)
    return error if found is None else found(str(error), detail=error.detail)
