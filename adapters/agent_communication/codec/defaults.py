"""Defaults that ride along in every delta.

An agent made with the Python SDK dumps a whole model for each delta, so that fields it did not set are there with their
defaults, each time; folded, a default text would be doubled and a flag would flip. Such a dump is known by having all
the fields of the output schema. A value in it that is its field's default, and more than an empty one, is left out.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.core import delta
from gateway.core.delta import Json
from gateway.core.types import JsonObject
from gateway.mcp.runs import schemas

_DEPTH: Final = 4
_IDLE: Final[tuple[Json, ...]] = (None, "", 0, 0.0, [], {})


class Defaults:
    """What an output schema has as defaults."""

    __slots__ = ("_fields", "_inner", "_values")

    def __init__(self, schema: JsonObject, root: JsonObject | None = None, depth: int = _DEPTH) -> None:
        root = schema if root is None else root
        resolved = schemas.resolve(schema, root)
        properties = resolved.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        self._fields = frozenset(properties)
        self._values: dict[str, Json] = {}
        self._inner: dict[str, Defaults] = {}
        for name, each in properties.items():
            field = schemas.resolve(each, root)
            if "default" in field and not _is_idle(field["default"]):
                self._values[name] = field["default"]
            if depth and isinstance(field.get("properties"), dict):
                inner = Defaults(field, root, depth - 1)
                if inner:
                    self._inner[name] = inner

    def __bool__(self) -> bool:
        return bool(self._values or self._inner)

    def without(self, change: Json) -> tuple[Json, bool]:
        """A delta less the defaults that ride along, and whether there were any; the delta is not changed."""
        if not (self._values or self._inner) or not isinstance(change, dict) or not self._fields <= change.keys():
            return change, False
        out, repeated = {}, False
        for name, value in change.items():
            if len(change) > 1 and name in self._values and delta.same(value, self._values[name]):
                repeated = True
                continue
            inner = self._inner.get(name)
            if inner is not None:
                value, found = inner.without(value)  # noqa: PLW2901
                repeated = repeated or found
            out[name] = value
        return out, repeated


def _is_idle(value: Any) -> bool:
    """Whether a delta of this value changes nothing, however often it comes."""
    return any(delta.same(value, each) for each in _IDLE)
