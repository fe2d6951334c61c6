"""Whether a value fits a JSON Schema that somebody else wrote: an agent, or a server of tools.

Nothing is fetched: a reference to what is not in the schema leads nowhere. Nor does a schema hold the gateway up:
references that double and patterns that backtrack end with the time that a value may take. What a schema means that
cannot be applied is for each caller to say.

The library of schemas is a sixth of what a gateway imports, and many never hold a value against one: it is imported
by `keywords.py` when the first is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.core.types import Json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

T = TypeVar("T")


class Inapplicable(Exception):
    """The schema says what no value can be held against: it is none, refers to what is not in it, has a pattern that is
    none, is nested too deep, or takes too long.
    """


class SchemaJudge:
    """Holds values against one schema, which is not looked at before the first of them: that one is dear."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._validator: Validator | None = None

    def fits(self, value: Json) -> bool:
        """Whether the value fits. Raises Inapplicable."""
        return self._in_time(lambda validator: validator.is_valid(value))

    def misfit(self, value: Json) -> ValidationError | None:
        """The most telling mistake of the value, None if it fits. Raises Inapplicable."""
        if self.fits(value):
            return None
        from jsonschema.exceptions import best_match

        found: ValidationError | None = self._in_time(lambda validator: best_match(validator.iter_errors(value)))
        return found

    def misfits(self, value: Json) -> list[ValidationError]:
        """All mistakes of the value. Raises Inapplicable."""
        return [] if self.fits(value) else self._in_time(lambda validator: list(validator.iter_errors(value)))

    def _in_time(self, judged: Callable[[Validator], T]) -> T:
        from gateway.contract import keywords

        if self._validator is None:
            self._validator = keywords.validator(self._schema)
        try:
            with keywords.limited():
                return judged(self._validator)
        except Exception as error:  # of the schema's making, whatever it is
            raise Inapplicable(str(error)) from error


def fault(schema: Mapping[str, Any]) -> str | None:
    """Why this is no JSON Schema (draft 2020-12): where and what. None if it is one."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"{error.json_path}: {error.message}"
    except RecursionError:
        return "it never ends"
    return None
