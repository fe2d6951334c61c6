"""`gateway.wire.sse`: the WHATWG grammar, one case table read whole, in pieces and byte by byte."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import AgentBroken
from gateway.wire.sse import KEEPALIVE, Frame, SseDecoder, encode, escape_separators

# name: (the stream, the frames it stands for)
CASES: dict[str, tuple[bytes, list[Frame]]] = {
    "one line": (b"data: a\n\n", [Frame("message", b"a")]),
    "no space after the colon": (b"data:a\n\n", [Frame("message", b"a")]),
    "only one space goes": (b"data:  a \n\n", [Frame("message", b" a ")]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [Frame("message", b"a"), Frame("message", b"b")]),
    "cr": (b"data: a\r\rdata: b\r\r", [Frame("message", b"a"), Frame("message", b"b")]),
    "mixed line ends": (
        b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n",
        [Frame("message", b"a"), Frame("message", b"b"), Frame("message", b"c")],
    ),
    "cr then lf is one line end": (b"data: a\r\ndata: b\r\n\r\n", [Frame("message", b"a\nb")]),
    "lf then cr are two": (b"data: a\n\rdata: b\n\n", [Frame("message", b"a"), Frame("message", b"b")]),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [Frame("message", b"a")]),
    "a second byte order mark belongs to the field name": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    "a byte order mark later is no mark": (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [Frame("message", b"a")]),
    "several data lines": (b"data: YHOO\ndata: +2\ndata: 10\n\n", [Frame("message", b"YHOO\n+2\n10")]),
    "the standard's second example": (
        b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
        [
            Frame("message", b"first event", "1"),
            Frame("message", b"second event", ""),
            Frame("message", b" third event"),
        ],
    ),
    "the standard's third example": (b"data\n\ndata\ndata\n\ndata:", [Frame("message", b""), Frame("message", b"\n")]),
    "the standard's fourth example": (
        b"data:test\n\ndata: test\n\n",
        [Frame("message", b"test"), Frame("message", b"test")],
    ),
    "all fields": (b"id: 7.2\nevent: agent_event\nretry: 3000\ndata: {}\n\n", [Frame("agent_event", b"{}", "7.2")]),
    "the last of each field counts": (b"id: 1\nid: 2\nevent: a\nevent: b\ndata: x\n\n", [Frame("b", b"x", "2")]),
    "an id with NUL is ignored": (b"id: 1\nid: 2\0\ndata: x\n\n", [Frame("message", b"x", "1")]),
    "an empty event name is message": (b"event: a\nevent\ndata: x\n\n", [Frame("message", b"x")]),
    "an event without data is not dispatched": (b"event: a\n\ndata: x\n\n", [Frame("message", b"x")]),
    "a retry that is no number is ignored": (
        b"retry: 1s\ndata: a\n\nretry: -1\ndata: b\n\n",
        [Frame("message", b"a"), Frame("message", b"b")],
    ),
    "a retry beyond reason is ignored": (b"retry: " + b"9" * 5000 + b"\ndata: a\n\n", [Frame("message", b"a")]),
    "unknown fields and cases are ignored": (
        b"foo: 1\nData: x\ndata : y\n data: z\ndata: a\n\n",
        [Frame("message", b"a")],
    ),
    "comments inside an event": (b":a\ndata: x\n:b\ndata: y\n\n", [Frame("message", b"x\ny")]),
    "blank lines between events": (
        b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n",
        [Frame("message", b"a"), Frame("message", b"b")],
    ),
    "an unfinished event is dropped": (b"data: a\n\ndata: b\n", [Frame("message", b"a")]),
    "a colon in the value": (b"data: a: b:\n\n", [Frame("message", b"a: b:")]),
    "bad utf-8 in data is left to the reader": (b"event: \xff\ndata: \xff\n\n", [Frame("\ufffd", b"\xff")]),
    "separators of other alphabets do not end lines": (
        "data: a\u2028b\u0085c\x0bd\x0ce\n\n".encode(),
        [Frame("message", "a\u2028b\u0085c\x0bd\x0ce".encode())],
    ),
    "nothing": (b"", []),
}


def read(chunks: list[bytes], **options: int) -> tuple[list[Frame], SseDecoder]:
    decoder = SseDecoder(**options)
    frames = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    decoder.close()
    return frames, decoder


def outcome(chunks: list[bytes], limit: int) -> tuple[list[Frame], bool]:
    decoder = SseDecoder(limit)
    frames: list[Frame] = []
    try:
        for chunk in chunks:
            frames += decoder.feed(chunk)
        decoder.close()
    except AgentBroken:
        return frames, True
    return frames, False


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize("name", CASES)
def test_a_stream_stands_for_its_frames(name: str) -> None:
    stream, frames = CASES[name]
    assert read([stream])[0] == frames


@pytest.mark.parametrize("name", CASES)
def test_a_stream_read_byte_by_byte_gives_the_same_frames(name: str) -> None:
    stream, frames = CASES[name]
    assert read([stream[i : i + 1] for i in range(len(stream))])[0] == frames


@pytest.mark.parametrize("name", CASES)
def test_a_stream_split_in_two_anywhere_gives_the_same_frames(name: str) -> None:
    stream, frames = CASES[name]
    for place in range(min(len(stream), 200) + 1):
        assert read([stream[:place], stream[place:]])[0] == frames


LINES = st.lists(
    st.sampled_from(
        [
            b"data: a",
            b"data:b",
            b"data",
            b"data: ",
            b"id: 1",
            b"id",
            b"id: \0",
            b"event: e",
            b"retry: 5",
            b": c",
            b":",
            b"x: y",
            b"\xef\xbb\xbf",
            "data: \u2028é".encode(),
            b"",
            b"data: 0123456789",
        ]
    ).flatmap(lambda line: st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n"]).map(lambda end: line + end)),
    max_size=12,
).map(b"".join)
PLACES = st.lists(st.integers(min_value=0, max_value=500), max_size=8)


@given(LINES | st.binary(max_size=60), PLACES)
def test_any_chunking_gives_the_same_frames_and_ids(stream: bytes, places: list[int]) -> None:
    whole, one = read([stream])
    pieces, many = read(cut(stream, places))
    assert pieces == whole
    assert (many.last_event_id, many.retry) == (one.last_event_id, one.retry)


@given(LINES, PLACES, st.integers(min_value=1, max_value=30))
def test_any_chunking_breaks_at_the_same_event(stream: bytes, places: list[int], limit: int) -> None:
    assert outcome(cut(stream, places), limit) == outcome([stream], limit)


@given(LINES | st.binary(max_size=60), PLACES)
def test_the_fast_decoder_agrees_with_the_standard_taken_literally(stream: bytes, places: list[int]) -> None:
    assert read(cut(stream, places))[0] == literally(stream)


def literally(stream: bytes) -> list[Frame]:
    """The standard's own words, line by line, slowly."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    frames: list[Frame] = []
    data, event, ident = b"", b"", None
    for line in text.split(b"\n")[:-1]:
        if not line:
            if data:
                name = event.decode("utf-8", "replace") or "message"
                frames.append(Frame(name, data[:-1], ident))
            data, event, ident = b"", b"", None
            continue
        if line.startswith(b":"):
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"data":
            data += value + b"\n"
        elif field == b"event":
            event = value
        elif field == b"id" and b"\0" not in value:
            ident = value.decode("utf-8", "replace")
    return frames


NAMES = st.text(max_size=8).filter(lambda s: not set(s) & set("\r\n\0"))


@given(st.binary(max_size=80).filter(lambda data: b"\r" not in data), st.none() | NAMES.filter(bool), st.none() | NAMES)
def test_what_is_encoded_is_decoded(data: bytes, event: str | None, ident: str | None) -> None:
    frames, _ = read([encode(data, event=event, id=ident)])
    assert frames == [Frame(event or "message", data, ident)]


def test_an_encoded_event_is_written_as_clients_expect_it() -> None:
    assert encode(b'{"a":1}', event="agent_event", id="3") == b'id: 3\nevent: agent_event\ndata: {"a":1}\n\n'
    assert encode(b"a\r\nb\rc\n") == b"data: a\ndata: b\ndata: c\ndata: \n\n"


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"])
def test_a_name_or_id_that_would_break_the_frame_is_a_defect(bad: str) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        encode(b"x", event=bad)
    with pytest.raises(ValueError, match="cannot hold"):
        encode(b"x", id=bad)


def test_keep_alives_are_never_delivered() -> None:
    decoder = SseDecoder()
    assert decoder.feed(KEEPALIVE * 3) == []
    assert decoder.feed(b":") == []
    assert decoder.feed(b"\n") == []


def test_endless_comments_without_a_blank_line_never_reach_the_limit() -> None:
    decoder = SseDecoder(limit=20)
    for _ in range(100):
        assert decoder.feed(b": ping\n") == []
    assert decoder.feed(b"data: a\n\n") == [Frame("message", b"a")]


def test_the_id_of_an_event_without_data_is_remembered() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"id: 9\nretry: 20\n\n") == []
    assert (decoder.last_event_id, decoder.retry) == ("9", 20)
    assert decoder.feed(b"data: a\n\n") == [Frame("message", b"a")]
    assert decoder.last_event_id == "9"


def test_the_first_line_of_an_event_may_have_come_alone() -> None:
    event = b'id: 3\nevent: agent_event\ndata: {"a":1}\n\n'
    decoder = SseDecoder()
    assert decoder.feed(b"retry: 10\n") == []
    assert decoder.feed(event + event) == [Frame("agent_event", b'{"a":1}', "3"), Frame("agent_event", b'{"a":1}', "3")]


def test_the_id_of_an_event_counts_once_the_event_is_complete() -> None:
    decoder = SseDecoder()
    decoder.last_event_id = "0"
    assert decoder.feed(b"data: a\n\nid: 8\ndata: b\n") == [Frame("message", b"a")]
    assert decoder.last_event_id == "0"
    assert decoder.feed(b"\nid:9\n") == [Frame("message", b"b", "8")]
    assert decoder.last_event_id == "8"
    decoder.close()
    assert decoder.last_event_id == "8"


def test_a_line_of_exactly_the_limit_is_read_and_one_byte_more_is_refused() -> None:
    assert outcome([b"data: 4567\n\n"], 10) == ([Frame("message", b"4567")], False)
    assert outcome([b"data: 45678\n\n"], 10) == ([], True)
    assert outcome([b"data: 45678"], 10) == ([], True)
    assert outcome([b"data: 4567", b"8\n\n"], 10) == ([], True)
    assert outcome([b"data: 4567\r\n", b"\r\n"], 10) == ([Frame("message", b"4567")], False)


def test_data_lines_are_limited_together_before_the_event_ends() -> None:
    assert outcome([b"data: 1\n" * 3], 25) == ([], False)
    assert outcome([b"data: 1\n" * 4], 25) == ([], False)
    assert outcome([b"data: 1\n" * 5], 25) == ([], True)
    assert outcome([b"data:1\n"] * 5, 25) == ([], False)
    assert outcome([b"data:1\n"] * 6, 25) == ([], True)
    assert outcome([b"data: 1\ndata: 2\n\n" * 20], 25)[1] is False


def test_an_endless_line_is_refused_before_it_is_collected() -> None:
    decoder = SseDecoder(limit=1000)
    with pytest.raises(AgentBroken, match="1000 bytes"):
        for _ in range(11):
            decoder.feed(b"x" * 100)
    with pytest.raises(AgentBroken):
        decoder.feed(b"data: a\n\n")


def test_events_before_the_oversized_one_are_delivered_and_then_it_breaks() -> None:
    decoder = SseDecoder(limit=10)
    assert decoder.feed(b"data: a\n\ndata: 0123456789\n\ndata: b\n\n") == [Frame("message", b"a")]
    with pytest.raises(AgentBroken):
        decoder.close()


def test_the_end_inside_an_event_is_visible() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.close()
    decoder = SseDecoder()
    decoder.feed(b"data: a\n\n: bye\n")
    assert not decoder.close()


def test_a_large_event_in_small_chunks_costs_linear_time() -> None:
    decoder = SseDecoder(limit=1 << 24)
    chunk = b"x" * 64
    decoder.feed(b"data: ")
    for _ in range(1 << 16):  # 4 MiB; quadratic copying would be 128 GiB and hit the suite's timeout
        decoder.feed(chunk)
    (frame,) = decoder.feed(b"\n\n")
    assert len(frame.data) == 1 << 22


@given(st.text())
def test_escaped_json_means_the_same_and_has_no_separators(text: str) -> None:
    text += "\u2028a\u2029…\u0085é"
    escaped = escape_separators(json.dumps({"t": text}, ensure_ascii=False).encode())
    assert json.loads(escaped) == {"t": text}
    assert not {"\u2028", "\u2029", "\u0085"} & set(escaped.decode())


def test_json_without_separators_is_passed_on_untouched() -> None:
    for plain in (b'{"a":1}', '{"a":"é…—"}'.encode()):
        assert escape_separators(plain) == plain
