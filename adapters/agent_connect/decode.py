"""Agent Connect to core, pure: what an agent says of a run becomes events and a verdict.

A *verdict* is what has become of a run by now: `RunSuccess`, `RunQuestion` or `RunFailure`; None while it works. A
stream only hints at it (servers in use say `pending` to the end and lose interrupts), so `outbound` believes a streamed
verdict only where `StreamDecoder.settled` says so, and asks `GET .../wait` otherwise.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import msgspec

from adapters.agent_connect.wire import PROTOCOL
from adapters.agent_connect.wire_stream import (
    ABSENT,
    Fields,
    ServerRun,
    StreamedMessage,
    decode_fields,
    decode_record,
    decode_records,
    decode_update,
)
from gateway.contract import fitting
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core.errors import AgentBroken, AgentError
from gateway.core.types import NULL, Agent, Failure, Interrupt, InterruptSpec, Json, JsonObject, Role

PART = "output"
MESSAGE = "message"

CLOSE = ord("}")
WHOLE = 16 * 1024
"""Bytes up to which a snapshot that takes several events is said in one, whole: each event of a small document is
shown to watchers, and what lies between the several was never the document."""

_ROLES = {
    "user": Role.USER,
    "human": Role.USER,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


class RunSuccess(msgspec.Struct, frozen=True):
    """The run succeeded. `values` is its output document, None where the agent gave only messages, or nothing.

    `origin` is what the wire said beyond the two.
    """

    values: msgspec.Raw | None = None
    messages: tuple[StreamedMessage, ...] = ()
    origin: JsonObject | None = None


class RunQuestion(msgspec.Struct, frozen=True):
    """The run is interrupted and waits for an answer. `kind` only where the agent named it beside the payload."""

    payload: Json = None
    kind: str | None = None


class RunFailure(msgspec.Struct, frozen=True):
    """The run ended `error`, or `timeout`. `message` is the agent's own description, `transient` its word for whether
    another try may succeed.
    """

    message: str
    errcode: int | None = None
    timeout: bool = False
    transient: bool = False


Verdict = RunSuccess | RunQuestion | RunFailure


class StreamDecoder:
    """One run's streamed messages, over as many connections as it takes.

    `run_id` is the run they must be of, or None until the first one says it. `resumed` marks a run that an earlier
    process began to stream: its first snapshot replaces what was seen then. After `feed`, `verdict` is what the last
    message says became of the run, `settled` whether that needs no confirmation, `last` the last snapshot, and
    `broken` the error of a message that made no sense: those after it are not read.
    """

    __slots__ = ("_differ", "_head", "_resumed", "broken", "run_id", "settled", "verdict")

    def __init__(self, run_id: str | None = None, *, resumed: bool = False) -> None:
        self.run_id = run_id
        self.verdict: Verdict | None = None
        self.settled = False
        self.broken: AgentError | None = None
        self._resumed = resumed
        self._differ: deltas.Differ | None = None  # None before the first snapshot
        self._head: bytes | None = None  # of the last message up to its `values`, with which it ended

    @property
    def last(self) -> msgspec.Raw | None:
        """The last snapshot; None before the first."""
        if self._differ is not None and (raw := self._differ.raw) is not None:
            return msgspec.Raw(raw)
        return self.verdict.values if isinstance(self.verdict, RunSuccess) else None

    def feed(self, messages: Sequence[bytes], where: str, *, last: bool = False) -> list[e.Event]:
        """Events for the `data` of streamed messages that have come together, in order. `where` names the request in
        errors. `last`: the stream has ended with them. A run that said all in its last message has no events: its
        verdict says it.
        """
        out: list[e.Event] = []
        at = 0
        try:
            while at < len(messages):
                grown = self._grown(messages, at, out)
                if not grown and messages[at]:
                    self._message(messages[at], out, last=last and at == len(messages) - 1)
                at += grown or 1
        except AgentError as error:
            self.broken = AgentBroken(f"{where} sent {error}", detail=error.detail)
        except deltas.DeltaError as error:
            self.broken = AgentBroken(f"{where} sent values that cannot be read: {error}")
        return out

    def expect(self, run_id: str) -> None:
        """The messages have to be of this run from now on."""
        self.run_id = run_id

    def forget(self) -> None:
        """The run goes on: its question was answered."""
        self.verdict, self.settled = None, False

    def _grown(self, messages: Sequence[bytes], at: int, out: list[e.Event]) -> int:
        """The short way of nearly all messages: the one before, byte for byte, but for a text in it that has grown.
        How many from `at` on are so: of texts that grow the last message says all, so they make one event.

        What the texts are in is not read again: it is the same, and so is all that was made of it.
        """
        head, end = self._head, at
        segments = self._differ.segments if self._differ is not None else None
        if head is None or segments is None:
            return 0
        while end < len(messages):
            data = messages[end]
            if not data.startswith(head) or data[-1] != CLOSE or not segments.grow(data, len(head), len(data) - 1):
                break
            end += 1
        if end > at:
            delta = segments.told()
            if delta is not None:
                out.append(e.PartDelta(part=PART, delta=delta))
        return end - at

    def _message(self, data: bytes, out: list[e.Event], *, last: bool = False) -> None:
        """Raises AgentError for one that cannot be read, whose text goes on after "sent"."""
        self._head = None
        try:
            update = decode_update(data)
        except (ValueError, RecursionError):
            return self._unusual(data, out)
        if update.run_id != self.run_id:
            self._belongs(update.run_id)
        if update.type == "values" and update.values is not ABSENT:
            if last and update.status == "success" and self._differ is None and not self._resumed:
                self.verdict, self.settled = RunSuccess(update.values), True
                return None
            self._values(update.values, update.status, None, out)
            if self.verdict is None:
                self._head = _before(data, bytes(update.values))
            return None
        if update.type == "custom":
            self.verdict, self.settled = None, False
            out.append(e.Custom(name=PROTOCOL, data=_value(update.update, "update")))
            return None
        return self._unusual(data, out)

    def _belongs(self, run_id: str | None) -> None:
        if run_id is None:
            return
        if self.run_id is None:
            self.run_id = run_id
        elif run_id.lower() != self.run_id.lower():
            raise AgentBroken(f"a message of run {run_id}, and is of run {self.run_id}")

    def _values(self, values: msgspec.Raw, status: str | None, origin: JsonObject | None, out: list[e.Event]) -> None:
        self._snapshot(values, origin, out)
        self.verdict, self.settled = None, False
        if status == "success":
            extra = {**origin} if origin else {}
            messages = _messages(extra.pop("messages", None))
            self.verdict, self.settled = RunSuccess(values, messages, origin), True
        elif status == "interrupted":
            self.verdict = RunQuestion()
        elif status in ("error", "timeout"):
            self.verdict = _failed({}, status)

    def _snapshot(self, values: msgspec.Raw, origin: JsonObject | None, out: list[e.Event]) -> None:
        if self._differ is None:
            self._differ = deltas.Differ()
            out.append(e.PartStarted(part=PART, message=MESSAGE, kind="data"))
        change = self._differ.feed(bytes(values))
        if not self._resumed and change.delta is not deltas.ABSENT and not change.replaced:
            out.append(e.PartDelta(part=PART, delta=change.delta, origin=origin))
            return
        changed = len(change.replaced) + (change.delta is not deltas.ABSENT)
        if self._resumed or (changed > 1 and len(values) <= WHOLE):
            self._resumed = False
            out.append(e.PartReplaced(part=PART, value=_value(values, "values"), origin=origin))
            return
        if change.delta is not deltas.ABSENT:
            out.append(e.PartDelta(part=PART, delta=change.delta))
        out += [e.PartReplaced(part=PART, pointer=p.pointer, value=p.value) for p in change.replaced]
        if origin is not None and changed:
            out[-1] = msgspec.structs.replace(out[-1], origin=origin)

    def _unusual(self, data: bytes, out: list[e.Event]) -> None:
        """A message of a rarer kind, or with fields of its own."""
        fields = _fields(data, "a message")
        kind = _text(fields.get("type"), "type")
        status = _text(fields.get("status"), "status")
        self._belongs(_text(fields.get("run_id"), "run_id"))
        values = fields.get("values", fields.get("result"))
        if kind == "values" and values is not None:
            self._values(values, status, _beyond(fields), out)
            return
        self.verdict, self.settled = verdict(fields, status), False
        if kind == "custom":
            out.append(e.Custom(name=PROTOCOL, data=_value(fields.get("update"), "update"), origin=_beyond(fields)))
        elif kind not in ("interrupt", "error"):
            whole = {name: _value(raw, name) for name, raw in fields.items()}
            if kind is None and not whole.keys() & {"run_id", "status"}:
                raise AgentBroken("a message without a type", detail=repr(data[:200]))
            out.append(e.Custom(name=f"{PROTOCOL}.{kind or 'update'}", data=whole))


def _before(data: bytes, values: bytes) -> bytes | None:
    """The bytes before the values in a message that ends with them; None where it does not, or may not."""
    end = len(data) - len(values) - 1
    head = data[:end]
    ends = data[end:-1] == values and data[-1] == CLOSE and head.rstrip(b" ").endswith(b'"values":')
    return head if ends else None


# --- answers to ordinary requests ------------------------------------------------------------------------------


def run_record(body: bytes, where: str) -> ServerRun:
    """The `Run` an agent answered with. Raises AgentBroken."""
    try:
        return decode_record(body)
    except (ValueError, RecursionError) as error:
        raise AgentBroken(f"{where} did not answer with a run: {error}", detail=repr(body[:200])) from None


def run_records(body: bytes, where: str) -> list[ServerRun]:
    """A list of `Run`s. Raises AgentBroken."""
    try:
        return decode_records(body)
    except (ValueError, RecursionError) as error:
        raise AgentBroken(f"{where} did not answer with runs: {error}", detail=repr(body[:200])) from None


def waited(body: bytes, where: str) -> tuple[ServerRun | None, Verdict | None]:
    """Read an answer of `.../wait`: the run if it is there, and its verdict if it has one.

    Takes `{"run", "output"}`, the bare `RunOutput` of the prose, and a bare `Run`. Raises AgentBroken.
    """
    fields = _fields(body, f"{where} answered something")
    run, output = fields.get("run"), fields.get("output")
    if run is None and "run_id" in fields and "type" not in fields:
        run = msgspec.Raw(body)
    bare = run is None and output is None and "type" in fields
    record = run_record(bytes(run), where) if run is not None else None
    if record is None and output is None and not bare:
        raise AgentBroken(f"{where} answered neither a run nor an output", detail=repr(body[:200]))
    try:
        said = fields if bare else _output(output)
        return record, verdict(said, record.status if record else None)
    except AgentBroken as error:
        raise AgentBroken(f"{where} answered {error}", detail=error.detail) from None


def _output(raw: msgspec.Raw | None) -> Fields:
    """The members of an output; one that is null, or a text, has none."""
    if raw is None or raw == NULL or _text(raw, "output"):
        return {}
    return _fields(bytes(raw), "an output")


def verdict(output: Fields, status: str | None) -> Verdict | None:
    """The verdict of a `RunOutput` (or an interrupt or error message of a stream) beside a run's status.

    The output's own type wins over the status: `{}` and `success` is a result without a document.
    """
    kind = _text(output.get("type"), "type")
    if kind == "interrupt" or (kind is None and status == "interrupted"):
        if "interrupt" not in output and "interrupt_payload" in output:
            named = _text(output.get("interrupt_type"), "interrupt_type")
            return RunQuestion(_value(output["interrupt_payload"], "interrupt_payload"), named)
        return RunQuestion(_value(output.get("interrupt"), "interrupt"))
    if kind == "error" or (kind is None and status in ("error", "timeout")):
        return _failed(output, status)
    if kind == "result" or (kind is None and status == "success"):
        values = output.get("values", output.get("result"))
        beyond = _beyond(output)
        messages = _messages((beyond or {}).get("messages"))
        if values == NULL and messages:
            values = None
        return RunSuccess(values, messages, beyond)
    return None


def _failed(output: Fields, status: str | None) -> RunFailure:
    said = _value(output.get("description"), "description")
    code = _value(output.get("errcode"), "errcode")
    default = "the agent's run timed out" if status == "timeout" else "the agent's run failed, with no reason given"
    return RunFailure(
        said if isinstance(said, str) and said else default,
        code if isinstance(code, int) else None,
        status == "timeout",
        _value(output.get("transient"), "transient") is True,
    )


# --- verdicts to events ----------------------------------------------------------------------------------------


def finished(result: RunSuccess, *, replace: bool = False) -> list[e.Event]:
    """The last events of a run that succeeded. Without values, the agent's messages are the output.

    `replace`: an earlier process may have sent them in part already.
    """
    if result.values is not None:
        return [e.RunFinished(output=_document(result.values), origin=result.origin)]
    out: list[e.Event] = []
    for number, message in enumerate(_answer(result.messages)):
        role = _ROLES.get(message.role.lower(), Role.ASSISTANT)
        name = message.id or f"{MESSAGE}-{number}"
        out.append(e.MessageStarted(message=name, role=role))
        for index, (kind, value) in enumerate(_blocks(message)):
            part = f"{name}/{index}"
            out.append(e.PartStarted(part=part, message=name, kind="text"))
            if kind == "text":
                said = e.PartReplaced(part=part, value=value) if replace else e.PartDelta(part=part, delta=value)
                out.append(said)
            else:
                out[-1] = e.Custom(name=f"{PROTOCOL}.content", data=value)
        out.append(e.MessageEnded(message=name))
    return [*out, e.RunFinished(origin=result.origin)]


def failed(what: RunFailure) -> e.RunFailed:
    """The last event of a run that failed at the agent. The agent's code travels as `origin`."""
    code = "agent_timeout" if what.timeout else "agent_failed"
    failure = Failure(code=code, message=what.message, retryable=what.transient)
    origin = None if what.errcode is None else {"errcode": what.errcode}
    return e.RunFailed(failure=failure, timeout=what.timeout, origin=origin)


def _answer(messages: tuple[StreamedMessage, ...]) -> Iterator[StreamedMessage]:
    """The messages after the last of the user's: some agents send the whole conversation."""
    last = max((n for n, m in enumerate(messages) if _ROLES.get(m.role.lower()) is Role.USER), default=-1)
    yield from messages[last + 1 :]


def _blocks(message: StreamedMessage) -> Iterator[tuple[str, Any]]:
    content = message.content
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            yield "text", block
        elif isinstance(block, dict) and isinstance(block.get("text"), str):
            yield "text", block["text"]
        elif block is not None:
            yield "other", block


# --- questions ------------------------------------------------------------------------------------------------------

_ASKING = ("message", "question", "prompt", "text", "interrupt_message", "description", "title")


def interrupt(question: RunQuestion, agent: Agent, run_id: str, number: int) -> Interrupt:
    """The agent's question as the gateway asks it.

    A payload that is an object with one key, the name of a kind of interrupt, is of that kind. A bare one is of the
    only kind whose payload schema it fits. The id is the same whenever the same question, the `number`th of its run,
    is met again: after a restart it must be known as the one that is open.
    """
    spec = _spec(question, agent)
    kind = spec.kind if spec else question.kind or _key(question.payload) or "input"
    inner = question.payload
    if isinstance(inner, dict) and list(inner) == [kind]:
        inner = inner[kind]
    canonical = json.dumps(question.payload, sort_keys=True, separators=(",", ":")).encode()
    return Interrupt(
        id=f"{run_id}-{number}-{hashlib.sha256(canonical).hexdigest()[:12]}",
        kind=kind,
        payload=question.payload,
        message=_asked(inner),
        answer_schema=spec.answer_schema if spec else {},
    )


def _spec(question: RunQuestion, agent: Agent) -> InterruptSpec | None:
    named = question.kind or _key(question.payload) or _marked(question.payload)
    for spec in agent.interrupts:
        if spec.kind == named:
            return spec
    fitting = [spec for spec in agent.interrupts if _fits(question.payload, spec.payload_schema)]
    return fitting[0] if len(fitting) == 1 else None


def _key(payload: Json) -> str | None:
    """The name of a payload like `{"approval": {...}}`."""
    if isinstance(payload, dict) and len(payload) == 1:
        name, inner = next(iter(payload.items()))
        return name if isinstance(inner, dict) else None
    return None


def _marked(payload: Json) -> str | None:
    """The name of a payload like `{"interrupt_type": "approval", ...}`."""
    name = payload.get("interrupt_type") if isinstance(payload, dict) else None
    return name if isinstance(name, str) else None


def _fits(payload: Json, schema: JsonObject) -> bool:
    try:
        return fitting.SchemaJudge(schema).fits(payload)
    except fitting.Inapplicable:
        return False


def _asked(payload: Json) -> str:
    """The question for a person to read: the text in the payload, or the payload."""
    if isinstance(payload, str):
        return payload
    if isinstance(payload, dict):
        texts = {name: value for name, value in payload.items() if isinstance(value, str) and value}
        for name in _ASKING:
            if name in texts:
                return texts[name]
        if len(payload) == 1 and texts:
            return next(iter(texts.values()))
    return "" if payload is None else json.dumps(payload, ensure_ascii=False)


# --- an agent's JSON, decoded one level at a time: members stay encoded until somebody needs them ------------------

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_KNOWN = {"type", "run_id", "status", "values", "result", "update"}


def _fields(data: bytes, what: str) -> Fields:
    """The members of an object. Raises AgentBroken for anything else: "`what` that is not JSON", and why."""
    try:
        return decode_fields(data)
    except msgspec.ValidationError:
        raise AgentBroken(f"{what} that is not a JSON object", detail=repr(data[:200])) from None
    except RecursionError:
        raise AgentBroken(f"{what} that is nested too deep") from None
    except ValueError as error:
        return _mended(data) or _no_json(what, error, data)


def _mended(data: bytes) -> Fields | None:
    """Half of a surrogate pair, which msgspec refuses and servers in use send when they cut a text in two."""
    if not _SURROGATE.search(data):
        return None
    try:
        whole = deltas.decode(data)
    except AgentBroken:
        return None
    if not isinstance(whole, dict):
        return None
    return {name: msgspec.Raw(json.dumps(member).encode()) for name, member in whole.items()}


def _no_json(what: str, error: Exception, data: bytes) -> NoReturn:
    raise AgentBroken(f"{what} that is not JSON: {error}", detail=repr(data[:200])) from None


def _value(raw: msgspec.Raw | None, name: str) -> Json:
    """The value of the member of that name, None if it is not there. Raises AgentBroken."""
    return None if raw is None or raw is ABSENT else deltas.sound(deltas.decode(raw, f"`{name}`"))


def _document(raw: msgspec.Raw) -> msgspec.Raw:
    """A whole document as it came, known to be one. Raises AgentBroken if it is none.

    Half a surrogate pair is mended here: its other half will not come any more.
    """
    data = bytes(raw)
    try:
        msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return msgspec.Raw(deltas.encode(_value(raw, "values")))
    return msgspec.Raw(data)


def _text(raw: msgspec.Raw | None, name: str) -> str | None:
    """A member that is a string, else None."""
    found = _value(raw, name) if raw is not None and bytes(memoryview(raw)[:1]) == b'"' else None
    return found if isinstance(found, str) else None


def _beyond(members: Fields) -> JsonObject | None:
    """The fields of a message that have no place in the core."""
    return {name: _value(raw, name) for name, raw in members.items() if name not in _KNOWN} or None


def _messages(said: Json) -> tuple[StreamedMessage, ...]:
    """A list of messages; empty if it is none."""
    try:
        return tuple(msgspec.convert(said, list[StreamedMessage])) if said else ()
    except msgspec.ValidationError:
        return ()
