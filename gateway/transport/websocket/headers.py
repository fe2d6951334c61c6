"""Checks headers of the upgrade, both ways, and cookies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gateway.core.errors import Invalid

_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+").fullmatch
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]*").fullmatch
_COOKIE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e\"]*").fullmatch
_OURS = frozenset({"host", "connection", "upgrade", "content-length", "transfer-encoding"})


def checked(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers as pairs. Raises Invalid for a malformed one, and for one that belongs to the upgrade itself.

    Errors never contain a value, which may be secret.
    """
    for name, value in headers.items():
        if not _NAME(name):
            raise Invalid(f"{name!r} is no name of a header")
        if name.lower() in _OURS or name.lower().startswith("sec-websocket-"):
            raise Invalid(f"the header {name} belongs to the upgrade itself")
        if not _VALUE(value):
            raise Invalid(f"the value of the header {name} has characters that no header has")
    return list(headers.items())


def cookie_header(cookies: Mapping[str, str]) -> str:
    """Make the value of a Cookie header. Raises Invalid for a cookie that would be read as another one."""
    for name, value in cookies.items():
        if not _NAME(name) or not _COOKIE(value):
            raise Invalid(f"the cookie {name!r} has characters that no cookie has")
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


def cookies_of(set_cookies: Iterable[str], before: Mapping[str, str]) -> dict[str, str]:
    """Apply `Set-Cookie` headers to `before`. Returns name to value, as sent, without expired cookies.

    Cookies belong to the one server of the connection, so domain and path are ignored. So is one that could not be
    sent.
    """
    jar = dict(before)
    for line in set_cookies:
        pair, _, attributes = line.partition(";")
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not _NAME(name) or not _COOKIE(value):
            continue
        if _expired(attributes):
            jar.pop(name, None)
        else:
            jar[name] = value
    return jar


def _expired(attributes: str) -> bool:
    for attribute in attributes.split(";"):
        name, _, value = attribute.partition("=")
        if name.strip().lower() == "max-age":
            number = value.strip().removeprefix("-")
            return number.isdigit() and (int(number[:18]) == 0 or value.strip().startswith("-"))
    return False
