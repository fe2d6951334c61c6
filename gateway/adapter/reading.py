"""The answer that a text gives to a question: a choice by its value, label or number, JSON, or the text itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.adapter import fitting
from gateway.core import choices
from gateway.core.projection import text_pointer, wrap
from gateway.core.types import Json, JsonObject


def meant(schema: JsonObject, text: str | None, fields: JsonObject | None = None) -> Json | UnsetType:
    """The likeliest meaning of a text that the question's answer schema allows; UNSET if it allows none.

    fields: further members of an answer that is an object, or with no text all of them.
    """
    judge = fitting.validator(schema)
    return next((value for value in _readings(schema, text, fields or {}) if _fits(judge, value)), UNSET)


def answered(schema: JsonObject, value: Json) -> Json:
    """The answer that a bare value gives: itself where the schema allows it or nothing better, else what it means."""
    if not isinstance(value, str | int | float) or _fits(fitting.validator(schema), value):
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
    """What it may mean, the likeliest first."""
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
    if fields:
        yield {**fields, "input": text}


def _fits(judge: Any, value: Json) -> bool:
    try:
        return fitting.fits(judge, value)
    except fitting.Inapplicable:  # the gateway is who judges the answer
        return True
