"""Newline-delimited JSON: whatever comes in whatever pieces, lines come out in order."""

from __future__ import annotations

import tracemalloc

import pytest

from gateway.core.errors import AgentBroken
from gateway.wire.ndjson import NdjsonDecoder, Splitter, Unreadable, frame

LONG = b"y" * 40 + b"z"
STREAM = b'\xef\xbb\xbf{"a":1}\r\n\n  \n' + LONG + b"\n" + 'é"\n'.encode() + b"\xff\xfe\n" + b"x" * 40 + b"\nlast"
LINES = [
    b'{"a":1}',
    Unreadable("a line of 41 bytes, over the limit of 40", LONG, 41, LONG),
    'é"'.encode(),
    Unreadable("a line that is not UTF-8", b"\xff\xfe", 2, b"\xff\xfe"),
    b"x" * 40,
    b"last",
]


def _split(pieces: list[bytes], limit: int = 40) -> list[bytes | Unreadable]:
    splitter = Splitter(limit)
    return [line for piece in pieces for line in splitter.feed(piece)] + splitter.close()


@pytest.mark.parametrize("at", range(len(STREAM) + 1))
def test_lines_are_the_same_wherever_the_stream_is_cut(at: int) -> None:
    assert _split([STREAM[:at], STREAM[at:]]) == LINES


def test_lines_are_the_same_byte_by_byte() -> None:
    assert _split([STREAM[at : at + 1] for at in range(len(STREAM))]) == LINES


def test_of_a_line_over_the_limit_only_its_ends_are_kept() -> None:
    splitter = Splitter(1000)
    piece = b"z" * 999
    tracemalloc.start()
    for _ in range(1000):
        assert splitter.feed(piece) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000
    assert splitter.skipping
    assert splitter.feed(b"end") == []
    (line, following) = splitter.feed(b"\nok\n")
    assert isinstance(line, Unreadable)
    assert (line.size, line.start, line.end) == (999_003, b"z" * 200, b"z" * 197 + b"end")
    assert following == b"ok"


def test_a_byte_order_mark_is_dropped_before_the_first_line_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert _split([mark + b"1\n" + mark + b"2\n"]) == [b"1", mark + b"2"]


def test_a_large_line_that_is_not_utf8_at_its_very_end_is_noticed() -> None:
    size = 3 * 1024 * 1024
    good, bad = "€".encode() * (size // 3), "€".encode() * (size // 3) + b"\xe2\x82"
    (first, second) = _split([good + b"\n" + bad + b"\n"], limit=2 * size)
    assert first == good
    assert isinstance(second, Unreadable)


def test_a_decoder_breaks_at_a_line_over_the_limit_before_its_end_has_come() -> None:
    decoder = NdjsonDecoder(10)
    assert decoder.feed(b"0123456789\n01234") == [b"0123456789"]
    with pytest.raises(AgentBroken, match="more than 10 bytes"):
        decoder.feed(b"567890")


@pytest.mark.parametrize("bad", [b"01234567890\n", b"\xff\n"])
def test_a_decoder_breaks_at_an_unreadable_line(bad: bytes) -> None:
    with pytest.raises(AgentBroken):
        NdjsonDecoder(10).feed(bad)


def test_messages_are_framed_one_a_line() -> None:
    assert frame([b"1", b'{"a":"b"}']) == b'1\n{"a":"b"}\n'
    assert frame([]) == b""


def test_no_reader_cuts_a_framed_message_in_two() -> None:
    pretty = '{\r\n "a": "\u2028\u2029\u0085é"\n}'.encode()
    framed = frame([pretty, b"2"])
    assert framed.count(b"\n") == 2
    assert framed.decode().splitlines() == ['{   "a": "\\u2028\\u2029\\u0085é" }', "2"]
