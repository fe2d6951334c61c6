"""Which event may follow which: one table for the run, one for the things inside it.

A miss is an `IllegalEvent` that names the event and the state. Messages, parts, tool calls and interrupts are items:
each goes from absent to open to closed, and several may be open at once.
"""

from __future__ import annotations

import enum

from gateway.core import events as e
from gateway.core.errors import IllegalEvent


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

KEY: dict[type[e.Event], tuple[str, str]] = {
    e.MessageStarted: ("message", "message"),
    e.MessageEnded: ("message", "message"),
    e.PartStarted: ("part", "part"),
    e.PartDelta: ("part", "part"),
    e.PartReplaced: ("part", "part"),
    e.PartEnded: ("part", "part"),
    e.ToolCallStarted: ("tool call", "call"),
    e.ToolCallUpdated: ("tool call", "call"),
    e.ToolCallEnded: ("tool call", "call"),
    e.Interrupted: ("interrupt", "interrupt"),
    e.Resumed: ("interrupt", "interrupt"),
}
"""Event -> (what item it is about, the field that names it)."""

BEFORE: dict[type[e.Event], Item] = {event: now for (now, event), then in ITEM.items() if then is not now}
"""Event -> where its item was before, if it moved it."""


class State:
    """One run's state. `advance` is called with every event, in order."""

    __slots__ = ("_items", "phase")

    def __init__(self) -> None:
        self.phase = Phase.NEW
        self._items: dict[tuple[str, str], Item] = {}

    def item(self, kind: str, name: str) -> Item:
        """Where that message, part, tool call or interrupt is."""
        return self._items.get((kind, name), Item.ABSENT)

    def open(self, kind: str) -> list[str]:
        """Names of the open items of a kind, oldest first."""
        return [name for (k, name), item in self._items.items() if k == kind and item is Item.OPEN]

    def opened(self) -> list[tuple[str, str]]:
        """(kind, name) of all open items, oldest first."""
        return [slot for slot, item in self._items.items() if item is Item.OPEN] if self._items else []

    def advance(self, event: e.Event) -> None:
        """Take one step. Raises IllegalEvent, and then nothing has changed."""
        kind = type(event)
        phase = RUN.get((self.phase, kind))
        if phase is None:
            raise IllegalEvent(f"{kind.__name__} in a run that is {self.phase.value}")
        key = KEY.get(kind)
        if key is not None:
            name = getattr(event, key[1])
            slot = (key[0], name if isinstance(name, str) else name.id)
            now = self._items.get(slot, Item.ABSENT)
            then = ITEM.get((now, kind))
            if then is None:
                raise IllegalEvent(f"{kind.__name__} for {slot[0]} {slot[1]!r} that is {now.value}")
            if then is not now:
                self._items[slot] = then
        if phase is Phase.ENDED and self._items:
            still = [f"{k} {n!r}" for (k, n), item in self._items.items() if item is Item.OPEN]
            if still:
                raise IllegalEvent(f"{kind.__name__} while {', '.join(still)} is open")
        self.phase = phase

    def retreat(self, event: e.Event) -> None:
        """Take the step of `event` back. Of several, the newest first."""
        kind = type(event)
        if kind is e.RunStarted:
            self.phase = Phase.NEW
        elif isinstance(event, e.TERMINAL):
            self.phase = Phase.OPEN
        elif kind in BEFORE:
            what, field = KEY[kind]
            name = getattr(event, field)
            self._items[what, name if isinstance(name, str) else name.id] = BEFORE[kind]
