"""Decodes the params of a client's request. Refuses what does not fit or cannot be stored, naming the place."""

from __future__ import annotations

import json
import re
from math import inf, isinf
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from gateway.core.errors import Invalid
from gateway.wire.jsonrpc.decoding import unpack

T = TypeVar("T")

_NONE = Raw(b"{}")
_MOST_DIGITS = 4300
"""Python's own limit for an integer (`sys.set_int_max_str_digits`)."""
_MOST_LOOKED_AT = 1024 * 1024
"""The largest params in which to look for a mistake's place. As objects they take fifty times the memory."""
_HALF = re.compile("[\ud800-\udfff]")
_any = msgspec.json.Decoder().decode
_TOLD = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]")


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
        if isinstance(value, str) and _HALF.search(value):
            return path, "half a surrogate pair, which is no text"
        if isinstance(value, float) and isinf(value):
            return path, "the number is out of range"
        if isinstance(value, dict):
            if any(map(_HALF.search, value)):
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
    told = _TOLD.fullmatch(message)
    if told is None:
        return "", message
    path = ""
    for step in _STEP.finditer(told["path"] or ""):
        if step["any"]:
            break
        path += "/" + _escaped(step["name"] or step["index"])
    missing = _MISSING.fullmatch(told["what"])
    if missing is not None:
        return f"{path}/{missing['name']}", "is missing"
    return path, told["what"].replace("`", "")
