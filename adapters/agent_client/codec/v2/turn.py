"""How work begins and ends in version 2: `state_update` to events and back (docs: prompt-lifecycle).

An agent's plain `running` and `requires_action` are no events: who tells a client of a run says them by its life.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw

from adapters.agent_client.codec import errors, event_forms
from adapters.agent_client.codec import turn as v1
from adapters.agent_client.codec.v2.wire import IDLE, STATE, UPDATE
from adapters.agent_client.wire import ORIGIN_V2, OURS, as_object, meta_of, with_meta, without
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, JsonObject, Run, StopReason
from gateway.wire import jsonrpc

FAILED: Final = "error"
"""Stop reason of work that failed; `error` beside it is what went wrong, as a JSON-RPC error object. The schema has no
such word yet, but takes any; both official SDKs say it."""
_SHARED: Final = ("usage", "_meta")
"""Keys that version 1 too has beside a stop reason."""
_KNOWN: Final = {reason.value for reason in StopReason}


# --- what an agent says ------------------------------------------------------------------------------------------


def ended(update: JsonObject | Raw | bytes) -> list[e.Event]:
    """Decode an idle `state_update` to the run's events to emit: last a RunFinished, RunCancelled or RunFailed.

    A missing, null or unknown stop reason is `end_turn`. An unknown word is kept; a value of another type is dropped.
    Given bytes, they are a `state_update`.
    """
    said: Any = delta.sound(update if isinstance(update, dict) else jsonrpc.unpack(update))
    word = said.get("stopReason")
    if not isinstance(word, str | None):
        said = {**said, "stopReason": StopReason.END_TURN.value}
    rest = without(said, UPDATE, "state", "stopReason")
    if word == FAILED:
        error = _error_of(rest.get("error"))
        own = event_forms.difference(failure(error), said)
        end: e.Event = v1.failed(error)
        return [event_forms.marked(end, own) if own else end]
    known = word if isinstance(word, str) and word in _KNOWN else StopReason.END_TURN.value
    shared: JsonObject = {key: rest[key] for key in _SHARED if key in rest}
    *before, end = v1.end_of({**shared, "stopReason": known})
    own = event_forms.difference(_idle(known), said)
    return [*before, event_forms.marked(end, own) if own else end]


def _error_of(error: Any) -> jsonrpc.RpcError:
    said = as_object(error)
    code, message = said.get("code"), said.get("message")
    if not isinstance(code, int) or isinstance(code, bool) or code == jsonrpc.REQUEST_CANCELLED:
        code = jsonrpc.INTERNAL_ERROR  # what was cancelled has a stop reason of its own
    message = message if isinstance(message, str) else "the agent failed and did not say how"
    return jsonrpc.RpcError(code, message, said.get("data", jsonrpc.ABSENT))


def failure(error: jsonrpc.RpcError) -> JsonObject:
    """The update that says that work has failed."""
    return {**_idle(FAILED), "error": errors.said(error.error)}


# --- what a client is told ---------------------------------------------------------------------------------------


def standing(state: str) -> bytes:
    """The update that says that the session is running, idle, or requires an action."""
    return delta.encode({UPDATE: STATE, "state": state})


def idle(stop_reason: StopReason) -> bytes:
    """The update that ends work."""
    return delta.encode(_idle(stop_reason.value))


def over(
    run: Run, end: e.Event | None = None, *, agent: Agent | None = None, usage: e.UsageReported | None = None
) -> list[bytes]:
    """The updates that end a run for a client: last the idle `state_update`.

    `end` and `usage` are the encoder's. One that failed stops for FAILED, with the error; an agent of version 2 that
    ended it has its own words.
    """
    try:
        result = v1.prompt_result(run, end, agent=agent, usage=usage)
        said: JsonObject = {UPDATE: STATE, "state": IDLE, **result}
        plainly = _idle(result["stopReason"])
        lost = meta_of(result, OURS) if run.losses else None
    except jsonrpc.RpcError as error:
        said = plainly = failure(error)
        lost = {"lost": sorted(run.losses)} if run.losses else None
        if lost is not None:
            said = with_meta(said, OURS, lost)
    own = None if end is None else event_forms.beyond(end, ORIGIN_V2)
    if own is not None and ("more" in own or "less" in own):
        kept = event_forms.restored(plainly, own)
        said = kept if lost is None else with_meta(kept, OURS, lost)
    return [delta.encode(said)]


def _idle(stop_reason: str) -> JsonObject:
    return {UPDATE: STATE, "state": IDLE, "stopReason": stop_reason}
