"""JSON values in Python: the sentinels, true equality, and text in halves.

A JSON value is None, bool, int, float, str, list or dict with str keys, of exactly these types; JSON itself has no
way to say anything else, and msgspec and `json` decode to nothing else.

A peer that counts in UTF-16 units (JavaScript) may cut a character in two. `"\\ud83d"` is legal JSON, is a legal Python
string, and cannot be written as UTF-8. So text is *sound* when it holds no lone surrogate: the trailing first half of a
pair waits for the second; any other lone surrogate is no character and becomes U+FFFD.
"""

from __future__ import annotations

import enum
import json
import re
from math import copysign, isfinite
from typing import Any, Final, NoReturn

import msgspec
from msgspec.structs import replace

from gateway.core.errors import AgentBroken

Json = Any


class Sentinel(enum.Enum):
    """Markers that are not JSON values. Compare with `is`."""

    ABSENT = "no value yet"
    NO_DIFF = "no delta leads there"
    NO_COMPOSE = "no one delta stands for the two"

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = Sentinel.ABSENT
NO_DIFF: Final = Sentinel.NO_DIFF
NO_COMPOSE: Final = Sentinel.NO_COMPOSE

REPLACEMENT = "\ufffd"
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_decoder = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode


def same(a: Json, b: Json) -> bool:
    """JSON equality: 1, 1.0 and true differ, so do 0.0 and -0.0; the order of keys does not matter."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is dict:
        return len(a) == len(b) and all(same(v, b.get(k, ABSENT)) for k, v in a.items())
    if kind is list:
        return len(a) == len(b) and all(map(same, a, b))
    if kind is float:
        return bool(a == b and copysign(1.0, a) == copysign(1.0, b))
    return bool(a == b)


def is_high(text: str) -> bool:
    """True if the text ends in the first half of a surrogate pair."""
    return text != "" and "\ud800" <= text[-1] <= "\udbff"


def _is_low(text: str) -> bool:
    return text != "" and "\udc00" <= text[0] <= "\udfff"


def _pair(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def join_text(a: str, b: str) -> str:
    """`a + b`; two halves that meet become one character."""
    if _is_low(b) and is_high(a):
        return a[:-1] + _pair(a[-1] + b[0]) + b[1:]
    return a + b


def rest_of_text(before: str, after: str) -> str | None:
    """The text that `join_text` has to add to `before` to get `after`; None if there is none."""
    n = len(before)
    if after.startswith(before):
        rest = after[n:]
        return None if _is_low(rest) and is_high(before) else rest
    if is_high(before) and len(after) >= n and after.startswith(before[:-1]):
        high, low = divmod(ord(after[n - 1]) - 0x10000, 0x400)
        if 0xD800 + high == ord(before[-1]):
            return chr(0xDC00 + low) + after[n:]
    return None


def stitch(held: str, chunk: str) -> tuple[str, str]:
    """(sound text to go on, half to hold back) of `held + chunk`; `held` is "" or the half held back before."""
    text = _pair(held + chunk)
    held = text[-1] if is_high(text) else ""
    return _SURROGATE.sub(REPLACEMENT, text[:-1] if held else text), held


def sound(value: Json) -> Json:
    """The value, or a record, with every string sound (see the module); the same object if it is already."""
    return sized(value)[0]


def sized(value: Json) -> tuple[Json, int]:
    """`sound(value)`, and the length of its JSON."""
    try:
        return value, len(_encode(value))
    except UnicodeEncodeError:
        value = _mended(value)
        return value, len(_encode(value))


def _mended(value: Json) -> Json:
    if isinstance(value, str):
        return stitch("", value)[0]
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_mended(item) for item in value)
    if isinstance(value, msgspec.Struct):
        return replace(value, **{name: _mended(getattr(value, name)) for name in value.__struct_fields__})
    if isinstance(value, dict):
        return {sound_key(key): _mended(item) for key, item in value.items()}
    return value


def sound_key(key: str) -> str:
    """A key in sound text; it never grows, so a half at its end is lost too."""
    text, held = stitch("", key)
    return text + REPLACEMENT if held else text


def escape_lines(data: bytes) -> bytes:
    """JSON bytes in which U+0085, U+2028 and U+2029, where some clients split lines, are escaped."""
    if not data.isascii():
        if b"\xe2\x80" in data:
            data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
        if b"\xc2\x85" in data:
            data = data.replace(b"\xc2\x85", b"\\u0085")
    return data


def encode(value: Json) -> bytes:
    """Compact JSON in valid UTF-8 on one line, however lines are split; strings are made sound first."""
    try:
        data = _encode(value)
    except UnicodeEncodeError:
        data = _encode(_mended(value))
    return data if data.isascii() else escape_lines(data)


def decode(raw: bytes | msgspec.Raw, what: str = "something") -> Json:
    """One JSON text, called `what` in errors. Lone surrogate escapes, which msgspec refuses, are kept as they are.

    Integers keep every digit, up to Python's limit of 4300; a float is the nearest double, and one that overflows is
    refused, as are NaN, Infinity, invalid UTF-8 and nesting deeper than the interpreter's stack. Of a key that comes
    twice the last one counts. Raises AgentBroken.
    """
    try:
        return _decoder.decode(raw)
    except (ValueError, RecursionError) as error:  # msgspec.DecodeError and UnicodeDecodeError are ValueErrors
        raw = bytes(raw)
        if isinstance(error, msgspec.DecodeError) and _ESCAPED_SURROGATE.search(raw):
            try:
                return json.loads(raw.decode(), parse_float=_finite, parse_constant=_no_constant)
            except (ValueError, RecursionError) as second:
                error = second
        why = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise AgentBroken(f"{what} that is not JSON: {why}", detail=repr(raw[:200])) from error


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("number out of range")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
