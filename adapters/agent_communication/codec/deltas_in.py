"""An agent's progress and its answer to core events.

Called by the outbound half: `feed` with the params of each `notifications/agents/run/progress`, then `result` with the
answer of `agents/run`. The answer wins over all deltas. `losses` is to be given to `RunContext.lost`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters.agent_communication.codec.defaults import Defaults
from adapters.agent_communication.codec.fitting import fit
from adapters.agent_communication.codec.meta_events import MetaEvents
from adapters.agent_communication.wire import EVENT, read_fields
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core.delta import ABSENT, DeltaError, Fold, Json
from gateway.core.errors import AgentBroken
from gateway.core.types import Agent, JsonObject

PART: Final = "output"
MESSAGE: Final = "message"


class _Progress(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What nearly all progress is."""

    delta: Any
    progressToken: Any = None


_read: Final = msgspec.json.Decoder(_Progress).decode
_META: Final = "_meta"


class DeltaDecoder:
    """One call of one agent."""

    def __init__(self, agent: Agent) -> None:
        self.losses: Counter[str] = Counter()
        """What was left out, by name (losses.py)."""
        self._fold = Fold()
        self._defaults = Defaults(agent.output_schema)
        self._meta_events = MetaEvents(PART)
        self._opened = self._ended = False

    @property
    def said(self) -> Fold:
        """What the deltas add up to."""
        return self._fold

    def feed(self, params: Raw) -> list[e.Event]:
        """The events of one notification. What cannot be read, or cannot be combined, is left out and counted."""
        if self._ended:
            self.losses["late_progress"] += 1
            return []
        beyond: JsonObject | None = None
        try:
            change = _read(params).delta
        except (ValueError, RecursionError):  # it says more than a delta, or has half a character
            fields = _fields(params)
            change = fields.pop("delta", None)
            beyond = _beyond(fields, "progressToken")
        if not isinstance(change, dict):
            self.losses["bad_delta"] += 1
            return []
        if beyond is None:
            return self._grown(change, None)
        told = self._told(beyond)
        beyond = _said(beyond)
        if told is None:
            return self._grown(change, beyond)
        if not change:
            return [told if beyond is None else msgspec.structs.replace(told, origin=beyond)]
        return [told, *self._grown(change, beyond)]

    def result(self, raw: Raw) -> e.RunFinished:
        """The end of the run; the output as it came. Raises AgentBroken for an answer without one."""
        self._ended = True
        try:
            answer = read_fields(raw)
            output: Raw | None = answer.pop("output", None)
            msgspec.json.decode(output or b"null")
            fields = {name: deltas.decode(bytes(value)) for name, value in answer.items()}
        except (ValueError, RecursionError, AgentBroken):
            fields = _fields(raw)
            output = Raw(deltas.encode(fields.pop("output"))) if "output" in fields else None
        if output is None:
            raise AgentBroken("the agent's answer has no output", detail=repr(bytes(raw)[:200]))
        return e.RunFinished(output=output, origin=_beyond(fields))

    def _grown(self, change: Json, origin: JsonObject | None) -> list[e.Event]:
        out: list[e.Event] = []
        change, repeated = self._defaults.without(change)
        if repeated:
            self.losses["default"] += 1
        fitted = None
        try:
            change = self._fold.apply(change)
        except DeltaError:
            fitted = fit(self._fold, change)
            change = fitted.change
            if fitted.left_out:
                self.losses["bad_delta"] += 1
            if change is ABSENT and origin is not None:
                change = {}
        if not self._opened and (change is not ABSENT or (fitted is not None and fitted.flipped)):
            self._opened = True
            out.append(e.PartStarted(part=PART, message=MESSAGE, kind="data"))
        if change is not ABSENT:
            out.append(e.PartDelta(part=PART, delta=change, origin=origin))
        if fitted is not None:
            out += [e.PartReplaced(part=PART, pointer=pointer, value=flag) for pointer, flag in fitted.flipped]
        return out

    def _told(self, beyond: JsonObject) -> e.Event | None:
        """The event that another gateway told in `_meta`, which is taken out of it; None if there is none."""
        meta = beyond.get(_META)
        if not isinstance(meta, dict) or EVENT not in meta:
            return None
        event = self._meta_events.read(meta.pop(EVENT))
        if event is None:
            self.losses["bad_event"] += 1
        return event


def _fields(raw: Raw) -> JsonObject:
    """An object's members; none for what is no object."""
    try:
        value = deltas.decode(bytes(raw))
    except AgentBroken:
        return {}
    return value if isinstance(value, dict) else {}


def _beyond(fields: JsonObject, *known: str) -> JsonObject | None:
    """What a message says that has no place in the core."""
    return _said({name: deltas.sound(value) for name, value in fields.items() if name not in known})


def _said(beyond: JsonObject) -> JsonObject | None:
    """An empty `_meta` says nothing."""
    if _META in beyond and not beyond[_META]:
        beyond = {name: value for name, value in beyond.items() if name != _META}
    return beyond or None
