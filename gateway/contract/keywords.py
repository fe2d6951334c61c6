"""The JSON Schemas of others with the library that knows them: every keyword within the time that a value may take."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry

NOTHING: Final[Registry[Any]] = Registry()
"""Of what lies outside a schema. (The drafts themselves are known all the same.)"""

SECONDS: Final = 0.5
"""Processor time that a value may take: some 50,000 of a schema's keywords."""

PATTERN_SECONDS: Final = 0.05

UNIQUE_ITEMS: Final = 1000
"""So many may have to be unique: each is compared with each."""

_end: ContextVar[float] = ContextVar("_end", default=float("inf"))
"""When the value that is being held against a schema has had its time, by this thread's clock."""

Keyword = Callable[[Any, Any, Any, Any], Any]
"""(validator, what the schema says, the value, the schema) -> mistakes, as jsonschema has its keywords."""


def validator(schema: Mapping[str, Any]) -> Validator:
    """For values that are to be held against the schema, which is not looked at yet. Use it `limited`."""
    try:
        text = repr(schema)
    except RecursionError:
        text = ""  # whatever is held against it ends likewise
    unbounded = "unevaluatedProperties" in text and ("patternProperties" in text or "dependentSchemas" in text)
    made: Validator = (_WITHOUT_UNEVALUATED if unbounded else _BOUNDED)(schema, registry=NOTHING)
    return made


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """A validator's work on one value: it raises TimeoutError once the value has had its time."""
    before = _end.set(time.thread_time() + SECONDS)
    try:
        yield
    finally:
        _end.reset(before)


def _bounded(keyword: Keyword) -> Keyword:
    """The keyword, for as long as there is time."""

    def judged(validator: Any, says: Any, value: Any, schema: Any) -> Any:
        if time.thread_time() > _end.get():
            raise TimeoutError(f"a value takes more than {SECONDS} s")
        return keyword(validator, says, value, schema)

    return judged


def _found(pattern: str, text: str) -> bool:
    """ECMA 262's patterns are nearer to those of `regex` than to the standard library's, which has no time limit."""
    if pattern.endswith("$") and not pattern.endswith("\\$"):
        pattern = f"{pattern[:-1]}\\Z"  # there `$` is the very end, here also before a last line break
    return regex.search(pattern, text, timeout=PATTERN_SECONDS) is not None


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _found(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, schema: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for pattern, part in patterns.items():
            for name in value:
                if _found(pattern, name):
                    yield from validator.descend(value[name], part, path=name, schema_path=pattern)


def _additional(validator: Any, says: Any, value: Any, schema: Any) -> Iterator[Any]:
    """Those that no pattern names are held against a schema without patterns."""
    patterns = schema.get("patternProperties")
    if patterns and isinstance(value, dict):
        value = {name: value[name] for name in value if not any(_found(pattern, name) for pattern in patterns)}
        schema = {key: schema[key] for key in schema if key != "patternProperties"}
    yield from _OF_THE_DRAFT["additionalProperties"](validator, says, value, schema)


def _unevaluated(validator: Any, says: Any, value: Any, schema: Any) -> Iterator[Any]:
    """jsonschema looks for names by patterns here, and through references, by itself and without a limit."""
    raise NotImplementedError("unevaluatedProperties beside patternProperties or dependentSchemas")


def _unique(validator: Any, says: Any, value: Any, schema: Any) -> Iterator[Any]:
    if isinstance(value, list) and len(value) > UNIQUE_ITEMS:
        raise NotImplementedError(f"uniqueItems of more than {UNIQUE_ITEMS}")
    yield from _OF_THE_DRAFT["uniqueItems"](validator, says, value, schema)


_OF_THE_DRAFT: Final[Mapping[str, Keyword]] = Draft202012Validator.VALIDATORS
_OURS: Final[Mapping[str, Keyword]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "uniqueItems": _unique,
}
_BOUNDED: Final = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {name: _bounded(keyword) for name, keyword in {**_OF_THE_DRAFT, **_OURS}.items()}
)
_WITHOUT_UNEVALUATED: Final = extend(_BOUNDED, {"unevaluatedProperties": _unevaluated})  # type: ignore[no-untyped-call]
