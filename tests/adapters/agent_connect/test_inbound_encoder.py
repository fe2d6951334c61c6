"""The stream encoder alone: which events make frames, when, and with what id."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from adapters.agent_connect.codec_stream import BURST, INTERVAL, MOST_BEHIND, SMALL, StreamEncoder
from gateway.contract import Batch
from gateway.core import events as e
from gateway.core.output import Output
from gateway.core.types import Failure, Interrupt, Run, RunRequest, RunStatus
from tests.adapters.agent_connect.api import Event, parse
from tests.support import scripted

AGENT = replace(scripted.AGENT, text_output="/message")
SAME = replace(AGENT, extra={"agent_connect": {}})
ID = "11111111-1111-4111-8111-111111111111"
RUN = Run(
    id=ID,
    request=RunRequest(agent="scripted", input={}, protocol="agent_connect"),
    status=RunStatus.RUNNING,
    created_at=0.0,
    updated_at=0.0,
)
BEGIN = (e.RunStarted(), e.MessageStarted(message="m"), e.PartStarted(part="t", message="m"))
END = (e.PartEnded(part="t"), e.MessageEnded(message="m"))
QUESTION = Interrupt(id="q", kind="approval", payload={"question": "?"})


def say(text: str) -> e.PartDelta:
    return e.PartDelta(part="t", delta=text)


LARGE = say("x" * SMALL)


class Log:
    """Numbers events and makes the batches that a watch would give."""

    def __init__(self) -> None:
        self.output = Output(AGENT)
        self.last = 0

    def batch(self, *events: e.Event, newest: bool = True, skipped: bool = False) -> Batch:
        numbered = tuple(enumerate(events, self.last + 1))
        self.last += len(events)
        for event in events:
            self.output.apply(event)
        shown = tuple(pair for pair in numbered if not (skipped and isinstance(pair[1], e.PartDelta)))
        return Batch(events=shown, last=self.last, snapshot=self.output if newest else None, skipped=skipped)


def frames(data: bytes) -> list[Event]:
    return list(parse(iter([data])))


def text(event: Event) -> str:
    return str(event.data["values"]["message"])


def test_numbers_that_no_event_has_since_the_run_was_taken_over_say_nothing() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values",))
    encoder.feed(log.batch(*BEGIN, say("a")), RUN, 0.0)
    assert encoder.feed(Batch(events=(), last=4096, snapshot=log.output), RUN, 0.0) == b""
    log.last = 4096
    (event,) = frames(encoder.feed(log.batch(say("b")), RUN, 0.0))
    assert (event.id, text(event)) == ("4097", "ab")


def test_the_last_snapshot_of_a_text_comes_before_what_follows_it_even_after_an_empty_piece() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values", "custom"))
    update = e.Custom(name="own", data=1)
    got = frames(encoder.feed(log.batch(*BEGIN, say("a"), say("b"), say(""), update), RUN, 0.0))
    assert [(event.id, event.data["type"]) for event in got] == [("5", "values"), ("7", "custom")]


def test_a_small_document_that_is_replaced_again_and_again_stays_small() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values",))
    encoder.feed(log.batch(*BEGIN, say("x" * (SMALL // 2))), RUN, 0.0)
    for _ in range(5):
        encoder.feed(log.batch(e.PartReplaced(part="t", value="y" * (SMALL // 2))), RUN, 0.0)
    assert [event.id for event in frames(encoder.feed(log.batch(say("z")), RUN, 0.0))] == ["10"]


def test_what_is_more_than_a_text_that_grows_has_a_snapshot_of_its_own() -> None:
    begin = (e.RunStarted(), e.MessageStarted(message="m"), e.PartStarted(part="d", message="m", kind="data"))
    deltas = [
        {"t": "a"},
        {"t": "b"},
        {"i": ["x"]},
        {"i": [None, "y"]},
        {"i": [None, "z"]},
        {"n": 1},
        {"n": 1},
        {"t": "c"},
    ]
    changes = [e.PartDelta(part="d", delta=delta) for delta in deltas]
    replaced = e.PartReplaced(part="d", pointer="/t", value="new")
    got = frames(StreamEncoder(ID, AGENT, ("values",)).feed(Log().batch(*begin, *changes, replaced), RUN, 0.0))
    assert [event.id for event in got] == ["5", "6", "7", "8", "9", "10", "11", "12"]
    assert [len(event.data["values"].get("i", ())) for event in got] == [0, 1, 2, 3, 3, 3, 3, 3]
    assert got[-1].data["values"] == {"t": "new", "i": ["x", "y", "z"], "n": 2}


def test_pieces_taken_from_the_logs_document_say_what_our_own_fold_says_and_both_may_alternate() -> None:
    """A batch that does not reach the newest event has no document of the log's."""
    log, own, shared = Log(), StreamEncoder(ID, AGENT, ("values",)), StreamEncoder(ID, AGENT, ("values",))

    def same(*events: e.Event) -> None:
        batch = log.batch(*events)
        assert own.feed(replace(batch, snapshot=None), RUN, 0.0) == shared.feed(batch, RUN, 0.0) != b""

    same(*BEGIN, say("begun"))
    for turn in range(MOST_BEHIND + 50):
        same(say("x"))
        if turn == 20:
            same(e.PartReplaced(part="t", value="new"), say("a"), say("b"))
        if turn % 7 == 0:
            same(say("several "), say("at "), say("once"))
    end = log.batch(*END, e.RunFinished())  # the newest event, always
    assert own.feed(end, RUN, 0.0) == shared.feed(end, RUN, 0.0) != b""


@pytest.mark.parametrize(
    "event",
    [
        say("b"),
        LARGE,
        say(""),
        e.PartDelta(part="t", delta="b", origin={"own": 1}),
        e.PartDelta(part="other", delta="b"),
        e.PartReplaced(part="t", value="b"),
        e.PartEnded(part="t"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"joining": True}, {"after": (9, False)}, {"folding": False}])
def test_what_follows_a_piece_is_said_the_same_from_the_logs_document_and_from_our_own(
    event: e.Event, options: dict[str, Any]
) -> None:
    for modes in (("values",), ("custom",), ("values", "custom")):
        said: list[list[bytes]] = [[], []]
        for shared, frames_of in enumerate(said):
            log, encoder = Log(), StreamEncoder(ID, AGENT, modes, **options)
            whole = shared or options or event == LARGE
            for events in ((*BEGIN, say("a")), (say("c"),), (event,), (say("d"),)):
                batch = log.batch(*events)
                frames_of.append(encoder.feed(batch if whole else replace(batch, snapshot=None), RUN, 0.0))
        assert said[0] == said[1], modes


def test_a_large_document_is_sent_when_it_has_grown_or_time_has_passed_and_always_at_the_end() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values",))
    (first,) = frames(encoder.feed(log.batch(*BEGIN, say("x" * SMALL)), RUN, 10.0))
    assert len(text(first)) == SMALL
    assert not encoder.exact
    assert encoder.feed(log.batch(say("y")), RUN, 10.0) == b""
    assert encoder.due(10.0) == pytest.approx(INTERVAL)
    assert encoder.due(10.2) == pytest.approx(INTERVAL - 0.2)
    (held,) = frames(encoder.flush(10.0 + INTERVAL))
    assert (held.id, text(held)[-1]) == ("5.2", "y")
    assert encoder.due(10.3) is None and encoder.flush(11.0) == b""
    (grown,) = frames(encoder.feed(log.batch(say("z" * (SMALL // 40))), RUN, 10.3))
    assert grown.id == "6"
    (late,) = frames(encoder.feed(log.batch(say("w")), RUN, 10.3 + INTERVAL))
    assert text(late)[-1] == "w"
    assert encoder.feed(log.batch(say("v")), RUN, 10.56) == b""
    (last,) = frames(encoder.feed(log.batch(*END, e.RunFinished()), RUN, 10.56))
    assert (text(last)[-1], last.data["status"], encoder.done) == ("v", "success", True)


def test_what_was_held_back_of_a_large_document_is_sent_before_an_error() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values",))
    encoder.feed(log.batch(*BEGIN, say("x" * SMALL)), RUN, 1.0)
    assert encoder.feed(log.batch(say("y")), RUN, 1.0) == b""
    failure = e.RunFailed(failure=Failure(code="agent_gone", message="it went away"))
    said, failed = frames(encoder.feed(log.batch(*END, failure), RUN, 1.0))
    assert text(said)[-1] == "y"
    assert (said.id, failed.id) == ("8.1", "8")
    assert (failed.data["errcode"], failed.data["description"]) == (502, "it went away")


def test_a_batch_with_deltas_left_out_is_made_good_by_the_snapshot() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values",))
    encoder.feed(log.batch(*BEGIN, say("a")), RUN, 0.0)
    (one,) = frames(encoder.feed(log.batch(say("b"), say("c"), skipped=True), RUN, 1.0))
    assert (one.id, text(one)) == ("6", "abc")
    (two,) = frames(encoder.feed(log.batch(say("d")), RUN, 9.0))
    assert text(two) == "abcd"


def test_a_reader_that_lags_far_behind_a_small_document_gets_bounded_bytes_and_the_newest() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values",))
    sent = encoder.feed(log.batch(*BEGIN, *[say("word ")] * 3000), RUN, 0.0)
    assert len(sent) < 2 * BURST
    assert text(frames(sent)[-1]) == "word " * 3000


def test_a_burst_of_replacements_is_bounded_too() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values",))
    replaced = [e.PartReplaced(part="t", value=f"{number:08000}") for number in range(100)]
    sent = encoder.feed(log.batch(*BEGIN, *replaced), RUN, 0.0)
    assert len(sent) < 2 * BURST
    assert text(frames(sent)[-1]) == f"{99:08000}"


SEPARATORS = "a\u2028b\u2029c\u0085d\ne\rf"


def test_characters_that_some_clients_take_for_line_ends_are_escaped_in_every_kind_of_event() -> None:
    log, encoder = Log(), StreamEncoder(ID, SAME, ("values", "custom"))
    raw = encoder.feed(
        log.batch(
            *BEGIN,
            e.PartDelta(part="t", delta=SEPARATORS, origin={"own": SEPARATORS}),
            e.Custom(name="agent_connect", data={"x": SEPARATORS}),
            e.Interrupted(interrupt=replace(QUESTION, payload=SEPARATORS)),
        ),
        RUN,
        0.0,
    )
    failure = e.RunFailed(failure=Failure(code="agent_failed", message=SEPARATORS))
    raw += StreamEncoder(ID, AGENT, ("values",)).feed(Log().batch(e.RunStarted(), failure), RUN, 0.0)
    lines = [line for line in raw.decode().splitlines() if line.startswith("data: ")]
    assert len(lines) == raw.count(b"data: ") == 4
    said, update, asked, failed = (json.loads(line[6:]) for line in lines)
    assert said["values"]["message"] == said["own"] == update["update"]["x"] == SEPARATORS
    assert asked["interrupt"] == {"approval": SEPARATORS}
    assert failed["description"] == SEPARATORS


def test_who_follows_from_the_middle_gets_the_logs_snapshots() -> None:
    log = Log()
    log.batch(*BEGIN, say("a"))
    encoder = StreamEncoder(ID, AGENT, ("values",), after=(4, False), folding=False)
    (one,) = frames(encoder.feed(log.batch(say("b")), RUN, 0.0))
    assert (one.id, text(one)) == ("5", "ab")


def test_an_event_that_makes_two_frames_numbers_the_first_and_is_resumed_between_them() -> None:
    events = (*BEGIN, e.Custom(name="agent_connect", data={"n": 1}))
    encoder = StreamEncoder(ID, None, ("values", "custom"))
    both = frames(encoder.feed(Log().batch(e.RunStarted(), *BEGIN[1:], say("a"), events[-1]), RUN, 0.0))
    assert [(event.id, event.data["type"]) for event in both] == [("5.1", "custom"), ("5", "values")]
    resumed = StreamEncoder(ID, None, ("values", "custom"), after=(5, True))
    rest = frames(resumed.feed(Log().batch(*BEGIN, say("a"), events[-1]), RUN, 0.0))
    assert [(event.id, event.data["type"]) for event in rest] == [("5", "values")]


def test_the_agents_final_document_wins_and_stays_one_line() -> None:
    log, encoder = Log(), StreamEncoder(ID, AGENT, ("values",))
    final = {"message": "a\u2028b", "more": [1, 2]}
    pretty = json.dumps(final, indent=1, ensure_ascii=False).replace("\n", "\r\n").encode()
    raw = encoder.feed(log.batch(*BEGIN, say("a"), *END, e.RunFinished(output=msgspec.Raw(pretty))), RUN, 0.0)
    assert raw.decode().splitlines()[-2].startswith("data: ")
    assert len(raw.decode().splitlines()) == 8
    assert frames(raw)[-1].data["values"] == final


def test_a_document_that_is_null_is_an_empty_object() -> None:
    encoder = StreamEncoder(ID, None, ("custom",))
    (last,) = frames(encoder.feed(Batch(events=((1, e.RunStarted()), (2, e.RunFinished())), last=2), RUN, 0.0))
    assert last.data["values"] == {}
