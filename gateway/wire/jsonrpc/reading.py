"""Params of a request as structs: what does not fit is refused with the place where it does not."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from msgspec import Raw

from gateway.core.errors import Invalid
from gateway.wire.jsonrpc.decoding import unpack

T = TypeVar("T")

_NONE = Raw(b"{}")
_TOLD = re.compile(r"(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[(?P<any>\.\.\.)\]")


def read(params: Raw, type: type[T]) -> T:
    """Params of a request as `type`; none at all count as an empty object. Raises Invalid with the path."""
    try:
        return unpack(params or _NONE, type)
    except msgspec.ValidationError as error:
        path, what = _where(str(error))
        raise Invalid(f"{path or 'params'}: {what}", path=path) from None


def _where(message: str) -> tuple[str, str]:
    """The JSON pointer and the complaint in one of msgspec's messages."""
    told = _TOLD.fullmatch(message)
    if told is None:
        return "", message
    path = ""
    for step in _STEP.finditer(told["path"] or ""):
        if step["any"]:
            break
        path += "/" + (step["name"] or step["index"]).replace("~", "~0").replace("/", "~1")
    missing = _MISSING.fullmatch(told["what"])
    if missing is not None:
        return f"{path}/{missing['name']}", "is missing"
    return path, told["what"].replace("`", "")
