"""Steps that every run's events pass: `Opener` repairs a peer's order, `State` checks it, `coalesce` packs it.

Which event may follow which is one table for the run, and one for the things inside it. A miss is an `IllegalEvent`
that names the event and the state. Messages, parts, tool calls and interrupts are items: each goes from absent to open
to closed, and several may be open at once. All are synchronous and work on lists, since a peer's packet is often many
events.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core.errors import IllegalEvent
from gateway.core.types import Answer, Outcome

DEFAULT_MESSAGE = "message"
_E = TypeVar("_E", bound=e.Event)


class Phase(enum.StrEnum):
    """Where a run is."""

    NEW = "not started"
    OPEN = "running"
    ENDED = "ended"


class Item(enum.StrEnum):
    """Where a message, part, tool call or interrupt is."""

    ABSENT = "not started"
    OPEN = "open"
    CLOSED = "closed"


RUN: dict[tuple[Phase, type[e.Event]], Phase] = {
    (Phase.NEW, e.RunStarted): Phase.OPEN,
    **{
        (Phase.OPEN, event): Phase.OPEN
        for event in (
            e.MessageStarted,
            e.PartStarted,
            e.PartDelta,
            e.PartReplaced,
            e.PartEnded,
            e.MessageEnded,
            e.ToolCallStarted,
            e.ToolCallUpdated,
            e.ToolCallEnded,
            e.PlanUpdated,
            e.ArtifactAdded,
            e.Interrupted,
            e.Resumed,
            e.UsageReported,
            e.Custom,
        )
    },
    (Phase.OPEN, e.RunFinished): Phase.ENDED,
    (Phase.OPEN, e.RunFailed): Phase.ENDED,
    (Phase.OPEN, e.RunCancelled): Phase.ENDED,
}

ITEM: dict[tuple[Item, type[e.Event]], Item] = {
    (Item.ABSENT, e.MessageStarted): Item.OPEN,
    (Item.OPEN, e.MessageEnded): Item.CLOSED,
    (Item.ABSENT, e.PartStarted): Item.OPEN,
    (Item.OPEN, e.PartDelta): Item.OPEN,
    (Item.OPEN, e.PartReplaced): Item.OPEN,
    (Item.CLOSED, e.PartReplaced): Item.CLOSED,  # a final result may correct what was said
    (Item.OPEN, e.PartEnded): Item.CLOSED,
    (Item.ABSENT, e.ToolCallStarted): Item.OPEN,
    (Item.OPEN, e.ToolCallUpdated): Item.OPEN,
    (Item.OPEN, e.ToolCallEnded): Item.CLOSED,
    (Item.ABSENT, e.Interrupted): Item.OPEN,
    (Item.OPEN, e.Resumed): Item.CLOSED,
}

KEY: dict[type[e.Event], tuple[str, Callable[[Any], str]]] = {
    e.MessageStarted: ("message", attrgetter("message")),
    e.MessageEnded: ("message", attrgetter("message")),
    e.PartStarted: ("part", attrgetter("part")),
    e.PartDelta: ("part", attrgetter("part")),
    e.PartReplaced: ("part", attrgetter("part")),
    e.PartEnded: ("part", attrgetter("part")),
    e.ToolCallStarted: ("tool call", attrgetter("call")),
    e.ToolCallUpdated: ("tool call", attrgetter("call")),
    e.ToolCallEnded: ("tool call", attrgetter("call")),
    e.Interrupted: ("interrupt", attrgetter("interrupt.id")),
    e.Resumed: ("interrupt", attrgetter("interrupt")),
}
"""Event -> (what item it is about, its name)."""

BEFORE: dict[type[e.Event], Item] = {event: now for (now, event), then in ITEM.items() if then is not now}
"""Event -> where its item was before, if it moved it."""


class State:
    """One run's state. `advance` is called with every event, in order.

    items: where each is, by name, the oldest first; by kind, in the order in which a run's end closes them.
    """

    __slots__ = ("items", "phase")

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self.items: dict[str, dict[str, Item]] = {"interrupt": {}, "tool call": {}, "part": {}, "message": {}}

    def item(self, kind: str, name: str) -> Item:
        """Where that message, part, tool call or interrupt is."""
        return self.items[kind].get(name, Item.ABSENT)

    def opened(self) -> list[tuple[str, str]]:
        """(kind, name) of all open items."""
        if not any(self.items.values()):
            return []
        return [(kind, name) for kind, named in self.items.items() for name, item in named.items() if item is Item.OPEN]

    def advance(self, event: e.Event) -> None:
        """Take one step. Raises IllegalEvent, and then nothing has changed."""
        kind = type(event)
        phase = RUN.get((self.phase, kind))
        if phase is None:
            raise IllegalEvent(f"{kind.__name__} in a run that is {self.phase.value}")
        if kind in KEY:
            what, named = KEY[kind]
            name, items = named(event), self.items[what]
            now = items.get(name, Item.ABSENT)
            then = ITEM.get((now, kind))
            if then is None:
                raise IllegalEvent(f"{kind.__name__} for {what} {name!r} that is {now.value}")
            items[name] = then
        elif phase is Phase.ENDED:
            for items in filter(None, self.items.values()):
                if Item.OPEN in items.values():
                    still = ", ".join(f"{what} {name!r}" for what, name in self.opened())
                    raise IllegalEvent(f"{kind.__name__} while {still} is open")
        self.phase = phase

    def retreat(self, event: e.Event) -> None:
        """Take the step of `event` back. Of several, the newest first."""
        kind = type(event)
        if kind is e.RunStarted:
            self.phase = Phase.NEW
        elif isinstance(event, e.TERMINAL):
            self.phase = Phase.OPEN
        elif kind in BEFORE:
            what, named = KEY[kind]
            self.items[what][named(event)] = BEFORE[kind]


class Opener:
    """Feed it what the adapter of one run emits, get legal events back.

    Opens the run, messages and parts that an event implies; reopens nothing that was closed but starts a new part
    under the same name with `#2`, `#3`...; closes what is open before the run ends (open tool calls as failed unless
    the run succeeded, open interrupts as cancelled). Raises IllegalEvent for what cannot be repaired.
    """

    __slots__ = ("_alias", "_message", "_messages", "_of", "parts", "state")

    def __init__(self) -> None:
        self.state = State()
        self._messages = self.state.items["message"]
        self._alias: dict[tuple[str, str], str] = {}
        self._message: str | None = None
        self._of: dict[str, str] = {}
        self.parts = self.state.items["part"]
        """Where each part is: deltas of one that is open are legal as they are, and change nothing here."""

    def feed(self, events: Iterable[e.Event], out: list[e.Event] | None = None) -> list[e.Event]:
        """The same events made legal, in order; appended to `out` if one is given.

        Where IllegalEvent is raised `out` has those before it: they have happened, and are to be logged.
        """
        out = [] if out is None else out
        for event in events:
            if type(event) is e.PartDelta and self.parts.get(event.part) is Item.OPEN:
                out.append(event)  # the token path: nothing to repair, nothing changes state
                continue
            for legal in REPAIRS.get(type(event), Opener._other)(self, event):
                self.state.advance(legal)
                out.append(legal)
        return out

    def withdraw(self, legal: Sequence[e.Event]) -> None:
        """Undo the last `feed`: judge the next events as if it had not been called."""
        for event in reversed(legal):
            self.state.retreat(event)

    def replay(self, event: e.Event) -> None:
        """Take an event that was legal before a restart, so that the next are judged as if nothing happened."""
        self.state.advance(event)
        match event:
            case e.MessageStarted(message=name):
                self._message = self._remember("message", name)
            case e.PartStarted(part=name, message=holder):
                self._of[name] = holder
                self._message = self._known_as("message", holder)
                self._remember("part", name)

    def _remember(self, kind: str, name: str) -> str:
        """Note the peer's name for what is called `name` here, and return it. A log tells no more, so before a restart
        it is no other: a peer that names something `t#2` itself after its `t` has ended goes on with it as `t`.
        """
        known = self._known_as(kind, name)
        if known != name:
            self._alias[kind, known] = name
        return known

    def _known_as(self, kind: str, name: str) -> str:
        if "#" not in name:
            return name
        base, _, count = name.rpartition("#")
        renamed = count.isdigit() and self.state.item(kind, base) is Item.CLOSED  # else `name` is the peer's own
        return base if renamed else name

    # one method for each kind of event that may need repair; see REPAIRS

    def _delta(self, event: e.PartDelta) -> list[e.Event]:
        name = self._alias.get(("part", event.part), event.part)
        if self.parts.get(name) is Item.OPEN:
            return [event if name == event.part else _renamed(event, part=name)]
        kind = "text" if isinstance(event.delta, str) else "data"
        out = self._open_part(event.part, self._message or DEFAULT_MESSAGE, kind)
        name = self._alias.get(("part", event.part), event.part)
        return [*out, event if name == event.part else _renamed(event, part=name)]

    def _replaced(self, event: e.PartReplaced) -> list[e.Event]:
        name = self._alias.get(("part", event.part), event.part)
        if self.state.item("part", name) is not Item.ABSENT:
            return [event if name == event.part else _renamed(event, part=name)]
        kind = "text" if isinstance(event.value, str) and event.pointer == "" else "data"
        return [*self._open_part(event.part, self._message or DEFAULT_MESSAGE, kind), event]

    def _part_started(self, event: e.PartStarted) -> list[e.Event]:
        return self._open_part(event.part, event.message, event.kind, event)

    def _part_ended(self, event: e.PartEnded) -> list[e.Event]:
        name = self._alias.get(("part", event.part), event.part)
        return [_renamed(event, part=name)] if self.parts.get(name) is Item.OPEN else []

    def _message_ended(self, event: e.MessageEnded) -> list[e.Event]:
        return self._end_message(self._alias.get(("message", event.message), event.message))

    def _tool_call(self, event: e.ToolCallUpdated | e.ToolCallEnded) -> list[e.Event]:
        if self.state.item("tool call", event.call) is Item.ABSENT:
            return [*self._started(), e.ToolCallStarted(call=event.call, name=event.call), event]
        return [event]

    def _run_started(self, event: e.RunStarted) -> list[e.Event]:
        return [event] if self.state.phase is Phase.NEW else []

    def _end(self, event: e.Event) -> list[e.Event]:
        closing = [CLOSING[kind](name, event) for kind, name in self.state.opened()]
        return [*self._started(), *closing, event]

    def _other(self, event: e.Event) -> list[e.Event]:
        return [*self._started(), event]

    def _started(self) -> list[e.Event]:
        return [e.RunStarted()] if self.state.phase is Phase.NEW else []

    def _fresh(self, kind: str, name: str) -> str:
        """A name that is not in use: the peer's own, else the peer's with a count."""
        fresh, count, items = name, 1, self.state.items[kind]
        while items.get(fresh, Item.ABSENT) is not Item.ABSENT:
            count += 1
            fresh = f"{name}#{count}"
        return fresh

    def _open_message(self, event: e.MessageStarted) -> list[e.Event]:
        known = self._alias.get(("message", event.message), event.message)
        if self._messages.get(known) is Item.OPEN:
            self._message = event.message
            return []
        name = self._fresh("message", event.message)
        self._message = self._remember("message", name)
        return [*self._started(), event if name == event.message else _renamed(event, message=name)]

    def _open_part(self, part: str, message: str, kind: str, event: e.PartStarted | None = None) -> list[e.Event]:
        known = self._alias.get(("part", part), part)
        if event is not None and self.parts.get(known) is Item.OPEN:
            return []
        holder = self._alias.get(("message", message), message)
        out: list[e.Event] = []
        if self._messages.get(holder) is Item.OPEN:
            self._message = self._known_as("message", holder)
        else:
            out = self._open_message(e.MessageStarted(message=message))
            holder = self._alias.get(("message", message), message)
        name = self._fresh("part", part)
        self._of[name] = holder
        self._remember("part", name)
        if event is None:
            event = e.PartStarted(part=name, message=holder, kind=kind)
        elif name != event.part or holder != event.message:
            event = _renamed(event, part=name, message=holder)
        return [*out, event]

    def _end_message(self, name: str) -> list[e.Event]:
        if self._messages.get(name) is not Item.OPEN:
            return []
        parts = [part for kind, part in self.state.opened() if kind == "part" and self._of.get(part) == name]
        return [*(e.PartEnded(part=part) for part in parts), e.MessageEnded(message=name)]


CLOSING: Mapping[str, Callable[[str, e.Event], e.Event]] = {
    "interrupt": lambda name, end: e.Resumed(interrupt=name, answer=Answer(outcome=Outcome.CANCELLED)),
    "tool call": lambda name, end: e.ToolCallEnded(call=name, failed=not isinstance(end, e.RunFinished)),
    "part": lambda name, end: e.PartEnded(part=name),
    "message": lambda name, end: e.MessageEnded(message=name),
}
"""Things that may be open when a run ends -> the event that closes them."""

REPAIRS: Mapping[type[e.Event], Callable[[Opener, Any], list[e.Event]]] = {
    e.PartDelta: Opener._delta,
    e.PartReplaced: Opener._replaced,
    e.MessageStarted: Opener._open_message,
    e.PartStarted: Opener._part_started,
    e.PartEnded: Opener._part_ended,
    e.MessageEnded: Opener._message_ended,
    e.ToolCallUpdated: Opener._tool_call,
    e.ToolCallEnded: Opener._tool_call,
    e.RunStarted: Opener._run_started,
    e.RunFinished: Opener._end,
    e.RunFailed: Opener._end,
    e.RunCancelled: Opener._end,
}
"""Event -> the legal events that it becomes; any other is legal once the run has started."""


def _renamed(event: _E, **names: str) -> _E:
    return msgspec.structs.replace(event, **names)


def coalesce(events: Sequence[tuple[int, e.Event]]) -> list[tuple[int, e.Event]]:
    """Neighbouring deltas of one part as one, numbered by the last. Folding gives the same document.

    Deltas with `origin` and those that cannot be composed (non-integer numbers) stay apart.
    """
    out: list[tuple[int, e.Event]] = []
    texts: list[str] = []
    last: e.PartDelta | None = None  # that of `out`, if more may be joined to it; the first of `texts`

    def close() -> None:
        if len(texts) > 1:
            number, first = out[-1]
            assert isinstance(first, e.PartDelta)
            out[-1] = (number, e.PartDelta(part=first.part, delta="".join(texts)))
        texts.clear()

    for number, event in events:
        if type(event) is not e.PartDelta or event.origin is not None:
            close()
            out.append((number, event))
            last = None
            continue
        if last is None or event.part != last.part:
            close()
            out.append((number, event))
            last = event
            continue
        if type(event.delta) is str and type(last.delta) is str:
            if not texts:
                texts.append(last.delta)
            texts.append(event.delta)
            out[-1] = (number, last)
            continue
        if texts:
            last = e.PartDelta(part=last.part, delta="".join(texts))
            close()
        composed = deltas.compose(last.delta, event.delta)
        if composed is deltas.NO_COMPOSE:
            out.append((number, event))
            last = event
        else:
            last = e.PartDelta(part=event.part, delta=composed)
            out[-1] = (number, last)
    close()
    return out
