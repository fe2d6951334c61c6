"""A run's log cut into legs: from its start or an answer to the next question or its end. Pure.

A leg is what this protocol calls a step. A leg begins where a client answered, so a question that was withdrawn (a
cancel answers it) begins none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from adapters.agent_protocol.codec import ADDITIONAL_OUTPUT, said
from gateway.core import events as e
from gateway.core.delta import DeltaError, Fold
from gateway.core.errors import Invalid
from gateway.core.types import Answer, Artifact, Interrupt, Json, JsonObject, Outcome, Role

SEPARATOR = "\n\n"
"""Between messages: as in the output document (gateway/core/output.py)."""


class Part:
    """One part of a message, folded. `prior` is what a text had said in earlier legs, which is no part of `value`."""

    def __init__(self, message: str, kind: str, value: Json = None, prior: str = "") -> None:
        self.message = message
        self.kind = kind
        self.prior = prior
        self.fold = Fold() if value is None else Fold(value)

    @property
    def value(self) -> Json:
        """What it says so far; None while a part that is no text says nothing."""
        if self.fold.absent:
            return "" if self.kind in ("text", "thought") else None
        return self.fold.document()

    def grow(self, event: e.PartDelta | e.PartReplaced) -> None:
        """Take in what the log says. The log was checked when written: an odd delta starts the part anew."""
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


@dataclass
class Said:
    """One message of a leg. `step` is the agent's own step where the agent speaks this protocol."""

    id: str
    role: Role = Role.ASSISTANT
    step: JsonObject | None = None
    additional_output: Json = None


@dataclass
class Leg:
    """One step's worth of a run. `question` is the oldest open one at its end, `end` the run's last event."""

    index: int
    answered: Interrupt | None = None
    answer: Answer | None = None
    messages: dict[str, Said] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    tools: dict[str, JsonObject] = field(default_factory=dict)
    artifacts: list[Artifact] = field(default_factory=list)
    custom: list[JsonObject] = field(default_factory=list)
    plan: e.PlanUpdated | None = None
    usage: JsonObject | None = None
    question: Interrupt | None = None
    end: e.Event | None = None
    started: bool = False

    @property
    def status(self) -> str:
        """The step's status on the wire."""
        if self.end is not None or self.question is not None:
            return "completed"
        return "running" if self.started else "created"

    def of_kind(self, kind: str) -> list[Json]:
        """Values of the assistant's parts of one kind, in order."""
        return [part.value for part in self.parts.values() if part.kind == kind and self._spoken(part)]

    def text_of(self, message: str) -> str:
        """What one message says."""
        return "".join(part.value for part in self.parts.values() if part.kind == "text" and part.message == message)

    @property
    def text(self) -> str:
        """All assistant text of the leg, messages a blank line apart."""
        spoken = (m.id for m in self.messages.values() if m.role is Role.ASSISTANT)
        return SEPARATOR.join(text for text in map(self.text_of, spoken) if text)

    def _spoken(self, part: Part) -> bool:
        message = self.messages.get(part.message)
        return message is None or message.role is Role.ASSISTANT


class Cutter:
    """Feed it a run's events in order; `legs` are those so far, at least one."""

    def __init__(self) -> None:
        self.legs = [Leg(0)]
        self._open: list[Interrupt] = []
        self._parts: dict[str, Part] = {}
        self._tools: dict[str, JsonObject] = {}
        self._messages: dict[str, Said] = {}

    @property
    def now(self) -> Leg:
        """The newest leg."""
        return self.legs[-1]

    def apply(self, event: e.Event) -> None:
        """Take one event in."""
        leg = self.now
        leg.started = True
        match event:
            case e.MessageStarted():
                step = (said(event) or {}).get("step")
                message = Said(event.message, event.role, step if isinstance(step, dict) else None)
                leg.messages[event.message] = self._messages[event.message] = message
            case e.PartStarted():
                part = Part(event.message, event.kind, event.value)
                leg.parts[event.part] = self._parts[event.part] = part
            case e.PartDelta() | e.PartReplaced():
                (leg.parts.get(event.part) or self._carry(leg, event.part)).grow(event)
            case e.ToolCallStarted() | e.ToolCallUpdated() | e.ToolCallEnded():
                self._tool(leg, event)
            case e.PlanUpdated():
                leg.plan = event
            case e.ArtifactAdded():
                leg.artifacts.append(event.artifact)
            case e.UsageReported():
                counts = {"input_tokens": event.input_tokens, "output_tokens": event.output_tokens}
                leg.usage = {**event.detail, **{k: v for k, v in counts.items() if v is not None}}
            case e.Custom():
                self._custom(leg, event)
            case e.Interrupted():
                self._open.append(event.interrupt)
                leg.question = self._open[0]
            case e.Resumed():
                self._resume(leg, event)
            case e.RunFinished() | e.RunFailed() | e.RunCancelled():
                leg.end = event

    def _carry(self, leg: Leg, name: str) -> Part:
        """A part of an earlier leg that speaks again: what it says now belongs to this one."""
        before = self._parts.get(name)
        if before is None:
            before = Part("", "text")
        if before.kind in ("text", "thought"):
            part = Part(before.message, before.kind, prior=before.prior + before.value)
        else:
            part = Part(before.message, before.kind, before.value)
        leg.parts[name] = self._parts[name] = part
        if before.message in self._messages:
            leg.messages.setdefault(before.message, self._messages[before.message])
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
                fields = {"status": event.status, "title": event.title, "content": event.content}
            case e.ToolCallEnded():
                fields = {"status": "failed" if event.failed else "completed", "output": event.output}
        record.update({key: value for key, value in fields.items() if value not in (None, "")})

    def _custom(self, leg: Leg, event: e.Custom) -> None:
        mine = said(event)
        message = leg.messages.get(str(mine.get("message"))) if mine else None
        if event.name == ADDITIONAL_OUTPUT and message is not None:
            message.additional_output = event.data
        else:
            leg.custom.append({"name": event.name, "data": event.data})

    def _resume(self, leg: Leg, event: e.Resumed) -> None:
        asked = next((i for i in self._open if i.id == event.interrupt), None)
        if asked is not None:
            self._open.remove(asked)
        if event.answer.outcome is Outcome.CANCELLED:
            leg.question = self._open[0] if self._open else None
            return
        following = Leg(leg.index + 1, answered=asked, answer=event.answer, started=True)
        following.question = self._open[0] if self._open else None
        self.legs.append(following)


def cut(events: Iterable[e.Event]) -> list[Leg]:
    """The legs of a run's log, oldest first; one that has not begun if the log is empty."""
    cutter = Cutter()
    for event in events:
        cutter.apply(event)
    return cutter.legs
