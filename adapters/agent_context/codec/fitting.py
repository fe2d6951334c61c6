"""Whether a document fits an agent's schema, and if not, what is wrong with it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator

from gateway.contract import fitting
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Json, JsonObject

_KEPT: Final = 256

_validators: OrderedDict[int, tuple[JsonObject, Validator | None]] = OrderedDict()


def _validator(schema: JsonObject) -> Validator | None:
    """None for what is no schema: it allows anything, as everywhere in the gateway."""
    known = _validators.get(id(schema))
    if known is not None and known[0] is schema:
        _validators.move_to_end(id(schema))
        return known[1]
    try:
        Draft202012Validator.check_schema(schema)
        validator = fitting.validator(schema)
    except (SchemaError, RecursionError):
        validator = None
    _validators[id(schema)] = schema, validator
    while len(_validators) > _KEPT:
        _validators.popitem(last=False)
    return validator


def fits(schema: JsonObject, value: Json) -> bool:
    """Whether it does. A schema that cannot be applied fits nothing."""
    validator = _validator(schema)
    if validator is None:
        return True
    try:
        return fitting.fits(validator, value)
    except fitting.Inapplicable:
        return False


def misfit(schema: JsonObject, value: Json, at: str) -> Invalid:
    """Why it does not; the path starts with `at`."""
    validator = _validator(schema)
    try:
        error = fitting.misfit(validator, value) if validator is not None else None
    except fitting.Inapplicable:
        error = None
    if error is None:
        return Invalid(f"{at or '/'}: does not fit the agent's schema", path=at)
    path = at + delta.join([str(step) for step in error.absolute_path])
    return Invalid(f"{path or '/'}: {error.message}", path=path)
