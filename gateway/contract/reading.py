"""The answer that a text gives to a question: a choice by its value, label or number, JSON, the text itself, or the
values of an object, one a line (`name: value`, or in the order that they are asked in).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from gateway.contract import fitting
from gateway.core import choices, wording
from gateway.core.projection import text_pointer, wrap
from gateway.core.types import Json, JsonObject

_NAMED: Final = re.compile(r"[-*\s]*([^:=]{1,100}?)\s*[:=]\s*(.*)")


def meant(schema: JsonObject, text: str | None, fields: JsonObject | None = None) -> Json | UnsetType:
    """The likeliest meaning of a text that the question's answer schema allows; UNSET if it allows none.

    fields: further members of an answer that is an object, or with no text all of them.
    """
    judge = fitting.SchemaJudge(schema)
    return next((value for value in _readings(schema, text, fields or {}) if _fits(judge, value)), UNSET)


def answered(schema: JsonObject, value: Json) -> Json:
    """The answer that a bare value gives: itself where the schema allows it or nothing better, else what it means."""
    if not isinstance(value, str | int | float) or _fits(fitting.SchemaJudge(schema), value):
        return value
    found = meant(schema, value if isinstance(value, str) else msgspec.json.encode(value).decode())
    return value if found is UNSET else found


def parsed(text: str) -> list[Json]:
    """The value that a text is as JSON; none if it is none."""
    try:
        return [msgspec.json.decode(text)]
    except (ValueError, RecursionError):
        return []


def merged(under: JsonObject, over: JsonObject) -> JsonObject:
    """Both documents in one; where both say something, `over` counts."""
    both = {**under, **over}
    for key in under.keys() & over.keys():
        if isinstance(under[key], dict) and isinstance(over[key], dict):
            both[key] = merged(under[key], over[key])
    return both


def _readings(schema: JsonObject, text: str | None, fields: JsonObject) -> Iterator[Json]:
    """Possible readings, the likeliest first."""
    if text is None:
        yield fields
        return
    pointer = text_pointer(schema)
    single = choices.in_object(schema)
    for value in (text, *parsed(text)):
        if not fields and not isinstance(value, dict):
            yield value
        if isinstance(value, dict):
            yield value | fields
        if pointer and isinstance(value, str):
            document = wrap(value, pointer, schema)
            yield merged(fields, document) if isinstance(document, dict) else document
        if single:
            yield {**fields, single[0]: value}
    found = choices.offered(schema)
    chosen = choices.named(found[0], text) if found else None
    if found and chosen:
        yield {**fields, found[1]: chosen.value} if found[1] else chosen.value
    if isinstance(schema.get("items"), dict):
        items = [meant(schema["items"], item.strip()) for item in text.split(",")]
        if UNSET not in items:
            yield items
    for document in written(schema, text):
        yield merged(fields, document)
    if fields:
        yield {**fields, "input": text}


def written(schema: JsonObject, text: str, *, named: bool = False) -> Iterator[JsonObject]:
    """The objects that lines of text may be, the likeliest first; they may not fit, nor be whole.

    `named`: only if each line names its value.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    asked = list(wording.leaves(schema))
    if not lines or not asked:
        return
    pairs = [_named(asked, line) for line in lines]
    if all(pairs):
        yield _object([pair for pair in pairs if pair])
    required = [leaf for leaf in asked if leaf.required]
    for wanted in () if named else (required, asked):
        if len(wanted) == len(lines):
            yield _object(list(zip(wanted, lines, strict=True)))


def _named(asked: list[wording.Leaf], line: str) -> tuple[wording.Leaf, str] | None:
    """The value that a line names, and what it says of it: `days: 3`, `- place.zip = 10117`."""
    parts = _NAMED.fullmatch(line)
    if parts is None:
        return None
    word = parts[1].strip("`'\"* ").casefold()
    for at in range(3):
        found = [
            leaf for leaf in asked if (leaf.name, leaf.path[-1], str(leaf.schema.get("title")))[at].casefold() == word
        ]
        if len(found) == 1:
            return found[0], parts[2].strip()
    return None


def _object(values: list[tuple[wording.Leaf, str]]) -> JsonObject:
    """The object with these values, each as it is likeliest meant."""
    out: JsonObject = {}
    for leaf, text in values:
        found = meant(leaf.schema, text)
        value: Json = next(iter(parsed(text)), text) if found is UNSET else found
        for name in reversed(leaf.path):
            value = {name: value}
        out = merged(out, value)
    return out


def _fits(judge: fitting.SchemaJudge, value: Json) -> bool:
    try:
        return judge.fits(value)
    except fitting.Inapplicable:  # the gateway is who judges the answer
        return True
