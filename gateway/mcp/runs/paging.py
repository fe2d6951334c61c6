"""Lists in pages. A cursor is opaque to clients: where the page before ended, by place and by name."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.core.errors import Invalid
from gateway.core.types import JsonObject

PATH: Final = "/cursor"


class _Cursor(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Of which list, how many were told, and the last of them."""

    list: str
    told: int
    last: str


def page(kind: str, names: Sequence[str], cursor: str | None, size: int) -> tuple[Sequence[str], str | None]:
    """The names on the page that `cursor` begins (None: the first), and the cursor of the next if there is one.

    A list that has changed since goes on after the name that was told last, or where that was. Raises Invalid for a
    cursor that this list never gave.
    """
    names = list(names)
    start = 0 if cursor is None else _start(kind, names, cursor)
    end = start + size
    if end >= len(names):
        return names[start:], None
    return names[start:end], _encoded(_Cursor(kind, end, names[end - 1]))


def _start(kind: str, names: list[str], cursor: str) -> int:
    found = _decoded(cursor)
    if found is None or found.list != kind or found.told < 1:
        raise Invalid(f"{PATH}: this is no cursor of this list", path=PATH)
    return names.index(found.last) + 1 if found.last in names else found.told


def _encoded(cursor: _Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _decoded(text: str) -> _Cursor | None:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=_Cursor)
    except (binascii.Error, ValueError):
        return None


def listed(key: str, items: list[JsonObject], following: str | None) -> JsonObject:
    """The answer of a list: its items, and where the next page begins if there is one."""
    return {key: items} if following is None else {key: items, "nextCursor": following}
