"""Updates of version 2 and version 1's words for them, which are what events and ThreadUpdates are made of.

What belongs to a conversation and to none of its runs is a ThreadUpdate in version 1's words; what version 2 said
beyond them stands in its data under ORIGIN_V2, with which no client of version 1 is sent it. What version 1 has no
words for is one named ORIGIN_V2 (docs: slash commands, session config options, session list).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.v2 import conversions, tool_calls
from adapters.agent_client.codec.v2.wire import MAIN_PLAN, PLAN, UPDATE
from adapters.agent_client.wire import ORIGIN_V2, PROTOCOL, as_object, without
from gateway.core import delta
from gateway.core.types import JsonObject, ThreadUpdate

_MODE: Final = "current_mode_update"
_OPTIONS: Final = "config_option_update"
_NOTES: Final = ("modes", "config_options")
"""Notes recorded from the agent's answers, which are not updates."""


def to_v2(said: JsonObject, message_id: str) -> JsonObject:
    """An update of version 1 as one of version 2. A chunk without id goes on the message of that id.

    `current_mode_update` is not one by itself: see `told`. What is not known is passed on.
    """
    kind = said.get(event_forms.KEY)
    if kind in event_forms.CHUNKS:
        named = said.get("messageId")
        return said if isinstance(named, str) else {**said, "messageId": message_id}
    if kind in ("tool_call", "tool_call_update"):
        return tool_calls.to_v2(said)
    if kind == "plan":
        plan = {"type": "items", "planId": MAIN_PLAN, "entries": said.get("entries")}
        return {event_forms.KEY: PLAN, "plan": plan, **without(said, event_forms.KEY, "entries")}
    if kind == "available_commands_update":
        return {**said, "availableCommands": conversions.commands_to_v2(said.get("availableCommands"))}
    if kind == "config_option_update":
        return {**said, "configOptions": conversions.options_to_v2(said.get("configOptions"))}
    return said


def plan_to_v1(plans: Iterable[list[Any]]) -> tuple[JsonObject, bool]:
    """All plans there are as version 1's one, and whether a word was not known there.

    What was cancelled counts as done, and says so.
    """
    entries: list[Any] = []
    unknown = False
    for plan in plans:
        for entry in plan:
            said = entry
            if isinstance(entry, dict):
                status, priority = entry.get("status"), entry.get("priority")
                if status == "cancelled" and isinstance(entry.get("content"), str):
                    said = {**said, "status": "completed", "content": f"{entry['content']} (cancelled)"}
                elif status not in event_forms.PLAN_STATUSES:
                    said, unknown = {**said, "status": "pending"}, True
                if priority not in event_forms.PRIORITIES:
                    said, unknown = {**said, "priority": "medium"}, True
            entries.append(said)
    return {event_forms.KEY: "plan", "entries": entries}, unknown


def as_list(plan: Any) -> list[Any] | None:
    """The entries of a plan that is a list of them. None for other plans, and for malformed entries."""
    if not isinstance(plan, dict) or plan.get("type") != "items":
        return None
    entries = plan.get("entries")
    if not isinstance(entries, list):
        return None
    sound = all(isinstance(each, dict) and isinstance(each.get("content"), str) for each in entries)
    return entries if sound else None


# --- an agent of version 2 says ----------------------------------------------------------------------------------


def thread_updates(said: JsonObject) -> list[ThreadUpdate]:
    """The notes that a state's update is (`wire.STATES`, and whatever is not known), for `RunContext.note`.

    The option that is the session's mode is told as version 1's mode too.
    """
    kind = said[UPDATE]
    found = state_to_v1(said)
    out = [noted(kind, found, to_v2(found, ""), said)]
    modes = conversions.modes_of(found.get("configOptions")) if kind == _OPTIONS else None
    if modes is not None:
        data = {UPDATE: _MODE, "currentModeId": modes["currentModeId"], ORIGIN_V2: {"silent": True}}
        out.append(ThreadUpdate(protocol=PROTOCOL, kind=_MODE, data=delta.sound(data)))
    return out


def noted(kind: str, v1: JsonObject, back: JsonObject, said: JsonObject, *, kept: bool = False) -> ThreadUpdate:
    """An update in version 1's words, that turn back into `back`, for what an agent said in version 2's."""
    marks = event_forms.difference(back, said)
    data = {**v1, ORIGIN_V2: marks} if marks else v1
    return ThreadUpdate(protocol=PROTOCOL, kind=kind, data=delta.sound(data), kept=kept)


def state_to_v1(said: JsonObject) -> JsonObject:
    kind = said.get(UPDATE)
    if kind == "available_commands_update":
        return {**said, "availableCommands": conversions.commands_to_v1(said.get("availableCommands"))}
    if kind == _OPTIONS:
        return {**said, "configOptions": conversions.options_to_v1(said.get("configOptions"))}
    return said


# --- a client of version 2 is told -------------------------------------------------------------------------------


def told(update: ThreadUpdate, *, options: Any = None, modes: Any = None) -> JsonObject | None:
    """The update that a client of version 2 is sent for a ThreadUpdate, None if it is none.

    `options` and `modes` are the session's in version 1's words as they are now: its modes are an option here, so that
    a change of the mode is one of the options. Words without a message id go on the message "<the run before>-more".
    """
    data: JsonObject = update.data
    if event_forms.kind_of(data) is None:
        return None
    if update.protocol == ORIGIN_V2:
        return data
    if update.protocol != PROTOCOL or update.kind in _NOTES:
        return None
    marks = as_object(data.get(ORIGIN_V2))
    if marks.get("silent"):
        return None
    if isinstance(marks.get("update"), dict):
        whole: JsonObject = marks["update"]
        return whole
    v1 = without(data, ORIGIN_V2)
    kind = v1[UPDATE]
    if kind == _MODE:
        now = {**modes, "currentModeId": v1.get("currentModeId")} if isinstance(modes, dict) else None
        found = conversions.options_to_v2(options, now)
        return {UPDATE: _OPTIONS, "configOptions": found} if found else None
    if kind == _OPTIONS:
        v2 = {**v1, "configOptions": conversions.options_to_v2(v1.get("configOptions"), modes)}
    else:
        v2 = to_v2(v1, f"{update.after or 'session'}-more")
    return event_forms.restored(v2, marks)
