"""Core events to deltas: what one client of one run is told before the answer.

Folding all deltas that were sent (the protocol's Delta Algorithm) gives the `output` of the answer, whenever deltas can
say it. What none can say (a shorter text, a flipped flag, a key that is gone) is held back and counted: then every
value of the fold is one that it had at some time, and the answer is right. A token costs its own size, whatever the
size of the document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw

from adapters.agent_communication.codec.agents import native, output_of, wraps_output
from adapters.agent_communication.codec.errors import ERRORS
from adapters.agent_communication.codec.unsent import Path, Route, Unsent, closest_delta, nested
from adapters.agent_communication.wire import EVENT, RUN_PROGRESS
from gateway.contract import Snapshot
from gateway.core import delta, errors
from gateway.core import events as e
from gateway.core.delta import ABSENT, DeltaError, Fold
from gateway.core.delta.values import escape_lines
from gateway.core.output import Output
from gateway.core.stopping import cancelled
from gateway.core.types import NULL, Agent, Json, JsonObject, Role, Run, RunStatus
from gateway.mcp.runs.documents import wrap
from gateway.mcp.runs.keys import told
from gateway.wire.jsonrpc import INTERNAL_ERROR, REQUEST_CANCELLED, RpcError, retry

SMALL: Final = 16 * 1024
"""Bytes of a document up to which all that is behind is compared again wherever a part of it is rewritten."""
GROWTH: Final = 0.02
NOTIFICATION: Final = "notification"
"""In the data of a `Custom` event: the method of an agent's own notification, which is passed on as it is instead."""

_encode: Final = delta.encode
_META: Final = "_meta"
_SAID: Final = ("delta", "progressToken")
_EVENTS: Final = (e.ToolCallStarted, e.ToolCallUpdated, e.ToolCallEnded, e.PlanUpdated, e.UsageReported)


def run_result(agent: Agent, run: Run, end: e.Event | None = None) -> JsonObject:
    """The result for a run that has ended; `end` is its last event, where it was seen.

    `_meta` names the run and counts what could not be said; the further members of an agent of this protocol come
    along. Raises RpcError, which is the answer, for a run that did not succeed: see `failed`.
    """
    if run.status is not RunStatus.SUCCESS:
        raise failed(agent, run, end)
    beyond = end.origin if native(agent) is not None and isinstance(end, e.RunFinished) else None
    beyond = beyond or {}
    own = beyond.get(_META)
    result = {key: value for key, value in beyond.items() if key != _META}
    result["output"] = Raw(output_of(agent, bytes(run.output)))
    result[_META] = {**(own if isinstance(own, dict) else {}), **told(run)}
    return result


def failed(agent: Agent, run: Run, end: e.Event | None = None) -> RpcError:
    """The error for a run that did not succeed.

    An agent of this protocol fails in its own words. `data` has the run, the code of the error tree, and the output
    so far.
    """
    if run.status is RunStatus.CANCELLED:
        code, message = REQUEST_CANCELLED, cancelled(run.cancel_reason)
    else:
        code, message = INTERNAL_ERROR, "the run failed"
    data: JsonObject = {"run": run.id}
    failure = run.failure
    if failure is not None:
        message = failure.message
        data |= {"code": failure.code, **retry(failure.retryable, failure.retry_after)}
        code = CODES.get(failure.code, code)
    if run.output != NULL:
        data["output"] = Raw(output_of(agent, bytes(run.output)))
    if run.losses:
        data["lost"] = dict(run.losses)
    said = end.origin.get("error") if native(agent) is not None and end is not None and end.origin else None
    if isinstance(said, dict) and isinstance(said.get("code"), int):
        own = said.get("data")
        if own is not None and not isinstance(own, dict):
            return RpcError(said["code"], str(said.get("message", message)), own)
        return RpcError(said["code"], str(said.get("message", message)), {**data, **(own or {})})
    return RpcError(code, message, data)


CODES = {cls.code: code for cls, code in ERRORS.items() if cls is not errors.InterlinguaError}
"""Code of the error tree -> JSON-RPC code, where it is not an internal error."""


class DeltaEncoder:
    """One client's view of one run.

    What it returns are deltas, each as it stands behind `"delta":` in the params: an object, and further members where
    there are some (`{"text":"Hi"},"_meta":{...}`). `progress` makes a notification of it.
    """

    def __init__(self, agent: Agent) -> None:
        self.losses: Counter[str] = Counter()
        """Losses so far, by name (losses.py)."""
        self._wraps = wraps_output(agent)
        self._native = native(agent) is not None
        self._now = Output(agent)
        self._sent: Fold | None = None  # None: the same as `_now`
        self._unsent = Unsent()
        self._empty = True  # nothing is in the document
        self._told = False
        self._begun = self._joined = False  # joined: the run's beginning was not seen
        self._compared = 0  # size of the snapshot that was last looked at
        self._spoken: set[str] = set()  # parts that are in the document
        self._last: str | None = None  # the one that came last
        self._beside: set[str] = set()  # parts that are never in the document

    def feed(self, events: Sequence[tuple[int, e.Event]], snapshot: Snapshot | None = None) -> list[bytes]:
        """The deltas that events make, in order; interrupts, answers and ends make none.

        To be given every event from the run's first on. Where that is not to be had, `snapshot` (the document after the
        last of these events) stands for what came before, and is compared from time to time.
        """
        out: list[bytes] = []
        if events and not self._begun:
            self._begun = True
            if events[0][0] > 1:
                self._joined, self._sent = True, Fold()
        now, wraps = self._now, self._wraps
        for _, event in events:
            if type(event) is not e.PartDelta:
                self._event(event, out)
            elif event.part != self._last or self._sent is not None or event.origin is not None:
                self._delta(event, out)
            elif now.apply(event):  # the way of nearly all tokens: the newest part goes on, and all was said so far
                change = now.delta
                if not change:
                    self._say(change, out)
                    continue
                self._told = True
                data = _encode(change)
                out.append(wrap(data) if wraps or type(change) is not dict else data)
        if self._joined and snapshot is not None and not snapshot.empty:
            self._look(snapshot, out)
        return out

    def finish(self, run: Run) -> list[bytes]:
        """The last messages, to be sent before the answer. `run` is the run's last record."""
        out: list[bytes] = []
        if run.status is not RunStatus.SUCCESS:
            return out
        if self._sent is None and not self._empty and Raw(self._now.encoded) == run.output:
            return out
        self._approach(delta.sound(delta.decode(run.output)), out)
        return out

    # --- the document ------------------------------------------------------------------------------------------------

    def _delta(self, event: e.PartDelta, out: list[bytes]) -> None:
        part = event.part
        if self._is_beside(part):
            self._tell(event, out)
            return
        if part != self._last and part in self._spoken:
            self._fork()  # what it says goes into the middle
        beyond = self._beyond(event) if event.origin is not None else b""
        if self._joined or self._now.apply(event):
            self._changed(part, out, beyond)
        elif beyond:
            out.append(b"{}" + beyond)

    def _is_beside(self, part: str) -> bool:
        """Whether what a part says is never in the document, as far as is known of one whose start was not seen."""
        return part in self._beside or not (self._joined or self._now.holds(part))

    def _changed(self, part: str | None, out: list[bytes], beyond: bytes = b"") -> None:
        """The document has changed, by what `part` said: say it, as far as can be."""
        if part is not None and part not in self._spoken:
            self._spoken.add(part)
            self._last = part
        now = self._now
        if self._joined:
            change: Json = ABSENT  # a snapshot says it
        elif self._empty:
            self._empty = False
            change = delta.diff(ABSENT, now.document) if now.delta is ABSENT else now.delta
        else:
            change = now.delta
            if change is ABSENT:
                change = self._rewritten(now.rewritten)
            elif self._unsent:
                change = self._unsent.held(change, self._length)
        self._say(change, out, beyond)

    def _fork(self) -> None:
        """Keep what was sent apart from the document: no delta may be able to say what comes next."""
        if self._sent is None and not self._empty:
            self._sent = Fold(self._now.document if self._told else ABSENT)

    def _rewritten(self, pointer: str) -> Json:
        """The delta, ABSENT for none, that says as much as can be of the value at the pointer, which is new."""
        path, route = self._way(pointer)
        over = self._unsent.over(path)
        if over is not None and over != path:
            if self._now.size > SMALL:
                return self._hold()
            path, route = self._way(delta.join(over))
        self._unsent.remove(path)
        sent, at = self._sent, delta.join(path)
        assert sent is not None
        before, after = sent.get(at), self._now.at(at)
        unsaid: list[Path] = []
        if route is not None:
            change = closest_delta(before, after, path, unsaid)
        elif not delta.same(before, after):
            unsaid = [path]
        for place in unsaid:
            self._unsent.add(place)
        if unsaid:
            self._hold()
        if route is None or change is ABSENT:
            return ABSENT
        if before is ABSENT and route and route[-1] is None:  # a new item
            return nested([None, change], route[:-1])
        return nested(change, route)

    def _way(self, pointer: str) -> tuple[Path, Route | None]:
        """The path to a place in what was sent, and how a delta gets there, None if it cannot: not to an inner item."""
        assert self._sent is not None
        path: Path = ()
        route: list[str | None] | None = []
        for step in delta.split(pointer):
            items = self._sent.length(delta.join(path))
            if items is None:
                path = (*path, step)
                if route is not None:
                    route.append(step)
                continue
            at = int(step) if step.isdecimal() else items
            path = (*path, at)
            if at < items - 1:
                route = None
            elif route is not None:
                route.append(None)
        return path, route

    def _length(self, pointer: str) -> int | None:
        return None if self._sent is None else self._sent.length(pointer)

    def _hold(self) -> Json:
        self.losses["rewrite"] += 1
        return ABSENT

    def _look(self, snapshot: Snapshot, out: list[bytes]) -> None:
        """The beginning was not seen: say what the document is now, if that is worth the comparison."""
        size = snapshot.size
        if size > SMALL and abs(size - self._compared) < GROWTH * self._compared:
            return
        self._compared = size
        self._approach(delta.decode(snapshot.encoded), out)

    def _approach(self, document: Json, out: list[bytes]) -> None:
        """Come as near to the document as deltas can."""
        before: Json = ABSENT
        if self._sent is not None:
            before = self._sent.document()
        elif self._told:
            before = self._now.document
        unsaid: list[Path] = []
        try:
            self._say(closest_delta(before, document, (), unsaid), out)
        except (DeltaError, RecursionError):  # nested too deep
            unsaid.append(())
        if unsaid and not self.losses["rewrite"]:
            self._hold()

    def _say(self, change: Json, out: list[bytes], beyond: bytes = b"") -> None:
        if self._is_idle(change):
            if beyond:
                out.append(b"{}" + beyond)
            return
        data = _encode(change)
        if self._wraps or type(change) is not dict:
            data = wrap(data)
        if self._sent is not None:
            self._sent.apply(change)
        self._told = True
        out.append(data + beyond if beyond else data)

    def _is_idle(self, change: Json) -> bool:
        """Whether a delta says nothing. The first one of a document that is wrapped may say that it is null."""
        if change is None:
            return self._told or not self._wraps
        return change is ABSENT or (change == {} and not self._wraps)

    # --- beside the document -----------------------------------------------------------------------------------------

    def _event(self, event: e.Event, out: list[bytes]) -> None:
        match event:
            case e.PartStarted():
                if event.value is not None and event.kind == "data":
                    self._fork()
                changed = self._now.apply(event)
                if not self._now.holds(event.part):
                    self._beside.add(event.part)
                    self._tell(event, out)
                elif changed:
                    self._changed(event.part, out)
            case e.PartReplaced():
                if self._is_beside(event.part):
                    self._tell(event, out)
                    return
                self._fork()
                if self._joined or self._now.apply(event):
                    self._changed(event.part, out)
            case e.MessageStarted():
                self._now.apply(event)
                if event.role is not Role.ASSISTANT:
                    self._tell(event, out)
            case e.ArtifactAdded() if event.artifact.agent_created:
                if self._now.apply(event):
                    self._changed(None, out, self._beyond(event, told=True))
                else:
                    self._tell(event, out)
            case e.Custom():
                if not (self._native and isinstance(event.data, dict) and NOTIFICATION in event.data):
                    self._tell(event, out)
            case _ if isinstance(event, _EVENTS):
                self._tell(event, out)

    def _tell(self, event: e.Event, out: list[bytes]) -> None:
        """An event that no output can say, for those who read `_meta`."""
        out.append(b"{}" + self._beyond(event, told=True))

    def _beyond(self, event: e.Event, *, told: bool = False) -> bytes:
        """Further members of the params: what an agent of this protocol had there, and the event if it is `told`."""
        members = {}
        if self._native and event.origin is not None:
            members = {key: value for key, value in event.origin.items() if key not in _SAID}
        if told:
            own = members.get(_META)
            bare = event if event.origin is None else msgspec.structs.replace(event, origin=None)
            members[_META] = {**(own if isinstance(own, dict) else {}), EVENT: Raw(escape_lines(e.encode(bare)))}
        return b"," + _encode(members)[1:-1] if members else b""


def progress(token: str | int | float, said: bytes, meta: bytes | None = None) -> bytes:
    """A whole `notifications/agents/run/progress` (JSON-RPC text, one line) of what `DeltaEncoder` returned.

    `meta` is an encoded `_meta`, for a delta that has none of its own.
    """
    end = b"}}" if meta is None else b',"_meta":' + meta + b"}}"
    return _start(token) + said + end


@lru_cache(maxsize=256, typed=True)
def _start(token: str | int | float) -> bytes:
    start = b'{"jsonrpc":"2.0","method":"' + RUN_PROGRESS.encode() + b'","params":{"progressToken":'
    return start + _encode(token) + b',"delta":'
