"""Whether a value fits a JSON Schema that somebody else wrote: an agent, or a server of tools.

The full validator costs some 70 us for `{"message": "..."}`. Most schemas that agents publish are a few typed
properties, and most values fit: those are judged by functions made from the schema once. They only ever say "certainly
fits"; whatever they are not sure of is left to the full validator, which also has the words for a refusal.

Nothing is fetched: a reference to what is not in the schema leads nowhere. Nor does a schema hold the gateway up:
references that double and patterns that backtrack end with the time that a value may take. What a schema means that
cannot be applied is for each caller to say.

The library of schemas is a sixth of what a gateway imports, and many never hold a value against one: it is imported
by `keywords.py` when the first is.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

T = TypeVar("T")

log = logging.getLogger(__name__)

Fits = Callable[[Json], bool]

TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
SAYS_NOTHING: Final = frozenset(
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


def _no_shorter(value: Any, least: float) -> bool:
    return len(value) >= least


def _no_longer(value: Any, most: float) -> bool:
    return len(value) <= most


NUMBERS: Final = frozenset({int, float})
LIMITS: Final[Mapping[str, tuple[Set[type], Callable[[Any, Any], bool]]]] = {
    "minimum": (NUMBERS, operator.ge),
    "maximum": (NUMBERS, operator.le),
    "exclusiveMinimum": (NUMBERS, operator.gt),
    "exclusiveMaximum": (NUMBERS, operator.lt),
    "minLength": (frozenset({str}), _no_shorter),
    "maxLength": (frozenset({str}), _no_longer),
    "minItems": (frozenset({list}), _no_shorter),
    "maxItems": (frozenset({list}), _no_longer),
}
"""By keyword, the types of the values that it is about, and what holds for them beside the keyword's number."""
QUICK: Final = frozenset(
    {"type", "properties", "required", "items", "additionalProperties", "enum", "anyOf", "pattern", *LIMITS},
)
"""Keywords that values are judged by quickly."""
PATTERN_SECONDS: Final = 0.05
"""What a value may take for one pattern."""


class Inapplicable(Exception):
    """The schema says what no value can be held against: it is none, refers to what is not in it, has a pattern that is
    none, is nested too deep, or takes too long.
    """


class SchemaJudge:
    """Holds values against one schema.

    certainly: says quickly that a value fits; what it denies may fit all the same. None where the schema says too much.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.certainly = quick(schema)
        self._schema = schema
        self._validator: Validator | None = None

    def fits(self, value: Json) -> bool:
        """Whether the value fits. Raises Inapplicable."""
        if self.certainly is not None and self.certainly(value):
            return True
        return self._in_time(lambda validator: validator.is_valid(value))

    def check(self, value: Json, at: str) -> None:
        """Raise Invalid for the most telling mistake of `value`; its path starts with the pointer `at`. A schema that
        cannot be applied finds none, which is logged.
        """
        if self.certainly is not None and self.certainly(value):
            return
        try:
            error = self.misfit(value)
        except Inapplicable as why:
            log.warning("%s is not checked, its schema cannot be applied: %s", at or "a value", why)
            return
        if error is not None:
            path = at + delta.join([str(step) for step in error.absolute_path])
            raise Invalid(f"{path or '/'}: {error.message}", path=path)

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


# --- what certainly fits ---------------------------------------------------------------------------------------------


def quick(schema: Any) -> Fits | None:
    """Whether a value certainly fits, as far as that can be told quickly; None for a schema that says too much."""
    try:
        return _quick(schema)
    except RecursionError:
        return None


def _quick(schema: Any) -> Fits | None:
    if schema is True:
        return _anything
    if not isinstance(schema, dict) or not schema.keys() - SAYS_NOTHING <= QUICK:
        return None
    names, properties, required = schema.get("type"), schema.get("properties", {}), schema.get("required", [])
    listed = [names] if isinstance(names, str) else names
    if not isinstance(properties, dict) or not _words(required) or not (listed is None or _words(listed, TYPES)):
        return None  # it is no schema
    enum, ways, closed = schema.get("enum"), schema.get("anyOf"), schema.get("additionalProperties", True)
    if not isinstance(closed, bool) or not isinstance(enum, list | None) or not isinstance(ways, list | None):
        return None
    limits = [(kinds, holds, schema[name]) for name, (kinds, holds) in LIMITS.items() if name in schema]
    if any(type(number) not in NUMBERS for *_, number in limits):
        return None
    inside = {name: _quick(part) or _unsure for name, part in properties.items()}
    kinds = None if listed is None else frozenset(kind for name in listed for kind in TYPES[name])
    judges = [
        _of_kinds(kinds, inside, required, frozenset(properties) if closed is False else None),
        None if enum is None else _of_words(frozenset(one for one in enum if type(one) is str)),
        None if ways is None else _any_of([_quick(way) or _unsure for way in ways]),
        _limited(limits) if limits else None,
        _matching(schema["pattern"]) if "pattern" in schema else None,
        _with_items(_quick(schema.get("items", True)) or _unsure),
    ]
    return _all_of([judge for judge in judges if judge is not None])


def _words(value: Any, known: Collection[str] | None = None) -> bool:
    """Whether it is a list of strings, of these if some are named."""
    return isinstance(value, list) and all(isinstance(one, str) and (known is None or one in known) for one in value)


def _all_of(judges: Sequence[Fits]) -> Fits:
    if len(judges) == 1:
        return judges[0]

    def judge(value: Json) -> bool:
        for each in judges:  # noqa: SIM110 - `all` would cost a generator
            if not each(value):
                return False
        return True

    return judge if judges else _anything


def _any_of(judges: Sequence[Fits]) -> Fits:
    def judge(value: Json) -> bool:
        return any(each(value) for each in judges)

    return judge


def _of_words(words: Set[str]) -> Fits:
    def judge(value: Json) -> bool:
        return type(value) is str and value in words

    return judge


def _limited(limits: Sequence[tuple[Set[type], Callable[[Any, Any], bool], float]]) -> Fits:
    def judge(value: Json) -> bool:
        kind = type(value)
        return all(kind not in kinds or holds(value, number) for kinds, holds, number in limits)

    return judge


def _matching(pattern: Any) -> Fits:
    import regex

    try:
        found = regex.compile(pattern).search
    except (regex.error, TypeError):
        return _unsure

    def judge(value: Json) -> bool:
        if type(value) is not str:
            return True
        try:  # in ECMA 262 `$` is not before a last line break, which is looked at closer
            return not value.endswith("\n") and found(value, timeout=PATTERN_SECONDS) is not None
        except TimeoutError:
            return False

    return judge


def _of_kinds(
    kinds: Set[type] | None, inside: Mapping[str, Fits], required: Sequence[str], known: Set[str] | None
) -> Fits | None:
    """`kinds`: None for any. `known`: the names that an object may have, None if any."""
    judged = [(name, part) for name, part in inside.items() if part is not _anything]
    if not judged and not required and known is None:
        return None if kinds is None else lambda value: type(value) in kinds

    def judge(value: Json) -> bool:
        if kinds is not None and type(value) not in kinds:
            return False
        if type(value) is not dict:
            return True
        for name in required:
            if name not in value:
                return False
        for name, part in judged:
            if name in value and not part(value[name]):
                return False
        return known is None or value.keys() <= known

    return judge


def _with_items(items: Fits) -> Fits | None:
    if items is _anything:
        return None

    def judge(value: Json) -> bool:
        return type(value) is not list or all(map(items, value))

    return judge


def _anything(value: Json) -> bool:
    return True


def _unsure(value: Json) -> bool:
    """Of a part whose schema says too much: where it is left out, the rest is still judged."""
    return False
