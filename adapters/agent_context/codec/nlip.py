"""Payloads in the form of NLIP (ECMA-430), which the draft adopts (2.1, 3.2): to the draft's own form, and back.

    {"format", "subformat", "content", "label"?, "submessages"?: [{"format", "subformat", "content", "label"?}]}

    text                      messages[].text
    structured                input, where there is one (JSON as text or as it is); else it stays a submessage
    token, conversation...    context.sessionId
    token, authorization...   left out: credentials are for the gateway
    binary, location, ...     stay submessages, as does a structured link (`uri`)

Pure. A control message is none of these: it stays what it is.
"""

from __future__ import annotations

from typing import Final

import msgspec

from adapters.agent_context.wire import PROTOCOL
from gateway.core.types import Agent, Json, JsonObject

NAME: Final = "nlip"
"""Prefix (in any case) of the entry in `capabilities.protocols` of an agent that speaks it."""
CONVERSATION: Final = "conversation"
_FORMATS: Final = frozenset(("text", "token", "structured", "binary", "location", "error", "generic"))
_PART: Final = frozenset(("format", "subformat", "content", "label"))
_WHOLE: Final = _PART | {"messagetype", "control", "submessages"}
_SAID: Final = frozenset(("messages", "input", "output", "artifacts", "submessages", "context", "requirements"))
"""Members of the draft's payload that have a place of their own."""
_ENVELOPE: Final = ("context", "requirements")
"""Members of the draft's payload that may stand beside a message's own."""


def speaks(agent: Agent) -> bool:
    record = agent.extra.get(PROTOCOL)
    said = record.get("capabilities") if isinstance(record, dict) else None
    protocols = said.get("protocols") if isinstance(said, dict) else None
    return isinstance(protocols, list) and any(
        isinstance(each, str) and each.casefold().startswith(NAME) for each in protocols
    )


def spoken(payload: Json) -> bool:
    if not _is_part(payload) or payload.keys() - _WHOLE - set(_ENVELOPE):
        return False
    if payload.get("control") is True or str(payload.get("messagetype") or "").casefold() == "control":
        return False
    below = payload.get("submessages")
    return below is None or (isinstance(below, list) and all(_is_part(each) for each in below))


def plain(payload: Json) -> Json:
    """The payload in the draft's form; as it is, if it is no NLIP message."""
    if not spoken(payload):
        return payload
    parts: list[JsonObject] = [
        {key: payload[key] for key in _PART if key in payload},
        *(payload.get("submessages") or []),
    ]
    texts = [part["content"] for part in parts if _format(part) == "text" and isinstance(part["content"], str)]
    documents = [part for part in parts if _format(part) == "structured" and part["subformat"].casefold() != "uri"]
    out: JsonObject = {key: payload[key] for key in _ENVELOPE if key in payload}
    if texts:
        out["messages"] = [{"text": text} for text in texts]
    kept = [part for part in parts if _format(part) not in ("text", "token") and part not in documents]
    if len(documents) == 1:
        out["input"] = _document(documents[0]["content"])
    else:
        kept += documents
    token = conversation(payload)
    if token is not None:
        context = out.get("context")
        out["context"] = {"sessionId": token, **(context if isinstance(context, dict) else {})}
    if kept:
        out["submessages"] = kept
    return out


def conversation(payload: Json) -> str | None:
    for part in (payload, *(payload.get("submessages") or [])):
        if _format(part) == "token" and str(part.get("subformat")).casefold().startswith(CONVERSATION):
            return part["content"] if isinstance(part["content"], str) and part["content"] else None
    return None


def of(payload: JsonObject, token: str | None = None) -> JsonObject:
    """A payload of the draft's form as an NLIP message. `token`: of the conversation, where its context has none."""
    context, rest = payload.get("context"), {key: payload[key] for key in payload.keys() - _SAID}
    messages = payload.get("messages") or []
    texts = [each["text"] for each in messages if isinstance(each, dict) and isinstance(each.get("text"), str)]
    if any(not isinstance(each, dict) or each.keys() != {"text"} for each in messages):
        rest["messages"] = messages  # more than text: told twice, lost never
    documents = [payload[key] for key in ("input", "output") if key in payload]
    below: list[JsonObject] = [
        {"format": "structured", "subformat": "json", "content": msgspec.json.encode(each).decode()}
        for each in [*documents, *([rest] if rest else [])]
    ]
    for file in payload.get("artifacts") or []:
        link = {"format": "structured", "subformat": "uri", "content": file.get("url"), "label": file.get("name")}
        below.append(link)
    below += payload.get("submessages") or []
    session = context.get("sessionId") if isinstance(context, dict) else None
    if isinstance(session, str) or token is not None:
        below.append({"format": "token", "subformat": CONVERSATION, "content": session or token})
    message: JsonObject = {"format": "text", "subformat": "english", "content": "\n".join(texts)}
    if below:
        message["submessages"] = below
    return {**message, **{key: payload[key] for key in _ENVELOPE if key in payload}}


def _is_part(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("subformat"), str)
        and isinstance(value.get("content"), str | dict)
        and _format(value) in _FORMATS
    )


def _format(part: JsonObject) -> str:
    found = part.get("format")
    return found.casefold() if isinstance(found, str) else ""


def _document(content: Json) -> Json:
    if not isinstance(content, str):
        return content
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return content
