"""One run as a person follows it: the few things a terminal shows, whoever runs the agent.

Two sources make them: `remote.py` (a running gateway) and `cli/local.py` (a route table, in this process). The
command line shows them and hands back answers; it knows neither.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.core.projection import LAST, text_of, text_pointer, wrap
from gateway.core.types import JsonObject, RunStatus


@dataclass(frozen=True)
class Text:
    """The answer so far, whole. What was said before may have changed."""

    whole: str


@dataclass(frozen=True)
class Note:
    """Something that happened on the way, one line: a tool, a plan, a file."""

    text: str


@dataclass(frozen=True)
class Question:
    """The agent asks; the run waits for `Talk.answer`. `schema` is that of the answer, {} if anything goes."""

    text: str
    kind: str = ""
    schema: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class End:
    """The run has ended. `why` is for a person, empty on success; `text` is the final answer."""

    status: RunStatus
    why: str = ""
    text: str = ""


Item = Text | Note | Question | End


@dataclass(frozen=True)
class Known:
    """An agent in a list."""

    name: str
    version: str = ""
    description: str = ""


class Talk(Protocol):
    """A place where agents can be run. Methods raise errors of the tree."""

    async def agents(self) -> Sequence[Known]:
        """The agents that may be run, in route order."""

    def run(self, agent: str, prompt: str) -> AsyncIterator[Item]:
        """Run an agent and say what happens, last an End. After a Question it waits for `answer`."""

    async def answer(self, value: Any) -> None:
        """Answer the open question. Raises Invalid if the value does not fit; it stays open then."""

    async def cancel(self) -> None:
        """Give the run up. Safe to call at any time."""


def as_input(prompt: str, schema: JsonObject, pointer: str | None) -> Any:
    """The agent's input document for a prompt: the text where the schema has it, else the prompt read as JSON.

    Raises ValueError where the agent takes no text and the prompt is no JSON.
    """
    if pointer is None:
        pointer = text_pointer(schema)
    if pointer is not None:
        return wrap(prompt, pointer, schema)
    if not schema.get("properties") and schema.get("type") in (None, "object"):
        return {"message": prompt}
    try:
        return json.loads(prompt)
    except json.JSONDecodeError as error:
        raise ValueError(f"this agent takes no text; write its input as JSON ({error})") from error


def as_text(document: Any, pointer: str | None) -> str:
    """The text of an output document, or the document as JSON if it has none."""
    if document is None or document == {}:
        return ""
    if pointer is not None and pointer.endswith(f"/{LAST}"):
        pointer = None
    text = text_of(document, pointer)
    return text if text is not None else json.dumps(document, ensure_ascii=False, indent=2)


def as_answer(typed: str, schema: JsonObject) -> Any:
    """What a person typed, as the value that the schema of the answer wants.

    JSON is taken as it is; `yes` and `no` are booleans where one is wanted; a text or a choice stays text; where an
    object with one property is wanted, what was typed is that property.
    """
    properties = schema.get("properties")
    wanted = schema.get("type")
    if wanted == "object" or (wanted is None and properties):
        try:
            value = json.loads(typed)
        except json.JSONDecodeError:
            value = None
        if isinstance(value, dict):
            return value
        required = [name for name in schema.get("required", ()) if name in (properties or {})]
        names = required if len(required) == 1 else list(properties or {})
        return {names[0]: as_answer(typed, properties[names[0]])} if properties and len(names) >= 1 else typed
    if wanted == "string" or ("enum" in schema and typed in schema["enum"]):
        return typed
    if wanted == "boolean" and typed.strip().lower() in {"y", "yes", "n", "no"}:
        return typed.strip().lower().startswith("y")
    try:
        return json.loads(typed)
    except json.JSONDecodeError:
        return typed


def as_question(payload: Any, message: str = "") -> str:
    """A question for a person: its message, else the text of its payload, else the payload as JSON."""
    if message:
        return message
    if payload is None:
        return "The agent waits for an answer."
    text = text_of(payload)
    return text if text is not None else json.dumps(payload, ensure_ascii=False)


def note(update: Any) -> Note | None:
    """A line for an event that is no part of the answer; None for those that a person does not need."""
    if not isinstance(update, dict):
        return None
    match update.get("type"):
        case "tool_call_started":
            return Note(f"tool: {update.get('title') or update.get('name')}")
        case "tool_call_ended" if update.get("failed"):
            return Note(f"tool failed: {update.get('call')}")
        case "artifact_added":
            artifact = update.get("artifact", {})
            return Note(
                f"file: {artifact.get('name')} ({artifact.get('size', 0)} bytes) {artifact.get('url', '')}".rstrip()
            )
        case "plan_updated":
            marks = {"completed": "x", "in_progress": ">"}
            entries = update.get("entries", [])
            return Note("plan: " + " ".join(f"[{marks.get(e.get('status'), ' ')}] {e.get('content')}" for e in entries))
    return None
