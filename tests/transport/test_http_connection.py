"""`gateway.transport.http.connection`: what a server says, split at every byte, and judged by h11."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import h11
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError
from gateway.transport.http.connection import HEAD_BYTES, CallConnection
from gateway.transport.http.response import HELD_BYTES
from tests.support import aio


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        self.closed = False
        self.reading = True

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


@dataclass
class Heard:
    """What came of one request."""

    status: int = 0
    headers: list[tuple[str, list[str]]] = field(default_factory=list)
    body: bytes = b""
    error: type[InterlinguaError] | None = None
    kept: bool = False


class Line:
    """A connection without a socket."""

    def __init__(self) -> None:
        self.over: list[bool] = []
        self.transport = FakeTransport()
        self.connection = CallConnection(
            asyncio.get_running_loop(), "agent:80", over=lambda _, kept: self.over.append(kept), lost=lambda _: None
        )
        self.connection.connection_made(self.transport)

    async def ask(self, said: list[bytes], method: str = "GET", *, eof: bool = True) -> Heard:
        """What a request hears of a server that says this, and then closes."""
        asked = asyncio.ensure_future(self.connection.exchange(method, b"", b"", chunked=False))
        await asyncio.sleep(0)
        for piece in said:
            if not self.transport.closed:
                self.connection.data_received(piece)
        heard = Heard(kept=self.over == [True] and not self.transport.closed)
        if eof and not self.transport.closed:
            self.connection.eof_received()
        try:
            response = await asyncio.wait_for(asked, 30)
            heard.status = response.status
            heard.headers = [(name, response.headers.getall(name)) for name in response.headers]
            while piece := await asyncio.wait_for(response.receive(), 30):
                heard.body += piece
        except InterlinguaError as error:
            heard.error = type(error)
        assert len(self.over) == 1, "it is told once that the exchange is over"
        return heard


def hear(said: list[bytes], method: str = "GET") -> Heard:
    async def heard() -> Heard:
        return await Line().ask(said, method)

    return aio.run(heard())


def judged(said: bytes, method: str = "GET") -> Heard:
    """What h11 hears of it."""
    judge = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
    judge.send(h11.Request(method=method, target="/", headers=[("Host", "agent")]))
    judge.send(h11.EndOfMessage())
    if said:
        judge.receive_data(said)
    heard, at_end = Heard(), False
    try:
        while True:
            event = judge.next_event()
            if event is h11.NEED_DATA:
                if at_end:
                    heard.error = AgentGone
                    return heard
                judge.receive_data(b"")
                at_end = True
            elif isinstance(event, h11.Response):
                heard.status = event.status_code
                for name, value in event.headers:
                    text = value.decode("latin-1")
                    known = dict(heard.headers)
                    if name.decode() in known:
                        known[name.decode()].append(text)
                    else:
                        heard.headers.append((name.decode(), [text]))
            elif isinstance(event, h11.Data):
                heard.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                kept = judge.their_state is h11.DONE and not judge.trailing_data[0]
                heard.kept = kept and not at_end
                return heard
            elif isinstance(event, h11.ConnectionClosed):
                heard.error = AgentGone
                return heard
    except h11.RemoteProtocolError:
        heard.error = AgentBroken if not at_end else AgentGone
        return heard


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
AGREED = {
    "a length": ("GET", OK + b"Content-Length: 5\r\nX-A: 1\r\nx-a: two\r\n\r\nhello"),
    "no reason": ("GET", b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"),
    "chunks": ("GET", CHUNKED + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"),
    "padded chunk sizes": ("GET", CHUNKED + b"5  \r\nhello\r\n0\r\n\r\n"),
    "chunk extensions and trailers": ("GET", CHUNKED + b'5;a="b"\r\nhello\r\n0\r\nX-Sum: 1\r\nStatus: 2\r\n\r\n'),
    "until it closes": ("GET", OK + b"\r\nhello"),
    "one that closes": ("GET", OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello"),
    "HTTP/1.0": ("GET", b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    "interim answers": (
        "POST",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        + OK
        + b"Content-Length: 2\r\n\r\nhi",
    ),
    "HEAD": ("HEAD", OK + b"Content-Length: 5000\r\n\r\n"),
    "HEAD of chunks": ("HEAD", CHUNKED),
    "204": ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
    "304 with a length": ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
    "bare line feeds": ("GET", b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"),
    "other letters": ("GET", OK + "X: größe\r\nContent-Length: 0\r\n\r\n".encode("latin-1")),
    "too short": ("GET", OK + b"Content-Length: 10\r\n\r\nhello"),
    "chunks without the last": ("GET", CHUNKED + b"5\r\nhello\r\n"),
    "half a head": ("GET", b"HTTP/1.1 200 OK\r\nContent-"),
    "nothing": ("GET", b""),
    "no HTTP": ("GET", b"220 mail.example ESMTP\r\n\r\n"),
    "lengths that differ": ("GET", OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    "a signed length": ("GET", OK + b"Content-Length: +5\r\n\r\nhello"),
    "space before the colon": ("GET", OK + b"Content-Length : 5\r\n\r\nhello"),
    "a control character": ("GET", OK + b"X: a\0b\r\nContent-Length: 0\r\n\r\n"),
    "a bare return": ("GET", OK + b"X: a\rb\r\nContent-Length: 0\r\n\r\n"),
    "another encoding": ("GET", OK + b"Transfer-Encoding: gzip\r\n\r\nhello"),
    "two encodings": ("GET", OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "an encoding that only looks so": ("GET", OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "a chunk size that is none": ("GET", CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n"),
    "a chunk that is longer": ("GET", CHUNKED + b"5\r\nhello!\r\n0\r\n\r\n"),
    "a protocol switched unasked": ("GET", b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello"),
}
"""What h11 and this connection hear alike."""

STRICTER = {
    "a length beside chunks": OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "chunks beside a length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "equal lengths": OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": OK + b"Content-Length: 5, 5\r\n\r\nhello",
    "a folded line": OK + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "a folded encoding": OK + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "chunks of HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length among the trailers": CHUNKED + b"0\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
}
"""What is refused here, whatever h11 makes of it: two readers may disagree about where it ends."""


@pytest.mark.parametrize("case", AGREED)
def test_what_a_server_says_is_heard_as_h11_hears_it_wherever_it_is_split(case: str) -> None:
    method, said = AGREED[case]
    expected = judged(said, method)
    assert hear([said], method) == expected
    assert hear([said[place : place + 1] for place in range(len(said))], method) == expected
    for place in range(1, len(said)):
        assert hear([said[:place], said[place:]], method) == expected, place


@pytest.mark.parametrize("case", STRICTER)
def test_an_answer_whose_end_is_doubtful_is_refused_wherever_it_is_split(case: str) -> None:
    said = STRICTER[case]
    bytewise = [said[place : place + 1] for place in range(len(said))]
    for split in ([said], bytewise):
        heard = hear(split)
        assert (heard.error, heard.kept) == (AgentBroken, False)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("extra", [b"x", b"0\r\n\r\n", OK + b"Content-Length: 4\r\n\r\nevil"])
@pytest.mark.parametrize("together", [True, False])
async def test_bytes_after_an_answer_close_the_connection(method: str, extra: bytes, together: bool) -> None:
    line = Line()
    said = OK + b"Content-Length: 5\r\n\r\n" + (b"hello" if method == "GET" else b"")
    heard = await line.ask([said + extra] if together else [said, extra], method, eof=False)
    assert (heard.error, heard.body) == (None, b"hello" if method == "GET" else b"")
    assert line.transport.closed


async def test_a_connection_serves_one_request_after_the_other() -> None:
    line = Line()
    for method, said in (
        ("HEAD", OK + b"Content-Length: 5\r\n\r\n"),
        ("GET", CHUNKED + b"1\r\na\r\n0\r\nT: 1\r\n\r\n"),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
    ):
        line.over.clear()
        heard = await line.ask([said], method, eof=False)
        assert (heard.error, heard.kept) == (None, True)
    assert not line.transport.closed


ENDLESS = {
    "a header": [OK + b"X: ", *[b"x" * 1000] * 1000],
    "headers": [OK, *[b"X: " + b"x" * 1000 + b"\r\n"] * 1000],
    "interim answers": [b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"] * 10_000,
    "trailers": [CHUNKED + b"1\r\na\r\n0\r\n", *[b"X: " + b"x" * 1000 + b"\r\n"] * 1000],
    "a chunk extension": [CHUNKED + b"1;", *[b"x" * 1000] * 1000],
    "a reason": [b"HTTP/1.1 200 ", *[b"x" * 1000] * 1000],
}


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("case", ENDLESS)
def test_what_has_no_end_is_refused(case: str, together: bool) -> None:
    said = [b"".join(ENDLESS[case])] if together else ENDLESS[case]
    heard = hear(said)
    assert heard.error is AgentBroken


async def test_a_socket_is_not_read_while_nobody_takes_what_it_said() -> None:
    line = Line()
    asked = asyncio.ensure_future(line.connection.exchange("GET", b"", b"", chunked=False))
    await asyncio.sleep(0)
    line.connection.data_received(OK + b"\r\n")
    response = await asked
    for _ in range(HELD_BYTES // 1024):
        line.connection.data_received(b"x" * 1024)
    assert line.transport.reading
    line.connection.data_received(b"x")
    assert not line.transport.reading
    assert len(await response.receive()) == HELD_BYTES + 1
    assert line.transport.reading


async def test_an_answer_that_ends_in_the_read_that_fills_it_leaves_the_socket_read_for_the_next() -> None:
    line = Line()
    size = HELD_BYTES + 1
    heard = await line.ask([OK + b"Content-Length: %d\r\n\r\n" % size, b"x" * size], eof=False)
    assert (len(heard.body), heard.kept, line.transport.reading) == (size, True, True)


async def test_a_request_that_is_given_up_when_its_answer_is_there_takes_nothing_from_the_next() -> None:
    """Its connection is free by then, and may be the next request's before the first one wakes."""
    line = Line()
    first = asyncio.ensure_future(line.connection.exchange("GET", b"", b"", chunked=False))
    await asyncio.sleep(0)
    line.connection.data_received(OK + b"Content-Length: 1\r\n\r\na")
    first.cancel()
    second = line.connection.exchange("GET", b"", b"", chunked=False)
    second.send(None)
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not line.transport.closed
    line.connection.data_received(OK + b"Content-Length: 1\r\n\r\nb")
    with pytest.raises(StopIteration) as done:
        second.send(None)
    assert await done.value.value.receive() == b"b"


NAMES = st.sampled_from(["X-A", "Content-Type", "ETag", "Set-Cookie"])
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, bytes]:
    """An answer that h11 has written, with the method of its request."""
    method = draw(st.sampled_from(["GET", "HEAD", "POST"]))
    server = h11.Connection(h11.SERVER)
    server.receive_data(f"{method} / HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert isinstance(server.next_event(), h11.Request)
    assert isinstance(server.next_event(), h11.EndOfMessage)
    pieces = draw(st.lists(st.binary(min_size=1, max_size=30), max_size=4))
    headers = draw(st.lists(st.tuples(NAMES, VALUES), max_size=4))
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    if framing == "length":
        headers.append(("Content-Length", str(sum(map(len, pieces)))))
    elif framing == "close":
        headers.append(("Connection", "close"))
    said = b""
    for status in draw(st.lists(st.sampled_from([100, 102, 103]), max_size=2)):
        said += server.send(h11.InformationalResponse(status_code=status, headers=[])) or b""
    status = draw(st.sampled_from([200, 201, 204, 304, 404, 500]))
    said += server.send(h11.Response(status_code=status, headers=headers)) or b""
    if method != "HEAD" and status not in (204, 304):
        for piece in pieces:
            said += server.send(h11.Data(data=piece)) or b""
    said += server.send(h11.EndOfMessage()) or b""
    return method, said


@settings(max_examples=200, deadline=None)
@given(answer=answers(), cuts=st.lists(st.integers(0, 400), max_size=6))
@example(answer=("HEAD", OK + b"Content-Length: 3\r\n\r\n"), cuts=[])
def test_what_h11_writes_is_heard_as_h11_hears_it(answer: tuple[str, bytes], cuts: list[int]) -> None:
    method, said = answer
    places = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(said)), len(said)]
    pieces = [said[begin:end] for begin, end in pairwise(places)]
    assert hear(pieces, method) == judged(said, method)


@settings(max_examples=300, deadline=None)
@given(answer=answers(), place=st.integers(0, 400), put=st.binary(max_size=3), gone=st.integers(0, 3))
def test_an_answer_with_a_fault_is_heard_alike_wherever_it_is_split_and_never_as_another_than_h11_hears(
    answer: tuple[str, bytes], place: int, put: bytes, gone: int
) -> None:
    method, said = answer
    said = said[:place] + put + said[place + gone :]
    heard = hear([said], method)
    bytewise = hear([said[at : at + 1] for at in range(len(said))], method)
    assert replace(bytewise, kept=heard.kept) == heard  # an empty line after it is noticed only if it comes by itself
    expected = judged(said, method)
    if heard.error is None and expected.error is None:
        assert (heard.status, heard.body) == (expected.status, expected.body)
