"""Maps InterlinguaErrors to error answers, alike for every protocol on JSON-RPC. Each protocol has its own codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.core import errors
from gateway.wire.jsonrpc.messages import INTERNAL_ERROR, RpcError


def failing(error: errors.InterlinguaError, codes: Mapping[type[errors.InterlinguaError], int]) -> RpcError:
    """Map the error of a request to an error answer, by a codec's table. An RpcError is returned as it is.

    `data` names what and where: `{"code": <code of the tree>, "path": <JSON pointer into the params, of Invalid>,
    "retryable": true, "retryAfter": <seconds, of Unavailable>}`. For any exception that is no InterlinguaError answer
    `internal()`.
    """
    if isinstance(error, RpcError):
        return error
    data: dict[str, Any] = {"code": error.code}
    if isinstance(error, errors.Invalid):
        data["path"] = error.path
    if error.retryable:
        data["retryable"] = True
    if isinstance(error, errors.Unavailable):
        data["retryAfter"] = error.retry_after
    return RpcError(errors.lookup(codes, error), str(error), data)


def internal() -> RpcError:
    """Make the answer for a fault of our own, without any detail."""
    return RpcError(INTERNAL_ERROR, "Internal error", {"code": errors.InterlinguaError.code})
