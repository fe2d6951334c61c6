"""Errors of the tree as error answers: what every protocol on JSON-RPC says alike. The codes are each one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core import errors
from gateway.wire.jsonrpc.messages import INTERNAL_ERROR, RpcError


def failing(error: errors.InterlinguaError, codes: Mapping[type[errors.InterlinguaError], int]) -> RpcError:
    """The error answer for what a request raised, by a codec's table. An RpcError is returned as it is.

    `data` names what and where: `{"code": <code of the tree>, "path": <JSON pointer into the params, of Invalid>,
    "retryable": true}`. For any exception that is no InterlinguaError answer `internal()`.
    """
    if isinstance(error, RpcError):
        return error
    data: dict[str, Any] = {"code": error.code}
    if isinstance(error, errors.Invalid):
        data["path"] = error.path
    if error.retryable:
        data["retryable"] = True
    return RpcError(errors.lookup(codes, error), str(error), data)


def internal() -> RpcError:
    """The answer for a mistake of ours: nothing of it is told."""
    return RpcError(INTERNAL_ERROR, "Internal error", {"code": errors.InterlinguaError.code})
