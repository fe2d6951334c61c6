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

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from adapters.agent_context import wire
from adapters.agent_context.codec import nlip
from adapters.agent_context.codec.errors import data_of, tree_error
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Failure, Json, JsonObject, Role
from gateway.mcp.wire import META
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject

# --- the head of a message, read without the rest ---------------------------------------------------------------------


class MessageMarks(Struct, gc=False):
    """How it is known what an `agent/message`, or anything else, is about."""

    correlation: str | None = None
    target: str | None = None
    content: Raw = Raw()

    @property
    def kind(self) -> str | None:
        """`content.type`."""
        try:
            found = jsonrpc.unpack(self.content, _Content).type if self.content else None
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, str) else None


class _Marked(Struct, gc=False):
    meta: Any = msgspec.field(default=None, name="_meta")
    target: Any = None
    content: Raw = Raw()


class _Content(Struct, gc=False):
    type: Any = None


class _Said(Struct, gc=False, forbid_unknown_fields=True):
    text: str


class _Payload(Struct, gc=False, forbid_unknown_fields=True):
    messages: list[_Said]


class _Update(Struct, gc=False):
    type: Literal["update"]
    payload: _Payload


class _EventMark(Struct, gc=False):
    event: Raw | UnsetType = msgspec.field(default=UNSET, name=wire.EVENT)


class _Plain(Struct, gc=False):
    content: _Update
    meta: _EventMark | UnsetType = msgspec.field(default=UNSET, name="_meta")


_decode_plain = msgspec.json.Decoder(_Plain).decode


def correlation(method: str, params: Raw) -> str | None:
    """The correlation id of anything that may carry one; None where it has none. See `gateway.mcp.client.Keyed`."""
    return marks(params).correlation if b"correlationId" in bytes(params) else None


def marks(params: Raw) -> MessageMarks:
    """The marks of a message; none where it cannot be read."""
    try:
        found = jsonrpc.unpack(params, _Marked) if params else _Marked()
    except (ValueError, RecursionError):
        return MessageMarks()
    id = found.meta.get(wire.CORRELATION) if isinstance(found.meta, dict) else None
    target = found.target if isinstance(found.target, str) else None
    return MessageMarks(id if isinstance(id, str) and id else None, target, found.content)


def plain_update(params: Raw) -> str | None:
    """The text of an `agent/message` that is an update and nothing but text, as nearly all are; None of any other."""
    try:
        found = _decode_plain(params)
    except (ValueError, RecursionError):
        return None
    if found.meta is not UNSET and found.meta.event is not UNSET:
        return None
    said = found.content.payload.messages
    return said[0].text if len(said) == 1 else "\n".join(each.text for each in said)


# --- what it says -----------------------------------------------------------------------------------------------------


BROKEN: Final = "error"
ACKNOWLEDGED: Final = "acknowledged"
WORKING: Final = wire.ACKNOWLEDGEMENTS | {"acknowledged", "assigned", "in_progress", "running", "working", "delegated"}
WAITING: Final = WORKING | {"awaiting_approval"}
FAILED: Final = {
    "failed": wire.AGENT_FAILED,
    "error": wire.AGENT_FAILED,
    "cancelled": wire.CANCELLED,
    "expired": wire.DEADLINE,
}
_BESIDE: Final = frozenset({META, "status", "source", "target", "id", "taskId", "message", "resultType"})
"""Members of an answer that are no response by themselves."""


class AgentWord(msgspec.Struct, frozen=True):
    """An agent's word on its run. RESPONSE is the end, without a payload where it says no more than was told; UPDATE is
    some of it; REQUEST asks first; BROKEN has the `error`; ACKNOWLEDGED: the rest comes in messages of the agent's own.
    """

    kind: str
    payload: Json = None
    error: ErrorObject | None = None


def result_of(result: JsonObject) -> AgentWord:
    status = _status(result)
    if result.get("error") is not None:
        return broken(error_of(result["error"]))
    if isinstance(result.get("task"), dict) and "content" not in result:
        return _task(result["task"])
    if "content" in result:
        return _content(result["content"])
    if "payload" in result:
        return AgentWord(wire.RESPONSE, result["payload"])
    if status in FAILED:
        return broken(_worded(FAILED[status], status, result.get("message")))
    said = {key: value for key, value in result.items() if key not in _BESIDE}
    if status in WAITING and not (status == "ok" and said):
        return AgentWord(ACKNOWLEDGED)
    if status is None and not result.keys() - {META, "resultType"}:
        return AgentWord(ACKNOWLEDGED)
    if said or status is None:
        return AgentWord(
            wire.RESPONSE, {key: value for key, value in result.items() if key not in (META, "resultType")}
        )
    return AgentWord(wire.RESPONSE) if status in ("completed", "success", "done") else AgentWord(ACKNOWLEDGED)


def message_of(params: JsonObject) -> AgentWord:
    return _content(params.get("content"))


def broken(error: ErrorObject) -> AgentWord:
    return AgentWord(BROKEN, error=error)


def error_of(error: Any) -> ErrorObject:
    if not isinstance(error, dict):
        return ErrorObject(wire.AGENT_FAILED, error if isinstance(error, str) and error else "the agent failed")
    code, message = error.get("code"), error.get("message")
    data = error.get("data")
    more = dict(data) if isinstance(data, dict) else {}
    if "details" in error:
        more.setdefault("details", error["details"])
    if isinstance(code, str):
        more.setdefault("code", code)
    said = message if isinstance(message, str) and message else "the agent failed"
    return ErrorObject(code if isinstance(code, int) and not isinstance(code, bool) else wire.AGENT_FAILED, said, more)


def _content(content: Any) -> AgentWord:
    if isinstance(content, list):  # as a tool answers
        return AgentWord(wire.RESPONSE, {"messages": [each for each in content if isinstance(each, dict)]})
    if not isinstance(content, dict):
        return AgentWord(wire.RESPONSE, content)
    kind, payload = content.get("type", wire.RESPONSE), content.get("payload")
    if kind == wire.UPDATE:
        return AgentWord(wire.UPDATE, payload)
    if kind == wire.REQUEST:
        return AgentWord(wire.REQUEST, payload)
    if kind == "error":
        return broken(error_of(payload.get("error", payload) if isinstance(payload, dict) else payload))
    error = _error_in(payload)
    return AgentWord(wire.RESPONSE, payload) if error is None else broken(error_of(error))


def _error_in(payload: Any) -> JsonObject | None:
    """The error of a payload that holds nothing else."""
    if not isinstance(payload, dict) or payload.keys() - {"error", "context"}:
        return None
    error = payload.get("error")
    return error if isinstance(error, dict) and isinstance(error.get("message"), str) else None


def _task(task: JsonObject) -> AgentWord:
    status = _status(task)
    if task.get("error") is not None:
        return broken(error_of(task["error"]))
    if status in FAILED:
        return broken(_worded(FAILED[status], status, task.get("reason")))
    if "result" in task and status not in WAITING:
        found = task["result"]
        if isinstance(found, dict) and isinstance(found.get("content"), dict):
            return _content(found["content"])
        return AgentWord(
            wire.RESPONSE, found["payload"] if isinstance(found, dict) and found.keys() <= {"payload", META} else found
        )
    return AgentWord(wire.RESPONSE) if status in ("completed", "success", "done") else AgentWord(ACKNOWLEDGED)


def _status(said: JsonObject) -> str | None:
    status = said.get("status")
    return status.lower() if isinstance(status, str) else None


def _worded(code: int, status: str, why: Any) -> ErrorObject:
    return ErrorObject(code, why if isinstance(why, str) and why else f"the agent says that it {_VERBS[status]}", {})


_VERBS: Final = {"failed": "failed", "error": "failed", "cancelled": "was cancelled", "expired": "was too late"}


def told_in(payload: Json) -> tuple[str, bool]:
    """The text of a payload: that of its messages, joined; "" where it has none. And whether it says no more."""
    payload = nlip.plain(payload)
    if isinstance(payload, str):
        return payload, True
    if not isinstance(payload, dict):
        return "", payload is None
    said, messages = payload.keys() - {"context"}, payload.get("messages")
    if isinstance(messages, list):
        texts = [each.get("text") if isinstance(each, dict) else each for each in messages]
        plain = all(isinstance(each, str) or (isinstance(each, dict) and each.keys() <= {"text"}) for each in messages)
        return "\n".join(text for text in texts if isinstance(text, str)), plain and said == {"messages"}
    text = next((payload[key] for key in ("text", "message") if isinstance(payload.get(key), str)), "")
    return text, len(said) <= 1 and said <= {"text", "message"}


# --- events of an update ----------------------------------------------------------------------------------------------


FILES: Final = "files"
"""The message that files belong to."""
_ALONE: Final = (e.PlanUpdated, e.UsageReported, e.Custom)


class SideEvents:
    """Reads the events beside the text of one run. Output is left out: it comes as text, and whole in the response."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._thoughts: dict[str, GrowingText] = {}
        self._heard = self._known = 0  # events but deltas, of this telling, and of the longest before
        self._files: set[str] = set()
        self._tools: dict[str, bool] = {}  # whether they are open

    def read(self, meta: JsonObject) -> list[e.Event]:
        """The events of an update; none where it carries none that is taken."""
        if wire.EVENT not in meta:
            return []
        try:
            event: e.Event = msgspec.convert(delta.sound(meta[wire.EVENT]), e.AnyEvent)
        except (msgspec.ValidationError, RecursionError):
            return []
        event = msgspec.structs.replace(event, origin=None)
        if isinstance(event, e.PartDelta):
            return self._thought(event.part, event.delta)
        if isinstance(event, e.PartStarted) and event.kind in ("thought", "text"):
            return self._thought(event.part, event.value)
        self._heard += 1
        if self._heard <= self._known:
            return []
        match event:
            case e.PartStarted() if event.kind == "file" and event.part not in self._kinds:
                self._kinds[event.part] = event.kind
                return [msgspec.structs.replace(event, part=f"their-{event.part}")]
            case e.ArtifactAdded():
                artifact = event.artifact
                return self._file(artifact.url, artifact.name, artifact.media_type, artifact.size)
            case e.ToolCallStarted() | e.ToolCallUpdated() | e.ToolCallEnded() if self._takes(event):
                return [event]
            case _ if isinstance(event, _ALONE):
                return [event]
        return []

    def _takes(self, event: e.ToolCallStarted | e.ToolCallUpdated | e.ToolCallEnded) -> bool:
        known = self._tools.get(event.call)
        if known is not (None if isinstance(event, e.ToolCallStarted) else True):
            return False
        self._tools[event.call] = not isinstance(event, e.ToolCallEnded)
        return True

    def files(self, artifacts: Any) -> list[e.Event]:
        """Those that a payload names, `[{"name", "url", "mimeType"?, "size"?}]`, and that were not told before."""
        events: list[e.Event] = []
        for each in artifacts if isinstance(artifacts, list) else ():
            if isinstance(each, dict) and isinstance(each.get("url"), str):
                events += self._file(each["url"], each.get("name"), each.get("mimeType"), each.get("size"))
        return events

    def again(self) -> None:
        self._heard, self._known = 0, max(self._heard, self._known)
        for thought in self._thoughts.values():
            thought.again()

    def _thought(self, name: str, text: Json) -> list[e.Event]:
        """Text outside the output: a gateway tells that of the output as the text of its updates."""
        if not isinstance(text, str) or not text or self._kinds.setdefault(name, "thought") != "thought":
            return []
        part = f"their-{name}"
        if (known := self._thoughts.get(name)) is not None:
            return known.add(text)
        self._thoughts[name] = GrowingText(part)
        return [
            e.MessageStarted(message=f"{part}-message", role=Role.ASSISTANT),
            e.PartStarted(part=part, message=f"{part}-message", kind="thought"),
            *self._thoughts[name].add(text),
        ]

    def _file(self, url: str, name: Any, kind: Any, size: Any) -> list[e.Event]:
        if url in self._files:
            return []
        self._files.add(url)
        named = name if isinstance(name, str) and name else url.rstrip("/").rpartition("/")[2]
        link: JsonObject = {"type": "resource_link", "uri": url, "name": named}
        if isinstance(kind, str):
            link["mimeType"] = kind
        if isinstance(size, int):
            link["size"] = size
        return [e.PartStarted(part=f"file-{len(self._files)}", message=FILES, kind="file", value=link)]


# --- text that grows -------------------------------------------------------------------------------------------------


class GrowingText:
    """The text of one part. Repeated text is held back until it grows further or differs."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._said: list[str] = []
        self._before: str | None = None

    def add(self, text: str) -> list[e.Event]:
        self._said.append(text)
        if self._before is None:
            return [e.PartDelta(part=self._part, delta=text)]
        now, before = "".join(self._said), self._before
        if before.startswith(now):
            return []
        self._before = None
        if now.startswith(before):
            return [e.PartDelta(part=self._part, delta=now[len(before) :])]
        return [e.PartReplaced(part=self._part, value=now)]

    def again(self) -> None:
        said = "".join(self._said)
        self._before = max(said, self._before or "", key=len) or None
        self._said = []


def failed(error: ErrorObject) -> e.RunFailed:
    """The end of a run that the agent says has failed; clients of the same protocol hear it in the agent's words."""
    known = tree_error(error)
    data = data_of(error)
    retryable = data.get("retryable") if data else None
    origin: JsonObject = {"code": error.code, "message": delta.sound(error.message)}
    if data:
        origin["data"] = data
    failure = Failure(
        code=known.code,
        message=delta.sound(str(known)) or "the agent failed",
        retryable=retryable if isinstance(retryable, bool) else known.retryable,
    )
    return e.RunFailed(failure=failure, origin={"error": origin})
