"""The JSON Schemas that agents publish of their documents: whether they can be used as they are.

An agent may be anybody's, and its schema is applied to what others send. So nothing in it may lead elsewhere (a
reference would be fetched), and nothing may fail only once it is applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from gateway.contract import fitting
from gateway.core import delta

_VALUES: Final = ("const", "enum", "default", "examples")
"""Keywords whose values are no schemas."""
_REFERENCES: Final = ("$ref", "$dynamicRef")
_SAMPLES: Final[tuple[Any, ...]] = ({}, [], "", 0, None)


def usable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema. Raises ValueError for one that is none, refers to something outside of it, or cannot be applied."""
    try:
        Draft202012Validator.check_schema(schema)
        for key, value in _keywords(schema):
            _check(key, value, schema)
        validator = fitting.validator(schema)
        for sample in _SAMPLES:
            fitting.fits(validator, sample)
    except SchemaError as error:
        raise ValueError(f"no JSON Schema: {error.json_path}: {error.message[:200]}") from None
    except RecursionError:
        raise ValueError("no JSON Schema: it never ends") from None
    except fitting.Inapplicable as error:
        why = "it never ends" if isinstance(error.__cause__, RecursionError) else str(error)[:200]
        raise ValueError(f"no JSON Schema that can be used: {why}") from None
    return schema


def _check(key: str, value: Any, root: dict[str, Any]) -> None:
    if key in _REFERENCES and isinstance(value, str):
        if not value.startswith("#"):
            raise ValueError("no JSON Schema that can be used: a reference in it leads outside of it")
        if value.startswith("#/") and "$id" not in root and delta.pointer_get(root, value[1:]) is delta.ABSENT:
            raise ValueError("no JSON Schema: a reference in it leads nowhere")
    for pattern in [value] if key == "pattern" else value if key == "patternProperties" else ():
        try:
            regex.compile(pattern)
        except (regex.error, TypeError):
            raise ValueError("no JSON Schema that can be used: a pattern in it is no regular expression") from None


def _keywords(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every keyword with its value, however deep."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("pattern", *_REFERENCES) and not isinstance(value, str):  # a property of that name
                yield from _keywords(value)
            elif key not in _VALUES:
                yield key, value
                yield from _keywords(value)
