"""However a run's events come together, a stream says the same, less what is superseded of a text that grows."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.agent_connect.codec_stream import StreamEncoder
from gateway.core import events as e
from gateway.core.types import Answer
from tests.adapters.agent_connect.api import Event
from tests.adapters.agent_connect.test_inbound_encoder import ID, QUESTION, RUN, SAME, Log, frames, say

BEGIN = (e.RunStarted(), e.MessageStarted(message="m"), e.PartStarted(part="thought", message="m", kind="thought"))
PARTS = [e.PartStarted(part="d", message="m", kind="data"), e.PartStarted(part="t", message="m")]
"""Each is the document of a run; what is said of the other is then said of nothing."""
DELTAS: list[Any] = [{"t": "a"}, {"t": "b"}, {"t": ""}, {"u": "c"}, {"t": "a", "u": "b"}, {"i": [None, "x"]}, {}]
EVENTS = st.one_of(
    st.sampled_from([e.PartDelta(part="d", delta=delta) for delta in DELTAS]),
    st.sampled_from([e.PartDelta(part="d", delta={"t": "é"}, origin={"own": 1}), *map(say, "abc"), say("")]),
    st.just(e.PartDelta(part="thought", delta="hm")),
    st.just(e.PartReplaced(part="d", value={"t": "new"})),
    st.sampled_from([e.Custom(name="agent_connect", data=1), e.Custom(name="own", data=2, origin={"own": 2})]),
    st.just(e.Interrupted(interrupt=QUESTION)),
)
ENDS = [e.RunFinished(), e.RunCancelled(reason="why"), e.Interrupted(interrupt=QUESTION)]


def snapshot(frame: Event) -> bool:
    return bool(frame.data["type"] == "values" and frame.data["status"] == "pending")


@settings(max_examples=100)
@given(
    part=st.sampled_from(PARTS),
    middle=st.lists(EVENTS, max_size=14),
    end=st.sampled_from(ENDS),
    sizes=st.lists(st.integers(1, 6), min_size=1),
    updates=st.booleans(),
    after=st.integers(0, 12),
)
def test_batches_say_what_events_say_one_by_one_less_what_is_superseded(
    *, part: e.Event, middle: list[e.Event], end: e.Event, sizes: list[int], updates: bool, after: int
) -> None:
    resumed = e.Resumed(interrupt=QUESTION.id, answer=Answer())
    said = [*BEGIN, part]
    for event in (*middle, end):
        said += [event, resumed] if isinstance(event, e.Interrupted) and event is not end else [event]
    modes = ("values", "custom") if updates else ("values",)
    single = StreamEncoder(ID, SAME, modes, after=(after, False))
    several = StreamEncoder(ID, SAME, modes, after=(after, False))
    one_by_one: list[Event] = []
    log = Log()
    for at, event in enumerate(said):
        asks = isinstance(event, e.Interrupted) and at + 1 < len(said)
        one_by_one += frames(single.feed(log.batch(event, newest=not asks), RUN, 0.0))
    log, at, turn = Log(), 0, 0
    while at < len(said):
        size = sizes[turn % len(sizes)]
        size += isinstance(said[at + size - 1], e.Interrupted) if at + size < len(said) else 0
        batch = log.batch(*said[at : at + size])
        got = frames(several.feed(batch, RUN, 0.0))
        at, turn = at + size, turn + 1
        due = [frame for frame in one_by_one if frame.number <= batch.last]
        one_by_one = one_by_one[len(due) :]
        left = got[::-1]
        for frame, following in zip_longest(due, due[1:]):
            if left and repr(frame) == repr(left[-1]):
                left.pop()
            else:
                assert following is not None and snapshot(frame) and snapshot(following), "superseded by the next"
        assert left == []
    assert single.done == several.done and one_by_one == []
