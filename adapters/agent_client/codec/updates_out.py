"""Core events to `session/update`, as far as both versions say them alike: what one client is told of one run.

Updates are bytes: the `update` object alone; `envelope` makes whole notifications of them. Called by the inbound half:
`feed` with each batch of the run's log from its first event on, then `finish` once the run has ended. `losses` is to be
given to `Gateway.runs.lost`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from adapters.agent_client.codec import event_forms
from adapters.agent_client.codec.event_forms import UpdateAssembly
from adapters.agent_client.wire import PARAMS_META
from gateway.contract import Snapshot
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.delta import algebra
from gateway.core.output import OutputParts, PartOf
from gateway.core.types import Agent, Json, JsonObject, Run

_USER: Final = ("user", "human")
_ASSISTANT: Final = ("assistant", "ai", "agent", "bot", "AIMessageChunk")
Around = tuple[bytes, bytes, Callable[[str], object] | None]
"""The bytes before and after a part's text in an update, and a function to call with the text, if any."""
SMALL: Final = 64 * 1024
"""Bytes up to which the whole document is looked up after every batch that rewrote something."""
GROWTH: Final = 1.25
"""A larger one, when it has grown by this factor; what is left is told at the end."""
_encode: Final = delta.encode
_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_PARAMS_META: Final = PARAMS_META.encode()


# --- the text inside of a data part, followed delta by delta without folding the document ---------------------------
# At a pointer of keys ("/message") the text grows by what each delta has there. In a conversation
# ("/messages/-/content") what counts is the item that speaks last: a delta's first item goes on with it, each further
# one is a new item, and what is told are the items of the assistant's after the last of the user's. Any other pointer,
# text in content blocks, and a conversation that was rewritten are looked up in the whole document: `unsure` says so,
# and `look` does it.


class DocumentGrowth:
    """The growth from one delta: `text` is added to the message told now, then each of `items` is a new message."""

    __slots__ = ("items", "text", "unsure")

    def __init__(self, text: str = "", items: list[str] | None = None, *, unsure: bool = False) -> None:
        self.text = text
        self.items = items or []
        self.unsure = unsure


_UNSURE: Final = DocumentGrowth(unsure=True)


class DocumentText:
    """One data part's text. `pointer` is the agent's `text_output`, None where nobody knows."""

    def __init__(self, pointer: str | None) -> None:
        self.pointer = pointer
        self.unsure = False
        """Whether the last `replace` can only be told by a `look`."""
        steps = delta.split(pointer or "")
        chats = [at for at, step in enumerate(steps) if step == projection.LAST]
        self.known = pointer is not None and len(chats) <= 1 and not any(step.isdecimal() for step in steps)
        """False where every delta is `unsure`."""
        self.chat = bool(chats)
        self._steps = steps[: chats[0]] if chats else steps
        self._rest = steps[chats[0] + 1 :] if chats else []
        self._items = 0
        self._lost = False  # the number of items is not known any more
        self._listening = True  # the item that speaks last is the assistant's

    def grow(self, delta: Json) -> DocumentGrowth | str:
        """The growth from a delta; the text alone if that is all."""
        if not self.known or self._lost:
            return _UNSURE
        value = _at(delta, self._steps)
        return self._spoken(value) if self.chat else _leaf(value)

    def begin(self, document: Json) -> DocumentGrowth | str:
        """The first value of the part."""
        if not self.known:
            return _UNSURE
        value = _at(document, self._steps)
        if self.chat:
            return self._new(value) if isinstance(value, list) else ""
        return _leaf(value)

    def replace(self, pointer: str, value: Json) -> str | None:
        """Return the text after the value at a pointer is replaced.

        "" also for a text that is gone; None where it is as it was, or where `unsure` is true now.
        """
        steps, path = delta.split(pointer), self._steps
        common = min(len(steps), len(path))
        self.unsure = False
        if self.known and steps[:common] != path[:common]:
            return None
        if not self.known or self.chat or len(steps) > len(path):
            self.unsure = True
            self._lost = self.chat
            return None
        said = _leaf(_at(value, path[common:]))
        self.unsure = not isinstance(said, str)
        return said if isinstance(said, str) else None

    def look(self, document: Json) -> tuple[str | None, bool]:
        """(the text of the whole document as it is now, whether that is a new message); None if nobody speaks."""
        text = projection.text_of(document, self.pointer)
        if not self.chat or not self.known:
            return text, False
        items = _at(document, self._steps)
        before, self._lost = self._items, False
        self._items = len(items) if isinstance(items, list) else 0
        self._listening = bool(self._items) and _speaker(items[-1]) in (None, projection.ASSISTANT)
        return (text if self._listening else None), self._items > before

    def _spoken(self, value: Json) -> DocumentGrowth | str:
        if not isinstance(value, list) or not value:
            return ""
        if self._items == 0:
            return self._new(algebra.settle_list(value))
        first, *more = value
        said = _leaf(first, self._rest) if self._listening and first is not None else ""
        if not more or not isinstance(said, str):
            return said
        following = self._new([algebra.settle(item) for item in more])
        return DocumentGrowth(said, following.items, unsure=following.unsure)

    def _new(self, items: list[Json]) -> DocumentGrowth:
        """Items that are added."""
        self._items += len(items)
        speakers = [_speaker(item) for item in items]
        start = len(items) - 1 if None in speakers else 0
        for at, speaker in enumerate(speakers):
            if speaker == projection.USER:
                start = at + 1
        texts = []
        for item, speaker in zip(items[start:], speakers[start:], strict=True):
            if speaker in (None, projection.ASSISTANT):
                said = _leaf(item, self._rest)
                if not isinstance(said, str):
                    return _UNSURE
                texts.append(said)
        if items:
            self._listening = speakers[-1] in (None, projection.ASSISTANT)
        return DocumentGrowth(items=texts)


def _at(value: Json, steps: Sequence[str]) -> Json:
    for step in steps:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def _leaf(value: Json, steps: Sequence[str] = ()) -> DocumentGrowth | str:
    value = _at(value, steps) if steps else value
    if isinstance(value, str):
        return value
    return "" if value is None or value == [] else _UNSURE


def _speaker(item: Json) -> str | None:
    """The speaker of an item of a conversation: USER, ASSISTANT, "" for others, None where it does not say."""
    if not isinstance(item, dict):
        return None
    for key in ("role", "type"):
        word = item.get(key)
        if isinstance(word, str):
            if word in _USER:
                return projection.USER
            return projection.ASSISTANT if word in _ASSISTANT else ""
    return projection.ASSISTANT


# --- the output of an agent of another protocol, as far as both versions follow it alike ----------------------------
# Which parts are the output's is decided in gateway/core/output.py. A data part is told by its text. How it is told is
# for `v1/updates_out.py`, as one growing text, and for `v2/updates_out.py`, as messages that may be rewritten.


class ForeignOutput:
    """One run's output.

    data: the data part that is the output, if one is.
    """

    def __init__(self, agent: Agent | None) -> None:
        self.data: str | None = None
        self._losses: Counter[str] = Counter()
        self._pointer = agent.text_output if agent is not None else None
        self._document = DocumentText(self._pointer)
        self._parts = OutputParts()
        self._looked = 0
        self._over = False

    @property
    def lossy(self) -> bool:
        """Whether there are losses."""
        return bool(self._losses)

    @property
    def losses(self) -> Counter[str]:
        """Losses so far."""
        return self._losses

    def message(self, event: e.MessageStarted) -> None:
        """A message starts."""
        self._parts.message(event)

    def _part(self, event: e.PartStarted) -> PartOf:
        """Return what a text or data part belongs to. Counts a loss for a part outside the output."""
        what = self._parts.start(event)
        if what is PartOf.DATA:
            self.data = event.part
        elif what not in (PartOf.TEXT, PartOf.USER):  # the user knows what the user said
            self._losses["beside_output" if what is PartOf.BESIDE else "other_roles"] += 1
        return what

    def _current(self, snapshot: Snapshot | None) -> Json:
        """The document as it is now, if it is time to look it up; None if it is not."""
        if snapshot is None or snapshot.empty or (SMALL < snapshot.size < GROWTH * self._looked):
            return None
        self._looked = snapshot.size
        return delta.decode(snapshot.encoded)

    def _ended(self, run: Run) -> tuple[Json, str | None]:
        """The output document and its text, None if it has none: the first time, and never again."""
        if self._over:
            return None, None
        self._over = True
        document = delta.decode(bytes(run.output))
        return document, None if document is None else projection.text_of(document, self._pointer)


# --- updates --------------------------------------------------------------------------------------------------------


class UpdateEncoder:
    """One client's view of one run.

    agent: the run's agent; None where it is not known any more. What an agent of this protocol said is sent as it was.
    end: the run's terminal event, once `feed` has seen it. usage: token counts that no update can say. Both are for how
    the prompt ends.
    """

    def __init__(self, agent: Agent | None, output: ForeignOutput | None) -> None:
        """`output` follows that of an agent of another protocol."""
        self.end: e.Event | None = None
        self.usage: e.UsageReported | None = None
        self._agent = agent
        self._losses: Counter[str] = Counter()
        self._output = output
        self._assembly = UpdateAssembly(foreign=output is not None)
        self._ready: dict[str, Around] = {}  # parts whose deltas are simply chunks

    @property
    def lossy(self) -> bool:
        """Whether there are losses: cheaper than to count them."""
        return bool(self._losses) or (self._output is not None and self._output.lossy)

    @property
    def losses(self) -> Counter[str]:
        """Losses so far, by name (losses.py). A new counter each time."""
        return self._losses + (self._output.losses if self._output is not None else Counter())

    def feed(self, events: Sequence[tuple[int, e.Event]], snapshot: Snapshot | None = None) -> list[bytes]:
        """The updates that events make, in order. Interrupts, answers and ends make none."""
        out: list[bytes] = []
        ready = self._ready
        for _, event in events:
            if type(event) is e.PartDelta and event.origin is None and (around := ready.get(event.part)) is not None:
                start, end, told = around
                if told is not None:
                    told(event.delta)
                out.append(start + _encode(event.delta) + end)
            else:
                self._event(event, out)
        if self._output is not None:
            self._look(snapshot, out)
        return out

    def finish(self, run: Run) -> list[bytes]:
        """The updates still owed when the run has ended: a corrected text, a document that has no text.

        `run` is the run's last record. To be sent before the prompt's end is. A second call says nothing.
        """
        raise NotImplementedError

    def _event(self, event: e.Event, out: list[bytes]) -> None:
        """The updates of one event."""
        raise NotImplementedError

    def _look(self, snapshot: Snapshot | None, out: list[bytes]) -> None:
        """After a batch of an agent of another protocol: its output may be to be looked up."""
        raise NotImplementedError

    def _assembled(self, event: e.Event, beyond: JsonObject | None) -> JsonObject | None:
        """The update that is whole with this event, in version 1's words. Ends and other token counts are kept."""
        if isinstance(event, e.TERMINAL):
            self.end = event
        elif isinstance(event, e.UsageReported) and not event_forms.is_usage(event.detail):
            self.usage = event
        else:
            return self._assembly.add(event, beyond)
        return None


def is_update(value: Json) -> bool:
    """Whether it is an update, of whichever kind."""
    return isinstance(value, dict) and isinstance(value.get(event_forms.KEY), str)


def envelope(session_id: str) -> Callable[[Sequence[bytes]], list[bytes]]:
    """A function that makes whole `session/update` notifications (JSON-RPC text) of updates: made once a session."""
    start = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":' + _encode(session_id) + b',"update":'
    end = b"}}"

    def whole(updates: Sequence[bytes]) -> list[bytes]:
        if b"".join(updates).find(_PARAMS_META) >= 0:  # in any of them
            updates = [_beside(update) for update in updates]
        return [start + update + end for update in updates]

    return whole


def _beside(update: bytes) -> bytes:
    """Move what the agent said beside an update (`_meta` of the params) back beside it."""
    members = _members(update)
    meta = members.pop(PARAMS_META, None)
    return update if meta is None else _encode(members) + b',"_meta":' + bytes(meta)
