"""Errors of the tree as JSON-RPC errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.core import errors
from gateway.wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, LIMITED, METHOD_NOT_FOUND

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
    errors.Limited: LIMITED,
}
"""JSON-RPC code of an error. An unknown agent is -32602, as the protocol's TypeScript SDK says it; an RpcError has a
code of its own."""
