"""Asking a client of this protocol with a form (docs: elicitation; schema: ElicitationSchema).

A form is flat: each field a text, a number, a boolean, or a choice of texts. A question of another protocol becomes one
if all that it requires can be asked so; a field whose values are no texts is asked by their names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from adapters.agent_client.codec.asking import CANCELLED, DECLINED
from adapters.agent_client.codec.choices import Choice, choices
from gateway.core import delta
from gateway.core.types import Answer, Interrupt, Json, JsonObject

WRAPPED: Final = "value"
"""The field of a form that asks for one plain value."""
_FORMATS: Final = ("email", "uri", "date", "date-time")


def elicitation_modes(capabilities: JsonObject) -> frozenset[str]:
    """The modes a client declared in its `clientCapabilities`; `{}` and null declare none (docs: elicitation)."""
    declared = capabilities.get("elicitation")
    if not isinstance(declared, dict):
        return frozenset()
    return frozenset(mode for mode in ("form", "url") if isinstance(declared.get(mode), dict))


def as_elicitation(interrupt: Interrupt, modes: Collection[str]) -> JsonObject | None:
    """Params of an `elicitation/create` (without `sessionId`), None if no form fits or its mode is not in `modes`.

    `modes` are what the client declared: "form", "url" (see `elicitation_modes`). A form has plain values only; a
    question for one plain value is a form with the one field `value`. What an agent of this protocol asked is asked
    verbatim, less the id of a request of its own that it may name.
    """
    if _is_native(interrupt):
        payload = {key: value for key, value in interrupt.payload.items() if key != "requestId"}
        return payload if payload["mode"] in modes else None
    form = _form(interrupt.answer_schema) if "form" in modes else None
    if form is None:
        return None
    return {"mode": "form", "message": interrupt.message or interrupt.kind, "requestedSchema": form}


def elicitation_answer(interrupt: Interrupt, result: Json) -> Answer:
    """The answer that a client gave to `as_elicitation(interrupt, ...)`; whatever is unclear is cancelled."""
    action = result.get("action") if isinstance(result, dict) else None
    if action == "decline":
        return DECLINED
    if action != "accept":
        return CANCELLED
    content = delta.sound(result.get("content"))
    content = content if isinstance(content, dict) else {}
    if _is_native(interrupt):
        meta = result.get("_meta")
        return Answer(value={**content, "_meta": delta.sound(meta)} if isinstance(meta, dict) else content)
    schema = interrupt.answer_schema
    if _fields(schema) is None:
        return Answer(value=_value(schema, content[WRAPPED])) if WRAPPED in content else CANCELLED
    properties = schema["properties"]
    return Answer(value={key: _value(properties.get(key, {}), each) for key, each in content.items()})


def _is_native(interrupt: Interrupt) -> bool:
    payload = interrupt.payload
    return interrupt.kind == "elicitation" and isinstance(payload, dict) and payload.get("mode") in ("form", "url")


def _form(schema: JsonObject) -> JsonObject | None:
    fields = _fields(schema)
    if fields is None:
        field = _field(schema) if schema else {"type": "string"}
        return field and {"type": "object", "properties": {WRAPPED: field}, "required": [WRAPPED]}
    required = schema.get("required")
    required = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    shown = {name: field for name, field in fields.items() if field is not None}
    if not shown or any(name not in shown for name in required):
        return None
    out: JsonObject = {"type": "object", "properties": shown}
    out.update(_texts(schema))
    return {**out, "required": list(dict.fromkeys(required))} if required else out


def _fields(schema: JsonObject) -> dict[str, JsonObject | None] | None:
    """The fields for an object's properties, None for those that are no plain values. None if it is no such object."""
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        return None
    return {name: _field(each) if isinstance(each, dict) else None for name, each in properties.items()}


def _field(schema: JsonObject) -> JsonObject | None:
    kind = _kind(schema)
    if kind == "boolean" and "enum" not in schema:
        return {"type": "boolean", **_texts(schema), **_given(schema, "default", bool)}
    found = choices(schema)
    if found is not None:
        return _select(schema, found)
    match kind:
        case "string":
            field: JsonObject = {"type": "string", **_texts(schema), **_given(schema, "default", str)}
            field |= _given(schema, "pattern", str)
            for key in ("minLength", "maxLength"):
                field |= _count(schema, key)
            return {**field, "format": schema["format"]} if schema.get("format") in _FORMATS else field
        case "integer" | "number":
            type_ = int if kind == "integer" else (int, float)
            field = {"type": kind, **_texts(schema)}
            for key in ("minimum", "maximum", "default"):
                field |= _given(schema, key, type_)
            return field
        case "array":
            return _multiple(schema)
    return None


def _select(schema: JsonObject, found: list[Choice]) -> JsonObject:
    """One of a few values. What is no text goes by its name."""
    field: JsonObject = {"type": "string", **_texts(schema)}
    if all(choice.label == choice.id for choice in found):
        field["enum"] = [choice.id for choice in found]
    else:
        field["oneOf"] = [{"const": choice.id, "title": choice.label} for choice in found]
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
    if _kind(schema) == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _kind(schema: JsonObject) -> Any:
    """The type; of several the only one that is not null."""
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        return kinds[0] if len(kinds) == 1 else None
    return kind


def _texts(schema: JsonObject) -> JsonObject:
    return {key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)}


def _given(schema: JsonObject, key: str, type_: Any) -> JsonObject:
    value = schema.get(key)
    fits = isinstance(value, type_) and (type_ is bool or not isinstance(value, bool))
    return {key: value} if fits else {}


def _count(schema: JsonObject, key: str) -> JsonObject:
    value = schema.get(key)
    return {key: value} if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else {}
