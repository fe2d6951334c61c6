"""Agent Connect interrupts to core, pure: which kind of question it is, what to show, what may be answered."""

from __future__ import annotations

import hashlib
import json

from adapters.agent_connect.decode import Question
from gateway.contract import fitting
from gateway.core.types import Agent, Interrupt, InterruptSpec, Json, JsonObject

_ASKING = ("message", "question", "prompt", "text", "interrupt_message", "description", "title")


def interrupt(question: Question, agent: Agent, run_id: str, number: int) -> Interrupt:
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


def _spec(question: Question, agent: Agent) -> InterruptSpec | None:
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
        return fitting.fits(fitting.validator(schema), payload)
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
