"""Runs of clients, pure: what they ask for, and what they are told of runs, questions and errors.

Documents that are already encoded (`Run.output`, a snapshot) are spliced into the answer and never parsed. What agents
say is read by `decode.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from adapters.agent_connect import wire
from gateway.contract.filling import Filling
from gateway.core import errors, projection
from gateway.core.delta import same
from gateway.core.errors import Invalid
from gateway.core.stopping import cancelled
from gateway.core.types import (
    NULL,
    Agent,
    Answer,
    Failure,
    IfBusy,
    Interrupt,
    Json,
    JsonObject,
    Run,
    RunRequest,
    RunStatus,
    Webhook,
    agent_id,
)

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
    errors.AgentForgot: 502,
    errors.AgentBusy: 503,
    errors.AgentTimeout: 504,
    errors.GatewayError: 500,
    errors.IllegalEvent: 500,
    errors.OutcomeUnknown: 500,
    errors.Unavailable: 503,
    errors.Limited: 429,
}
"""HTTP status of each error. A failed run's `errcode` is that of the same error, unless the agent gave one."""

CANCELLED = 499
"""`errcode` of a run that was cancelled."""

_ERRCODES = {cls.code: status for cls, status in ERRORS.items()}


def encode_schemes(*, asked: bool) -> bytes:
    """How clients authenticate, as a JSON list of OpenAPI security schemes: by any one of them, or not at all where the
    list is empty. `asked`: whether clients are asked who they are.
    """
    return _dump(list(SCHEMES) if asked else [])


SCHEMES: Final[Sequence[JsonObject]] = (
    {"type": "http", "scheme": "bearer"},
    {"type": "apiKey", "in": "header", "name": "x-api-key"},
)


def error_text(error: errors.InterlinguaError) -> str:
    """The text of an `ErrorResponse`: the failing path, if there is one, and the message."""
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
"""The statuses that a search for each of the five finds."""


def timestamp(seconds: float) -> str:
    """ISO 8601 with zone, microseconds."""
    whole, micros = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_second(whole)}.{micros:06d}+00:00"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


_agent_id = lru_cache(maxsize=1024)(agent_id)


def run_record(run: Run) -> wire.ConnectRun:
    """`RunStateless` or `RunStateful`; `creation` is what the client sent."""
    request = run.request
    return wire.ConnectRun(
        run_id=run.id,
        agent_id=_agent_id(request.agent),
        created_at=timestamp(run.created_at),
        updated_at=timestamp(run.updated_at),
        status=STATUS[run.status],
        creation=creation(run),
        thread_id=request.thread,
    )


def creation(run: Run) -> JsonObject:
    """The client's own request; of a run that came in by another protocol, the request it would have been.

    An input that was a bare string is shown as the document that was made of it: the specification has objects only.
    """
    request = run.request
    if request.protocol == wire.PROTOCOL:
        words = isinstance(request.creation.get("input"), str) and isinstance(request.input, dict)
        return {**request.creation, "input": request.input} if words else request.creation
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


def encode_wait(run: Run, messages: Sequence[wire.ConnectMessage] = (), *, bare: bool = False) -> bytes:
    """`RunWaitResponse`. `messages` are what a result says beside its values (see `file_messages`).

    With `bare`, the members of the `RunOutput` stand at the top too, named as in the prose documentation
    (`result`, `interrupt_type`, `interrupt_payload`).
    """
    output = run_output(run, messages)
    extra = _upstream_output(run)
    told = {"run": run_record(run), "output": msgspec.Raw(_lay_over(_dump(output), extra)) if extra else output}
    if bare:
        told |= _bare(run)
    return _dump(told)


def run_output(run: Run, messages: Sequence[wire.ConnectMessage] = ()) -> wire.RunOutput:
    """The output of a stopped run."""
    if run.status is RunStatus.INTERRUPTED and run.interrupts:
        return wire.RunInterrupt(interrupt=interrupt_payload(run.interrupts[0]))
    if run.status is RunStatus.SUCCESS:
        return wire.RunResult(values=None if run.output == NULL else run.output, messages=[*messages] or None)
    return wire.RunError(
        run_id=run.id, errcode=errcode(run.failure), description=why(run), transient=_transient(run.failure)
    )


def why(run: Run) -> str:
    """Why a run ended without success, for a person."""
    if run.status is RunStatus.CANCELLED:
        return cancelled(run.cancel_reason)
    return run.failure.message if run.failure else f"the run is {run.status}"


def errcode(failure: Failure | None) -> int:
    """The integer the protocol wants for a failure's code."""
    return CANCELLED if failure is None else _ERRCODES.get(failure.code, 500)


def _transient(failure: Failure | None) -> bool:
    """Whether the same may succeed when it is tried again."""
    return failure is not None and failure.retryable


def encode_errors(own: Json) -> bytes:
    """The kinds of errors that there are, as a JSON list. `own`: those that the agent defines itself, as they came."""
    ours = [
        wire.ErrorDefinition(
            errcode=status, code=cls.code, description=(cls.__doc__ or "").partition("\n")[0], transient=cls.retryable
        )
        for cls, status in ERRORS.items()
    ]
    return _dump([*ours, *(own if isinstance(own, list) else ())])


def losses(run: Run) -> str:
    """The run's losses as a header: `name=count, ...`; empty if nothing was lost."""
    return ", ".join(f"{name}={count}" for name, count in sorted(run.losses.items()))


def _bare(run: Run) -> dict[str, Any]:
    if run.status is RunStatus.SUCCESS:
        return {"type": "result", "result": run.output}
    if run.status is RunStatus.INTERRUPTED and run.interrupts:
        asked = run.interrupts[0]
        return {"type": "interrupt", "interrupt_type": asked.kind, "interrupt_payload": _question(asked)}
    return {
        "type": "error",
        "run_id": run.id,
        "errcode": errcode(run.failure),
        "description": why(run),
        "transient": _transient(run.failure),
        **_upstream_output(run),
    }


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
    if interrupt.kind == "permission" and isinstance(interrupt.payload, dict) and interrupt.message:
        return {"message": interrupt.message, **interrupt.payload}  # an agent may name the call by its id alone
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


T = TypeVar("T")

MISTAKES = 3
"""How many mistakes of one body are told at once."""

_EVENT_ID = re.compile(r"(\d{1,15})(?:\.(\d{1,3}))?")


def read(adapter: TypeAdapter[T], body: bytes) -> T:
    """The request body, validated. Raises Invalid with the path of what does not fit.

    pydantic itself would take NaN, and 1e400 for infinity, which would be null from then on. It says what is wrong.
    """
    try:
        found: T = adapter.validator.validate_python(_decode(body))  # the adapter's own method passes on seven defaults
        return found
    except (ValueError, RecursionError) as error:
        why = error
    try:
        adapter.validate_json(body)
    except ValidationError as error:
        raise _invalid(error) from None
    raise Invalid(f"the body is not JSON: {why}")


_decode = msgspec.json.Decoder().decode


def _invalid(error: ValidationError) -> Invalid:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    told = []
    for mistake in found[:MISTAKES]:
        path = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in mistake["loc"])
        message = mistake["msg"].removeprefix("Value error, ")
        told.append(f"{path}: {message}" if path else message)
    first = found[0]["loc"]
    pointer = "".join(f"/{step}" for step in first)
    return Invalid("; ".join(told), path=pointer)


def echoed(body: Mapping[str, Any]) -> JsonObject:
    """The request as it is echoed under `creation`, without nulls that the specification does not allow there."""
    told = dict(body)
    if None in told.values():
        told = {name: value for name, value in told.items() if value is not None or name not in _NO_NULL}
    config = told.get("config")
    if config and None in config.values():
        told["config"] = {k: v for k, v in config.items() if v is not None or k not in _NO_NULL_CONFIG}
    return told


_NO_NULL = (wire.RunCreateStateless.__annotations__.keys() | wire.RunCreateStateful.__annotations__.keys()) - {
    "stream_mode"
}
_NO_NULL_CONFIG = frozenset(wire.RunConfig.__annotations__)


def run_request(
    body: wire.RunCreate, agent: str, *, thread: str | None, now: float, traceparent: str | None
) -> RunRequest:
    """The run that a client asks for, of an agent by name or UUID. `now` is the time in seconds."""
    config = body.get("config") or {}
    delay = body.get("after_seconds")
    url = webhook(body) if "webhook" in body or "callback" in body else None
    given = body.get("input")
    said = given if isinstance(given, str) else None  # of which an empty one says nothing
    return RunRequest(
        agent=agent,
        input={} if given is None or given == "" else None if said is not None else given,
        prompt=said,
        protocol=wire.PROTOCOL,
        thread=thread,
        config=config.get("configurable") or {},
        metadata=body.get("metadata") or {},
        start_at=now + delay if delay else None,
        if_busy=IfBusy(body.get("multitask_strategy") or "reject") if thread else IfBusy.REJECT,
        webhook=Webhook(url=url, protocol=wire.PROTOCOL) if url else None,
        traceparent=traceparent,
        native=("tags",) if config.get("tags") or config.get("recursion_limit") else (),
        creation=echoed(body),
    )


def words(agent: Agent, given: Json) -> str | None:
    """The words of an input that has nothing but the agent's text, where something else is missing; else None."""
    text = None if agent.text_input is None else projection.unwrap(given, agent.text_input)
    if text is None or not same(projection.wrap(text, agent.text_input, agent.input_schema), given):
        return None
    found = Filling(agent.input_schema, agent.text_input).completed(given)
    return None if found.form is None or found.why else text


def webhook(body: wire.RunCreate) -> str | None:
    """Where status changes are posted: `webhook`, or `callback` as the prose documentation has it."""
    callback = body.get("callback")
    if body.get("webhook") or callback is None:
        return body.get("webhook")
    try:
        return _webhook.validate_python(callback)
    except ValidationError:
        raise Invalid("Input should be an http or https URL", path="/callback") from None


_webhook: TypeAdapter[str] = TypeAdapter(wire.Webhook)


def modes(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """The streaming modes asked for; none for null or an empty list."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(dict.fromkeys(value))


def cursor(last_event_id: str | None) -> tuple[int, bool] | None:
    """(event number, whether only its first frame was delivered) of a `Last-Event-ID`; None without one."""
    if not last_event_id:
        return None
    match = _EVENT_ID.fullmatch(last_event_id)
    if match is None:
        raise Invalid(f"Last-Event-ID {last_event_id!r} is none of this stream's")
    return int(match[1]), match[2] == "1"
