"""Agent Connect to core, pure: what a client asks for. (What an agent says is in `decode.py`.)"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError

from adapters.agent_connect import wire
from gateway.contract.filling import Filling
from gateway.core import projection
from gateway.core.delta import same
from gateway.core.errors import Invalid
from gateway.core.types import (
    Agent,
    IfBusy,
    Json,
    JsonObject,
    RunRequest,
    Webhook,
)

T = TypeVar("T")

MISTAKES = 3
"""How many mistakes of one body are told at once."""

_EVENT_ID = re.compile(r"(\d{1,15})(?:\.(\d{1,3}))?")


def read(adapter: TypeAdapter[T], body: bytes) -> T:
    """The request body, validated. Raises Invalid with the path of what does not fit.

    pydantic itself would take NaN, and 1e400 for infinity, which would be null from then on. It says what is wrong.
    """
    try:
        return adapter.validate_python(_decode(body))
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


def creation(body: Mapping[str, Any]) -> JsonObject:
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
        creation=creation(body),
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
