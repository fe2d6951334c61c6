"""Values held against an agent's JSON Schemas.

The full validator costs some 70 us for `{"message": "..."}`. Most schemas that agents publish for their input are a few
typed properties, and most inputs fit: those are judged by functions made from the schema once. They only ever say
"certainly fits"; whatever they are not sure of is left to the full validator, which also has the words for a refusal.

A reference to what is not in the schema leads nowhere: agents do not choose what the gateway fetches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from gateway.contract.fitting import Inapplicable, SchemaJudge
from gateway.core import delta as deltas
from gateway.core.errors import Invalid
from gateway.core.types import Json

log = logging.getLogger(__name__)

Fits = Callable[[Json], bool]

TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
SAYS_NOTHING = frozenset(
    {
        "$comment",
        "$schema",
        "default",
        "deprecated",
        "description",
        "examples",
        "format",
        "readOnly",
        "title",
        "writeOnly",
    }
)
"""Keywords that no value fails by; `format` is one in this draft."""


class Schema:
    """One schema, checked against its own rules before it is given here."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._fits = fits(schema)
        self._judge = SchemaJudge(schema)

    def check(self, value: Json, at: str) -> None:
        """Raise Invalid for the most telling mistake of `value`; the path starts at the pointer `at`."""
        if self._fits is None or not self._fits(value):
            _check(self._judge, value, at)


def check(schema: Mapping[str, Any], value: Json, at: str) -> None:
    """`Schema.check` by a schema that is used once."""
    _check(SchemaJudge(schema), value, at)


def _check(judge: SchemaJudge, value: Json, at: str) -> None:
    try:
        error = judge.misfit(value)
    except Inapplicable as why:
        log.warning("%s is not checked, its schema cannot be applied: %s", at or "a value", why)
        return
    if error is None:
        return
    path = at + deltas.join([str(step) for step in error.absolute_path])
    raise Invalid(f"{path or '/'}: {error.message}", path=path)


def fits(schema: Any) -> Fits | None:
    """Whether a value certainly fits, as far as that can be told quickly; None for a schema that says too much."""
    if schema is True:
        return _anything
    if not isinstance(schema, dict):
        return None
    says = schema.keys() - SAYS_NOTHING
    if not says <= {"type", "properties", "required", "items"}:
        return None
    names = schema.get("type")
    kinds = frozenset(kind for name in _listed(names) for kind in TYPES[name]) if names is not None else None
    inside = {name: fits(part) for name, part in schema.get("properties", {}).items()}
    items = fits(schema.get("items", True))
    if items is None or None in inside.values():
        return None
    return _judge(kinds, {name: part for name, part in inside.items() if part}, schema.get("required", ()), items)


def _judge(kinds: frozenset[type] | None, inside: Mapping[str, Fits], required: Any, items: Fits) -> Fits:
    anything = items is _anything

    def judge(value: Json) -> bool:
        kind = type(value)
        if kinds is not None and kind not in kinds:
            return False
        if kind is dict:
            for name in required:
                if name not in value:
                    return False
            for name, part in inside.items():
                if name in value and not part(value[name]):
                    return False
        elif kind is list and not anything:
            return all(map(items, value))
        return True

    return judge


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


def _anything(value: Json) -> bool:
    return True
