"""Errors of the tree as JSON-RPC errors (schema: ErrorCode)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Raw

from gateway.core import errors
from gateway.core.types import JsonObject
from gateway.wire import jsonrpc

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


def to_rpc(error: Exception) -> jsonrpc.RpcError:
    """The error answer for what a request raised (see `gateway.wire.jsonrpc.failing`)."""
    return jsonrpc.failing(error, ERRORS)


def denied(error: errors.Denied) -> jsonrpc.RpcError:
    """A refusal by the rules of a route as an invalid request: its own code would ask the agent to authenticate."""
    return jsonrpc.RpcError(jsonrpc.INVALID_REQUEST, str(error), {"code": error.code})


def said(error: jsonrpc.ErrorObject) -> JsonObject:
    told: JsonObject = {"code": error.code, "message": error.message}
    if error.data != jsonrpc.ABSENT:
        told["data"] = jsonrpc.unpack(error.data) if isinstance(error.data, Raw) else error.data
    return told


def read(told: Any) -> jsonrpc.RpcError | None:
    """The inverse. None for what is no error object."""
    if not isinstance(told, dict) or not isinstance(told.get("code"), int) or not isinstance(told.get("message"), str):
        return None
    return jsonrpc.RpcError(told["code"], told["message"], told.get("data", jsonrpc.ABSENT))


def unknown(method: str) -> jsonrpc.RpcError:
    return jsonrpc.RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})


def answer(error: Exception) -> jsonrpc.ErrorObject:
    return to_rpc(error).error
