"""How a prompt turn ends: the answer of `session/prompt` to a terminal event, and back (schema: PromptResponse)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters.agent_client.codec import errors, event_forms
from adapters.agent_client.wire import OURS, PROTOCOL, with_meta, without
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.errors import AgentBroken, Conflict
from gateway.core.types import Agent, Failure, Json, JsonObject, Run, RunStatus, StopReason
from gateway.wire import jsonrpc

_REASONS: Final = {reason.value: reason for reason in StopReason}
_COUNTS: Final = {"inputTokens": "input_tokens", "outputTokens": "output_tokens"}


def ended(result: Raw) -> list[e.Event]:
    """Decode the agent's answer of `session/prompt` to the events to emit: last a RunFinished, or RunCancelled.

    Before it a UsageReported, if the answer has token counts. Unknown keys and `_meta` are kept in `origin`. A missing
    or unknown stop reason is `end_turn`, its own word kept too. Raises AgentBroken if the answer is no object.
    """
    try:
        said: Any = delta.sound(jsonrpc.unpack(result))
    except (ValueError, RecursionError) as error:
        raise AgentBroken("an answer of session/prompt that cannot be read", detail=str(error)) from None
    if not isinstance(said, dict):
        raise AgentBroken("an answer of session/prompt that is no object")
    return end_of(said)


def end_of(said: JsonObject) -> list[e.Event]:
    """The same of an answer that has been read."""
    word = said.get("stopReason")
    reason = _REASONS.get(word) if isinstance(word, str) else None
    extra = {key: value for key, value in said.items() if key != "stopReason" or reason is None}
    origin = {PROTOCOL: {"more": extra}} if extra else None
    out: list[e.Event] = []
    usage = said.get("usage")
    if isinstance(usage, dict):
        counts = {ours: usage[key] for key, ours in _COUNTS.items() if event_forms.is_count(usage.get(key))}
        if counts:
            out.append(e.UsageReported(**counts, detail=usage, origin=event_forms.SILENT))
    if reason is StopReason.CANCELLED:
        return [*out, e.RunCancelled(reason="the agent says that it was cancelled", origin=origin)]
    return [*out, e.RunFinished(stop_reason=reason or StopReason.END_TURN, origin=origin)]


def failed(error: jsonrpc.RpcError) -> e.RunFailed | e.RunCancelled:
    """The end that the agent's error answer of `session/prompt` is; its error object is kept in `origin`.

    "Request cancelled" (-32800) is RunCancelled.
    """
    told = error.error
    if told.code == jsonrpc.REQUEST_CANCELLED:
        return e.RunCancelled(reason=told.message)
    failure = Failure(code=error.code, message=delta.sound(str(error)))
    return e.RunFailed(failure=failure, origin={PROTOCOL: {"error": delta.sound(errors.said(told))}})


def prompt_result(
    run: Run, end: e.Event | None = None, *, agent: Agent | None = None, usage: e.UsageReported | None = None
) -> JsonObject:
    """The answer of `session/prompt` for a run that has ended.

    `end` is its last event (`UpdateEncoder.end`), `usage` the encoder's; without them what the agent said beyond the
    stop reason is not there. With `agent`, one of another protocol, an output document that has more than its text is
    in `_meta: {"interlingua": {"output": ...}}`; losses of the run are `lost` there. Raises RpcError for a run that
    failed: the agent's very own error if it is an agent of this protocol, else an internal error with the failure's
    code in `data`.
    """
    mine = event_forms.beyond(end) if end is not None and (agent is None or PROTOCOL in agent.extra) else None
    if failed_run(run):
        raise _error(run, mine)
    cancelled = run.status is RunStatus.CANCELLED
    reason = StopReason.CANCELLED if cancelled else run.stop_reason or StopReason.END_TURN
    said: JsonObject = {"stopReason": str(reason), **(mine or {}).get("more", {})}
    if cancelled:
        said["stopReason"] = str(reason)
    ours: JsonObject = {}
    if run.losses:
        ours["lost"] = sorted(run.losses)
    if agent is not None and PROTOCOL not in agent.extra and _has_more(run, agent):
        ours["output"] = run.output
    if usage is not None and "usage" not in said:
        counts = {key: getattr(usage, ours) or 0 for key, ours in _COUNTS.items()}
        said["usage"] = {"totalTokens": sum(counts.values()), **counts}
    return with_meta(said, OURS, ours) if ours else said


def failed_run(run: Run) -> bool:
    """Whether a run has failed as this protocol has it: one that stopped for a reason of its own has not."""
    return run.status in (RunStatus.ERROR, RunStatus.TIMEOUT) and run.stop_reason is None


def _error(run: Run, mine: JsonObject | None) -> jsonrpc.RpcError:
    if (told := errors.read((mine or {}).get("error"))) is not None:
        return told
    failure = run.failure or Failure(code="internal", message="the run failed")
    data: JsonObject = {"code": failure.code, "details": failure.message}
    data |= jsonrpc.retry(failure.retryable, failure.retry_after)
    code = errors.ERRORS[Conflict] if failure.code == Conflict.code else jsonrpc.INTERNAL_ERROR  # busy, not broken
    return jsonrpc.RpcError(code, failure.message, data)


def _has_more(run: Run, agent: Agent) -> bool:
    """Whether the output document says more than the text (and the files) that the client was told."""
    if run.status is not RunStatus.SUCCESS:
        return False
    document: Json = msgspec.json.decode(run.output)
    text = projection.text_of(document, agent.text_output)
    if text is None or not isinstance(document, dict):
        return False
    plainly = projection.wrap(text, agent.text_output, agent.output_schema, projection.ASSISTANT)
    return not delta.same(without(document, "artifacts"), plainly)
