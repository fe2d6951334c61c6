"""Reads an agent's words about a message or a task, in an answer or in a message of its own. Leniently, as the draft
does not say much. Pure.

    {"content": {"type": "response", "payload": ...}}       the response; also without a type, or a bare "payload"
    {"content": {"type": "request", "payload": ...}}        a question: its answer is sent as the next message
    {"content": {"type": "update", "payload": ...}}         some of it; the rest comes in messages
    {}, {"status": "accepted" | "received" | "pending"...}  acknowledged; all of it comes in messages
    {"task": {"status": ..., "result" | "error": ...}}      of a task: acknowledged, or over
    {"error": {"code", "message", ...}}                     failed, though the request did not
    {"status": "failed" | "cancelled", ...}                 the same
    {"messages": [...]} and any other object                the response itself
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from adapters.agent_context.codec import nlip
from adapters.agent_context.wire.constants import (
    ACKNOWLEDGEMENTS,
    AGENT_FAILED,
    CANCELLED,
    DEADLINE,
    META,
    REQUEST,
    RESPONSE,
    UPDATE,
)
from gateway.core.types import Json, JsonObject
from gateway.wire.jsonrpc import ErrorObject

WORKING: Final = ACKNOWLEDGEMENTS | {"acknowledged", "assigned", "in_progress", "running", "working", "delegated"}
WAITING: Final = WORKING | {"awaiting_approval"}
FAILED: Final = {"failed": AGENT_FAILED, "error": AGENT_FAILED, "cancelled": CANCELLED, "expired": DEADLINE}
_BESIDE: Final = frozenset({META, "status", "source", "target", "id", "taskId", "message", "resultType"})
"""Members of an answer that are no response by themselves."""


@dataclass(frozen=True)
class SaidResponse:
    """The end. `payload` is None where it says nothing more than was told."""

    payload: Json = None


@dataclass(frozen=True)
class SaidUpdate:
    """Some of it. `rest`: whether messages follow, as they do unless it came in one."""

    payload: Json


@dataclass(frozen=True)
class SaidQuestion:
    """It asks first."""

    payload: Json


@dataclass(frozen=True)
class SaidFailed:
    """It failed, by its own word."""

    error: ErrorObject


@dataclass(frozen=True)
class SaidAcknowledged:
    """The agent has the message, and says the rest in messages of its own."""


Said = SaidResponse | SaidUpdate | SaidQuestion | SaidFailed | SaidAcknowledged


def result_of(result: JsonObject) -> Said:
    """Read the answer to a message or a delegation."""
    status = _status(result)
    if result.get("error") is not None:
        return SaidFailed(error_of(result["error"]))
    if isinstance(result.get("task"), dict) and "content" not in result:
        return _task(result["task"])
    if "content" in result:
        return _content(result["content"])
    if "payload" in result:
        return SaidResponse(result["payload"])
    if status in FAILED:
        return SaidFailed(_worded(FAILED[status], status, result.get("message")))
    said = {key: value for key, value in result.items() if key not in _BESIDE}
    if status in WAITING and not (status == "ok" and said):
        return SaidAcknowledged()
    if status is None and not result.keys() - {META, "resultType"}:
        return SaidAcknowledged()
    if said or status is None:
        return SaidResponse({key: value for key, value in result.items() if key not in (META, "resultType")})
    return SaidResponse(None) if status in ("completed", "success", "done") else SaidAcknowledged()


def message_of(params: JsonObject) -> Said:
    """Read an `agent/message` that belongs to a run."""
    return _content(params.get("content"))


def error_of(error: Any) -> ErrorObject:
    """Read the error of `agent/error` or inside of an answer, in any form."""
    if not isinstance(error, dict):
        return ErrorObject(AGENT_FAILED, error if isinstance(error, str) and error else "the agent failed")
    code, message = error.get("code"), error.get("message")
    data = error.get("data")
    more = dict(data) if isinstance(data, dict) else {}
    if "details" in error:
        more.setdefault("details", error["details"])
    if isinstance(code, str):
        more.setdefault("code", code)
    said = message if isinstance(message, str) and message else "the agent failed"
    return ErrorObject(code if isinstance(code, int) and not isinstance(code, bool) else AGENT_FAILED, said, more)


def _content(content: Any) -> Said:
    if isinstance(content, list):  # as a tool answers
        return SaidResponse({"messages": [each for each in content if isinstance(each, dict)]})
    if not isinstance(content, dict):
        return SaidResponse(content)
    kind, payload = content.get("type", RESPONSE), content.get("payload")
    if kind == UPDATE:
        return SaidUpdate(payload)
    if kind == REQUEST:
        return SaidQuestion(payload)
    if kind == "error":
        return SaidFailed(error_of(payload.get("error", payload) if isinstance(payload, dict) else payload))
    error = _error_in(payload)
    return SaidResponse(payload) if error is None else SaidFailed(error_of(error))


def _error_in(payload: Any) -> JsonObject | None:
    """The error of a payload that holds nothing else."""
    if not isinstance(payload, dict) or payload.keys() - {"error", "context"}:
        return None
    error = payload.get("error")
    return error if isinstance(error, dict) and isinstance(error.get("message"), str) else None


def _task(task: JsonObject) -> Said:
    status = _status(task)
    if task.get("error") is not None:
        return SaidFailed(error_of(task["error"]))
    if status in FAILED:
        return SaidFailed(_worded(FAILED[status], status, task.get("reason")))
    if "result" in task and status not in WAITING:
        found = task["result"]
        if isinstance(found, dict) and isinstance(found.get("content"), dict):
            return _content(found["content"])
        return SaidResponse(
            found["payload"] if isinstance(found, dict) and found.keys() <= {"payload", META} else found
        )
    return SaidResponse(None) if status in ("completed", "success", "done") else SaidAcknowledged()


def _status(said: JsonObject) -> str | None:
    status = said.get("status")
    return status.lower() if isinstance(status, str) else None


def _worded(code: int, status: str, why: Any) -> ErrorObject:
    return ErrorObject(code, why if isinstance(why, str) and why else f"the agent says that it {_VERBS[status]}", {})


_VERBS: Final = {"failed": "failed", "error": "failed", "cancelled": "was cancelled", "expired": "was too late"}


def text_in(payload: Json) -> str:
    """The text of a payload: that of its messages, joined; "" where it has none."""
    payload = nlip.plain(payload)
    if isinstance(payload, str):
        return payload
    if not isinstance(payload, dict):
        return ""
    messages = payload.get("messages")
    if isinstance(messages, list):
        texts = [each.get("text") if isinstance(each, dict) else each for each in messages]
        return "\n".join(text for text in texts if isinstance(text, str))
    return next((payload[key] for key in ("text", "message") if isinstance(payload.get(key), str)), "")


def only_text(payload: Json) -> bool:
    """Whether the text is all that a payload says."""
    payload = nlip.plain(payload)
    if isinstance(payload, str):
        return True
    if not isinstance(payload, dict):
        return payload is None
    messages = payload.get("messages", [])
    plain = isinstance(messages, list) and all(isinstance(m, str) or (m.keys() <= {"text"}) for m in messages)
    return plain and len(payload.keys() - {"context"}) <= 1 and not payload.keys() - {"messages", "text", "message"}
