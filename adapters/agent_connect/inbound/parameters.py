"""Reads a request's body, and the parameters in its path and query. All functions raise Invalid for misfits."""

from __future__ import annotations

import math
import re
from typing import TypeVar

from pydantic import TypeAdapter

from adapters.agent_connect import codec
from gateway.core.errors import Invalid
from gateway.transport.asgi import HttpRequest

T = TypeVar("T")

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})


async def body(request: HttpRequest, adapter: TypeAdapter[T], limit: int) -> T:
    """The body, validated. Also raises TooLarge, ClientGone."""
    return codec.read(adapter, await request.body(limit))


def uuid(request: HttpRequest, name: str) -> str:
    """A path parameter that must be a UUID."""
    value = request.path_params[name]
    if _UUID.fullmatch(value) is None:
        raise Invalid(f"{name}: {value!r} is not a UUID")
    return value.lower()


def integer(request: HttpRequest, name: str, default: int, least: int, most: int) -> int:
    """A query parameter that is a whole number from `least` up; `most` where it is more."""
    text = request.query(name)
    if text is None:
        return default
    value = int(text) if re.fullmatch(r"-?[0-9]{1,100}", text) else least - 1
    if value < least:
        raise Invalid(f"{name}: {text!r} is not an integer from {least} up")
    return min(value, most)


def seconds(request: HttpRequest, name: str) -> float | None:
    """A query parameter that is a time in seconds."""
    text = request.query(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise Invalid(f"{name}: {text!r} is not a number of seconds")
    return value


def flag(request: HttpRequest, name: str) -> bool:
    """A query parameter that is true or false; false if it is not given."""
    text = (request.query(name) or "false").lower()
    if text not in _TRUE | _FALSE:
        raise Invalid(f"{name}: {text!r} is not true or false")
    return text in _TRUE


def choice(request: HttpRequest, name: str, choices: tuple[str, ...]) -> str:
    """A query parameter that is one of these, the first if it is not given."""
    text = request.query(name) or choices[0]
    if text not in choices:
        raise Invalid(f"{name}: {text!r} is none of {', '.join(choices)}")
    return text
