"""A task's steps as clients see them: the legs of its runs, and what the agent has announced. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from adapters.agent_protocol import codec
from adapters.agent_protocol.legs import SEPARATOR, Leg, Said
from adapters.agent_protocol.requests import answer_fields
from gateway.core import choices, wording
from gateway.core import events as e
from gateway.core.projection import ASSISTANT, text_of, unwrap, wrap
from gateway.core.stopping import cut_short
from gateway.core.types import NULL, Agent, Json, JsonObject, Role, Run, Thread

_LISTED = ("thoughts", "tool_calls", "files", "data", "custom")


def run_steps(task: str, run: Run, legs: Sequence[Leg], agent: Agent) -> list[JsonObject]:
    """`Step` of every leg of one run, in order. `run` is to be read after its log, or its output may be missing."""
    return [step_json(task, run, legs[: index + 1], agent) for index in range(len(legs))]


def step_id(owner: str, leg: int) -> str:
    """The id of the `leg`-th step (from 0) of a run, or of a task that has had none: the same whenever asked for."""
    return str(uuid.uuid5(_namespace(owner), str(leg)))


def _namespace(owner: str) -> uuid.UUID:
    try:
        return uuid.UUID(owner)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, owner)


def _owner(run: Run) -> str:
    """What the ids of a run's steps are made of: the task, where they were listed before the run."""
    owner = run.request.attributes.get(codec.STEPS)
    return owner if isinstance(owner, str) else run.id


def listed(thread: Thread) -> list[JsonObject]:
    """`Step` (created) of what an Agent Protocol agent planned when it got the task; for one that has had no run."""
    return _created(thread.id, thread.id, codec.planned(thread) or (), 0)


def announced(thread: Thread, run: Run, legs: Sequence[Leg]) -> list[JsonObject]:
    """`Step` (created) of what an Agent Protocol agent still plans to do in this run; none once it has ended.

    The ids are those of the legs to come: where the agent is driven one step at a time, a step keeps its id. While a
    leg is running, the first step that the agent has not done is the one it is doing.
    """
    if legs[-1].end is not None:
        return []
    plans = [leg.plan for leg in legs if leg.plan is not None]
    theirs = codec.said(plans[-1]) if plans else None
    if theirs is not None:
        named = zip(plans[-1].entries, theirs.get("names") or [], strict=False)
        waiting = [name for entry, name in named if entry.status == "pending"]
    elif codec.STEPS in run.request.attributes:
        waiting = codec.planned(thread) or []
    else:
        return []
    if legs[-1].status != "completed":
        waiting = waiting[1:]
    return _created(thread.id, _owner(run), waiting, len(legs))


def _created(task: str, owner: str, names: Sequence[str | None], first: int) -> list[JsonObject]:
    return [{**_empty(task, step_id(owner, number)), "name": name} for number, name in enumerate(names, first)]


def step_json(task: str, run: Run, legs: Sequence[Leg], agent: Agent) -> JsonObject:
    """`Step` of the last of `legs`, which are a run's first so many."""
    leg = legs[-1]
    text, more = _input(run, leg, agent)
    spoken = [m for m in leg.messages.values() if m.step is not None]
    step = {
        **_empty(task, step_id(_owner(run), leg.index)),
        "status": leg.status,
        "input": text,
        "additional_input": more,
        "output": _output(run, legs, agent),
        "additional_output": _additional_output(run, leg, agent, spoken),
        "artifacts": [codec.artifact_json(artifact) for artifact in leg.artifacts],
        "is_last": leg.end is not None,
    }
    if len(spoken) == 1 and spoken[0].step is not None:
        theirs = {key: value for key, value in spoken[0].step.items() if key not in step}
        step |= theirs | {"name": spoken[0].step.get("name")}
    return step


def _empty(task: str, step: str) -> JsonObject:
    return {
        "task_id": task,
        "step_id": step,
        "name": None,
        "status": "created",
        "input": None,
        "additional_input": {},
        "output": None,
        "additional_output": None,
        "artifacts": [],
        "is_last": False,
    }


def _input(run: Run, leg: Leg, agent: Agent) -> tuple[str | None, JsonObject]:
    if leg.answered is not None and leg.answer is not None:
        return answer_fields(leg.answered, leg.answer)
    if leg.index or run.request.protocol != codec.PROTOCOL:
        return text_of(run.request.input, agent.text_input), {}
    body = run.request.creation
    return body.get("input"), body.get("additional_input") or {}


def _document(run: Run, leg: Leg) -> Json:
    """The output document, where the run has ended well with this leg."""
    if not isinstance(leg.end, e.RunFinished):
        return None
    raw = run.output if bytes(run.output) != bytes(NULL) else leg.end.output
    return msgspec.json.decode(raw)


def _output(run: Run, legs: Sequence[Leg], agent: Agent) -> str | None:
    """What a person reads: the leg's text (the agent's final result wins), then its question with what answers it."""
    leg = legs[-1]
    text = _said(leg, agent)
    document = _document(run, leg)
    if document is not None:
        text = _final_text(document, [earlier.text for earlier in legs[:-1]], text, agent)
    question = leg.question
    if question is not None and leg.end is None and not _is_step_of(leg):
        asked = question.message or codec.as_text(question.payload) or ""
        found = choices.offered(question.answer_schema)
        listed = choices.listing(found[0]) if found else wording.listing(question.answer_schema) or ""
        if text.endswith(SEPARATOR.join(filter(None, (asked, listed)))):
            return text or None  # it was said already: by an agent that is a gateway itself
        shown = (asked if not text.endswith(asked) else "", listed)
        text = SEPARATOR.join(filter(None, (text, *shown)))
    return text or None


def _said(leg: Leg, agent: Agent) -> str:
    """The leg's text, then that of the documents that it has made: a draft, say, that its question is about."""
    said, pointer = [leg.text], agent.text_output
    if pointer is not None:
        said += [unwrap(document, pointer) or "" for document in leg.of_kind("data")]
    return SEPARATOR.join(dict.fromkeys(filter(None, said)))


def _final_text(document: Json, before: Sequence[str], text: str, agent: Agent) -> str:
    final = text_of(document, agent.text_output)
    if final is None:
        return text or codec.as_text(document) or ""
    earlier = SEPARATOR.join(filter(None, before))
    if final in (earlier + text, earlier + SEPARATOR + text):
        return text
    return final.removeprefix(earlier + SEPARATOR) if earlier else final


def _is_step_of(leg: Leg) -> bool:
    """Whether the agent asks nothing but the next step's input: a step that is done, as this protocol has it anyway."""
    return leg.question is not None and codec.is_step_question(leg.question)


def _additional_output(run: Run, leg: Leg, agent: Agent, spoken: Sequence[Said]) -> JsonObject | None:
    """What the step's text cannot say. An Agent Protocol agent's own comes first, as it was given."""
    found: JsonObject = {}
    if len(spoken) == 1:
        own = spoken[0].additional_output
        if own is not None:
            found |= own if isinstance(own, dict) else {"value": own}
    elif spoken:
        found["steps"] = [_inner(leg, message) for message in spoken]
    found |= _shown(leg)
    if leg.question is not None and leg.end is None and not _is_step_of(leg):
        found["interrupt"] = msgspec.to_builtins(leg.question)
    if leg.end is not None:
        found |= _ending(run, leg, agent, bool(spoken))
    return found or None


def _inner(leg: Leg, message: Said) -> JsonObject:
    """One of several agent's own steps that one leg has driven."""
    known = {**(message.step or {}), "output": leg.text_of(message.id) or None}
    known["additional_output"] = message.additional_output
    return known


def _shown(leg: Leg) -> JsonObject:
    found: JsonObject = {
        "thoughts": [thought for thought in leg.of_kind("thought") if thought],
        "tool_calls": list(leg.tools.values()),
        "files": leg.of_kind("file"),
        "data": [] if isinstance(leg.end, e.RunFinished) else leg.of_kind("data"),
        "custom": leg.custom,
    }
    found = {key: found[key] for key in _LISTED if found[key]}
    if leg.plan is not None and codec.said(leg.plan) is None:
        found["plan"] = [msgspec.to_builtins(entry) for entry in leg.plan.entries]
    if leg.usage:
        found["usage"] = leg.usage
    others = [m for m in leg.messages.values() if m.role is not Role.ASSISTANT and leg.text_of(m.id)]
    if others:
        found["messages"] = [{"role": m.role.value, "content": leg.text_of(m.id)} for m in others]
    return found


def _ending(run: Run, leg: Leg, agent: Agent, native: bool) -> JsonObject:
    found: JsonObject = {}
    match leg.end:
        case e.RunFailed(failure=failure):
            found["error"] = {"code": failure.code, "message": failure.message, "retryable": failure.retryable}
        case e.RunCancelled(reason=reason):
            found["error"] = {"code": "cancelled", "message": reason or "the run was cancelled", "retryable": False}
        case e.RunFinished():
            document = _document(run, leg)
            if not native and document is not None and not _only_text(document, agent):
                found["output"] = document
    if run.stop_reason is not None and cut_short(run.stop_reason) is not None:
        found["stop_reason"] = run.stop_reason.value
    if run.losses:
        found["losses"] = run.losses
    return found


def _only_text(document: Json, agent: Agent) -> bool:
    """Whether `output` and `artifacts` of the task's steps say all that the document says."""
    text = text_of(document, agent.text_output)
    if text is None:
        return False
    if isinstance(document, dict):  # the list of files is the gateway's own (gateway/core/output.py)
        document = {key: value for key, value in document.items() if key != "artifacts"}
    return bool(wrap(text, agent.text_output, agent.output_schema, ASSISTANT) == document)
