"""A run as a terminal shows it, in this process or at a gateway.

Two sources make them: `remote.py` (a running gateway) and `cli/local.py` (a route table, in this process). The
command line shows them and hands back answers; it knows neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from msgspec import UNSET

from gateway.contract import reading
from gateway.core.choices import Choice, choices, in_object
from gateway.core.projection import LAST, text_of
from gateway.core.stopping import cancelled
from gateway.core.types import JsonObject, RunStatus

LISTED: Final = 1000
"""The most values to list. With more the user types one."""
_ACTED_ON: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class AnswerText:
    """The whole answer so far, which may differ from the one before. `document`: it is JSON, not growing text."""

    whole: str
    document: bool = False


@dataclass(frozen=True)
class Note:
    """An event on the way, in one line: a tool, a plan, a file."""

    text: str


@dataclass(frozen=True)
class File:
    """A file of the run. `url` is its public address, "" if only `Talk.read` gives it."""

    id: str
    name: str
    size: int
    url: str = ""


@dataclass(frozen=True)
class PendingQuestion:
    """A question of the agent; the run waits for `Talk.answer`. `schema` is the answer's, {} for any answer.

    `choices` may be typed, each with its name if that differs: `plant (Plant it)`; empty if any text may be typed.
    """

    text: str
    schema: JsonObject = field(default_factory=dict)
    choices: Sequence[str] = ()


@dataclass(frozen=True)
class RunEnd:
    """The end of a run. `why` is the reason for a person, empty on success; `text` is the final answer."""

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
    """An agent's input: its schema, and the place of the text in it, None if it has none."""

    agent: ListedAgent
    schema: JsonObject
    pointer: str | None


class Talk(Protocol):
    """A place where agents can be run. Methods raise InterlinguaErrors."""

    async def agents(self) -> Sequence[ListedAgent]:
        """The agents that may be run, in route order."""

    async def wants(self, agent: str) -> Wants:
        """Return an agent's input. Raises NotFound, and errors of asking the agent."""

    def run(self, agent: str, prompt: str | None, document: Any = None) -> AsyncIterator[Item]:
        """Run an agent and yield what happens, last a RunEnd. After a PendingQuestion it waits for `answer`.

        Without a prompt `document` is the input. An empty prompt says nothing: what the agent wants is a Question.
        """

    async def answer(self, value: Any) -> None:
        """Answer the open question. Raises Invalid if the value does not fit; it stays open then."""

    def read(self, file: File) -> AsyncIterator[bytes]:
        """Read a file of the run, in pieces."""

    async def cancel(self) -> bool:
        """Cancel the run, whose end `run` then yields. False if none was asked for. Safe to call at any time."""

    async def leave(self) -> str:
        """Leave the open question. Returns a line that says where the run waits, or that it was cancelled."""


def shown(text: str) -> str:
    """An agent's text without control characters and marks that a terminal would act on."""
    return _ACTED_ON.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r", ""))


def as_text(document: Any, pointer: str | None) -> AnswerText:
    """Return the text of an output document, or the document as JSON if it has none."""
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
    """Convert typed text to a value for the answer's schema.

    JSON is taken as it is; `yes` and `no` are booleans where one is wanted; a text or a choice stays text; where an
    object with one property is wanted, what was typed is that property, and of several each line is one.
    """
    properties = schema.get("properties")
    wanted = schema.get("type")
    read = reading.parsed(typed)
    if wanted == "object" or (wanted is None and properties):
        if read and isinstance(read[0], dict):
            return read[0]
        inner = in_object(schema)
        if inner is None:
            if (found := reading.meant(schema, typed)) is not UNSET:
                return found
            inner = next(iter((properties or {}).items()), None)
        return typed if inner is None else {inner[0]: as_answer(typed, inner[1])}
    chosen = [choice for choice in choices(schema, LISTED) or () if typed in (choice.id, choice.label)]
    if len(chosen) == 1:
        return chosen[0].value
    if wanted == "string":
        return typed
    if wanted == "boolean" and typed.strip().lower() in {"y", "yes", "n", "no"}:
        return typed.strip().lower().startswith("y")
    return read[0] if read else typed


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
    """Return the title of a payload without a text, or of an object in it."""
    inside = [part for part in payload.values() if isinstance(part, dict)] if isinstance(payload, dict) else []
    titles = (part.get("title") for part in (payload, *inside) if isinstance(part, dict))
    return next((title for title in titles if isinstance(title, str) and title), "")


def _choices(payload: Any, schema: JsonObject) -> tuple[str, ...]:
    """The choices of a question: listed by the schema, or the payload's objects that have the wanted key."""
    name, wanted = in_object(schema) or (None, schema)
    found = choices(wanted, LISTED)
    if found is not None:
        return tuple(_shown(choice) for choice in found)
    if name is None or not isinstance(payload, dict):
        return ()
    lists = (part for part in payload.values() if isinstance(part, list) and part)
    fits = (part for part in lists if all(isinstance(one, dict) and name in one for one in part))
    offered = [Choice(str(one[name]), one[name], str(one.get("name") or "")) for one in next(fits, [])]
    return tuple(_shown(choice) for choice in offered)


def _shown(choice: Choice) -> str:
    """Return the text to type for a choice, and its label if the text does not explain itself."""
    if isinstance(choice.value, bool):
        return "yes" if choice.value else "no"
    return choice.id if choice.label in ("", choice.id) else f"{choice.id} ({choice.label})"


def ending(status: str, why: str | None) -> str:
    """How a run ended that did not simply succeed, in words."""
    return cancelled(why) if status == RunStatus.CANCELLED else f"{status}: {why}" if why else str(status)


class Notes:
    """Describes the events of one run beside its answer."""

    def __init__(self) -> None:
        self._titles: dict[Any, str] = {}

    def of(self, update: Any) -> Note | File | None:
        """Describe an event for a person; None for one of no interest."""
        if not isinstance(update, dict):
            return None
        call = update.get("call")
        match update.get("type"):
            case "tool_call_started":
                self._titles[call] = str(update.get("title") or update.get("name"))
                return Note(f"tool: {self._titles[call]}")
            case "tool_call_updated" if (title := update.get("title")) and title != self._titles.get(call):
                self._titles[call] = str(title)
                return Note(f"tool: {title}")
            case "tool_call_ended" if update.get("failed"):
                return Note(f"tool failed: {self._titles.get(call, call)}")
            case "artifact_added":
                artifact = update.get("artifact", {})
                id, name, size, url = (artifact.get(key) for key in ("id", "name", "size", "url"))
                return File(str(id or ""), str(name or ""), size or 0, str(url or ""))
            case "plan_updated":
                marks = {"completed": "x", "in_progress": ">"}
                entries = update.get("entries", [])
                told = (f"[{marks.get(e.get('status'), ' ')}] {e.get('content')}" for e in entries)
                return Note("plan: " + " ".join(told))
        return None
