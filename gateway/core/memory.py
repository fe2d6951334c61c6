"""A conversation put into an agent's input: what was said before, for an agent that does not know it.

An input with a place for messages (an array of items that say who speaks and what) gets them there. Any other input
gets them as text before its own text: a transcript.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Final

from gateway.core import delta, projection
from gateway.core.types import Agent, ChatMessage, Json, Record, Role

TRANSCRIPT: Final = "This conversation so far:\n\n$history\n\nThe next message:"
"""The text put before an input's text. `$history` is replaced."""

LOST: Final = "earlier_turns"
"""Counts, by run, what an agent was not told of the conversation before it."""

_SPEAKERS: Final = {Role.USER: projection.USER, Role.ASSISTANT: projection.ASSISTANT}


def replays(agent: Agent, mode: str, messages: str | None) -> bool:
    """Whether earlier turns are put into the agent's input. `mode`, `messages`: see the configuration's `memory`.

    With `auto`, where the input is meant for a conversation as far as the agent's description tells.
    """
    if mode != "auto":
        return mode == "replay"
    if agent.capabilities.tool:
        return False
    if projection.takes_prose(agent.text_input) or messages is not None:
        return True
    return projection.chat_pointer(agent.input_schema) is not None


class Recalled(Record, frozen=True, kw_only=True):
    """The input to send an agent for a run.

    `input` is the run's input with everything the agent must know before it. `before` is the part of that which stands
    before the prompt as text, "" if there is none: for adapters that pass a client's own words on as they are.
    """

    input: Json
    before: str = ""


def transcript(messages: Sequence[ChatMessage], template: str = TRANSCRIPT) -> str:
    """The messages as text: one `role: content` a paragraph, with their files' names and links below."""
    history = "\n\n".join(f"{one.role.value}: {one.content}{_files(one)}" for one in messages)
    return Template(template).substitute(history=history)


def as_messages(document: Json, pointer: str, schema: projection.Schema, messages: Sequence[ChatMessage]) -> Json:
    """The document with the messages before its own, at a place that `projection.chat_pointer` found.

    ABSENT where the document cannot take them there. A document that already has something the assistant said brings
    its own history and is returned as it is.
    """
    array = pointer.rpartition(f"/{projection.LAST}")[0]
    there = delta.pointer_get(document, array) if isinstance(document, dict | list) else delta.ABSENT
    own = [] if there in (delta.ABSENT, None) else there
    if not isinstance(own, list):
        return delta.ABSENT
    if any(projection.speaker(item) == projection.ASSISTANT for item in own):
        return document
    before = [_item(one, pointer, array, schema) for one in messages if one.role in _SPEAKERS]
    system = next((at for at, item in enumerate(own) if projection.speaker(item) != "system"), len(own))
    return delta.pointer_set(document, array, [*own[:system], *before, *own[system:]])


def _item(message: ChatMessage, pointer: str, array: str, schema: projection.Schema) -> Json:
    role = _SPEAKERS[message.role]
    alone = projection.wrap(message.content + _files(message), pointer, schema, role)
    return delta.pointer_get(alone, array)[0]


def _files(message: ChatMessage) -> str:
    files = message.metadata.get("artifacts")
    listed = [one for one in files if isinstance(one, dict)] if isinstance(files, list) else []
    return "".join(f"\n[file {one.get('name')}: {one.get('url')}]" for one in listed)
