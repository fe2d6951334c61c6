"""Bodies that are poured: each piece is a call, made where it comes off the socket."""

from __future__ import annotations

import asyncio
import contextvars
import gzip

import pytest

from gateway.core.errors import AgentGone, InterlinguaError
from gateway.transport.http import HttpClient, StreamResponse
from tests.support.aio import EACH_LOOP
from tests.support.raw_http import Exchange, serving
from tests.support.scripted import until

pytestmark = EACH_LOOP

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def poured(response: StreamResponse) -> tuple[bytes, bool | InterlinguaError]:
    """All that was poured, and how it ended."""
    got: list[bytes] = []

    def take(piece: bytes) -> bool:
        got.append(piece)
        return True

    try:
        stopped: bool | InterlinguaError = await response.pour(take)
    except InterlinguaError as error:
        stopped = error
    return b"".join(got), stopped


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD, chunk(b"one"), chunk(b"two"), END],
        [HEAD + chunk(b"one"), chunk(b"two") + END],
        [HEAD + chunk(b"one") + chunk(b"two") + END],
        [SIZED, b"one", b"two"],
    ],
    ids=["one by one", "with the head, and with the end", "all at once", "of a known length"],
)
async def test_a_body_is_poured_to_its_end_however_it_comes(pieces: list[bytes]) -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(*pieces)

    async with serving(handler) as server, HttpClient(server.url) as client:
        for _ in range(2):  # the second over the same connection
            async with client.stream("GET", "/") as response:
                assert await poured(response) == (b"onetwo", False)
        assert server.connections == 1


async def test_a_body_that_has_arrived_is_exhausted_once_it_was_taken() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(SIZED + b"onetwo")

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        await until(lambda: response.whole)
        assert not response.exhausted
        assert await anext(response.chunks()) == b"onetwo"
        assert response.whole and response.exhausted


async def test_what_comes_after_a_piece_that_stopped_it_is_poured_next() -> None:
    more = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.say(HEAD + chunk(b"one"))
        await more.wait()
        await exchange.say(chunk(b"two"), chunk(b"three"), END)

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        got: list[bytes] = []

        def one(piece: bytes) -> bool:
            got.append(piece)
            return False

        assert await response.pour(one) and got == [b"one"]
        more.set()
        assert await poured(response) == (b"twothree", False)


async def test_what_was_held_back_is_poured_in_the_order_in_which_it_came() -> None:
    pieces = [b"%07d " % number for number in range(100_000)]

    async def handler(exchange: Exchange) -> None:
        await exchange.say(HEAD, *(chunk(b"".join(pieces[at : at + 50])) for at in range(0, len(pieces), 50)), END)

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        await until(lambda: response._connection.paused)  # it has read ahead as far as it does
        assert await poured(response) == (b"".join(pieces), False)


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
async def test_a_connection_that_breaks_ends_the_pouring_after_what_came_before(reset: bool) -> None:
    heard = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        await exchange.say(HEAD + chunk(b"one"))
        await heard.wait()
        exchange.reset() if reset else exchange.writer.close()

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        got: list[bytes] = []

        def take(piece: bytes) -> bool:
            got.append(piece)
            heard.set()
            return True

        with pytest.raises(AgentGone):
            await response.pour(take)
        assert got == [b"one"]


async def test_who_pours_late_takes_nothing_from_who_has_the_connection_by_then() -> None:
    more = asyncio.Event()
    asked = 0

    async def handler(exchange: Exchange) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await exchange.say(HEAD + chunk(b"whole") + END)
        else:
            await exchange.say(HEAD + chunk(b"one"))
            await more.wait()
            await exchange.say(chunk(b"two") + END)

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as late:
        async with client.stream("GET", "/") as response:
            heard = asyncio.Event()
            got: list[bytes] = []

            def take(piece: bytes) -> bool:
                heard.set()
                got.append(piece)
                return True

            pouring = asyncio.create_task(response.pour(take))
            await asyncio.wait_for(heard.wait(), 30)
            assert await poured(late) == (b"whole", False)
            more.set()
            assert await asyncio.wait_for(pouring, 30) is False and got == [b"one", b"two"]
        assert server.connections == 1


async def test_a_client_that_is_closed_ends_the_pouring() -> None:
    async def handler(exchange: Exchange) -> None:
        await exchange.say(HEAD + chunk(b"one"))
        await exchange.gone()

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        heard = asyncio.Event()

        def take(piece: bytes) -> bool:
            heard.set()
            return True

        pouring = asyncio.create_task(response.pour(take))
        await asyncio.wait_for(heard.wait(), 30)
        await client.aclose()
        with pytest.raises(AgentGone):
            await asyncio.wait_for(pouring, 30)


async def test_what_the_taker_raises_is_raised_and_it_runs_in_the_context_of_who_pours() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

    async def handler(exchange: Exchange) -> None:
        await exchange.say(HEAD, chunk(b"one"), END)

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        who.set("the reader")

        def take(piece: bytes) -> bool:
            raise LookupError(who.get())

        with pytest.raises(LookupError, match="the reader"):
            await response.pour(take)


async def test_a_compressed_body_is_poured_as_what_it_says() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two" * 1_000_000)

    async def handler(exchange: Exchange) -> None:
        head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
        await exchange.say(head, *(chunk(packed[at : at + 7]) for at in range(0, len(packed), 7)), END)

    async with serving(handler) as server, HttpClient(server.url) as client, client.stream("GET", "/") as response:
        assert await asyncio.wait_for(poured(response), 30) == (b"one" + b"two" * 1_000_000, False)
