"""What an attempt says, said by its task: the same events, under names of the attempt's own.

Text goes into one part of the task's, which begins anew with every attempt. Thoughts, files' descriptions, tool calls,
plans, usage and artifacts are passed on one for one, so that after a restart the count of what the task's log has tells
where to go on. What no task can say of its own is counted as a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from gateway.contract import Batch, Gateway, RunContext
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core import projection
from gateway.core.errors import InterlinguaError
from gateway.core.output import Output
from gateway.core.types import Agent, Role

TEXT: Final = "text"
MESSAGE: Final = "message"
BEGUN: Final = "interlingua/attempt"
"""Name of the `Custom` event that says which agent has the task from here on: {"attempt", "agent"}."""
GROWTH: Final = 1.25
"""Text that can only be had by looking at the whole is looked at when the document has grown by this factor."""
SMALL: Final = 16 * 1024
"""Or after every batch, while it is no longer than this."""

_BESIDE = ("thought", "file")
_TOOL_CALLS = (e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded)
_PASSED = (*_TOOL_CALLS, e.PlanUpdated, e.UsageReported, e.Custom, e.ArtifactAdded)


class Mirror:
    """Of one attempt. `feed` it all that the attempt's log has, from its beginning."""

    def __init__(self, context: RunContext, gateway: Gateway, agent: Agent, number: int, used: e.UsageReported) -> None:
        """`used` is what earlier attempts used."""
        self._context = context
        self._lost: Callable[[str], None] = context.lost
        self._gateway = gateway
        self._number = number
        self._before = used
        self._pointer = agent.text_output
        self._output = Output(agent)
        self._parts: dict[str, str] = {}  # what is passed on: its name there -> here
        self._roles: dict[str, Role] = {}
        self._ignored: set[str] = set()
        self._data: str | None = None
        self._spoken: dict[str, None] = {}  # text parts that have said something, in the document's order
        self._told: list[str] = []
        self._stale = False
        self._resumed = False
        self._looked = 0
        self._skip = 0
        self.used = used
        """Tokens of all attempts so far."""

    def begin(self) -> None:
        """A new attempt: what an earlier one said is taken back."""
        self._context.emit(e.PartReplaced(part=TEXT, value=""))

    def resume(self, own: Iterable[e.Event], theirs: Iterable[e.Event]) -> None:
        """After a restart: `own` is the task's log since the attempt has begun, `theirs` the attempt's so far."""
        passed = sum(1 for event in own if self._is_ours(event))
        shadow = Mirror(self._context, self._gateway, _SILENT, self._number, self._before)
        shadow._lost = _uncounted
        there = 0
        for event in theirs:
            shadow._note(event)
            there += shadow._passes(event) is not None
        self._skip = min(passed, there)
        self._stale = self._resumed = True

    async def feed(self, batch: Batch) -> None:
        """Pass on what has happened. Follow it with a `drain`."""
        said: list[str] = []
        for _, event in batch.events:
            changed = self._output.apply(event)
            self._note(event)
            if changed:
                piece = self._piece(event)
                if piece is None:
                    self._say(said)
                    self._stale = True
                elif piece and not self._stale:
                    said.append(piece)
            if isinstance(event, e.PartDelta) and event.part not in self._parts:
                continue
            passed = self._passes(event)
            if passed is not None and not self._skipped():
                self._say(said)
                await self._pass(passed)
        self._say(said)
        if self._stale and (batch.snapshot is not None or not batch.events):
            self._catch_up()

    # --- text --------------------------------------------------------------------------------------------------------

    def _note(self, event: e.Event) -> None:
        """Keep which part is the output's, as gateway/core/output.py does."""
        if isinstance(event, e.MessageStarted):
            self._roles[event.message] = event.role
        elif isinstance(event, e.PartStarted) and event.kind == "data" and self._output.holds(event.part):
            self._data = event.part

    def _piece(self, event: e.Event) -> str | None:
        """The text that the event has added at the end; None where only a look at the whole can tell."""
        if isinstance(event, e.ArtifactAdded):
            return ""
        if not isinstance(event, e.PartDelta | e.PartStarted | e.PartReplaced):
            return None
        if event.part == self._data:
            return self._piece_of_document() if isinstance(event, e.PartDelta) else None
        first = not self._spoken
        last = first or event.part == next(reversed(self._spoken))
        self._spoken[event.part] = None
        if not last or not isinstance(event, e.PartDelta):
            return None
        return event.delta if isinstance(event.delta, str) else None

    def _piece_of_document(self) -> str | None:
        if self._pointer is None:
            return ""
        added = self._output.delta
        if added is deltas.ABSENT or "-" in deltas.split(self._pointer):
            return None
        piece = deltas.pointer_get(added, self._pointer)
        return piece if isinstance(piece, str) else ""

    def _say(self, said: list[str]) -> None:
        if said:
            text = "".join(said)
            said.clear()
            self._told.append(text)
            self._context.emit(e.PartDelta(part=TEXT, delta=text))

    def _catch_up(self) -> None:
        """Say the whole text, or what it has become longer by."""
        size = self._output.size
        if size > SMALL and self._looked < size < self._looked * GROWTH:
            return
        self._looked = size
        text, told = self._text(), "".join(self._told)
        self._stale = False
        self._told = [text]
        if told and text.startswith(told):
            if len(text) > len(told):
                self._context.emit(e.PartDelta(part=TEXT, delta=text[len(told) :]))
        elif text or told or self._resumed:
            self._context.emit(e.PartReplaced(part=TEXT, value=text))
        self._resumed = False

    def _text(self) -> str:
        if self._pointer is None or self._output.empty:
            return ""
        text = projection.unwrap(self._output.document, self._pointer)
        return deltas.sound(text) if text else ""

    # --- all else ----------------------------------------------------------------------------------------------------

    def _is_ours(self, event: e.Event) -> bool:
        """Whether an event of the task's log was passed on from this attempt."""
        if isinstance(event, e.PartStarted | e.PartDelta | e.PartReplaced):
            return event.part.startswith(self._name(""))
        return isinstance(event, _PASSED)

    def _name(self, name: str) -> str:
        return f"{self._number}/{name}"

    def _passes(self, event: e.Event) -> e.Event | None:
        """The event as the task says it; None for what it does not say so."""
        if isinstance(event, e.PartStarted):
            return self._starts(event)
        if isinstance(event, e.PartDelta | e.PartReplaced):
            here = self._parts.get(event.part)
            return None if here is None else replace(event, part=here, origin=None)
        if isinstance(event, e.ToolCallStarted | e.ToolCallUpdated | e.ToolCallEnded):
            return replace(event, call=self._name(event.call), origin=None)
        if isinstance(event, e.UsageReported):
            self.used = event = added(self._before, event)
            return event
        return event if isinstance(event, _PASSED) else None

    def _starts(self, event: e.PartStarted) -> e.Event | None:
        role = self._roles.get(event.message, Role.ASSISTANT)
        if event.kind in _BESIDE and role is Role.ASSISTANT:
            self._parts[event.part] = here = self._name(event.part)
            return e.PartStarted(part=here, message=MESSAGE, kind=event.kind, value=event.value)
        if role is not Role.USER and not self._output.holds(event.part) and event.part not in self._ignored:
            self._ignored.add(event.part)
            self._lost("task_part")
        return None

    def _skipped(self) -> bool:
        if self._skip:
            self._skip -= 1
            return True
        return False

    async def _pass(self, event: e.Event) -> None:
        if not isinstance(event, e.ArtifactAdded):
            self._context.emit(event)
            return
        file = event.artifact
        try:
            await self._context.add_artifact(
                file.name,
                self._gateway.open_artifact(file.id),
                media_type=file.media_type,
                relative_path=file.relative_path,
                metadata=file.metadata,
            )
        except InterlinguaError:
            self._lost("task_artifact")


_SILENT = Agent(name="", input_schema={}, output_schema={})


def _uncounted(what: str) -> None:
    """It was counted before."""


def added(before: e.UsageReported, now: e.UsageReported) -> e.UsageReported:
    """The usage of both."""

    def both(a: int | None, b: int | None) -> int | None:
        return b if a is None else a if b is None else a + b

    return replace(
        now,
        input_tokens=both(before.input_tokens, now.input_tokens),
        output_tokens=both(before.output_tokens, now.output_tokens),
        origin=None,
    )


def since_begun(log: Sequence[tuple[int, e.Event]], number: int) -> list[e.Event] | None:
    """What a task's log has since attempt `number` has begun; None if that is not in it."""
    for at in range(len(log) - 1, -1, -1):
        event = log[at][1]
        if isinstance(event, e.Custom) and event.name == BEGUN and (event.data or {}).get("attempt") == number:
            return [event for _, event in log[at + 1 :]]
    return None
