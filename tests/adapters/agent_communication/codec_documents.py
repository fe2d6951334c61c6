"""Runs whose output is a document, for the codec's property tests: their events, and what clients fold of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec import Raw

from adapters.agent_communication.codec.agents import agent_of
from adapters.agent_communication.codec.deltas_in import DeltaDecoder
from adapters.agent_communication.codec.deltas_out import DeltaEncoder
from adapters.agent_connect.decode import StreamDecoder
from gateway.core import delta
from gateway.core import events as e
from gateway.core.delta import ABSENT, combine, same
from gateway.core.output import Output
from gateway.core.types import Agent, Artifact, Json, JsonObject, Role
from tests.mcp.runs.documents import BARE, CHAT, MESSAGE, Numbered, numbered, run_of
from tests.support.examples import EXAMPLES

unhurried = settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
"""For property tests: judged by what they find, not by how long a busy machine takes over it."""

AGENTS = (MESSAGE, CHAT, BARE)


class Told:
    """A client that folds the deltas it is told."""

    def __init__(self) -> None:
        self.document: Json = ABSENT
        self.deltas: list[Json] = []

    def hear(self, said: Sequence[bytes]) -> None:
        for each in said:
            members = json.loads(b'{"delta":' + each + b"}")
            assert isinstance(members["delta"], dict)
            self.deltas.append(members["delta"])
            self.document = combine(self.document, members["delta"])

    @property
    def output(self) -> Json:
        """What a client shows that began with an empty object."""
        return {} if self.document is ABSENT else self.document


def ended(agent: Agent, events: Numbered, final: bytes | None = None) -> tuple[Numbered, bytes]:
    """The run's whole log, with the end that the engine gives it, and its output."""
    output = Output(agent)
    for _, event in events:
        output.apply(event)
    end = e.RunFinished(output=msgspec.Raw(final if final is not None else b"null"))
    correction = output.correction(end)
    last: list[e.Event] = [*([correction] if correction is not None else []), end]
    whole = [*events, *enumerate(last, len(events) + 1)]
    return whole, output.finish(end)


def states(agent: Agent, events: Numbered) -> Iterator[Json]:
    """The document after each event."""
    output = Output(agent)
    for _, event in events:
        output.apply(event)
        if not output.empty:
            yield output.document


def published(agent: Agent, document: Json) -> Json:
    """A document as clients are told it."""
    wraps = agent.output_schema.get("type") != "object" and "agent_communication" not in agent.extra
    if wraps:
        return {"output": document}
    return document if isinstance(document, dict) else {} if document is None else {"output": document}


def alike(a: Json, b: Json) -> bool:
    """`same`, but for 1 and 1.0."""
    return same(_integral(a), _integral(b))


def _integral(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _integral(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_integral(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def once(part: Json, at: list[Json]) -> bool:
    """Whether every value of a document is one that it had, in the same place, in one of some documents."""
    if isinstance(part, dict):
        objects = [each for each in at if isinstance(each, dict)]
        return bool(objects) and all(
            once(value, [each[key] for each in objects if key in each]) for key, value in part.items()
        )
    if isinstance(part, list):
        lists = [each for each in at if isinstance(each, list)]
        return bool(lists) and all(
            once(value, [each[i] for each in lists if len(each) > i]) for i, value in enumerate(part)
        )
    return any(same(part, each) for each in at)


# --- strategies --------------------------------------------------------------------------------------------------

KEYS = ("a", "b", "text", "é", "a/b", "~")
LETTERS = 'ab"\\\n\u2028é😀'
FLOATS = (0.0, -0.0, 1.0, 0.1, 0.2, -0.3, 1e16)
HALVES = "\ud83d\ude00"


class Dice:
    """Draws JSON values by small integers, which is fast, and shrinks well. `floats`: their sums are not exact."""

    def __init__(self, draw: Any, *, floats: bool = False) -> None:
        self._draw = draw
        self._floats = floats
        self._letters = LETTERS + HALVES

    def __call__(self, sides: int) -> int:
        return int(self._draw(BELOW[sides]))

    def text(self) -> str:
        text = "".join(self._letters[self(len(self._letters))] for _ in range(self(5)))
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    def number(self) -> float:
        return FLOATS[self(len(FLOATS))] if self._floats and self(2) else self(7) - 3

    def value(self, depth: int = 3) -> Json:
        match self(8 if depth else 5):
            case 0:
                return None
            case 1:
                return bool(self(2))
            case 2:
                return self.number()
            case 3 | 4:
                return self.text()
            case 5:
                return [self.value(depth - 1) for _ in range(self(4))]
            case _:
                return self.object(depth - 1)

    def object(self, depth: int = 3) -> JsonObject:
        return {KEYS[self(len(KEYS))]: self.value(depth) for _ in range(self(4))}

    def delta(self, value: Json) -> Json:
        """A delta that the value can take."""
        if value is None:
            return self.value()
        if self(6) == 0:
            return None
        if isinstance(value, bool):
            return value
        if isinstance(value, int | float):
            return self.number()
        if isinstance(value, str):
            return self.text()
        if isinstance(value, list):
            if not value:
                return [self.value() for _ in range(self(4))]
            return [self.delta(value[-1]), *(self.value(1) for _ in range(self(3)))] if self(5) else []
        change = {key: self.delta(part) for key, part in value.items() if self(3)}
        fresh = KEYS[self(len(KEYS))]
        return change if fresh in value or self(2) else {**change, fresh: self.value(2)}

    def rewritten(self, value: Json) -> Json:
        """The same with one place in it changed."""
        if isinstance(value, dict) and value and self(8):
            key = list(value)[self(len(value))]
            if self(4) == 0:
                return {name: part for name, part in value.items() if name != key}
            return {**value, key: self.rewritten(value[key])}
        if isinstance(value, list) and value and self(8):
            at = self(len(value))
            if self(4) == 0:
                return value[:at] + value[at + 1 :]
            return [*value[:at], self.rewritten(value[at]), *value[at + 1 :]]
        return self.value(1)


BELOW = {sides: st.integers(0, sides - 1) for sides in range(1, 40)}


@st.composite
def growing(draw: st.DrawFn, objects: bool = True) -> list[Json]:
    """Snapshots of a document, each grown from the last by a delta."""
    dice = Dice(draw)
    document = dice.object() if objects else dice.value()
    snapshots = [document]
    for _ in range(dice(7)):
        document = combine(document, dice.delta(document))
        snapshots.append(document)
    return snapshots


@st.composite
def histories(draw: st.DrawFn, objects: bool = True) -> list[Json]:
    """Snapshots of a document, some of which take back or rewrite what an earlier one said."""
    dice = Dice(draw, floats=True)
    snapshots: list[Json] = [dice.object() if objects else dice.value()]
    for _ in range(dice(7)):
        match dice(10):
            case 0:
                document = dice.object() if objects else dice.value()
            case 1 | 2:
                document = snapshots[dice(len(snapshots))]
            case 3 | 4 | 5:
                document = dice.rewritten(snapshots[-1])
                if objects and not isinstance(document, dict):
                    document = {}
            case _:
                document = combine(snapshots[-1], dice.delta(snapshots[-1]))
        snapshots.append(document)
    return snapshots


def of_snapshots(snapshots: Sequence[Json]) -> Numbered:
    """The events of an agent that streams these documents, through the codec of another protocol."""
    decoder = StreamDecoder("r")
    messages = [
        json.dumps({"type": "values", "run_id": "r", "status": "pending", "values": each}).encode()
        for each in snapshots
    ]
    events = decoder.feed(messages, "the stream")
    assert decoder.broken is None
    return numbered(events)


@st.composite
def speech(draw: st.DrawFn, *, rewrites: bool = False) -> Numbered:
    """The events of an agent that speaks: messages, parts, thoughts, tool calls, files; whoever says them."""
    events: list[e.Event] = []
    texts: list[str] = []
    words = st.text('ab é😀\n\u2028"', max_size=5)
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.integers(0, 11 if rewrites else 8))
        if kind <= 2 or not texts:
            message = f"m{draw(st.integers(0, 3))}"
            role = draw(st.sampled_from([Role.ASSISTANT, Role.ASSISTANT, Role.ASSISTANT, Role.USER]))
            texts.append(f"p{number}")
            events += [
                e.MessageStarted(message=message, role=role),
                e.PartStarted(part=texts[-1], message=message, value=draw(st.none() | words)),
            ]
        elif kind <= 5:
            events.append(e.PartDelta(part=texts[-1], delta=draw(words)))
        elif kind == 6:
            events += [
                e.PartStarted(part=f"th{number}", message="m0", kind="thought"),
                e.PartDelta(part=f"th{number}", delta=draw(words)),
            ]
        elif kind == 7:
            events += [e.ToolCallStarted(call=f"c{number}", name="look"), e.ToolCallEnded(call=f"c{number}", output=1)]
        elif kind == 8:
            events.append(e.ArtifactAdded(artifact=Artifact(id="a", name="f", url=f"http://x/{number}")))
        elif kind == 9:
            events.append(e.PartReplaced(part=draw(st.sampled_from(texts)), value=draw(words)))
        else:
            events.append(e.PartDelta(part=draw(st.sampled_from(texts)), delta=draw(words)))
    return numbered(events)


@st.composite
def cut(draw: st.DrawFn, events: Numbered) -> list[Numbered]:
    """The events in pieces."""
    pieces, at = [], 0
    while at < len(events):
        size = draw(st.integers(1, 4))
        pieces.append(events[at : at + size])
        at += size
    return pieces


def tell(agent: Agent, events: Numbered, output: bytes) -> tuple[Told, DeltaEncoder]:
    """All that a client is told of a run."""
    told, encoder = Told(), DeltaEncoder(agent)
    told.hear(encoder.feed(events))
    told.hear(encoder.finish(run_of(agent, output)))
    return told, encoder


def document_of(raw: bytes) -> Json:
    """Any document, from its JSON."""
    return delta.sound(delta.decode(raw))


# --- agents of this protocol --------------------------------------------------------------------------------------

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def bee(output_schema: JsonObject = TEXT) -> Agent:
    return agent_of({"name": "bee", "inputSchema": TEXT, "outputSchema": output_schema})


def params(change: Any, **more: Any) -> Raw:
    return Raw(json.dumps({"progressToken": "t", "delta": change, **more}).encode())


def heard(decoder: DeltaDecoder, *changes: Any) -> list[e.Event]:
    return [event for change in changes for event in decoder.feed(params(change))]


def folded(agent: Agent, events: list[e.Event]) -> Any:
    output = Output(agent)
    for _, event in numbered(events):
        output.apply(event)
    return output.document
