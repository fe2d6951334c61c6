"""Core events to `session/update`, as far as both versions say them alike: what one client is told of one run.

Updates are bytes: the `update` object alone; `envelope` makes whole notifications of them. Called by the inbound half:
`feed` with each batch of the run's log from its first event on, then `finish` once the run has ended. `losses` is to be
given to `Gateway.runs.lost`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters.agent_client.codec import content, event_forms
from adapters.agent_client.codec.event_forms import MESSAGE, THOUGHT, USER, UpdateAssembly
from adapters.agent_client.wire import ORIGIN_V2, PARAMS_META, PROTOCOL
from gateway.contract import Snapshot
from gateway.core import delta, projection
from gateway.core import events as e
from gateway.core.output import OutputParts, PartOf
from gateway.core.types import Agent, Json, JsonObject, Role, Run, RunStatus

Around = tuple[bytes, bytes, Callable[[str], object] | None]
"""The bytes before and after a part's text in an update, and a function to call with the text, if any."""
SMALL: Final = 64 * 1024
"""Bytes up to which the whole document is looked up after every batch that rewrote something."""
GROWTH: Final = 1.25
"""A larger one, when it has grown by this factor; what is left is told at the end."""
_encode: Final = delta.encode
_UNSAID: Final = (e.RunStarted, e.MessageEnded, e.RunFinished)
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
            return self._new(delta.settle_list(value))
        first, *more = value
        said = _leaf(first, self._rest) if self._listening and first is not None else ""
        if not more or not isinstance(said, str):
            return said
        following = self._new([delta.settle(item) for item in more])
        return DocumentGrowth(said, following.items, unsure=following.unsure)

    def _new(self, items: list[Json]) -> DocumentGrowth:
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
    """The speaker of an item of a conversation: the assistant's if it does not say; None for what is no message."""
    said = projection.speaker(item)
    return projection.ASSISTANT if said is None and isinstance(item, dict) else said


# --- the output of an agent of another protocol ---------------------------------------------------------------------
# Which parts are the output's is decided in gateway/core/output.py. A data part is told by its text, thoughts beside
# it, files as links: in updates_out_v1.py as one growing text, in v2/updates_out.py as messages that may be rewritten.


class ForeignOutput:
    """One run's output, for one client. Methods append the updates to say to `out`.

    stale: whether what was told is not what it begins with, or nobody knows: `look` is to be called.
    """

    def __init__(self, agent: Agent | None, losses: dict[str, int], ready: dict[str, Around]) -> None:
        """`losses` are the encoder's; `ready` gets the parts whose deltas are simply chunks."""
        self.stale = False
        self._losses = losses
        self._ready = ready
        self._pointer = agent.text_output if agent is not None else None
        self._document = DocumentText(self._pointer)
        self._parts = OutputParts()
        self._kinds: dict[str, str] = {}  # text and thought part -> kind of its chunks
        self._speaking = ""  # the message that the document is of
        self._looked = 0
        self._over = False

    def message(self, event: e.MessageStarted) -> None:
        self._parts.message(event)

    def start(self, event: e.PartStarted, out: list[bytes]) -> None:
        """A part starts. Those outside the output are losses, unless the user said them."""
        if event.kind == "file":
            block = event.value if event_forms.is_block(event.value) else content.described(event.value)
            if block is None:
                self._losses["file"] += 1
            else:
                self._file(event, block, out)
            return
        what = PartOf.TEXT if event.kind == "thought" else self._parts.start(event)
        if what is PartOf.TEXT:
            self._kinds[event.part] = THOUGHT if event.kind == "thought" else MESSAGE
            self._text(event)
            if event.value:
                self.grow(e.PartDelta(part=event.part, delta=event.value), out)
        elif what is PartOf.DATA:
            self._speaking = event.message
            if event.value is not None:
                self._tell(self._document.begin(event.value), out)
        elif what is not PartOf.USER:
            self._losses["beside_output" if what is PartOf.BESIDE else "other_roles"] += 1

    def grow(self, event: e.PartDelta, out: list[bytes]) -> None:
        if event.part == self._parts.data:
            self._tell(self._document.grow(event.delta), out)
        elif event.part in self._kinds and isinstance(event.delta, str):
            self._grow(event, out)

    def replace(self, event: e.PartReplaced, out: list[bytes]) -> None:
        if event.part == self._parts.data:
            text = self._document.replace(event.pointer, event.value)
            if text is not None:
                self._catch_up(text, out)
            elif self._document.unsure:
                self.stale = True
        elif event.part in self._kinds and isinstance(event.value, str):
            self._replace(event, out)

    def artifact(self, event: e.ArtifactAdded, out: list[bytes]) -> None:
        """A file of the agent's that the gateway serves."""
        if event.artifact.agent_created:
            name = self._name(f"file-{event.artifact.id}")
            out.append(_encode(event_forms.chunk(MESSAGE, content.link_of(event.artifact), name)))

    def look(self, snapshot: Snapshot | None, out: list[bytes]) -> None:
        """After a batch that left it stale: tell the text as it is now, if it is time to look up the document."""
        if snapshot is None or snapshot.empty or (SMALL < snapshot.size < GROWTH * self._looked):
            return
        self._looked = snapshot.size
        document = delta.decode(snapshot.encoded)
        if document is not None:
            self._look(document, out)

    def finish(self, run: Run, out: list[bytes]) -> None:
        """The end: what is told is now the text of the output document; one without text is told as it is."""
        if self._over:
            return
        self._over = True
        document = delta.decode(run.output)
        text = None if document is None else projection.text_of(document, self._pointer)
        if text is not None:
            self._settle(run, document, text, out)
        elif document not in (None, {}, [], "") and run.status is RunStatus.SUCCESS:
            self._say_document(event_forms.fenced(document), out)

    def _tell(self, said: DocumentGrowth | str, out: list[bytes]) -> None:
        if isinstance(said, str):
            self._say(said, out)
        elif said.unsure:
            self.stale = True
        else:
            self._say(said.text, out)
            for text in said.items:
                self._begin()
                self._say(text, out)

    def _look(self, document: Json, out: list[bytes]) -> bool:
        """Tell the document's text as it is now. False if it has none."""
        if self._parts.data is None:
            text, another = projection.text_of(document, self._pointer), False
        else:
            text, another = self._document.look(document)
        if another:
            self._begin()
        if text is not None:
            self._catch_up(text, out)
        return text is not None

    # --- each version's own way --------------------------------------------------------------------------------------

    def _name(self, what: str) -> str | None:
        """The id of a message of the run's, if such messages have one."""
        return None

    def _text(self, event: e.PartStarted) -> None:
        """A text or thought part starts."""

    def _file(self, event: e.PartStarted, block: JsonObject, out: list[bytes]) -> None:
        """Tell a file in a message."""

    def _grow(self, event: e.PartDelta, out: list[bytes]) -> None:
        """More text of a text or thought part."""

    def _replace(self, event: e.PartReplaced, out: list[bytes]) -> None:
        """A text or thought part is this text now."""

    def _say(self, text: str, out: list[bytes]) -> None:
        """More text of the document's newest message."""

    def _begin(self) -> None:
        """The document has another message."""

    def _catch_up(self, text: str, out: list[bytes]) -> None:
        """The document's newest message is this now."""

    def _settle(self, run: Run, document: Json, text: str, out: list[bytes]) -> None:
        """It has ended with this document, whose text this is."""

    def _say_document(self, text: str, out: list[bytes]) -> None:
        """A document that has no text, as text."""


# --- updates --------------------------------------------------------------------------------------------------------


class UpdateEncoder:
    """One client's view of one run.

    agent: the run's agent; None where it is not known any more. What an agent of this protocol said is sent as it was;
    the output of any other is told by a `ForeignOutput`, its tool calls, plans and token counts by their own updates.
    end: the run's terminal event, once `feed` has seen it. usage: token counts that no update can say. Both are for how
    the prompt ends.
    """

    end: e.Event | None = None
    usage: e.UsageReported | None = None
    _foreign: ForeignOutput | None = None
    _v2 = False

    def __init__(self, agent: Agent | None) -> None:
        self._agent = agent
        self._losses: dict[str, int] = defaultdict(int)
        self._ready: dict[str, Around] = {}  # parts whose deltas are simply chunks
        self._assembly = UpdateAssembly(foreign=False)
        self._messages: dict[str, tuple[Role, str | None]] = {}
        self._of: dict[str, tuple[str, str | None]] = {}  # part -> kind of chunk, message id
        self._quiet: set[str] = set()  # parts that are not told
        self._decided = agent is not None
        if agent is not None:
            self._spoken_by(agent.extra)

    @property
    def lossy(self) -> bool:
        """Whether there are losses: cheaper than to count them."""
        return bool(self._losses)

    @property
    def losses(self) -> Counter[str]:
        """Losses so far, by name (losses.py). A new counter each time."""
        return Counter(self._losses)

    def feed(self, events: Sequence[tuple[int, e.Event]], snapshot: Snapshot | None = None) -> list[bytes]:
        """The updates that events make, in order. Interrupts, answers and ends make none."""
        out: list[bytes] = []
        ready = self._ready
        if not self._decided and any(type(event) is not e.RunStarted for _, event in events):
            self._decided = True
            self._spoken_by({mark for _, event in events for mark in _marks(event)})
        for _, event in events:
            if type(event) is e.PartDelta and event.origin is None and (around := ready.get(event.part)) is not None:
                start, end, told = around
                if told is not None:
                    told(event.delta)
                out.append(start + _encode(event.delta) + end)
            elif type(event) in _UNSAID and event.origin is None:
                if type(event) is e.RunFinished:
                    self.end = event
            elif self._foreign is None:
                self._native(event, out)
            else:
                self._of_others(self._foreign, event, out)
        if self._foreign is not None and self._foreign.stale:
            self._foreign.look(snapshot, out)
        return out

    def finish(self, run: Run) -> list[bytes]:
        """The updates still owed when the run has ended: a corrected text, a document that has no text.

        `run` is the run's last record. To be sent before the prompt's end is. A second call says nothing.
        """
        out: list[bytes] = []
        if self._foreign is not None:
            self._foreign.finish(run, out)
        return out

    def _spoken_by(self, marks: Container[str]) -> None:
        """Its agent is of this protocol or not, by the names in its description, or in what its events come from."""
        self._v2 = ORIGIN_V2 in marks
        if not self._v2 and PROTOCOL not in marks:
            self._foreign = self._listener()
            self._assembly = UpdateAssembly(foreign=True)

    def _listener(self) -> ForeignOutput:
        """Made for an agent of another protocol."""
        raise NotImplementedError

    def _say(self, event: e.Event, said: JsonObject, out: list[bytes]) -> None:
        """Say an update in the words of version 1 that the event makes whole."""
        raise NotImplementedError

    # --- an agent of this protocol -----------------------------------------------------------------------------------

    def _native(self, event: e.Event, out: list[bytes]) -> None:
        beyond = None if event.origin is None else event_forms.beyond(event)
        match event:
            case e.PartDelta():
                if event.part not in self._quiet:
                    kind, id = self._of.get(event.part, (MESSAGE, None))
                    self._say(event, self._chunk(kind, content.block_of(event.delta), id, beyond), out)
            case e.MessageStarted():
                self._messages[event.message] = (event.role, (beyond or {}).get("messageId"))
            case e.PartStarted():
                self._part(event, beyond, out)
            case e.PartEnded():
                self._ready.pop(event.part, None)
            case e.PartReplaced():
                if event.part not in self._quiet:
                    self._rewrite(event, out)
            case e.Custom():
                self._custom(event, out)
            case _:
                if (said := self._assembled(event, beyond)) is not None:
                    self._say(event, said, out)

    def _part(self, event: e.PartStarted, beyond: JsonObject | None, out: list[bytes]) -> None:
        role, id = self._messages.get(event.message, (Role.ASSISTANT, None))
        kind = THOUGHT if event.kind == "thought" else USER if role is Role.USER else MESSAGE
        id = self._known_as(event.message, role, kind, id)
        if event.kind == "file":
            self._say(event, self._chunk(MESSAGE, event.value, id, beyond), out)
            return
        self._of[event.part] = (kind, id)
        if kind == USER and self._is_known(id):
            self._quiet.add(event.part)
            return
        self._ready[event.part] = self._around(kind, id)
        if event.value:
            self._native(e.PartDelta(part=event.part, delta=event.value), out)

    def _known_as(self, message: str, role: Role, kind: str, id: Any) -> str | None:
        """The id by which the client knows a message's chunks of one kind; `id` is the agent's."""
        raise NotImplementedError

    def _is_known(self, id: str | None) -> bool:
        """Whether the client knows what the user said in this message."""
        raise NotImplementedError

    def _chunk(self, kind: str, block: JsonObject, id: str | None, beyond: JsonObject | None) -> JsonObject:
        said = event_forms.chunk(kind, block, id)
        return said if beyond is None else event_forms.restored(said, beyond)

    def _around(self, kind: str, id: str | None) -> Around:
        """A chunk around its text."""
        raise NotImplementedError

    def _rewrite(self, event: e.PartReplaced, out: list[bytes]) -> None:
        raise NotImplementedError

    def _custom(self, event: e.Custom, out: list[bytes]) -> None:
        raise NotImplementedError

    # --- any other ---------------------------------------------------------------------------------------------------

    def _of_others(self, foreign: ForeignOutput, event: e.Event, out: list[bytes]) -> None:
        """What its events say beyond the core is not ours to read."""
        match event:
            case e.PartDelta():
                foreign.grow(event, out)
            case e.MessageStarted():
                foreign.message(event)
            case e.PartStarted():
                foreign.start(event, out)
            case e.PartReplaced():
                foreign.replace(event, out)
            case e.PartEnded():
                self._ready.pop(event.part, None)
            case e.ArtifactAdded():
                foreign.artifact(event, out)
            case e.Custom() if self._agent is None and event.name in (PROTOCOL, ORIGIN_V2):
                self._v2 = self._v2 or event.name == ORIGIN_V2  # it is of this protocol, which did not show before
                self._native(event, out)
            case e.Custom():
                self._losses["custom"] += 1
            case _:
                if (said := self._assembled(event, None)) is not None:
                    self._say(event, said, out)

    def _assembled(self, event: e.Event, beyond: JsonObject | None) -> JsonObject | None:
        """The update that is whole with this event, in version 1's words. Ends and other token counts are kept."""
        if isinstance(event, e.TERMINAL):
            self.end = event
        elif isinstance(event, e.UsageReported) and not event_forms.is_usage(event.detail):
            self.usage = event
        else:
            return self._assembly.add(event, beyond)
        return None


def _marks(event: e.Event) -> Iterable[str]:
    return (event.name, *(event.origin or ())) if isinstance(event, e.Custom) else event.origin or ()


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
