"""Core to Agent Connect, pure: what the gateway knows becomes what a client reads. The way back is `decode.py`.

Documents that are already encoded (`Run.output`, a snapshot) are spliced into the answer and never parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from adapters.agent_connect import wire
from gateway.core import errors, projection
from gateway.core import events as e
from gateway.core.types import (
    NULL,
    Answer,
    Artifact,
    ChatMessage,
    Checkpoint,
    Failure,
    Interrupt,
    Json,
    JsonObject,
    Run,
    RunStatus,
    Thread,
    agent_id,
)
from gateway.wire.sse import CR, LF, escape_separators

_dump = msgspec.json.Encoder().encode

# --- errors --------------------------------------------------------------------------------------------------------

ERRORS: Mapping[type[errors.InterlinguaError], int] = {
    errors.InterlinguaError: 500,
    errors.Refused: 422,
    errors.Invalid: 422,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Unsupported: 422,
    errors.TooLarge: 413,
    errors.Denied: 403,
    errors.Unauthenticated: 401,
    errors.AgentError: 502,
    errors.AgentFailed: 502,
    errors.AgentBroken: 502,
    errors.AgentGone: 502,
    errors.AgentTimeout: 504,
    errors.GatewayError: 500,
    errors.IllegalEvent: 500,
    errors.OutcomeUnknown: 500,
    errors.Unavailable: 503,
}
"""HTTP status of each error. A failed run's `errcode` is that of the same error, unless the agent gave one."""

CANCELLED = 499
"""`errcode` of a run that was cancelled."""

_ERRCODES = {cls.code: status for cls, status in ERRORS.items()}


def error_text(error: errors.InterlinguaError) -> str:
    """What `ErrorResponse` (a string) says: the failing path, if there is one, and the message."""
    message = str(error)
    path = getattr(error, "path", "")
    return f"{path}: {message}" if path and path not in message else message


# --- runs ----------------------------------------------------------------------------------------------------------

STATUS: Mapping[RunStatus, str] = {
    RunStatus.PENDING: "pending",
    RunStatus.RUNNING: "pending",
    RunStatus.INTERRUPTED: "interrupted",
    RunStatus.SUCCESS: "success",
    RunStatus.ERROR: "error",
    RunStatus.CANCELLED: "error",
    RunStatus.TIMEOUT: "timeout",
}
"""The protocol has five statuses, and its SDK refuses every other."""

STATUSES: Mapping[str, tuple[RunStatus, ...]] = {
    wanted: tuple(status for status, name in STATUS.items() if name == wanted) for wanted in set(STATUS.values())
}
"""What a search for one of the five means here."""


def timestamp(seconds: float) -> str:
    """ISO 8601 with zone, microseconds."""
    whole, micros = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_second(whole)}.{micros:06d}+00:00"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


_agent_id = lru_cache(maxsize=1024)(agent_id)


def run_record(run: Run) -> wire.Run:
    """`RunStateless` or `RunStateful`; `creation` is what the client sent."""
    request = run.request
    return wire.Run(
        run_id=run.id,
        agent_id=_agent_id(request.agent),
        created_at=timestamp(run.created_at),
        updated_at=timestamp(run.updated_at),
        status=STATUS[run.status],
        creation=creation(run),
        thread_id=request.thread,
    )


def creation(run: Run) -> JsonObject:
    """The client's own request; of a run that came in by another protocol, the request it would have been."""
    request = run.request
    if request.protocol == wire.PROTOCOL:
        return request.creation
    told: JsonObject = {"agent_id": _agent_id(request.agent), "metadata": request.metadata}
    if request.input is not None:
        told["input"] = request.input
    if request.config:
        told["config"] = {"configurable": request.config}
    return told


def encode_run(run: Run) -> bytes:
    """The `Run` as JSON."""
    return _dump(run_record(run))


def encode_runs(runs: Sequence[Run]) -> bytes:
    """A list of `Run`s as JSON."""
    return _dump([run_record(run) for run in runs])


def encode_wait(run: Run, messages: Sequence[wire.Message] = (), *, bare: bool = False) -> bytes:
    """`RunWaitResponse`. `messages` are what a result says beside its values (see `file_messages`).

    With `bare`, the members of the `RunOutput` stand at the top too, named as in the prose documentation
    (`result`, `interrupt_type`, `interrupt_payload`).
    """
    output = run_output(run, messages)
    extra = _upstream_output(run)
    told = {"run": run_record(run), "output": msgspec.Raw(_lay_over(_dump(output), extra)) if extra else output}
    whole = _dump(told)
    return whole[:-1] + _bare(run) + b"}" if bare else whole


def run_output(run: Run, messages: Sequence[wire.Message] = ()) -> wire.RunOutput:
    """What a stopped run came to."""
    if run.status is RunStatus.INTERRUPTED and run.interrupts:
        return wire.RunInterrupt(interrupt=interrupt_payload(run.interrupts[0]))
    if run.status is RunStatus.SUCCESS:
        return wire.RunResult(values=None if run.output == NULL else run.output, messages=[*messages] or None)
    return wire.RunError(run_id=run.id, errcode=errcode(run.failure), description=why(run))


def why(run: Run) -> str:
    """Why a run ended without success, for a person."""
    if run.status is RunStatus.CANCELLED:
        return cancelled(run.cancel_reason or "")
    return run.failure.message if run.failure else f"the run is {run.status}"


def cancelled(reason: str) -> str:
    """The same for one that was cancelled."""
    return reason if reason.startswith("cancelled") else f"cancelled: {reason}" if reason else "cancelled"


def errcode(failure: Failure | None) -> int:
    """The integer the protocol wants for a failure's code."""
    return CANCELLED if failure is None else _ERRCODES.get(failure.code, 500)


def losses(run: Run) -> str:
    """What could not be said in this run, as a header: `name=count, ...`; empty if nothing was lost."""
    return ", ".join(f"{name}={count}" for name, count in sorted(run.losses.items()))


def _bare(run: Run) -> bytes:
    if run.status is RunStatus.SUCCESS:
        return b',"type":"result","result":' + bytes(run.output)
    if run.status is RunStatus.INTERRUPTED and run.interrupts:
        asked = run.interrupts[0]
        told = {"interrupt_type": asked.kind, "interrupt_payload": _question(asked)}
        return b',"type":"interrupt",' + _dump(told)[1:-1]
    failed = {"run_id": run.id, "errcode": errcode(run.failure), "description": why(run), **_upstream_output(run)}
    return b',"type":"error",' + _dump(failed)[1:-1]


def _upstream_output(run: Run) -> JsonObject:
    extra = (run.upstream or {}).get(wire.UPSTREAM_OUTPUT) if run.status.stopped else None
    return beyond(extra) if isinstance(extra, dict) else {}


def beyond(origin: JsonObject | None) -> JsonObject:
    """Of what an Agent Connect agent said beyond the core, what may be sent on."""
    return {k: v for k, v in origin.items() if k not in wire.GATEWAY_MEMBERS} if origin else {}


def _lay_over(encoded: bytes, extra: JsonObject) -> bytes:
    """The object with these members set; its other members stay encoded."""
    members = msgspec.json.decode(encoded, type=dict[str, msgspec.Raw])
    return _dump({**members, **extra})


# --- interrupts ----------------------------------------------------------------------------------------------------


def interrupt_payload(interrupt: Interrupt) -> JsonObject:
    """The question, keyed by its kind. One that says its kind itself (by key or `interrupt_type`) is sent as it is."""
    payload = interrupt.payload
    kind = interrupt.kind
    if isinstance(payload, dict) and (list(payload) == [kind] or payload.get("interrupt_type") == kind):
        return payload
    return {kind: _question(interrupt)}


def _question(interrupt: Interrupt) -> Json:
    if interrupt.payload is None and interrupt.message:
        return {"message": interrupt.message}
    return interrupt.payload


def resume(body: Json, interrupts: Sequence[Interrupt]) -> tuple[Answer, str | None]:
    """(answer, id of the interrupt it is for) from what a client posted; `interrupts` are the open ones, oldest first.

    Takes the bare answer, `{kind: answer}`, and `{interrupt_type, resume_payload}`. Without an open interrupt the
    id is None, and the gateway refuses. Raises Invalid for null and for a type that does not wait.
    """
    if body is None:
        raise errors.Invalid("an answer is required, and null is none")
    if isinstance(body, dict) and "resume_payload" in body and body.keys() <= {"interrupt_type", "resume_payload"}:
        named = body.get("interrupt_type")
        if not interrupts:
            return Answer(value=body["resume_payload"]), None
        found = [i for i in interrupts if named in (None, i.kind)]
        if not found:
            kinds = ", ".join(sorted({i.kind for i in interrupts}))
            raise errors.Invalid(f"no interrupt {named!r} is open, only: {kinds}", path="/interrupt_type")
        return Answer(value=body["resume_payload"]), found[0].id
    if isinstance(body, dict) and len(body) == 1:
        (key,) = body
        for interrupt in interrupts:
            if key == interrupt.kind and key not in interrupt.answer_schema.get("properties", {}):
                return Answer(value=body[key]), interrupt.id
    return Answer(value=body), interrupts[0].id if interrupts else None


# --- threads and messages ------------------------------------------------------------------------------------------


def encode_thread(thread: Thread, messages: Sequence[ChatMessage]) -> bytes:
    """`Thread` as JSON; `messages` is the conversation so far."""
    return _dump(_thread(thread, messages))


def encode_threads(threads: Sequence[tuple[Thread, Sequence[ChatMessage]]]) -> bytes:
    """A list of `Thread`s as JSON."""
    return _dump([_thread(thread, messages) for thread, messages in threads])


def _thread(thread: Thread, messages: Sequence[ChatMessage]) -> wire.Thread:
    return wire.Thread(
        thread_id=thread.id,
        created_at=timestamp(thread.created_at),
        updated_at=timestamp(thread.updated_at),
        metadata=thread.metadata,
        status=thread.status.value,
        values=thread.values,
        messages=[_message(m) for m in messages] or None,
    )


def encode_history(states: Sequence[tuple[Checkpoint, Sequence[ChatMessage]]]) -> bytes:
    """A list of `ThreadState`s as JSON; each with the conversation up to it."""
    return _dump([_state(checkpoint, messages) for checkpoint, messages in states])


def _state(checkpoint: Checkpoint, messages: Sequence[ChatMessage]) -> wire.ThreadState:
    told: JsonObject = {"created_at": timestamp(checkpoint.created_at)}
    if checkpoint.run:
        told["run_id"] = checkpoint.run
    hidden = REPLACES_MESSAGES
    return wire.ThreadState(
        checkpoint=wire.ThreadCheckpoint(checkpoint_id=checkpoint.id),
        values={} if checkpoint.values is None else checkpoint.values,
        messages=[_message(m) for m in messages] or None,
        metadata={**{k: v for k, v in checkpoint.metadata.items() if k != hidden}, **told},
    )


REPLACES_MESSAGES = "agent_connect.replaces_messages"
"""Mark in a checkpoint's metadata: its messages are the whole conversation, not what this step added."""


def conversation(checkpoints: Sequence[Checkpoint]) -> list[list[ChatMessage]]:
    """The messages of a thread at each of its checkpoints; all of them, oldest first."""
    so_far: list[ChatMessage] = []
    out = []
    for checkpoint in checkpoints:
        before = [] if checkpoint.metadata.get(REPLACES_MESSAGES) else so_far
        so_far = [*before, *checkpoint.messages]
        out.append(so_far)
    return out


def _message(message: ChatMessage) -> wire.Message:
    return wire.Message(
        role=message.role.value, content=message.content, id=message.id, metadata=message.metadata or None
    )


def file_messages(
    files: Sequence[Artifact], document: bytes | msgspec.Raw, pointer: str | None
) -> tuple[wire.Message, ...]:
    """The agent's message that carries its files as links, if it made any, with the text of its output `document`.

    The only case where an output is parsed. `content` is text: the SDK drops every other.
    """
    if not files:
        return ()
    text = projection.text_of(msgspec.json.decode(document), pointer) or ""
    return (wire.Message(role="assistant", content=text, metadata={"artifacts": [link(file) for file in files]}),)


def link(file: Artifact) -> JsonObject:
    """A file as this protocol's clients see it."""
    told: JsonObject = {"name": file.name, "url": file.url, "media_type": file.media_type, "size": file.size}
    if file.relative_path:
        told["relative_path"] = file.relative_path
    return told


# --- stream updates ------------------------------------------------------------------------------------------------


def values_update(
    run_id: str, status: str, document: bytes, origin: JsonObject | None = None, *, folded: bool = False
) -> tuple[bytes, ...]:
    """`ValueRunResultUpdate`, one line, in pieces. A document that is null is `{}`: the member is required.

    `folded`: the document was encoded by a fold of deltas, on one line and with the separators escaped.
    """
    if not folded:
        if LF in document or CR in document:  # outside strings, where JSON has them raw
            document = document.replace(b"\r", b" ").replace(b"\n", b" ")
        document = escape_separators(document)
    shown = b"{}" if document == b"null" else document
    extra = beyond(origin) if origin else None
    if not extra:
        return _values_head(run_id, status), shown, b"}"
    return _values_head(run_id, status), shown, b",", escape_separators(_dump(extra))[1:]


@lru_cache(maxsize=1024)
def _values_head(run_id: str, status: str) -> bytes:
    return b'{"type":"values","run_id":"%b","status":"%b","values":' % (run_id.encode(), status.encode())


def custom_update(run_id: str, event: e.Event, origin: JsonObject | None = None) -> bytes:
    """`CustomRunResultUpdate`, one line: an agent's own update as it came, any other event by its name as `type`."""
    update: Any
    if isinstance(event, e.Custom):
        if event.name == wire.PROTOCOL and isinstance(event.data, dict):
            update = event.data
        else:
            update = {"type": "custom", "name": event.name, "data": event.data}
    elif isinstance(event, e.ArtifactAdded):
        update = {"type": "artifact_added", "artifact": {"id": event.artifact.id, **link(event.artifact)}}
    else:
        told = msgspec.structs.replace(event, origin=None) if event.origin else event
        update = msgspec.Raw(b'{"type":' + e.encode(told).removeprefix(b'{"event":'))
    line = {"type": "custom", "run_id": run_id, "status": "pending", "update": update}
    return escape_separators(_dump({**beyond(origin), **line}))


def interrupt_update(run_id: str, interrupt: Interrupt, origin: JsonObject | None = None) -> bytes:
    """`ValueRunInterruptUpdate`, one line."""
    line = {"type": "interrupt", "run_id": run_id, "status": "interrupted", "interrupt": interrupt_payload(interrupt)}
    return escape_separators(_dump({**beyond(origin), **line}))


def error_update(run_id: str, end: e.RunFailed | e.RunCancelled, origin: JsonObject | None = None) -> bytes:
    """`ValueRunErrorUpdate`, one line, for a run that ended without success."""
    if isinstance(end, e.RunCancelled):
        code, text, status = CANCELLED, cancelled(end.reason), "error"
    else:
        code, text, status = errcode(end.failure), end.failure.message, "timeout" if end.timeout else "error"
    line = {"type": "error", "run_id": run_id, "errcode": code, "description": text, "status": status}
    return escape_separators(_dump({**line, **beyond(origin)}))
