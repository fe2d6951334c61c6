"""Errors of the tree as JSON-RPC errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core import errors
from gateway.core.types import JsonObject
from gateway.wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError

DENIED: Final = -32000

ERRORS: Final[Mapping[type[errors.InterlinguaError], int]] = {
    errors.InterlinguaError: INTERNAL_ERROR,
    errors.Refused: INVALID_REQUEST,
    errors.Invalid: INVALID_PARAMS,
    errors.NotFound: INVALID_PARAMS,
    errors.Conflict: INVALID_REQUEST,
    errors.TooLarge: INVALID_REQUEST,
    errors.Unsupported: METHOD_NOT_FOUND,
    errors.Denied: DENIED,
}
"""JSON-RPC code of an error. An unknown agent is -32602, as the protocol's TypeScript SDK says it; an RpcError has a
code of its own."""


def to_rpc(error: errors.InterlinguaError) -> RpcError:
    """The error answer for what a request raised. An RpcError is returned as it is.

    `data` names what and where: `{"code": <code of the tree>, "path": <JSON pointer into the params, of Invalid>,
    "retryable": true}`. For any exception that is no InterlinguaError answer `internal()`.
    """
    if isinstance(error, RpcError):
        return error
    data: JsonObject = {"code": error.code}
    if isinstance(error, errors.Invalid):
        data["path"] = error.path
    if error.retryable:
        data["retryable"] = True
    return RpcError(errors.lookup(ERRORS, error), str(error), data)


def internal() -> RpcError:
    """The answer for a mistake of ours: nothing of it is told."""
    return RpcError(INTERNAL_ERROR, "Internal error", {"code": errors.InterlinguaError.code})
