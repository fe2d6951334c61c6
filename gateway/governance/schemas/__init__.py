"""The JSON Schemas of the documents, as published with AIP-3, 7, 9, 32, 36 and 44, and what they say in our words.

The files beside this one are the publishers', byte for byte; a test compares their digests.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from gateway.core.types import JsonObject
from gateway.yaml_document import KINDS, Document, Where, did_you_mean, kind_of

MANIFEST = "ACP"
OPERATOR = "OPERATOR"
GOVERNANCE = "GOVERNANCE"
SANDBOX = "SANDBOX"
SKILL = "SKILL"
MCP = "MCP"
_ELSEWHERE = (
    "https://agentproto.sh/schemas/aip-35/STORAGE.schema.json",
    "https://agentproto.sh/schemas/aip-38/POLICY.schema.json",
)
"""Schemas that these refer to and that are of no account here: anything is taken in their places."""


@functools.cache
def schema(name: str) -> JsonObject:
    """One of the files, parsed."""
    text = resources.files(__package__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    found: JsonObject = json.loads(text)
    return found


@functools.cache
def _validator(name: str, part: str) -> Draft202012Validator:
    whole = schema(name)
    if part:
        whole = {"$ref": f"#/$defs/{part}", "$defs": whole["$defs"]}
    anything = Resource.from_contents({}, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resources((uri, anything) for uri in _ELSEWHERE)
    return Draft202012Validator(whole, registry=registry)


def validate(document: Document, value: Any, name: str, part: str = "", code: str = "") -> None:
    """Note every way in which `value` does not fit the schema `name` (or the definition `part` in it)."""
    for error in _validator(name, part).iter_errors(value):
        _explain(document, error, code)


def _explain(document: Document, error: ValidationError, code: str) -> None:
    where: Where = tuple(error.absolute_path)
    wanted: Any = error.validator_value
    around: Any = error.schema
    if error.validator in ("oneOf", "anyOf") and error.context:
        for inner in _likeliest(error.context):
            _explain(document, inner, code)
        return
    if error.validator == "required" and isinstance(error.instance, dict):
        for key in wanted:
            if key not in error.instance:
                document.refuse((*where, key), "required", document.line(where), code)
        return
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = list(around.get("properties", ()))
        for key in error.instance:
            if key not in known:
                document.refuse((*where, key), f"unknown key{did_you_mean(key, known)}", code=code)
        return
    document.refuse(where, _words(error), code=code)


def _likeliest(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """Pick the errors of the choice that the author meant."""
    branches: dict[Any, list[ValidationError]] = {}
    for error in errors:
        branches.setdefault(error.schema_path[0], []).append(error)

    def distance(found: list[ValidationError]) -> tuple[int, int, int]:
        wrong_kind = sum(not error.path and _of_another_kind(error) for error in found)
        lacks = sum(error.validator == "required" for error in found)
        return wrong_kind, lacks, len(found)

    yield from min(branches.values(), key=distance)


def _of_another_kind(error: ValidationError) -> bool:
    names = error.validator in ("enum", "const")  # names are scalars here
    return error.validator == "type" or (names and isinstance(error.instance, list | dict))


def _words(error: ValidationError) -> str:
    """A mistake that concerns one value alone."""
    given: Any = error.instance
    wanted: Any = error.validator_value
    match error.validator:
        case "type":
            kinds = [wanted] if isinstance(wanted, str) else wanted
            quoted = ": put it in quotes" if "string" in kinds and isinstance(given, int | float) else ""
            return f"should be {' or '.join(KINDS[kind] for kind in kinds)}, not {kind_of(given)}{quoted}"
        case "enum":
            return f"should be one of {', '.join(map(str, wanted))}, not {_short(given)}{did_you_mean(given, wanted)}"
        case "const":
            return f"should be {_short(wanted)}, not {_short(given)}"
        case "pattern":
            return f"{_short(given)} does not look like {wanted}"
        case "minLength" | "minItems":
            return "should not be empty" if wanted == 1 else f"should have at least {wanted}, has {len(given)}"
        case "maxLength" | "maxItems":
            return f"should have at most {wanted}, has {len(given)}"
        case "minimum":
            return f"should be at least {wanted}, not {given}"
        case "maximum":
            return f"should be at most {wanted}, not {given}"
        case "uniqueItems":
            return "has the same twice"
    return error.message


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
