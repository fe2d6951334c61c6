"""Updates of version 1 in version 2's words: what `updates_out` and `states` make of an agent's of version 1.

An update of version 2 is read as updates of version 1 (updates_in.py), whose events are what the rest of the gateway
sees; turned back here and completed by the marks of beyond_v1.py they are what the agent said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.v2 import calls, conversions
from adapters.agent_client.codec.v2.wire import MAIN_PLAN, PLAN
from gateway.core.types import JsonObject


def to_v2(said: JsonObject, message_id: str) -> JsonObject:
    """An update of version 1 as one of version 2. A chunk without id goes on the message of that id.

    `current_mode_update` is not one by itself: see `states.told`. What is not known is passed on.
    """
    kind = said.get(event_forms.KEY)
    if kind in event_forms.CHUNKS:
        named = said.get("messageId")
        return said if isinstance(named, str) else {**said, "messageId": message_id}
    if kind in ("tool_call", "tool_call_update"):
        return calls.to_v2(said)
    if kind == "plan":
        rest = {key: value for key, value in said.items() if key not in (event_forms.KEY, "entries")}
        return {
            event_forms.KEY: PLAN,
            "plan": {"type": "items", "planId": MAIN_PLAN, "entries": said.get("entries")},
            **rest,
        }
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
    """The entries of a plan that is a list of them, None for every other, and for entries that are none."""
    if not isinstance(plan, dict) or plan.get("type") != "items":
        return None
    entries = plan.get("entries")
    if not isinstance(entries, list):
        return None
    sound = all(isinstance(each, dict) and isinstance(each.get("content"), str) for each in entries)
    return entries if sound else None
