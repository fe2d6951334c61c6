"""Decodes bytes to messages. Never raises: input that is not a message becomes `Malformed`.

Direction first, then id: whatever has a `method` is a request or a notification, and only what has none is an
answer. Each side counts its own ids, so an id says nothing about who asked.

The envelope alone is decoded, by one typed decoder (0.5 us). Whatever that refuses is looked at again, slowly: to find
the id, to forgive an answer what can be forgiven (its asker waits for it), and for half surrogate pairs, which agents
send when they cut a text in two and which msgspec refuses even where it only skips.
"""

from __future__ import annotations

import contextlib
import json
import re
from itertools import islice
from math import inf, isfinite, isinf
from typing import Any, Literal, NoReturn, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core.errors import Invalid
from gateway.wire.jsonrpc.messages import (
    ABSENT,
    EMPTY_BATCH,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorObject,
    Id,
    Malformed,
    Message,
    MessageBatch,
    Notification,
    Request,
    Response,
    Single,
)

T = TypeVar("T")

START = 200
"""How many bytes of a malformed message to keep."""
MOST = 1000
MOST_BYTES = 1024 * 1024
"""The largest batch. Two bytes of one can become an object in memory."""
TRIED = 5
"""Places of a line where a message may begin."""
HALVES_BYTES = 1024 * 1024
"""The largest message whose lone surrogates are kept. In a larger one each becomes U+FFFD."""

_NULL = b"null"
# expressions of what is wrong: compiled when something is
_HALF = rb"\\u[dD][89a-fA-F]"
_ESCAPES = rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
_BEGUN = rb'\{\s*"(?:jsonrpc|id|method)"\s*:'
_SPACE = b" \t\r\n"
_LAST = r"""(?as)((?:,\s*"(?:[^"\\]|\\.)*"\s*:\s*(?:"(?:[^"\\]|\\.)*"|[-+.\deE]+|true|false|null)\s*)+\})\s*$"""
"""The last members of an object that are no objects or arrays, to its end."""


class _Envelope(Struct, gc=False):
    """The form of nearly every message."""

    jsonrpc: Literal["2.0"]
    id: int | float | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


class _Members(Struct, gc=False):
    """The known members of any object."""

    jsonrpc: Raw = ABSENT
    id: Raw = ABSENT
    method: Raw = ABSENT
    params: Raw = ABSENT
    result: Raw = ABSENT
    error: Raw = ABSENT


_envelope = msgspec.json.Decoder(_Envelope).decode
_members = msgspec.json.Decoder(_Members).decode
_dict = msgspec.json.Decoder(dict[str, Raw]).decode
_list = msgspec.json.Decoder(list[Raw]).decode
_id = msgspec.json.Decoder(int | float | str | None).decode
_string = msgspec.json.Decoder(str).decode


def decode(data: bytes) -> Message:
    """Decode one JSON text to a message, or Malformed. Members that JSON-RPC does not define are ignored."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return _not_json(data, f"not UTF-8 at byte {error.start}", data[-START:])
    try:
        found = _envelope(data)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        return _slowly(data, error)
    if found.method is not UNSET:
        if found.id is UNSET:
            return Notification(found.method, found.params)
        return Request(found.id, found.method, found.params)
    if found.id is UNSET:
        return _no_message(data, "neither method nor id")
    return _answer(found.id, found.result, found.error)


def _answer(id: Id, result: Raw, error: Raw) -> Response:
    if error and bytes(error) != _NULL:
        return Response(id, error=_error(error))
    return Response(id, result)


def _error(raw: Raw) -> ErrorObject:
    """Decode the error member, however malformed, since a request waits for the answer."""
    unknown = ErrorObject(INTERNAL_ERROR, "an error that cannot be read", raw)
    try:
        members = _named(raw)
        code = unpack(members["code"], int) if "code" in members else INTERNAL_ERROR
        message = unpack(members["message"], str) if "message" in members else ""
        return ErrorObject(code, message, members.get("data", ABSENT)) if members else unknown
    except msgspec.ValidationError:
        pass
    try:
        return ErrorObject(INTERNAL_ERROR, unpack(raw, str))
    except msgspec.ValidationError:
        return unknown


def _named(raw: Raw) -> dict[str, Raw]:
    try:
        return _dict(raw)
    except msgspec.ValidationError:
        raise
    except ValueError:
        return {name: Raw(_dumps(value)) for name, value in unpack(raw, dict[str, Any]).items()}


def _slowly(data: bytes, why: Exception) -> Message:
    """Decode a message that the typed decoder refused."""
    if isinstance(why, RecursionError):
        return _not_json(data, "nested too deep", data[-START:])
    try:
        if data[:START].lstrip(_SPACE)[:1] != b"[":
            return _object(_members(data), data)
        if len(data) > MOST_BYTES:
            return _no_message(data, f"an array of more than {MOST_BYTES} bytes")
        return _batch(_list(data), data)
    except msgspec.ValidationError:
        return _no_message(data, "not an object")
    except RecursionError:
        return _not_json(data, "nested too deep", data[-START:])
    except ValueError as error:
        return _halves(data) if re.search(_HALF, data) else _not_json(data, str(error))


def _object(members: _Members, data: bytes) -> Message:
    """Decode an object member by member."""
    id: Id | UnsetType = UNSET
    sound = True
    if members.id:
        try:
            id = _id(members.id)
        except ValueError:
            sound = False
    if not members.method:
        if not sound:
            return _no_message(data, "the id is no string, number or null")
        if id is UNSET:
            return _no_message(data, "neither method nor id")
        return _answer(id, members.result, members.error)
    try:
        method = _string(members.method)
    except ValueError:
        return _no_message(data, "the method is no string", id, "?")
    if not sound:
        return _no_message(data, "the id is no string, number or null", method=method)
    if bytes(members.jsonrpc) != b'"2.0"':
        return _no_message(data, 'jsonrpc is not "2.0"', id, method)
    return Notification(method, members.params) if id is UNSET else Request(id, method, members.params)


def _batch(items: list[Raw], data: bytes) -> Message:
    if not items:
        return _no_message(data, EMPTY_BATCH)
    if len(items) > MOST:
        return _no_message(data, f"an array of more than {MOST} messages")
    messages: list[Single] = []
    for raw in items:
        item = bytes(raw)
        nested = item.startswith(b"[")  # not even looked into: there might be another in it, and so on
        messages.append(_no_message(item, "an array in an array") if nested else cast(Single, decode(item)))
    return MessageBatch(tuple(messages))


def _halves(data: bytes) -> Message:
    """Decode JSON with lone surrogates. They stay in `params` and `result`, as escapes."""
    try:
        if len(data) > HALVES_BYTES:
            return _object(_members(re.sub(_ESCAPES, _whole, data)), data)
        whole = _loads(data)
    except msgspec.ValidationError:
        return _no_message(data, "not an object")
    except (ValueError, RecursionError) as error:
        return _not_json(data, str(error))
    if isinstance(whole, list):
        return _batch([Raw(_dumps(item)) for item in whole], data)
    if not isinstance(whole, dict):
        return _no_message(data, "not an object")
    known = {name: Raw(_dumps(whole[name])) for name in _Members.__struct_fields__ if name in whole}
    return _object(_Members(**known), data)


def _whole(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape[1] else escape[0]


@overload
def unpack(raw: Raw | bytes) -> Any: ...
@overload
def unpack(raw: Raw | bytes, type: type[T]) -> T: ...
def unpack(raw: Raw | bytes, type: Any = Any) -> Any:
    """Decode `params` or `result` as `type`. Strings may contain lone surrogates.

    Raises msgspec.ValidationError where it is not of that type, msgspec.DecodeError where it is no JSON (which only an
    empty Raw can be, if it came from `decode`).
    """
    try:
        return msgspec.json.decode(raw, type=type)
    except msgspec.ValidationError:
        raise
    except RecursionError:  # nearer to the limit than `decode` was
        raise msgspec.ValidationError("nested too deep") from None
    except ValueError as error:
        text = bytes(raw)
        if not re.search(_HALF, text):
            raise msgspec.DecodeError(str(error)) from error
    try:
        return msgspec.convert(_loads(text), type)
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError("half a surrogate pair where no text is wanted") from error
    except RecursionError:
        raise msgspec.ValidationError("nested too deep") from None
    except msgspec.ValidationError:
        raise
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from error


class Glimpse(Struct, frozen=True, gc=False):
    """The first bytes of a message. `answer`: it answers `id`. `method` is "" if it was not seen."""

    id: Id | UnsetType = UNSET
    method: str = ""
    answer: bool = False


def glimpse(start: bytes, end: bytes = b"") -> Glimpse:
    """Find the id and the kind of an unreadable message in its first bytes, and in its last where those are known, as
    its sender or we may wait for an answer.

    Only what is certain is told: an `answer` has a result beside its id, a request a method.
    """
    seen: dict[str, Any] = {}
    text = start.decode("utf-8", "replace")
    try:
        at = _next(text, 0, "{")
        while True:
            key, at = _scan(text, at)
            at = _skip(text, at)
            if text[at] == ":" and key in ("result", "error"):
                seen[key] = None
                break
            value, at = _scan(text, _next(text, at, ":"))  # no further than into the first object that is cut
            if text[_skip(text, at)] in ",}":  # a number is whole only then
                seen[key] = value
            at = _next(text, at, ",")
    except (ValueError, IndexError, RecursionError):
        pass
    if last := re.search(_LAST, end.decode("utf-8", "replace")):
        with contextlib.suppress(ValueError):
            seen |= _decoder.decode(f"{{{last[1][1:]}")
    id = seen.get("id", UNSET)
    if isinstance(id, bool) or not isinstance(id, int | float | str | None | UnsetType):
        id = UNSET
    method = seen.get("method")
    method = method if isinstance(method, str) else ""
    answer = not seen.keys().isdisjoint(("result", "error")) and "method" not in seen
    return Glimpse(id, method, answer and id is not UNSET)


def apart(line: bytes) -> tuple[Message, ...]:
    """Decode a line of a program that prints among its messages: one behind a print without a line end is a message."""
    message = decode(line)
    if isinstance(message, Malformed) and line.lstrip()[:1] not in (b"{", b"["):
        for begun in islice(re.finditer(_BEGUN, line), TRIED):
            if not isinstance(found := decode(line[begun.start() :]), Malformed):
                return _not_json(line[: begun.start()], "text before a message"), found
    return (message,)


def _skip(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _next(text: str, at: int, wanted: str) -> int:
    """Skip `wanted` and the space after it."""
    at = _skip(text, at)
    if text[at] != wanted:
        raise ValueError(wanted)
    return _skip(text, at + 1)


def _not_json(data: bytes, reason: str, end: bytes = b"") -> Malformed:
    """`end`: its last bytes, where it is certain that they are its end."""
    seen = glimpse(data[:START], end)
    return Malformed(PARSE_ERROR, reason, data[:START], len(data), seen.id, seen.method, seen.answer)


def _no_message(data: bytes, reason: str, id: Id | UnsetType = UNSET, method: str = "") -> Malformed:
    return Malformed(INVALID_REQUEST, reason, data[:START], len(data), id, method)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON's, or out of range")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits[:START])


_decoder = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
_scan = _decoder.raw_decode


def _loads(data: bytes) -> Any:
    return _decoder.decode(data.decode())


def _dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


_NONE = Raw(b"{}")
_MOST_DIGITS = 4300
"""Python's own limit for an integer (`sys.set_int_max_str_digits`)."""
_MOST_LOOKED_AT = 1024 * 1024
"""The largest params in which to look for a mistake's place. As objects they take fifty times the memory."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_any = msgspec.json.Decoder().decode
_TOLD = r"(?s)(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?"
_MISSING = r"Object missing required field `(?P<name>[^`]*)`"
_STEP = r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]"


def read(params: Raw, type: type[T]) -> T:
    """Decode the params of a request as `type`; missing params are an empty object. Raises Invalid with the path."""
    try:
        return unpack(params or _NONE, type)
    except msgspec.ValidationError as error:
        raise _unfit(error) from None


def converted(params: Any, type: type[T]) -> T:
    """The same for params that `check` has decoded."""
    try:
        return msgspec.convert(params, type)
    except msgspec.ValidationError as error:
        raise _unfit(error) from None


def _unfit(error: msgspec.ValidationError) -> Invalid:
    path, what = _where(str(error))
    return Invalid(f"{path or 'params'}: {what}", path=path)


def check(params: Raw) -> Any:
    """Decode params. Raises Invalid, with the path, for those that no store, agent or answer can take as they are.

    These have a lone surrogate in a string or a member's name, a number out of a double's range, or nesting deeper than
    there is room for. Costs a decoding of the params, so it is for what clients ask, not for the text of agents, which
    may cut a character in two (gateway/core/delta/values.py).
    """
    try:
        return _any(params or _NONE)
    except RecursionError:
        raise Invalid("params: nested too deep") from None
    except ValueError as error:
        path, what = _flaw(bytes(params)) or ("", str(error))
        raise Invalid(f"{path or 'params'}: {what}", path=path) from None


def _flaw(text: bytes) -> tuple[str, str] | None:
    """Find the first value that `check` refuses. Returns its JSON pointer and the reason; None for a large text."""
    if len(text) > _MOST_LOOKED_AT:
        return None
    try:
        whole = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    found: list[tuple[str, Any]] = [("", whole)]
    for path, value in found:
        if isinstance(value, str) and _SURROGATE.search(value):
            return path, "half a surrogate pair, which is no text"
        if isinstance(value, float) and isinf(value):
            return path, "the number is out of range"
        if isinstance(value, dict):
            if any(map(_SURROGATE.search, value)):
                return path, "half a surrogate pair in the name of a member"
            found += [(f"{path}/{_escaped(name)}", member) for name, member in value.items()]
        elif isinstance(value, list):
            found += [(f"{path}/{index}", item) for index, item in enumerate(value)]
    return None


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else inf


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _where(message: str) -> tuple[str, str]:
    """Split one of msgspec's messages into the JSON pointer and the reason."""
    told = re.fullmatch(_TOLD, message)
    if told is None:
        return "", message
    path = ""
    for step in re.finditer(_STEP, told["path"] or ""):
        if step["any"]:
            break
        path += "/" + _escaped(step["name"] or step["index"])
    missing = re.fullmatch(_MISSING, told["what"])
    if missing is not None:
        return f"{path}/{missing['name']}", "is missing"
    return path, told["what"].replace("`", "")
