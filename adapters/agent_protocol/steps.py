"""A run's log as this protocol's steps, and what the agent has announced beside them. Pure.

The log is cut into legs, each from the run's start, or an answer, to the next question or the run's end. A leg is what
this protocol calls a step.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from adapters.agent_protocol import codec
from adapters.agent_protocol.requests import answer_fields
from gateway.core import choices, wording
from gateway.core import events as e
from gateway.core.delta import DeltaError, Fold
from gateway.core.errors import Invalid
from gateway.core.output import SEPARATOR, OutputParts, PartOf
from gateway.core.projection import ASSISTANT, text_of, unwrap, wrap
from gateway.core.stopping import cancelled, cut_short
from gateway.core.types import (
    NULL,
    Agent,
    Answer,
    Artifact,
    Interrupt,
    Json,
    JsonObject,
    Outcome,
    Role,
    Run,
    Thread,
)

# --- legs -----------------------------------------------------------------------------------------------------------


class LegPart:
    """One part of a message, folded. `prior`: the text of earlier legs, which `value` leaves out."""

    def __init__(self, message: str, kind: str, value: Json = None, prior: str = "") -> None:
        self.message = message
        self.kind = kind
        self.prior = prior
        self.fold = Fold() if value is None else Fold(value)

    @property
    def value(self) -> Json:
        """Its content so far; None for an empty part that is no text."""
        if self.fold.absent:
            return "" if self.kind in ("text", "thought") else None
        return self.fold.document()

    def grow(self, event: e.PartDelta | e.PartReplaced) -> None:
        """Apply an event of the log. The log is checked: a delta that does not fit starts the part anew."""
        try:
            if isinstance(event, e.PartDelta):
                self.fold.apply(event.delta)
            elif event.pointer == "":
                whole = isinstance(event.value, str)
                self.fold.set(event.value.removeprefix(self.prior) if whole else event.value)
            else:
                self.fold.replace(event.pointer, event.value)
        except (DeltaError, Invalid):
            self.fold.set(event.delta if isinstance(event, e.PartDelta) else event.value)


class LegMessage:
    """One message of a leg. `step` is the agent's own step where the agent speaks this protocol."""

    def __init__(self, id: str, role: Role, step: JsonObject | None) -> None:
        self.id = id
        self.role = role
        self.step = step
        self.additional_output: Json = None

    def add(self, output: Json) -> None:
        self.additional_output = output


class Leg:
    """One step's worth of a run: from its start, or an answer, to the next question or the end.

    `answered` and `answer`: what it began with; None for the first. `question`: the oldest one open at its end.
    `end`: the run's last event. `streamed`: the text of several legs as the output has it, if the run has succeeded.
    """

    def __init__(self, index: int, answered: Interrupt | None = None, answer: Answer | None = None) -> None:
        self.index = index
        self.answered = answered
        self.answer = answer
        self.messages: dict[str, LegMessage] = {}
        self.parts: dict[str, LegPart] = {}
        self.tools: dict[str, JsonObject] = {}
        self.artifacts: list[Artifact] = []
        self.custom: list[JsonObject] = []
        self.plan: e.PlanUpdated | None = None
        self.usage: JsonObject | None = None
        self.question: Interrupt | None = None
        self.end: e.Event | None = None
        self.streamed = ""
        self._started = index > 0

    @property
    def status(self) -> str:
        """The step's status on the wire."""
        if self.end is not None or self.question is not None:
            return "completed"
        return "running" if self._started else "created"

    def of_kind(self, kind: str) -> list[Json]:
        """Values of the assistant's parts of one kind, in order."""
        return [part.value for part in self.parts.values() if part.kind == kind and self._spoken(part)]

    def text_of(self, message: str) -> str:
        return "".join(part.value for part in self.parts.values() if part.kind == "text" and part.message == message)

    @property
    def text(self) -> str:
        """All assistant text of the leg, messages a blank line apart."""
        spoken = (m.id for m in self.messages.values() if m.role is Role.ASSISTANT)
        return SEPARATOR.join(text for text in map(self.text_of, spoken) if text)

    def _spoken(self, part: LegPart) -> bool:
        message = self.messages.get(part.message)
        return message is None or message.role is Role.ASSISTANT

    def apply(self, event: e.Event) -> None:
        """Apply an event that concerns no other leg."""
        self._started = True
        match event:
            case e.PlanUpdated():
                self.plan = event
            case e.ArtifactAdded():
                self.artifacts.append(event.artifact)
            case e.UsageReported():
                counts = {"input_tokens": event.input_tokens, "output_tokens": event.output_tokens}
                self.usage = {**event.detail, **{k: v for k, v in counts.items() if v is not None}}
            case e.Custom():
                self._custom(event)
            case e.RunFinished() | e.RunFailed() | e.RunCancelled():
                self.end = event

    def ends(self, streamed: str) -> None:
        self.streamed = streamed

    def asks(self, question: Interrupt | None) -> None:
        self.question = question

    def _custom(self, event: e.Custom) -> None:
        mine = codec.said(event)
        message = self.messages.get(str(mine.get("message"))) if mine else None
        if event.name == codec.ADDITIONAL_OUTPUT and message is not None:
            message.add(event.data)
        else:
            self.custom.append({"name": event.name, "data": event.data})


class _Cutter:
    """Cuts a run's log into `legs`, at least one: a leg begins where a client answered.

    So a question that was withdrawn (a cancel answers it) begins none. What goes on from an earlier leg, a part or a
    tool call, is in both.
    """

    def __init__(self) -> None:
        self.legs = [Leg(0)]
        self._open: list[Interrupt] = []
        self._parts: dict[str, LegPart] = {}
        self._tools: dict[str, JsonObject] = {}
        self._messages: dict[str, LegMessage] = {}
        self._output = OutputParts()
        self._texts: set[str] = set()  # pieces of the output that have said nothing yet

    def apply(self, event: e.Event) -> None:
        leg = self.legs[-1]
        leg.apply(event)
        match event:
            case e.MessageStarted():
                step = (codec.said(event) or {}).get("step")
                message = LegMessage(event.message, event.role, step if isinstance(step, dict) else None)
                leg.messages[event.message] = self._messages[event.message] = message
                self._output.message(event)
            case e.PartStarted():
                part = self._add(leg, event.part, LegPart(event.message, event.kind, event.value))
                if self._output.start(event) is PartOf.TEXT and event.kind == "text":
                    self._texts.add(event.part)
                self._speaks(event.part, part)
            case e.PartDelta() | e.PartReplaced():
                part = leg.parts.get(event.part) or self._carry(leg, event.part)
                part.grow(event)
                self._speaks(event.part, part)
            case e.ToolCallStarted() | e.ToolCallUpdated() | e.ToolCallEnded():
                self._tool(leg, event)
            case e.Interrupted():
                self._open.append(event.interrupt)
                leg.asks(self._open[0])
            case e.Resumed():
                self._resume(leg, event)
            case e.RunFinished() if leg.index:
                leg.ends(self._streamed())

    def _carry(self, leg: Leg, name: str) -> LegPart:
        """A part of an earlier leg that goes on: what is added now belongs to this leg."""
        before = self._parts.get(name)
        if before is None:
            before = LegPart("", "text")
        if before.kind in ("text", "thought"):
            part = LegPart(before.message, before.kind, prior=before.prior + before.value)
        else:
            part = LegPart(before.message, before.kind, before.value)
        return self._add(leg, name, part)

    def _speaks(self, name: str, part: LegPart) -> None:
        if name in self._texts and part.value:
            self._texts.remove(name)
            self._output.speak(name)

    def _streamed(self) -> str:
        """The text of the output, as far as that is what was said."""
        spoken = ((gap, self._parts[name]) for name, gap in self._output.spoken.items())
        return "".join(f"{gap}{part.prior}{part.value}" for gap, part in spoken)

    def _add(self, leg: Leg, name: str, part: LegPart) -> LegPart:
        """A part of the leg, whose message is of the leg then, too, wherever it has begun."""
        leg.parts[name] = self._parts[name] = part
        if part.message in self._messages:
            leg.messages.setdefault(part.message, self._messages[part.message])
        return part

    def _tool(self, leg: Leg, event: e.ToolCallStarted | e.ToolCallUpdated | e.ToolCallEnded) -> None:
        record = leg.tools.get(event.call)
        if record is None:
            record = leg.tools[event.call] = dict(self._tools.get(event.call, {"call": event.call}))
        self._tools[event.call] = record
        fields: dict[str, Any]
        match event:
            case e.ToolCallStarted():
                fields = {"name": event.name, "title": event.title, "kind": event.kind, "input": event.input}
                fields["status"] = "running"
            case e.ToolCallUpdated():
                fields = {key: getattr(event, key) for key in ("status", "title", "input", "content")}
            case e.ToolCallEnded():
                fields = {"status": "failed" if event.failed else "completed", "output": event.output}
        record.update({key: value for key, value in fields.items() if value not in (None, "")})

    def _resume(self, leg: Leg, event: e.Resumed) -> None:
        asked = next((i for i in self._open if i.id == event.interrupt), None)
        if asked is not None:
            self._open.remove(asked)
        if event.answer.outcome is not Outcome.CANCELLED:
            leg = Leg(leg.index + 1, asked, event.answer)
            self.legs.append(leg)
        leg.asks(self._open[0] if self._open else None)


def cut(events: Iterable[e.Event]) -> list[Leg]:
    """The legs of a run's log, oldest first; one that has not begun if the log is empty."""
    cutter = _Cutter()
    for event in events:
        cutter.apply(event)
    return cutter.legs


# --- steps ----------------------------------------------------------------------------------------------------------

_LISTED = ("thoughts", "tool_calls", "files", "data", "custom")


def run_steps(task: str, run: Run, legs: Sequence[Leg], agent: Agent) -> list[JsonObject]:
    """`Step` of every leg of one run, in order. Read `run` after its log, or its output may be missing."""
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
    """The id that the ids of a run's steps derive from: the task's, where they were listed before the run."""
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
    """`Step` of the last of `legs`, which are the first legs of a run."""
    leg = legs[-1]
    text, more = _input(run, leg, agent)
    document = _document(run, leg)
    spoken = [m for m in leg.messages.values() if m.step is not None]
    step = {
        **_empty(task, step_id(_owner(run), leg.index)),
        "status": leg.status,
        "input": text,
        "additional_input": more,
        "output": _output(document, legs, agent),
        "additional_output": _additional_output(run, document, leg, agent, spoken),
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
    """The output document, if the run has succeeded with this leg."""
    if not isinstance(leg.end, e.RunFinished):
        return None
    raw = run.output if run.output != NULL else leg.end.output
    return msgspec.json.decode(raw)


def _output(document: Json, legs: Sequence[Leg], agent: Agent) -> str | None:
    """The text for a person: the leg's (the agent's final result wins), then its question and its choices."""
    leg = legs[-1]
    text = _said(leg, agent) if document is None else _final_text(document, legs, agent)
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
    """The leg's text, then that of its documents: a draft, say, that its question is about."""
    said, pointer = [leg.text], agent.text_output
    if pointer is not None:
        said += [unwrap(document, pointer) or "" for document in leg.of_kind("data")]
    return SEPARATOR.join(dict.fromkeys(filter(None, said)))


def _final_text(document: Json, legs: Sequence[Leg], agent: Agent) -> str:
    final = text_of(document, agent.text_output)
    if final is None:
        return _said(legs[-1], agent) or codec.as_text(document) or ""
    if len(legs) > 1 and final == legs[-1].streamed:
        return _said(legs[-1], agent)
    earlier = SEPARATOR.join(leg.text for leg in legs[:-1] if leg.text)
    return final.removeprefix(earlier + SEPARATOR) if earlier else final


def _is_step_of(leg: Leg) -> bool:
    """Whether the agent only asks for the next step's input, as this protocol does after each step anyway."""
    return leg.question is not None and codec.is_step_question(leg.question)


def _additional_output(
    run: Run, document: Json, leg: Leg, agent: Agent, spoken: Sequence[LegMessage]
) -> JsonObject | None:
    """Everything beside the step's text. An Agent Protocol agent's own comes first, as it was given."""
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
        found |= _ending(run, document, leg, agent, bool(spoken))
    return found or None


def _inner(leg: Leg, message: LegMessage) -> JsonObject:
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


def _ending(run: Run, document: Json, leg: Leg, agent: Agent, native: bool) -> JsonObject:
    found: JsonObject = {}
    match leg.end:
        case e.RunFailed(failure=failure):
            found["error"] = {"code": failure.code, "message": failure.message, "retryable": failure.retryable}
            if failure.retry_after is not None:
                found["error"]["retry_after"] = failure.retry_after
        case e.RunCancelled(reason=reason):
            found["error"] = {"code": "cancelled", "message": cancelled(reason), "retryable": False}
        case e.RunFinished():
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
