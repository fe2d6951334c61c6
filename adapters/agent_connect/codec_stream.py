"""Core to Agent Connect, pure: one run's events become the frames of one client's stream.

`values` are snapshots of the output. While the document is small every event that changes it gives one: the log's
shared fold at the newest event, and where several change it at once a fold of our own, made then. A larger one is
taken from the log's when it has grown by `GROWTH` or `INTERVAL` has passed, and always at the end. `custom` is
everything that is not output. However it is asked, the last frame says how the run stopped.

A frame's id is the number of the event that made it. Where an event makes two, the first is `n.1`, and a snapshot
that was held back is `n.2`: `n` and `n.2` say that everything up to event n has been delivered, `n.1` that the values
of n are missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from adapters.agent_connect import codec_threads, wire
from adapters.agent_connect.codec import CANCELLED, beyond, errcode, interrupt_payload
from adapters.agent_connect.codec_threads import link
from gateway.contract import Batch, Snapshot
from gateway.core import delta as deltas
from gateway.core import events as e
from gateway.core.output import Output, fewer
from gateway.core.stopping import cancelled, cut_short
from gateway.core.types import NULL, Agent, Artifact, Interrupt, JsonObject, Run, StopReason
from gateway.wire import sse
from gateway.wire.sse import CR, LF, escape_separators

SMALL = 16 * 1024
"""Size in bytes up to which every event is worth a snapshot."""
BURST = 256 * 1024
"""Bytes of snapshots that one batch of a small document may make; a reader that lags gets the newest only."""
MOST_BEHIND = 256
"""Pieces that our own fold may be behind the log's. They are kept in memory until it takes them in."""
GROWTH = 0.02
INTERVAL = 0.25
"""Seconds."""
KEEPALIVE = b": keep-alive\n"
"""Without a blank line: the SDK takes every blank line for the end of an event, and an event without data kills it."""

_OPENING = sse.opening(wire.EVENT)
_SILENT = frozenset({e.RunStarted, e.MessageStarted, e.MessageEnded, e.PartEnded, e.Resumed})
_OF_PARTS = (e.PartStarted, e.PartDelta, e.PartReplaced, e.PartEnded)


class StreamEncoder:
    """One client's stream of one run. Feed it batches until it is `done`.

    agent: None where it is not known any more: then all snapshots are the log's.
    after: (n, partial) of the last frame delivered, see `codec.cursor`.
    joining: begin with the state as it is now: what came before the first batch that reaches the newest event is
        not repeated.
    folding: False if the batches do not begin with the run's first event.
    """

    done = False
    pending: tuple[int, Snapshot] | None = None
    """A snapshot that is held back, and the number of its event."""
    _own: Output | None = None
    """What we fold ourselves. Made where the log's document does not say all."""
    _growing: str | None = None
    """The part that spoke last, if nothing else is to be told."""
    _origin: JsonObject | None = None
    _sent_size = 0
    _sent_at = 0.0
    _batch_bytes = 0

    def __init__(
        self,
        run_id: str,
        agent: Agent | None,
        modes: Collection[str],
        *,
        after: tuple[int, bool] = (0, False),
        joining: bool = False,
        folding: bool = True,
    ) -> None:
        self._run_id = run_id
        self._values = "values" in modes
        self.custom = "custom" in modes
        """Whether updates are sent, which needs every event."""
        self._same = agent is not None and wire.PROTOCOL in agent.extra
        self._pointer = agent.text_output if agent is not None else None
        self._folding = agent if folding else None  # whose document we fold where the log's does not say all
        self.exact = self._values and self._folding is not None
        """Whether every delta is still worth a snapshot."""
        self._behind: list[e.Event] = []  # what is said and our fold has not taken in yet
        self._after, self._partial = after
        self._joining = joining
        self._kinds: dict[str, str] = {}
        self._files: list[Artifact] = []
        self._dirty = not folding  # the document differs from the last one sent
        self._out: list[tuple[int, tuple[bytes, ...]]] = []  # number and data, in pieces
        self._piece_head = _OPENING + _values_head(run_id, "pending")

    # --- what the sender calls -----------------------------------------------------------------------------------

    def feed(self, batch: Batch, run: Run, now: float) -> bytes:
        """The frames that a batch makes, ready to send; may be empty. `now` is in seconds, from any clock."""
        # Nearly all batches: one text of a small document has grown, up to the newest event. The document is the log's
        # then; our own fold needs the events only when another batch comes.
        events, snapshot, document = batch.events, batch.snapshot, b""
        if len(events) == 1:
            event = events[0][1]
            grows = type(event) is e.PartDelta and event.part == self._growing and not event.origin and event.delta
        else:
            grows = self._grow_on(events)
        if grows and snapshot is not None and len(self._behind) + len(events) <= MOST_BEHIND and not batch.skipped:
            document = snapshot.encoded
            if len(document) <= SMALL:
                for _, event in events:
                    self._behind.append(event)
                self._sent_size = len(document)
                return b"".join((b"id: %d\n" % batch.last, self._piece_head, document, b"}", sse.CLOSING))
        return self._feed(batch, run, now)

    def _grow_on(self, events: Sequence[tuple[int, e.Event]]) -> bool:
        """Whether all let the part grow that grew last."""
        first = events[0][1] if events else None  # numbers may be reserved, and never used
        if type(first) is not e.PartDelta or first.part != self._growing or first.origin or not first.delta:
            return False
        return all(_grows_on(first, event) for _, event in events[1:])

    def _feed(self, batch: Batch, run: Run, now: float) -> bytes:
        """A batch of any kind."""
        if batch.skipped:
            self._fold_no_more()
            self._dirty = True
        self.pending = None
        if self.exact and (frames := self._feed_last(batch, run)) is not None:
            return frames
        self._catch_up()
        self._batch_bytes = 0
        joined = self._joining and batch.snapshot is not None
        if joined:
            self._dirty = True
        events = batch.events
        for at, (number, event) in enumerate(events):
            if type(event) is e.PartDelta:
                following = events[at + 1][1] if at + 1 < len(events) else None
                if self._said(number, event, following):
                    continue
            self._event(number, event, batch, at, run)
            if self.done:
                break
        if not self.done and self._values and self._dirty and (joined or not self._joining):
            self._newest(batch, now, at_once=joined)
        if joined:
            self._joining = False
        own, last = self._own, events[-1][1] if events else None
        simple = self.exact and batch.last > self._after and not (self._dirty or self._origin or self._joining)
        self._growing = None
        if simple and isinstance(last, e.PartDelta) and own is not None and own.holds(last.part):
            self._growing = last.part
        return self._frames()

    def _feed_last(self, batch: Batch, run: Run) -> bytes | None:
        """A batch of which only the last event may change the document: it is the log's then. None for any other."""
        snapshot, events = batch.snapshot, batch.events
        if snapshot is None or not events or events[0][0] <= self._after or self.custom or self._joining or self._dirty:
            return None
        *before, last = [event for _, event in events]
        number = events[-1][0]
        if len(self._behind) + len(events) > MOST_BEHIND or not all(map(self._is_silent, before)):
            return None
        if type(last) is e.PartDelta:
            if not last.delta or last.origin or not snapshot.holds(last.part) or len(snapshot.encoded) > SMALL:
                return None
            self._snapshot(number, snapshot.encoded, folded=True)
        elif isinstance(last, e.TERMINAL):
            self._end(number, last, batch, run)
            self.done = True
        elif not self._is_silent(last):
            return None
        self._growing = last.part if type(last) is e.PartDelta else None
        self._behind += (*before, last)
        return self._frames() if self._out else b""

    def due(self, now: float) -> float | None:
        """Seconds until a snapshot that was held back is to be sent; None if there is none."""
        return None if self.pending is None else max(0.0, self._sent_at + INTERVAL - now)

    def flush(self, now: float) -> bytes:
        """The snapshot that was held back; empty if there is none."""
        if self.pending is None:
            return b""
        number, snapshot = self.pending
        self.pending = None
        self._snapshot(number, snapshot.encoded, now)
        ((_, data),) = self._out
        self._out = []
        return b"".join((b"id: %d.2\n" % number, _OPENING, *data, sse.CLOSING))

    # --- events --------------------------------------------------------------------------------------------------

    def _fold_no_more(self) -> None:
        self._folding, self._own, self.exact = None, None, False

    def _catch_up(self) -> None:
        """Fold what went by without us."""
        if self._own is None and self._folding is not None:
            self._own = Output(self._folding)
        if self._own is not None:
            for event in fewer(self._behind):
                self._own.apply(event)
        self._behind.clear()

    def _said(self, number: int, event: e.PartDelta, following: e.Event | None) -> bool:
        """A piece of the output. False if it is not that simple."""
        own = self._own
        if own is None or number <= self._after or self._joining or event.origin or event.part in self._kinds:
            return False
        if own.apply(event):
            self._dirty = True
            if following is not None and _grows_on(event, following):
                return True  # superseded before it can be written
            document = own.encoded if self._values and self._batch_bytes < BURST else None
            if (own.size if document is None else len(document)) > SMALL:
                self._fold_no_more()
            elif document is not None:
                self._snapshot(number, document, folded=True)
        return True

    def _event(self, number: int, event: e.Event, batch: Batch, at: int, run: Run) -> None:
        self._fold(event)
        seen = not self._is_new(number)
        if isinstance(event, e.TERMINAL):
            if not seen:
                self._end(number, event, batch, run)
            self.done = True
            return
        if isinstance(event, e.Interrupted):
            if not seen and _is_open(event, batch, at, run):
                self._flush_before(number, batch)
                origin = self._beyond(event)
                self._out.append((number, (interrupt_update(self._run_id, event.interrupt, origin),)))
                self.done = True
            return
        if seen:
            self._dirty, self._origin = False, None
        elif number == self._after:
            self._dirty = True  # `n.1`: the values of n are what is missing
        if seen or self._joining:
            return
        if self.custom and number > self._after and self._is_update(event):
            self._out.append((number, (custom_update(self._run_id, event, self._beyond(event)),)))
        if self._values and self._dirty and self._own is not None:
            if self._batch_bytes < BURST:
                self._snapshot(number, self._own.encoded)
            else:
                self._origin = None

    def _is_silent(self, event: e.Event) -> bool:
        """Whether an event certainly changes no document, and is no news to a client of `values`."""
        if isinstance(event, e.PartStarted):
            self._part(event)
            return event.value is None
        return type(event) in _SILENT

    def _part(self, event: e.PartStarted) -> None:
        if event.kind in ("thought", "file"):
            self._kinds[event.part] = event.kind

    def _fold(self, event: e.Event) -> None:
        if isinstance(event, e.PartStarted):
            self._part(event)
        elif isinstance(event, e.ArtifactAdded) and event.artifact.agent_created:
            self._files.append(event.artifact)
        if self._own is None:
            if _says(event):
                self._dirty = True
        elif self._own.apply(event):
            self._dirty = True
            self._origin = self._beyond(event) or self._origin
            if self._own.size > SMALL and len(self._own.encoded) > SMALL:  # the size counts what was replaced, too
                self._fold_no_more()

    def _beyond(self, event: e.Event) -> JsonObject | None:
        """Fields of an agent of this protocol beyond the core. Extras of other protocols are not read."""
        return event.origin if self._same else None

    def _is_new(self, number: int) -> bool:
        """Whether not all of that event has been delivered."""
        return number > self._after or (number == self._after and self._partial)

    def _is_update(self, event: e.Event) -> bool:
        return isinstance(event, e.DONE_BESIDE) or (isinstance(event, _OF_PARTS) and event.part in self._kinds)

    # --- snapshots -----------------------------------------------------------------------------------------------

    def _newest(self, batch: Batch, now: float, *, at_once: bool) -> None:
        """After a batch: the document as it is now, if it is time."""
        if self._own is not None:
            if self._is_new(batch.last) and not self._own.empty:
                self._snapshot(batch.last, self._own.encoded, now)
            return
        snapshot: Snapshot | None = batch.snapshot
        if snapshot is None or snapshot.empty or not self._is_new(batch.last):
            return
        grown = abs(snapshot.size - self._sent_size)
        if at_once or grown >= GROWTH * self._sent_size or now - self._sent_at >= INTERVAL:
            self._snapshot(batch.last, snapshot.encoded, now)
        else:
            self.pending = (batch.last, snapshot)

    def _flush_before(self, number: int, batch: Batch) -> None:
        """Show the rest before the frame that stops the stream."""
        if not self._values or not self._dirty:
            return
        newest = self._own if self._own is not None else batch.snapshot
        if newest is not None and not newest.empty:
            self._snapshot(number, newest.encoded)

    def _snapshot(self, number: int, document: bytes, now: float | None = None, *, folded: bool = False) -> None:
        self._out.append((number, values_update(self._run_id, "pending", document, self._origin, folded=folded)))
        self._dirty, self._origin = False, None
        self._sent_size = len(document)
        self._batch_bytes += len(document)
        if now is not None:
            self._sent_at = now

    # --- the end -------------------------------------------------------------------------------------------------

    def _end(self, number: int, event: e.Event, batch: Batch, run: Run) -> None:
        origin = {**(self._beyond(event) or {}), **({"losses": run.losses} if run.losses else {})}
        if isinstance(event, e.RunFailed | e.RunCancelled):
            self._flush_before(number, batch)
            self._out.append((number, (error_update(self._run_id, event, origin),)))
            return
        assert isinstance(event, e.RunFinished)
        if self.custom and cut_short(event.stop_reason) is not None:
            self._out.append((number, (stop_update(self._run_id, event.stop_reason),)))
        document = self._final(event, batch, run)
        if self._files and "messages" not in origin:
            origin["messages"] = msgspec.to_builtins(codec_threads.file_messages(self._files, document, self._pointer))
        self._out.append((number, values_update(self._run_id, "success", document, origin)))

    def _final(self, event: e.RunFinished, batch: Batch, run: Run) -> bytes:
        if event.output != NULL:
            return bytes(event.output)
        if run.output != NULL:
            return bytes(run.output)
        return b"null" if batch.snapshot is None else bytes(batch.snapshot.encoded)

    def _frames(self) -> bytes:
        out, self._out = self._out, []
        frames: list[bytes] = []
        for at, (number, data) in enumerate(out, 1):
            first_of_two = at < len(out) and out[at][0] == number
            frames += (b"id: %d.1\n" if first_of_two else b"id: %d\n") % number, _OPENING, *data, sse.CLOSING
        return b"".join(frames)


def stream_error(run_id: str, text: str, code: int) -> bytes:
    """The frame that ends a stream which the gateway itself cannot go on with. It has no id: nothing was delivered."""
    line = {"type": "error", "run_id": run_id, "errcode": code, "description": text, "status": "error"}
    return sse.encode(sse.escape_separators(msgspec.json.encode(line)), event=wire.EVENT)


def _is_open(event: e.Interrupted, batch: Batch, at: int, run: Run) -> bool:
    """Whether the question still waits; of one that was answered since, the stream goes on."""
    ident = event.interrupt.id
    if any(interrupt.id == ident for interrupt in run.interrupts):
        return True
    if batch.snapshot is None:  # an old log is being read: the answer is further on
        return False
    later = (later for _, later in batch.events[at + 1 :])
    return not any(isinstance(x, e.Resumed) and x.interrupt == ident for x in later)


def _grows_on(event: e.PartDelta, following: e.Event) -> bool:
    """Whether the next event only lets the same text grow on, and so makes a snapshot."""
    if type(following) is not e.PartDelta or following.part != event.part or following.origin or not following.delta:
        return False
    place = deltas.text_at(event.delta)
    return place is not None and place == deltas.text_at(following.delta)


def _says(event: e.Event) -> bool:
    """Whether it may have changed the document."""
    return isinstance(event, e.PartDelta | e.PartReplaced | e.PartStarted | e.ArtifactAdded)


# --- updates, each one line ------------------------------------------------------------------------------------------

_dump = msgspec.json.Encoder().encode


def values_update(
    run_id: str, status: str, document: bytes, origin: JsonObject | None = None, *, folded: bool = False
) -> tuple[bytes, ...]:
    """`ValueRunResultUpdate`, one line, in pieces. A document that is null is `{}`: the member is required.

    `folded`: the document was encoded by a fold of deltas, on one line and with the separators escaped.
    """
    if not folded:
        if LF in document or CR in document:  # outside strings, where JSON has them raw
            document = document.replace(b"\r", b" ").replace(b"\n", b" ")
        document = escape_separators(document)
    shown = b"{}" if document == b"null" else document
    extra = beyond(origin) if origin else None
    if not extra:
        return _values_head(run_id, status), shown, b"}"
    return _values_head(run_id, status), shown, b",", escape_separators(_dump(extra))[1:]


@lru_cache(maxsize=1024)
def _values_head(run_id: str, status: str) -> bytes:
    return b'{"type":"values","run_id":"%b","status":"%b","values":' % (run_id.encode(), status.encode())


def custom_update(run_id: str, event: e.Event, origin: JsonObject | None = None) -> bytes:
    """`CustomRunResultUpdate`, one line: an agent's own update as it came, any other event by its name as `type`."""
    update: Any
    if isinstance(event, e.Custom):
        if event.name == wire.PROTOCOL and isinstance(event.data, dict):
            update = event.data
        else:
            update = {"type": "custom", "name": event.name, "data": event.data}
    elif isinstance(event, e.ArtifactAdded):
        update = {"type": "artifact_added", "artifact": {"id": event.artifact.id, **link(event.artifact)}}
    else:
        told = msgspec.structs.replace(event, origin=None) if event.origin else event
        update = msgspec.Raw(b'{"type":' + e.encode(told).removeprefix(b'{"event":'))
    line = {"type": "custom", "run_id": run_id, "status": "pending", "update": update}
    return escape_separators(_dump({**beyond(origin), **line}))


def stop_update(run_id: str, reason: StopReason) -> bytes:
    """`CustomRunResultUpdate`, one line: the run stops, and before its work is done."""
    update = {"type": "run_finished", "stop_reason": reason.value, "message": cut_short(reason)}
    return _dump({"type": "custom", "run_id": run_id, "status": "pending", "update": update})


def interrupt_update(run_id: str, interrupt: Interrupt, origin: JsonObject | None = None) -> bytes:
    """`ValueRunInterruptUpdate`, one line."""
    line = {"type": "interrupt", "run_id": run_id, "status": "interrupted", "interrupt": interrupt_payload(interrupt)}
    return escape_separators(_dump({**beyond(origin), **line}))


def error_update(run_id: str, end: e.RunFailed | e.RunCancelled, origin: JsonObject | None = None) -> bytes:
    """`ValueRunErrorUpdate`, one line, for a run that ended without success."""
    if isinstance(end, e.RunCancelled):
        code, text, status = CANCELLED, cancelled(end.reason), "error"
    else:
        code, text, status = errcode(end.failure), end.failure.message, "timeout" if end.timeout else "error"
    line = {"type": "error", "run_id": run_id, "errcode": code, "description": text, "status": status}
    line["transient"] = isinstance(end, e.RunFailed) and end.failure.retryable
    return escape_separators(_dump({**line, **beyond(origin)}))
