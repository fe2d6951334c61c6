"""Elicitation: a question as a form, and what was filled in as the answer; both ends.

A form is flat: each field a text, a number, a boolean, or a choice of texts. A question of any protocol becomes one if
all that it requires can be asked so; a field whose values are no texts is asked by their names. What was asked as a
form is asked as that form again, as far as the client's dialect knows it. The other mode asks a person to open a url.

Called by who asks a client: `as_elicitation`, then `elicitation_answer`; by who is asked by a server: `elicitation`,
then `elicitation_result`. Sources: elicitation in the specification; `ElicitRequest` in the schema of each revision.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from gateway.core import delta, wording
from gateway.core.choices import Choice, choices
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, InterruptSpec, Json, JsonObject, Outcome
from gateway.mcp import versions
from gateway.mcp.wire import PROGRESS_TOKEN

WRAPPED: Final = "value"
"""The field of a form that asks for one plain value."""
FORMATS: Final = ("email", "uri", "date", "date-time")


class FormDialect(msgspec.Struct, frozen=True):
    """The features of forms. Every form has texts, numbers, booleans, and lists of texts to choose one of."""

    titled: bool = True
    """Each choice may have a title beside its value (`oneOf`); else all have names (`enumNames`)."""
    multiple: bool = True
    """Several of a list may be chosen."""
    defaults: bool = True
    """Every field may have a default; else a boolean only."""
    pattern: bool = False
    """A text may have to match a regular expression."""
    modes: bool = True
    """A form says that it is one (`mode`)."""
    names_urls: bool = False
    """A url needs an `elicitationId`."""


def form(schema: JsonObject, dialect: FormDialect) -> JsonObject | None:
    """The form that asks for a value of the schema; None if there is none.

    Objects in it are taken apart, into fields with names like `place.zip`.
    """
    if not is_object(schema):
        field = _field(wording.resolved(schema, schema), dialect) if schema else {"type": "string"}
        return field and {"type": "object", "properties": {WRAPPED: field}, "required": [WRAPPED]}
    leaves = list(wording.leaves(schema))
    fields = {leaf.name: _field(leaf.schema, dialect) for leaf in leaves}
    names = schema.get("required")
    whole = {leaf.path[0] for leaf in leaves if leaf.required}.issuperset(names if isinstance(names, list) else ())
    required = [leaf.name for leaf in leaves if leaf.required]
    shown = {name: field for name, field in fields.items() if field is not None}
    if not shown or not whole or any(name not in shown for name in required) or len(fields) < len(leaves):
        return None
    out: JsonObject = {"type": "object", "properties": shown}
    out.update(_texts(schema))
    return {**out, "required": required} if required else out


def value_of(schema: JsonObject, content: JsonObject) -> Json:
    """The value of the schema that the content of its `form` is; ABSENT where it has none."""
    if not is_object(schema):
        value = content.get(WRAPPED, delta.ABSENT)
        return value if value is delta.ABSENT else _value(wording.resolved(schema, schema), value)
    leaves = {leaf.name: leaf for leaf in wording.leaves(schema)}
    out: JsonObject = {}
    for key, each in content.items():
        leaf = leaves.get(key)
        path = (key,) if leaf is None else leaf.path
        inside = out
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
        inside[path[-1]] = each if leaf is None else _value(leaf.schema, each)
    return out


def is_object(schema: JsonObject) -> bool:
    """Whether the question is for an object with named values; else it is for one value."""
    return schema.get("type", "object") == "object" and isinstance(schema.get("properties"), dict)


def _field(schema: JsonObject, dialect: FormDialect) -> JsonObject | None:
    kind = schema.get("type")
    if kind == "boolean" and "enum" not in schema:
        return {"type": "boolean", **_texts(schema), **_given(schema, "default", bool)}
    found = choices(schema)
    if found is not None:
        return _select(schema, found, dialect)
    match kind:
        case "string":
            return _text(schema, dialect)
        case "integer" | "number":
            type_ = int if kind == "integer" else (int, float)
            field = {"type": kind, **_texts(schema)}
            for key in ("minimum", "maximum", *(("default",) if dialect.defaults else ())):
                field |= _given(schema, key, type_)
            return field
        case "array":
            return _multiple(schema) if dialect.multiple else None
    return None


def _text(schema: JsonObject, dialect: FormDialect) -> JsonObject:
    field: JsonObject = {"type": "string", **_texts(schema)}
    if dialect.defaults:
        field |= _given(schema, "default", str)
    if dialect.pattern:
        field |= _given(schema, "pattern", str)
    for key in ("minLength", "maxLength"):
        field |= _count(schema, key)
    return {**field, "format": schema["format"]} if schema.get("format") in FORMATS else field


def _select(schema: JsonObject, found: list[Choice], dialect: FormDialect) -> JsonObject:
    """One of a few values. What is no text goes by its name."""
    field: JsonObject = {"type": "string", **_texts(schema)}
    titled = any(choice.label != choice.id for choice in found)
    if titled and dialect.titled:
        field["oneOf"] = [{"const": choice.id, "title": choice.label} for choice in found]
    else:
        field["enum"] = [choice.id for choice in found]
        if titled:
            field["enumNames"] = [choice.label for choice in found]
    if not dialect.defaults:
        return field
    default = schema.get("default", delta.ABSENT)
    chosen = next((choice for choice in found if delta.same(choice.value, default)), None)
    return field if chosen is None else {**field, "default": chosen.id}


def _multiple(schema: JsonObject) -> JsonObject | None:
    found = choices(schema.get("items"))
    if found is None:
        return None
    items: JsonObject = {"type": "string", "enum": [choice.id for choice in found]}
    if any(choice.label != choice.id for choice in found):
        items = {"anyOf": [{"const": choice.id, "title": choice.label} for choice in found]}
    return {
        "type": "array",
        **_texts(schema),
        "items": items,
        **_count(schema, "minItems"),
        **_count(schema, "maxItems"),
    }


def _value(schema: Any, value: Json) -> Json:
    """A field's value as the question has it."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [_value(schema.get("items"), item) for item in value]
    if isinstance(value, str):
        return next((choice.value for choice in choices(schema) or () if choice.id == value), value)
    if schema.get("type") == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _texts(schema: JsonObject) -> JsonObject:
    return {key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)}


def _given(schema: JsonObject, key: str, type_: Any) -> JsonObject:
    value = schema.get(key)
    fits = isinstance(value, type_) and (type_ is bool or not isinstance(value, bool))
    return {key: value} if fits else {}


def _count(schema: JsonObject, key: str) -> JsonObject:
    value = schema.get(key)
    return {key: value} if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else {}


CANCELLED: Final = Answer(outcome=Outcome.CANCELLED)
DECLINED: Final = Answer(outcome=Outcome.DECLINED)
KIND: Final = "elicitation"
"""Of an interrupt that was asked as a form or a url."""


def published(*required: str) -> InterruptSpec:
    """How an agent publishes that it may elicit; `required` are in every question of its."""
    properties = {
        "mode": {"type": "string"},
        "message": {"type": "string"},
        "requestedSchema": {"type": "object"},
        "url": {"type": "string"},
    }
    payload = {"type": "object", "properties": properties, "required": [*required]}
    return InterruptSpec(kind=KIND, payload_schema=payload, answer_schema={"type": "object"})


FORM: Final = "form"
URL: Final = "url"

_DIALECTS: Final = {
    versions.V2025_06_18: FormDialect(titled=False, multiple=False, defaults=False, modes=False),
    versions.V2025_11_25: FormDialect(names_urls=True),
}
_NEWEST: Final = FormDialect()
_KEYS: Final = frozenset(("mode", "message", "requestedSchema", "url", "elicitationId", "_meta"))
"""The members of an elicitation. Any others that an agent sends are about its own request."""
_TYPES: Final = frozenset(("string", "number", "integer", "boolean", "array", "object"))
_PLAIN: Final = (str, int, float, bool)


# --- asking a client ---------------------------------------------------------------------------------------------


def dialect(version: str) -> FormDialect:
    return _DIALECTS.get(version, _NEWEST)


def elicitation_modes(capabilities: JsonObject, version: str) -> frozenset[str]:
    """The modes that a client's capabilities declare. An empty object is "form", which was the only mode once."""
    declared = capabilities.get("elicitation")
    if not isinstance(declared, dict) or not versions.has_elicitation(version):
        return frozenset()
    if dialect(version).modes is False:
        return frozenset((FORM,))
    return frozenset(mode for mode in (FORM, URL) if isinstance(declared.get(mode), dict)) or (
        frozenset() if declared else frozenset((FORM,))
    )


def as_elicitation(interrupt: Interrupt, modes: Collection[str], dialect: FormDialect) -> JsonObject | None:
    """Params of an `elicitation/create`; None if no form fits, or its mode is not in `modes`.

    A form has plain values only; a question for one plain value is a form with the one field `value`. What an agent
    asked as a form or a url is asked verbatim where the dialect knows all of it.
    """
    asked = _asked(interrupt)
    if asked is not None and asked["mode"] == URL:
        return _url(interrupt, asked, dialect) if URL in modes else None
    if FORM not in modes:
        return None
    if asked is not None and _knows(dialect, asked["requestedSchema"]):
        return asked if dialect.modes else {key: value for key, value in asked.items() if key != "mode"}
    fields = form(interrupt.answer_schema, dialect)
    if fields is None:
        return None
    params: JsonObject = {"message": interrupt.message or interrupt.kind, "requestedSchema": fields}
    return {"mode": FORM, **params} if dialect.modes else params


def elicitation_answer(interrupt: Interrupt, result: Json) -> Answer:
    """The answer that a client gave to `as_elicitation(interrupt, ...)`; whatever is unclear is cancelled."""
    action = result.get("action") if isinstance(result, dict) else None
    if action == "decline":
        return DECLINED
    if action != "accept":
        return CANCELLED
    content = delta.sound(result.get("content"))
    content = content if isinstance(content, dict) else {}
    if _asked(interrupt) is not None:
        meta = result.get("_meta")
        return Answer(value={**content, "_meta": delta.sound(meta)} if isinstance(meta, dict) else content)
    value = value_of(interrupt.answer_schema, content)
    return CANCELLED if value is delta.ABSENT else Answer(value=value)


def _asked(interrupt: Interrupt) -> JsonObject | None:
    """The elicitation that an agent asked, None if it asked in other words."""
    payload = interrupt.payload
    if interrupt.kind != KIND or not isinstance(payload, dict):
        return None
    needed = {FORM: ("requestedSchema", dict), URL: ("url", str)}.get(payload.get("mode", FORM))
    if needed is None or not isinstance(payload.get(needed[0]), needed[1]):
        return None
    asked = {"mode": FORM, **{key: value for key, value in payload.items() if key in _KEYS}}
    meta = asked.get("_meta")
    if isinstance(meta, dict) and PROGRESS_TOKEN in meta:  # of the agent's own request
        asked["_meta"] = {key: value for key, value in meta.items() if key != PROGRESS_TOKEN}
    return asked


def _url(interrupt: Interrupt, asked: JsonObject, dialect: FormDialect) -> JsonObject:
    return {"elicitationId": interrupt.id, **asked} if dialect.names_urls else asked


def _knows(dialect: FormDialect, schema: JsonObject) -> bool:
    """Whether a form that was made for another client is one of the dialect, word for word."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or schema.get("type") != "object":
        return False
    return all(isinstance(field, dict) and _knows_field(dialect, field) for field in properties.values())


def _knows_field(dialect: FormDialect, field: JsonObject) -> bool:
    if None in field.values() or ("pattern" in field and not dialect.pattern):
        return False
    if field.get("type") == "array":
        return dialect.multiple
    if field.get("type") == "object" or field.get("type") not in _TYPES:
        return False
    return dialect.titled or not ("oneOf" in field or "anyOf" in field)


# --- being asked by a server -------------------------------------------------------------------------------------


def elicitation(params: JsonObject, id: str, *, mode: str | None = FORM) -> Interrupt:
    """The question of an `elicitation/create`. `payload` is `params` with its mode.

    The answer to a form is its content; to a url an empty object (the person consented to open it). `mode` is what it
    is where it does not say. Raises Invalid (with path).
    """
    mode, message = params.get("mode", mode), params.get("message")
    if not isinstance(message, str):
        raise Invalid("an elicitation needs a message", path="/message")
    if mode == FORM:
        schema = params.get("requestedSchema")
        if not isinstance(schema, dict) or not isinstance(schema.get("properties", {}), dict):
            raise Invalid("a form needs a schema", path="/requestedSchema")
        answer_schema = _answer_schema(schema)
    elif mode == URL:
        if not isinstance(params.get("url"), str):
            raise Invalid("an elicitation by url needs one", path="/url")
        answer_schema = {"type": "object", "properties": {}}
    else:
        raise Invalid(f"there is no mode {mode!r}", path="/mode")
    return Interrupt(
        id=id,
        kind=KIND,
        payload=delta.sound({**params, "mode": mode}),
        message=delta.sound(message),
        answer_schema=delta.sound(answer_schema),
    )


def elicitation_result(answer: Answer, payload: Json) -> JsonObject:
    """The result of `elicitation/create`: accept with content, decline or cancel (`payload` is the interrupt's)."""
    if answer.outcome is not Outcome.ANSWERED:
        return {"action": "decline" if answer.outcome is Outcome.DECLINED else "cancel"}
    value = answer.value if isinstance(answer.value, dict) else {}
    meta = value.get("_meta")
    result: JsonObject = {"action": "accept"}
    if isinstance(payload, dict) and payload.get("mode") != URL:
        result["content"] = {key: each for key, each in value.items() if key != "_meta" and _is_content(each)}
    return result if not isinstance(meta, dict) else {**result, "_meta": meta}


def _is_content(value: Any) -> bool:
    """Whether a form may have such a value."""
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, _PLAIN)


def _answer_schema(schema: JsonObject) -> JsonObject:
    """The form's schema as JSON Schema: in a form a keyword may be null, for "not there", and a type unknown."""
    properties = {
        name: _clean(each) if isinstance(each, dict) and each.get("type") in _TYPES else {}
        for name, each in schema.get("properties", {}).items()
    }
    out: JsonObject = {"type": "object", "properties": properties}
    for key in ("title", "description"):
        if isinstance(schema.get(key), str):
            out[key] = schema[key]
    required = schema.get("required")
    if isinstance(required, list):
        out["required"] = list(dict.fromkeys(name for name in required if isinstance(name, str)))
    return out


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clean(each) for key, each in value.items() if each is not None and key != "_meta"}
    return [_clean(each) for each in value] if isinstance(value, list) else value
