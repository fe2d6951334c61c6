"""Encodes messages: one JSON text each, UTF-8, without a line break. Maps InterlinguaErrors to error answers.

Values may be anything msgspec encodes, or a Raw that is put in as it is. An empty Raw, and `params` of None, are left
out. Half surrogate pairs go out as escapes. Raises TypeError for what cannot be JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.core import errors
from gateway.wire.jsonrpc.decoding import unpack
from gateway.wire.jsonrpc.messages import INTERNAL_ERROR, ErrorObject, Id, RpcError

LF, CR = 10, 13

_encode = msgspec.json.Encoder().encode
_object = msgspec.json.Decoder(dict[str, Raw]).decode


class _Message(Struct, tag_field="jsonrpc", tag="2.0", gc=False):
    pass


class _Request(_Message):
    id: Id
    method: str
    params: Any


class _Notification(_Message):
    method: str
    params: Any


class _Result(_Message):
    id: Id
    result: Any


class _Error(_Message):
    id: Id
    error: Any


class _ErrorMember(Struct, gc=False):
    code: int
    message: str
    data: Any


def request(id: Id, method: str, params: Any = None) -> bytes:
    return _bytes(_Request(id, method, UNSET if params is None or _empty(params) else params))


def notification(method: str, params: Any = None) -> bytes:
    return _bytes(_Notification(method, UNSET if params is None or _empty(params) else params))


def result(id: Id, value: Any = None) -> bytes:
    """Encode an answer. Its result is null if there is none."""
    return _bytes(_Result(id, None if _empty(value) else value))


def error(id: Id, error: ErrorObject) -> bytes:
    """Encode an error answer. `id` is None if the request is unknown."""
    data = UNSET if _empty(error.data) else error.data
    return _bytes(_Error(id, _ErrorMember(error.code, error.message, data)))


def encoded(value: Any) -> bytes:
    """Encode any value as JSON: `params` and results of the functions above."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _escaped(value)


def raw(value: Any) -> Raw:
    """The same as Raw, for params and results that are handed on."""
    return Raw(encoded(value))


def members(given: Raw) -> dict[str, Raw]:
    """An object's members; none of no params, or of what is no object. Half surrogate pairs stay as they are."""
    if not given:
        return {}
    try:
        return _object(given)
    except (ValueError, RecursionError):
        try:
            found = unpack(given)
        except (ValueError, RecursionError):
            return {}
        return {name: raw(value) for name, value in found.items()} if isinstance(found, dict) else {}


def replaced(params: Raw, **values: Any) -> Raw:
    """The same params with some members set, and those left out that are None now."""
    found: dict[str, Any] = {**members(params), **values}
    return raw({name: value for name, value in found.items() if value is not None})


def _empty(value: Any) -> bool:
    return type(value) is Raw and not value


def _bytes(message: _Message) -> bytes:
    try:
        data = _encode(message)
    except UnicodeEncodeError:
        data = _escaped(message)
    if LF in data or CR in data:  # of a Raw, where it can only be space; an int is looked for four times faster
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return data


def _escaped(value: Any) -> bytes:
    """Encode a value with lone surrogates. NaN and infinity become null, as in msgspec."""
    text = json.dumps(msgspec.to_builtins(value, enc_hook=_unraw))
    return json.dumps(json.loads(text, parse_constant=lambda _: None), separators=(",", ":")).encode()


def _unraw(value: Any) -> Any:
    if isinstance(value, Raw):
        return json.loads(bytes(value))
    raise TypeError(f"a {type(value).__name__} cannot be JSON")


def failing(error: Exception, codes: Mapping[type[errors.InterlinguaError], int]) -> RpcError:
    """Map what a request raised to an error answer, by a codec's table. An RpcError is returned as it is.

    `data` names what and where: `{"code": <code of the tree>, "path": <JSON pointer into the params, of Invalid>}`
    and what `retry` says. What is no InterlinguaError is answered `internal()`.
    """
    if isinstance(error, RpcError):
        return error
    if not isinstance(error, errors.InterlinguaError):
        return internal()
    data: dict[str, Any] = {"code": error.code}
    if isinstance(error, errors.Invalid):
        data["path"] = error.path
    return RpcError(errors.lookup(codes, error), str(error), data | retry(error.retryable, error.retry_after))


def retry(retryable: bool, after: float | None) -> dict[str, Any]:
    """What `data` says of trying again: `retryable` where that may help, `retryAfter` (seconds) where it is known."""
    told: dict[str, Any] = {"retryable": True} if retryable else {}
    return told if after is None else {**told, "retryAfter": after}


def internal() -> RpcError:
    """Make the answer for a fault of our own, without any detail."""
    return RpcError(INTERNAL_ERROR, "Internal error", {"code": errors.InterlinguaError.code})
