"""Permissions in version 2 (docs: tool-calls; RFD: permission requests). Forms are the same in both versions.

The question in between is version 1's, so that whoever asks or answers in other words sees no difference: `toolCall`
and `options`, with version 2's own keys (`title`, `description`, `subject`) beside them, verbatim.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec import questions as v1
from adapters.agent_client.codec.v2 import tool_calls
from gateway.core import delta
from gateway.core.errors import Invalid
from gateway.core.types import Interrupt, JsonObject

_OWN: Final = ("toolCall", "options", "sessionId")


def permission(params: JsonObject, id: str, known: str | None = None) -> Interrupt:
    """The question of a `session/request_permission` of version 2.

    `known` is what the tool call was called before (`UpdateDecoder.title`). Answers are version 1's, and
    `permission_result` is what the agent is answered. Raises Invalid (with path) for params without title or options.
    """
    title = params.get("title")
    if not isinstance(title, str):
        raise Invalid("a permission request needs a title", path="/title")
    said = {key: value for key, value in params.items() if key not in ("sessionId", "toolCall")}
    call = tool_call_of(params, id)
    found = v1.permission({"toolCall": call, "options": params.get("options")}, id, known)
    description = params.get("description")
    message = f"{title}\n\n{description}" if isinstance(description, str) and description else title
    return replace(found, payload=delta.sound({**said, "toolCall": call}), message=delta.sound(message))


def tool_call_of(params: JsonObject, id: str) -> JsonObject:
    """The tool call, in version 1's words, that a permission request of version 2 is about.

    A command is one that executes it. A request about nothing that is known is one of its own: then `id` names it.
    """
    subject = params.get("subject")
    subject = subject if isinstance(subject, dict) else {}
    call = subject.get("toolCall")
    if subject.get("type") == "tool_call" and isinstance(call, dict) and isinstance(call.get("toolCallId"), str):
        said, _ = tool_calls.to_v1({**call, event_forms.KEY: tool_calls.CALL}, first=False)
        return {key: value for key, value in said.items() if key != event_forms.KEY}
    if subject.get("type") == "command" and isinstance(subject.get("command"), str):
        named = subject.get("toolCallId")
        return {
            "toolCallId": named if isinstance(named, str) else id,
            "title": subject["command"],
            "kind": "execute",
            "rawInput": {key: subject[key] for key in ("command", "cwd") if key in subject},
        }
    return {"toolCallId": id, "title": str(params.get("title")), "kind": "other"}


def as_permission(interrupt: Interrupt) -> JsonObject | None:
    """Params of a `session/request_permission` (without `sessionId`), None if the answer is no choice.

    What an agent of version 2 asked is asked verbatim, and whether a tool may be called is asked about that call. Any
    other question needs no tool call here: its payload is told as the description.

    `permission_answer` reads the answer.
    """
    payload = interrupt.payload
    if not v1.is_permission(interrupt):
        found = v1.as_permission(interrupt)
        if found is None:
            return None
        said: JsonObject = {"title": interrupt.message or interrupt.kind, "options": found["options"]}
        if v1.is_approval(interrupt):
            return {**said, **_approval(found["toolCall"], payload)}
        return said if payload is None else {**said, "description": event_forms.fenced(payload)}
    rest = {key: value for key, value in payload.items() if key not in _OWN}
    if v1.is_v2(payload):
        return {**rest, "options": payload["options"]}
    call, title = payload["toolCall"], payload["toolCall"].get("title")
    shown = title if isinstance(title, str) and title else interrupt.message or interrupt.kind
    return {**rest, "title": shown, "subject": _subject(call), "options": payload["options"]}


def _subject(call: JsonObject) -> JsonObject:
    said = tool_calls.to_v2({**call, event_forms.KEY: "tool_call_update"})
    return {"type": "tool_call", "toolCall": {key: value for key, value in said.items() if key != event_forms.KEY}}


def _approval(call: JsonObject, payload: JsonObject) -> JsonObject:
    """The subject of a gateway's question: the call has the tool's name, since the question has a title of its own."""
    why = payload.get("why")
    described = {"description": why} if isinstance(why, str) and why else {}
    return {"subject": _subject({**call, "title": str(payload["tool"])}), **described}


def whole(asked: JsonObject) -> JsonObject:
    """A form with all that the TypeScript SDK wants of it: the Python SDK of version 1 leaves out what goes without
    saying."""
    schema = asked.get("requestedSchema")
    if not isinstance(schema, dict) or ("type" in schema and "properties" in schema):
        return asked
    return {**asked, "requestedSchema": {"type": "object", "properties": {}, **schema}}
