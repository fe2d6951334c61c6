"""One event as one update, and what the wire said beyond that: `origin`.

An agent's update becomes one event, or several. Each event has a plain form (below), that of several is the first's
with the next ones' keys put over it. Where the plain form is JSON-equal to what the agent sent there is no `origin`.
Else the last event's says what differs, `{"agent_client": {"more": {key: value}, "less": [key]}}`; the ones before it
have `{"next": true}`: their update goes on. `{"silent": true}` is on events that stand for no update.

An update of version 2 is first said in version 1's words. Where these, turned back, are not what the agent said, the
last event has the difference under "agent_client.v2", in the same way. Where an update becomes several of version 1's,
or none that says it, one event has it whole, `{"update": ...}`, and those that belong to it `{"silent": true}`. `lost`
names what version 1's words leave out (losses.py); `messageId` is the message's where version 1 calls it otherwise;
`aside` is on what the agent did not say for the run in whose log it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from adapters.agent_client import wire
from adapters.agent_client.wire import AIP44, ORIGIN_V2, PROTOCOL, meta_of, without
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Json, JsonObject

_E = TypeVar("_E", bound=e.Event)

KEY: Final = "sessionUpdate"
MESSAGE: Final = "agent_message_chunk"
THOUGHT: Final = "agent_thought_chunk"
USER: Final = "user_message_chunk"
CHUNKS: Final = (MESSAGE, THOUGHT, USER)

TOOL_KINDS: Final = frozenset(
    ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
)
FINAL: Final = ("completed", "failed")
STATUSES: Final = {
    **{name: name for name in ("pending", "in_progress", "completed", "failed")},
    "running": "in_progress",
    "created": "pending",
    "success": "completed",
    "error": "failed",
}
PLAN_STATUSES: Final = ("pending", "in_progress", "completed")
PRIORITIES: Final = ("high", "medium", "low")
SILENT: Final[JsonObject] = {PROTOCOL: {"silent": True}}
_NEXT: Final[JsonObject] = {PROTOCOL: {"next": True}}
_CALLS: Final = (e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded)


# --- origin ------------------------------------------------------------------------------------------------------


def beyond(event: e.Event, key: str = PROTOCOL) -> JsonObject | None:
    """This codec's part of an event's `origin`. Under ORIGIN_V2 it holds what version 2 says beyond version 1."""
    mine = None if event.origin is None else event.origin.get(key)
    return mine if isinstance(mine, dict) else None


def marked(event: _E, marks: JsonObject, key: str = ORIGIN_V2) -> _E:
    return replace(event, origin={**(event.origin or {}), key: {**(beyond(event, key) or {}), **marks}})


def difference(plain: JsonObject, said: JsonObject) -> JsonObject:
    """The difference between an event's plain form and what the agent said, for `origin`. Empty if there is none."""
    more = {key: value for key, value in said.items() if key not in plain or not delta.same(plain[key], value)}
    less = [key for key in plain if key not in said]
    return {**({"more": more} if more else {}), **({"less": less} if less else {})}


def restored(plain: JsonObject, mine: JsonObject) -> JsonObject:
    """The inverse of `difference`."""
    less = mine.get("less", ())
    return {**without(plain, *less), **mine.get("more", {})}


def kind_of(said: Json) -> str | None:
    """Which update it is; None for what is none."""
    kind = said.get(KEY) if isinstance(said, dict) else None
    return kind if isinstance(kind, str) else None


def merged(first: JsonObject, second: JsonObject) -> JsonObject:
    return {**first, **second, KEY: first.get(KEY, second.get(KEY))}


def joined(events: Sequence[e.Event], said: JsonObject) -> list[e.Event]:
    """Events without `origin` that together stand for the update `said`, with it."""
    plain: JsonObject = {}
    for event in events:
        plain = merged(plain, form(event) or {})
    out: list[e.Event] = [replace(event, origin=_NEXT) for event in events[:-1]]
    marks = difference(plain, said)
    return [*out, marked(events[-1], marks, PROTOCOL) if marks else events[-1]]


# --- plain forms -------------------------------------------------------------------------------------------------


def chunk(kind: str, block: JsonObject, message_id: str | None = None) -> JsonObject:
    said: JsonObject = {KEY: kind, "content": block}
    if message_id is not None:
        said["messageId"] = message_id
    return said


def form(event: e.Event) -> JsonObject | None:
    """The update that an event is by itself, None if it is none. Parts of messages are chunks, not made here."""
    match event:
        case e.ToolCallStarted():
            return _started(event)
        case e.ToolCallUpdated():
            return _updated(event)
        case e.ToolCallEnded():
            status = "failed" if event.failed else "completed"
            said = {KEY: "tool_call_update", "toolCallId": event.call, "status": status}
            return said if event.output is None else {**said, "rawOutput": event.output}
        case e.PlanUpdated():
            return {KEY: "plan", "entries": [_entry(entry) for entry in event.entries]}
        case e.UsageReported():
            return dict(event.detail) if is_usage(event.detail) else None
    return None


def _started(event: e.ToolCallStarted) -> JsonObject:
    said: JsonObject = {
        KEY: "tool_call",
        "toolCallId": event.call,
        "title": event.title or event.name or event.call,
        "kind": event.kind if event.kind in TOOL_KINDS else "other",
        "status": "in_progress",
    }
    return said if event.input is None else {**said, "rawInput": event.input}


def _updated(event: e.ToolCallUpdated) -> JsonObject:
    said: JsonObject = {KEY: "tool_call_update", "toolCallId": event.call}
    status = STATUSES.get(event.status or "")
    if status is not None:
        said["status"] = status
    if event.title is not None:
        said["title"] = event.title
    if event.input is not None:
        said["rawInput"] = event.input
    if event.content is not None:
        said["content"] = tool_content(event.content)
    return said


def _entry(entry: e.PlanEntry) -> JsonObject:
    return {
        "content": entry.content,
        "priority": entry.priority if entry.priority in PRIORITIES else "medium",
        "status": entry.status if entry.status in PLAN_STATUSES else "pending",
    }


def tool_content(value: Json) -> list[JsonObject]:
    """Whatever a tool gave as `ToolCallContent`: such a list as it is, text as text, else JSON as text."""
    if isinstance(value, list) and all(map(is_tool_content, value)):
        return value
    if isinstance(value, list) and all(map(is_block, value)):
        return [{"type": "content", "content": block} for block in value]
    if is_block(value):
        return [{"type": "content", "content": value}]
    said = value if isinstance(value, str) else fenced(value)
    return [{"type": "content", "content": {"type": "text", "text": said}}]


def fenced(value: Json, language: str = "json") -> str:
    """A value as a person may read it in markdown: JSON in a fence that nothing inside of it ends."""
    body = value if isinstance(value, str) else delta.encode(value).decode()
    fence = "```"
    while fence in body:
        fence += "`"
    return f"{fence}{language}\n{body}\n{fence}"


# --- updates -----------------------------------------------------------------------------------------------------


class UpdateAssembly(Struct, eq=False):
    """Puts the events of one run together to the updates that they stand for, of both versions of the protocol.

    `foreign`: the agent speaks another protocol, and says nothing of what its clients are to be shown.
    """

    foreign: bool
    _held: JsonObject | None = None  # an update that the next event goes on with
    _shown: set[str] = set()  # tool calls with content

    def add(self, event: e.Event, mine: JsonObject | None) -> JsonObject | None:
        """The update that is whole with this event, if one is; `mine` is what the agent said beyond it."""
        said = form(event)
        if said is None or (mine is not None and mine.get("silent")):
            return None
        if self.foreign and isinstance(event, _CALLS):
            said = self._with_content(event, said)
        if self._held is not None:
            said = merged(self._held, said)
        self._held = None
        if mine is not None:
            if mine.get("next"):
                self._held = said
                return None
            said = restored(said, mine)
        return said

    def drop(self) -> None:
        self._held = None

    def _with_content(self, event: e.Event, said: JsonObject) -> JsonObject:
        """A tool's result where clients look for it, if it is text and nothing else was shown."""
        call = said["toolCallId"]
        if said.get("content"):
            self._shown.add(call)
        elif isinstance(event, e.ToolCallEnded) and isinstance(event.output, str) and call not in self._shown:
            return {**said, "content": tool_content(event.output)}
        return said


# --- what a tool call says of itself -----------------------------------------------------------------------------


def profile(said: JsonObject) -> JsonObject:
    """The members under `_meta.aip44` of a tool call."""
    return meta_of(said, AIP44)


def is_question(said: JsonObject) -> bool:
    """Whether it is no tool call, but stands for a question that a gateway asks (see questions.py)."""
    return profile(said).get("question") is True


def named(said: JsonObject) -> str:
    """The tool that a tool call is of: its `name`, else what the AIP-44 profile says, else its title, else its id."""
    for name in (said.get("name"), profile(said).get("tool"), said.get("title"), said.get("toolCallId")):
        if isinstance(name, str) and name:
            return name
    return ""


def server_of(said: JsonObject) -> str | None:
    server = profile(said).get("server")
    return server if isinstance(server, str) and server else None


# --- is it that? -------------------------------------------------------------------------------------------------


def is_block(value: Any) -> bool:
    """Whether it is a content block of a known type, with what that type requires and nothing of a wrong type."""
    try:
        block: wire.Block = msgspec.convert(value, wire.Block)
    except (msgspec.ValidationError, RecursionError):
        return False
    return type(block) is not wire.ResourceBlock or (block.resource.text is not None) != (
        block.resource.blob is not None
    )


def is_tool_content(value: Any) -> bool:
    try:
        item: wire.ToolContent = msgspec.convert(value, wire.ToolContent)
    except (msgspec.ValidationError, RecursionError):
        return False
    return type(item) is not wire.ContentItem or is_block(value["content"])


def is_usage(value: JsonObject) -> bool:
    return value.get(KEY) == "usage_update" and all(is_count(value.get(key)) for key in ("used", "size"))


def is_count(value: Any) -> bool:
    """A whole number from 0 on; true is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
