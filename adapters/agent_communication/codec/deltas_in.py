"""An agent's progress and its answer to core events.

Called by the outbound half: `feed` with the params of each `notifications/agents/run/progress`, then `result` with the
answer of `agents/run`. The answer wins over all deltas. `losses` is to be given to `RunContext.lost`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters.agent_communication.wire import EVENT, read_fields
from gateway.core import delta
from gateway.core import events as e
from gateway.core.delta import ABSENT, DeltaError, Fold, split
from gateway.core.errors import AgentBroken
from gateway.core.types import Agent, Artifact, Json, JsonObject, Role
from gateway.mcp.runs.documents import resolve

PART: Final = "output"
MESSAGE: Final = "message"
FILES: Final = "files"
"""The message that files belong to."""
_ALONE: Final = (e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded, e.PlanUpdated, e.UsageReported, e.Custom)

MOST: Final = 32
"""The most parts of a delta that may not fit. With more, all of it is dropped."""
_DEPTH: Final = 4
_IDLE: Final[tuple[Json, ...]] = (None, "", 0, 0.0, [], {})


class Defaults:
    """The defaults of an output schema."""

    __slots__ = ("_fields", "_inner", "_values", "schema")

    def __init__(self, schema: JsonObject, root: JsonObject | None = None, depth: int = _DEPTH) -> None:
        self.schema = schema
        root = schema if root is None else root
        resolved = resolve(schema, root)
        properties = resolved.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        self._fields = frozenset(properties)
        self._values: dict[str, Json] = {}
        self._inner: dict[str, Defaults] = {}
        for name, each in properties.items():
            field = resolve(each, root)
            if "default" in field and not _is_idle(field["default"]):
                self._values[name] = field["default"]
            if depth and isinstance(field.get("properties"), dict):
                inner = Defaults(field, root, depth - 1)
                if inner:
                    self._inner[name] = inner

    def __bool__(self) -> bool:
        return bool(self._values or self._inner)

    def without(self, change: Json) -> tuple[Json, bool]:
        """Return a delta without the defaults that it repeats, and whether there were any. The delta is not changed."""
        if not (self._values or self._inner) or not isinstance(change, dict) or not self._fields <= change.keys():
            return change, False
        out, repeated = {}, False
        for name, value in change.items():
            if len(change) > 1 and name in self._values and delta.same(value, self._values[name]):
                repeated = True
                continue
            inner = self._inner.get(name)
            if inner is not None:
                value, found = inner.without(value)  # noqa: PLW2901
                repeated = repeated or found
            out[name] = value
        return out, repeated


def _is_idle(value: Any) -> bool:
    """Whether a delta of this value changes nothing, however often it comes."""
    return any(delta.same(value, each) for each in _IDLE)


@dataclass(frozen=True)
class Fitted:
    """The result of applying a delta.

    change: the part that was applied, in valid text; ABSENT if there was none. flipped: flags that changed, as (JSON
    pointer, value), which are replaced in the document. left_out: whether a part did not fit.
    """

    change: Json
    flipped: Sequence[tuple[str, bool]]
    left_out: bool


def fit(fold: Fold, change: Json) -> Fitted:
    """Apply as much of a delta as fits. Costs its size for each part that does not."""
    flipped: list[tuple[str, bool]] = []
    left_out = False
    for _ in range(MOST):
        try:
            return Fitted(fold.apply(change), flipped, left_out)
        except DeltaError as error:
            path = split(error.path)
            change, taken, flip = _without(change, path)
            if flip is not ABSENT and _takes(fold, flip):
                fold.replace(error.path, taken)
                flipped.append((error.path, taken))
            else:
                left_out = True
            if change is ABSENT:
                return Fitted(ABSENT, flipped, left_out)
    return Fitted(ABSENT, flipped, True)


def _without(change: Json, path: Sequence[str]) -> tuple[Json, Json, Json]:
    """Split a delta: without the part at `path` (ABSENT if that is all), the part, and a flag's opposite as a delta."""
    if not path or not change:
        return ABSENT, change, (not change if isinstance(change, bool) else ABSENT)
    if isinstance(change, dict):
        rest = {key: part for key, part in change.items() if key != path[0]}
        kept, taken, flip = _without(change.get(path[0]), path[1:])
        if kept is not ABSENT:
            rest[path[0]] = kept
        return rest or ABSENT, taken, (ABSENT if flip is ABSENT else {path[0]: flip})
    if isinstance(change, list):
        kept, taken, flip = _without(change[0], path[1:])
        whole = [None if kept is ABSENT else kept, *change[1:]]
        return (ABSENT if whole == [None] else whole), taken, (ABSENT if flip is ABSENT else [flip])
    return ABSENT, change, ABSENT


def _takes(fold: Fold, change: Json) -> bool:
    try:
        fold.apply(change)
    except DeltaError:
        return False
    return True


class MetaEvents:
    """Reads events that another gateway put in `_meta`, for one run. Skips those of the part `output`."""

    def __init__(self, output: str) -> None:
        self._messages: set[str] = set()  # not the agent's
        self._kinds: dict[str, str] = {output: ""}  # of parts

    def read(self, told: Any) -> e.Event | None:
        """Return the event; None if it is not accepted. A file stays at the other gateway."""
        try:
            event: e.Event = msgspec.convert(delta.sound(told), e.AnyEvent)
        except (msgspec.ValidationError, RecursionError):
            return None
        event = msgspec.structs.replace(event, origin=None)
        match event:
            case e.MessageStarted() if event.role is not Role.ASSISTANT:
                self._messages.add(event.message)
            case e.PartStarted() if event.part not in self._kinds and self._is_beside(event):
                self._kinds[event.part] = event.kind
            case e.PartDelta() | e.PartReplaced() if self._kinds.get(event.part) in ("text", "thought"):
                value = event.delta if isinstance(event, e.PartDelta) else event.value
                return event if isinstance(value, str) else None
            case e.PartDelta() | e.PartReplaced() if self._kinds.get(event.part) in ("data", "file"):
                pass
            case e.ArtifactAdded():
                return _file(event.artifact)
            case _ if not isinstance(event, _ALONE):
                return None
        return event

    def _is_beside(self, event: e.PartStarted) -> bool:
        return event.kind in ("thought", "file") or event.message in self._messages


def _file(artifact: Artifact) -> e.PartStarted:
    link = {
        "type": "resource_link",
        "uri": artifact.url,
        "name": artifact.name,
        "mimeType": artifact.media_type,
        "size": artifact.size,
    }
    return e.PartStarted(part=f"file-{artifact.id}", message=FILES, kind="file", value=link)


class _Progress(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The commonest form of progress."""

    delta: Any
    progressToken: Any = None


_read: Final = msgspec.json.Decoder(_Progress).decode
_META: Final = "_meta"


class DeltaDecoder:
    """One call of one agent."""

    def __init__(self, agent: Agent, defaults: Defaults | None = None, losses: dict[str, int] | None = None) -> None:
        """`defaults` are those of the agent's output schema, where they are known from another call of it.

        `losses` counts what is left out, by name (losses.py).
        """
        self.losses = defaultdict(int) if losses is None else losses
        self._fold = Fold()
        self._defaults = Defaults(agent.output_schema) if defaults is None else defaults
        self._meta_events: MetaEvents | None = None
        self._opened = self._ended = False

    @property
    def said(self) -> Fold:
        """The document that the deltas add up to."""
        return self._fold

    def feed(self, params: Raw) -> list[e.Event]:
        """Return the events of a notification. What cannot be decoded or applied is dropped and counted."""
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
        """Return the end of the run with the output as it came. Raises AgentBroken for an answer without one."""
        self._ended = True
        try:
            answer = read_fields(raw)
            output: Raw | None = answer.pop("output", None)
            msgspec.json.decode(output or b"null")
            fields = {name: delta.decode(bytes(value)) for name, value in answer.items()}
        except (ValueError, RecursionError, AgentBroken):
            fields = _fields(raw)
            output = Raw(delta.encode(fields.pop("output"))) if "output" in fields else None
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
        """Take the event that another gateway put in `_meta` out of it; None if there is none."""
        meta = beyond.get(_META)
        if not isinstance(meta, dict) or EVENT not in meta:
            return None
        if self._meta_events is None:
            self._meta_events = MetaEvents(PART)
        event = self._meta_events.read(meta.pop(EVENT))
        if event is None:
            self.losses["bad_event"] += 1
        return event


def _fields(raw: Raw) -> JsonObject:
    """Return an object's members; none for anything else."""
    try:
        value = delta.decode(bytes(raw))
    except AgentBroken:
        return {}
    return value if isinstance(value, dict) else {}


def _beyond(fields: JsonObject, *known: str) -> JsonObject | None:
    """Return the members of a message that the core has no place for."""
    return _said({name: delta.sound(value) for name, value in fields.items() if name not in known})


def _said(beyond: JsonObject) -> JsonObject | None:
    """An empty `_meta` says nothing."""
    if _META in beyond and not beyond[_META]:
        beyond = {name: value for name, value in beyond.items() if name != _META}
    return beyond or None
