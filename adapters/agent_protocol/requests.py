"""Translates a task's and a step's `input` and `additional_input` to core, and back. Pure.

`additional_input` is any object. Each of its keys goes where the agent knows it: to the input document if the agent's
input schema has that property, to the config if the config schema has; `config` and `metadata` (objects) are the run's
config and metadata; all else is metadata under its own key.
"""

from __future__ import annotations

from msgspec import UNSET

from adapters.agent_protocol import codec
from gateway.contract import reading
from gateway.core import choices
from gateway.core.delta import encode
from gateway.core.errors import Invalid
from gateway.core.projection import text_pointer, unwrap, wrap
from gateway.core.types import Agent, Answer, Interrupt, Json, JsonObject

SEPARATOR = "\n\n"
SHOWN = 500
"""Characters of a schema in a refusal."""


def prompt(task_input: str | None, step_input: str | None, *, first: bool) -> str:
    """The text of a new run: the step's input, and before the first step's the task's, which the agent has not seen.

    A step without input (null or empty) takes the task's.
    """
    if not step_input:
        return task_input or ""
    if first and task_input and task_input != step_input:
        return task_input + SEPARATOR + step_input
    return step_input


def sorted_out(agent: Agent, additional_input: JsonObject) -> tuple[JsonObject, JsonObject, JsonObject]:
    """Fields of the input document, config and metadata of a run."""
    takes = _properties(agent.input_schema)
    configures = _properties(agent.config_schema)
    fields: JsonObject = {}
    config: JsonObject = {}
    metadata: JsonObject = {}
    for key, value in additional_input.items():
        if key in takes:
            fields[key] = value
        elif key == "config" and isinstance(value, dict):
            config |= value
        elif key == "metadata" and isinstance(value, dict):
            metadata |= value
        elif key in configures:
            config[key] = value
        else:
            metadata[key] = value
    return fields, config, metadata


def _properties(schema: JsonObject) -> JsonObject:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


# --- answers --------------------------------------------------------------------------------------------------------


def answer_value(interrupt: Interrupt, text: str | None, additional_input: JsonObject) -> Json:
    """The answer to a question in a step's body: `additional_input` if that fits, else the text in the form that fits.

    The first reading that the question's schema allows wins. An object that it does not allow is the answer all the
    same: the gateway refuses it, and says what is wrong inside. Raises Invalid for a text that does not fit, with what
    does; and for an empty body, which answers nothing, except that a `step` question needs none.
    """
    if codec.is_step_question(interrupt):
        given = {"input": text, "additional_input": additional_input or None}
        return {key: value for key, value in given.items() if value is not None}
    if text is None and not additional_input:
        asked = interrupt.message or interrupt.kind
        raise Invalid(f"the agent asks: {asked} - send the answer as the step's input", path="/input")
    schema = interrupt.answer_schema
    found = reading.meant(schema, text, additional_input)
    if found is not UNSET:
        return found
    for value in [{}] if text is None else reading.parsed(text):
        if isinstance(value, dict):
            return value | additional_input
    raise Invalid(f"this does not answer the agent's question: {_wanted(schema)}", path="/input")


def _wanted(schema: JsonObject) -> str:
    """The answers that a schema allows, for a refusal."""
    found = choices.offered(schema)
    if found is None:
        shown = encode(schema).decode()
        return f"it takes JSON that fits {shown[:SHOWN]}{'...' * (len(shown) > SHOWN)}"
    names = [one.label if one.label == one.id else f"{one.label} ({one.id})" for one in found[0]]
    return f"it takes one of {', '.join(names)}"


def answer_fields(interrupt: Interrupt, answer: Answer) -> tuple[str | None, JsonObject]:
    """`input` and `additional_input` of the step that gave an answer."""
    value = answer.value
    if codec.is_step_question(interrupt) and isinstance(value, dict):
        text, more = value.get("input"), value.get("additional_input")
        return codec.as_text(text), more if isinstance(more, dict) else {}
    if isinstance(value, dict):
        pointer = text_pointer(interrupt.answer_schema)
        text = unwrap(value, pointer) if pointer and wrap(unwrap(value, pointer) or "", pointer) == value else None
        single = choices.in_object(interrupt.answer_schema)
        if text is None and single is not None and set(value) == {single[0]}:
            text = codec.as_text(value[single[0]])
        return (encode(value).decode() if text is None else text), {}
    return codec.as_text(value), {}
