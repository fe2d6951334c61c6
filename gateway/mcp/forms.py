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

from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Interrupt, Json, JsonObject, Outcome
from gateway.mcp import versions
from gateway.mcp.fields import FormDialect, form, value_of
from gateway.mcp.wire import PROGRESS_TOKEN

CANCELLED: Final = Answer(outcome=Outcome.CANCELLED)
DECLINED: Final = Answer(outcome=Outcome.DECLINED)
KIND: Final = "elicitation"
"""Of an interrupt that was asked as a form or a url."""
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
    """The features of forms in a revision."""
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
