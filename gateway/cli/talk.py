"""One run as a person follows it: the few things a terminal shows, whoever runs the agent.

Two sources make them: `remote.py` (a running gateway) and `cli/local.py` (a route table, in this process). The
command line shows them and hands back answers; it knows neither.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from msgspec import UNSET

from gateway.contract import reading
from gateway.core.choices import Choice, choices
from gateway.core.projection import LAST, text_of
from gateway.core.types import JsonObject, RunStatus

LISTED: Final = 1000
"""More values than this are not listed: whoever answers types one."""


@dataclass(frozen=True)
class AnswerText:
    """The answer so far, whole. What was said before may have changed. `document`: it is JSON, not text that grows."""

    whole: str
    document: bool = False


@dataclass(frozen=True)
class Note:
    """Something that happened on the way, one line: a tool, a plan, a file."""

    text: str


@dataclass(frozen=True)
class File:
    """A file that the run has now. `url` is where anybody can have it, "" where only `Talk.read` gives it."""

    id: str
    name: str
    size: int
    url: str = ""


@dataclass(frozen=True)
class PendingQuestion:
    """The agent asks; the run waits for `Talk.answer`. `schema` is that of the answer, {} if anything goes.

    `choices` is what may be typed, each with its name if that is another: `plant (Plant it)`; none if anything may.
    """

    text: str
    schema: JsonObject = field(default_factory=dict)
    choices: Sequence[str] = ()


@dataclass(frozen=True)
class RunEnd:
    """The run has ended. `why` is for a person, and empty where all was done; `text` is the final answer."""

    status: RunStatus
    why: str = ""
    text: AnswerText | None = None


Item = AnswerText | Note | File | PendingQuestion | RunEnd


@dataclass(frozen=True)
class ListedAgent:
    """An agent in a list."""

    name: str
    version: str = ""
    description: str = ""


@dataclass(frozen=True)
class Wants:
    """What one agent takes: its input's schema, and where in it the text is, None if nowhere."""

    agent: ListedAgent
    schema: JsonObject
    pointer: str | None


class Talk(Protocol):
    """A place where agents can be run. Methods raise errors of the tree."""

    async def agents(self) -> Sequence[ListedAgent]:
        """The agents that may be run, in route order."""

    async def wants(self, agent: str) -> Wants:
        """What an agent takes. Raises NotFound, and what keeps the agent from saying it."""

    def run(self, agent: str, prompt: str | None, document: Any = None) -> AsyncIterator[Item]:
        """Run an agent and say what happens, last an End. After a Question it waits for `answer`.

        Without a prompt `document` is the input. An empty prompt says nothing: what the agent wants is a Question.
        """

    async def answer(self, value: Any) -> None:
        """Answer the open question. Raises Invalid if the value does not fit; it stays open then."""

    def read(self, file: File) -> AsyncIterator[bytes]:
        """What is in a file of the run, in pieces."""

    async def cancel(self) -> None:
        """Give the run up. Safe to call at any time."""

    async def leave(self) -> str:
        """Nobody answers the open question now: a line that says where it waits, or that the run was given up."""


def as_text(document: Any, pointer: str | None) -> AnswerText:
    """The text of an output document, or the document as JSON if it has none."""
    if document is None or document == {}:
        return AnswerText("")
    if pointer is not None and pointer.endswith(f"/{LAST}"):
        pointer = None
    text = text_of(document, pointer)
    return (
        AnswerText(text)
        if text is not None
        else AnswerText(json.dumps(document, ensure_ascii=False, indent=2), document=True)
    )


def as_answer(typed: str, schema: JsonObject) -> Any:
    """What a person typed, as the value that the schema of the answer wants.

    JSON is taken as it is; `yes` and `no` are booleans where one is wanted; a text or a choice stays text; where an
    object with one property is wanted, what was typed is that property, and of several each line is one.
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
        names = _sought(schema)
        if len(names) != 1 and (found := reading.meant(schema, typed)) is not UNSET:
            return found
        return {names[0]: as_answer(typed, properties[names[0]])} if properties and names else typed
    chosen = [choice for choice in choices(schema, LISTED) or () if typed in (choice.id, choice.label)]
    if len(chosen) == 1:
        return chosen[0].value
    if wanted == "string":
        return typed
    if wanted == "boolean" and typed.strip().lower() in {"y", "yes", "n", "no"}:
        return typed.strip().lower().startswith("y")
    try:
        return json.loads(typed)
    except json.JSONDecodeError:
        return typed


def asks(payload: Any, schema: JsonObject, *, kind: str = "", message: str = "") -> PendingQuestion:
    """A question for a person: its message, else the text of its payload, else what the payload's title says it is of,
    else the payload as JSON. `kind` is the interrupt's, `schema` that of the answer.
    """
    text: str | None = message or "The agent waits for an answer."
    if not message and payload is not None:
        text = text_of(payload)
    if text is None and (title := _title(payload)):
        text = f"The agent asks for {kind}: {title}" if kind else title
    return PendingQuestion(text or json.dumps(payload, ensure_ascii=False), schema, _choices(payload, schema))


def _title(payload: Any) -> str:
    """The title of a payload without a text, or of what it is about: an object in it."""
    inside = [part for part in payload.values() if isinstance(part, dict)] if isinstance(payload, dict) else []
    titles = (part.get("title") for part in (payload, *inside) if isinstance(part, dict))
    return next((title for title in titles if isinstance(title, str) and title), "")


def _sought(schema: JsonObject) -> list[str]:
    """The properties of an answer that one typed text may be: the required one, if there is one, else all."""
    properties = schema.get("properties") or {}
    required = [name for name in schema.get("required", ()) if name in properties]
    return required if len(required) == 1 else list(properties)


def _choices(payload: Any, schema: JsonObject) -> tuple[str, ...]:
    """The choices of a question: listed by the schema, or the payload's objects that have the wanted key."""
    names = _sought(schema)
    wanted = schema["properties"][names[0]] if len(names) == 1 else schema
    if not isinstance(wanted, dict):
        return ()
    found = choices(wanted, LISTED)
    if found is not None:
        return tuple(_shown(choice) for choice in found)
    if len(names) != 1 or not isinstance(payload, dict):
        return ()
    lists = (part for part in payload.values() if isinstance(part, list) and part)
    fits = (part for part in lists if all(isinstance(one, dict) and names[0] in one for one in part))
    offered = [Choice(str(one[names[0]]), one[names[0]], str(one.get("name") or "")) for one in next(fits, [])]
    return tuple(_shown(choice) for choice in offered)


def _shown(choice: Choice) -> str:
    """What is typed to choose it, and what that means if it does not say so itself."""
    if isinstance(choice.value, bool):
        return "yes" if choice.value else "no"
    return choice.id if choice.label in ("", choice.id) else f"{choice.id} ({choice.label})"


def note(update: Any) -> Note | File | None:
    """An event that is no part of the answer, for a person; None for those that a person does not need."""
    if not isinstance(update, dict):
        return None
    match update.get("type"):
        case "tool_call_started":
            return Note(f"tool: {update.get('title') or update.get('name')}")
        case "tool_call_ended" if update.get("failed"):
            return Note(f"tool failed: {update.get('call')}")
        case "artifact_added":
            artifact = update.get("artifact", {})
            id, name, size, url = (artifact.get(key) for key in ("id", "name", "size", "url"))
            return File(str(id or ""), str(name or ""), size or 0, str(url or ""))
        case "plan_updated":
            marks = {"completed": "x", "in_progress": ">"}
            entries = update.get("entries", [])
            return Note("plan: " + " ".join(f"[{marks.get(e.get('status'), ' ')}] {e.get('content')}" for e in entries))
    return None
