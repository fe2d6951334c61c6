"""Snapshots that arrive together: however the network splits a stream, the same is made of it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.agent_connect.decode import StreamDecoder
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.stream import Opener, coalesce
from gateway.core.types import Agent
from gateway.wire import sse

RUN = "848ae1b6-e90d-49f9-8a1e-da654bb863b0"
WHERE = "GET /runs/x/stream"
AGENT = Agent(name="a", input_schema={}, output_schema={})
TEXT = 'one "two"\\ \n\u2028 é€😀 and more'


def message(**fields: Any) -> bytes:
    return json.dumps({"type": "values", "run_id": RUN, "status": "pending", **fields}, ensure_ascii=False).encode()


def grows(count: int, items: int = 0, **fields: Any) -> bytes:
    return message(**fields, values={"items": ["x"] * items, "message": TEXT[:count]})


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Messages of a text that mostly grows, with what else a stream may say between them."""
    said: list[bytes] = []
    count = items = 0
    for _ in range(draw(st.integers(1, 14))):
        what = draw(st.sampled_from(["text"] * 6 + ["same", "item", "custom", "back", "status", "own", "empty"]))
        if what == "custom":
            said.append(json.dumps({"type": "custom", "run_id": RUN, "update": {"n": len(said)}}).encode())
            continue
        if what == "empty":
            said.append(b"")
            continue
        count = draw(st.integers(0, count)) if what == "back" else min(len(TEXT), count + (what == "text"))
        items += what == "item"
        status = "running" if what == "status" else "pending"
        own = {"own": len(said)} if what == "own" else {}
        said.append(grows(count, items, status=status, **own))
    return said


def read(pieces: list[bytes]) -> list[e.Event]:
    frames, decoder = sse.SseDecoder(), StreamDecoder()
    events = [x for piece in pieces for x in decoder.feed([frame.data for frame in frames.feed(piece)], WHERE)]
    assert decoder.broken is None
    return Opener().feed(events)


def folded(events: list[e.Event]) -> Any:
    output = Output(AGENT)
    for event in events:
        output.apply(event)
    return output.document


def texts_joined(events: list[e.Event]) -> list[e.Event]:
    return [event for _, event in coalesce(list(enumerate(events)))]


@settings(max_examples=60)
@given(streams(), st.lists(st.integers(0, 4000), max_size=12))
def test_the_same_is_made_of_a_stream_however_it_is_split_into_reads(said: list[bytes], cuts: list[int]) -> None:
    wire = b"".join(b"id: %d\nevent: agent_event\ndata: %b\n\n" % (at, data) for at, data in enumerate(said))
    edges = sorted({0, len(wire), *(cut % len(wire) for cut in cuts)})
    one_by_one = read([b"data: %b\n\n" % data for data in said])
    for pieces in ([wire], [wire[a:b] for a, b in pairwise(edges)]):
        events = read(pieces)
        assert texts_joined(events) == texts_joined(one_by_one)
        assert folded(events) == folded(one_by_one)
        others = [event for event in events if not isinstance(event, e.PartDelta)]
        assert others == [event for event in one_by_one if not isinstance(event, e.PartDelta)]


def test_a_text_that_grows_in_one_read_is_one_event_and_the_last_snapshot_is_known() -> None:
    decoder = StreamDecoder()
    decoder.feed([grows(1), grows(2)], WHERE)
    assert decoder.feed([grows(3), b"", grows(4), grows(4), grows(8)], WHERE) == [
        e.PartDelta(part="output", delta={"message": TEXT[2]}),
        e.PartDelta(part="output", delta={"message": TEXT[3:8]}),
    ]
    assert decoder.last is not None and json.loads(bytes(decoder.last))["message"] == TEXT[:8]


def test_the_only_message_of_a_stream_has_the_last_snapshot_though_it_makes_no_event() -> None:
    decoder = StreamDecoder()
    assert decoder.feed([message(values={"message": "x"}, status="success")], WHERE, last=True) == []
    assert decoder.last is not None and json.loads(bytes(decoder.last)) == {"message": "x"}


def test_items_updates_statuses_and_what_is_taken_back_stay_events_of_their_own() -> None:
    decoder = StreamDecoder()
    decoder.feed([grows(1), grows(2)], WHERE)
    update = json.dumps({"type": "custom", "run_id": RUN, "update": 1}).encode()
    events = decoder.feed([grows(3), grows(3, 1), grows(3, 2), update, grows(4, 2), grows(2, 2), grows(3, 2)], WHERE)
    assert events == [
        e.PartDelta(part="output", delta={"message": TEXT[2]}),
        e.PartDelta(part="output", delta={"items": ["x"]}),
        e.PartDelta(part="output", delta={"items": [None, "x"]}),
        e.Custom(name="agent_connect", data=1),
        e.PartDelta(part="output", delta={"message": TEXT[3]}),
        e.PartReplaced(part="output", pointer="/message", value=TEXT[:2]),
        e.PartDelta(part="output", delta={"message": TEXT[2]}),
    ]
