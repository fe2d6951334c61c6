"""What a request is on the wire, which connection it takes, and TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import AgentGone, AgentTimeout, Invalid
from gateway.transport.guard import Guard
from gateway.transport.http import FilePart, HttpAuth, HttpClient, Unreachable
from gateway.transport.http.credentials import ReloadedTls
from gateway.transport.http.outgoing import CallUrl
from tests.support import aio
from tests.support.aio import EACH_LOOP
from tests.support.certificates import authority
from tests.support.processes import free_port
from tests.support.raw_http import Exchange, serving
from tests.support.scripted import until

pytestmark = EACH_LOOP


async def hello(exchange: Exchange) -> None:
    await exchange.answer(b"hello")


# -- URLs and heads --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("http://a.test", "a.test:80", "/"),
        ("HTTPS://A.Test?x=1", "a.test:443", "/?x=1"),
        ("http://a.test:81/x/./y/../z/", "a.test:81", "/x/z/"),
        ("http://a.test/x/..", "a.test:80", "/"),
        ("http://a.test/a b/ü?q=a b&r=%20#part", "a.test:80", "/a%20b/%C3%BC?q=a%20b&r=%20"),
        ("http://a.test/.well-known/x", "a.test:80", "/.well-known/x"),
        ("http://a.test//x//y", "a.test:80", "//x//y"),
        ("http://[::1]:81/x", "[::1]:81", "/x"),
        ("http://bücher.test/", "xn--bcher-kva.test:80", "/"),
    ],
)
def test_a_url_is_what_is_sent_for_it(url: str, host: str, target: str) -> None:
    parsed = CallUrl.parse(url)
    assert (parsed.origin.name, parsed.target) == (host, target)


@pytest.mark.parametrize(
    "url",
    ["http://", "ftp://a.test", "http://a b.test/", "http://a.test\\@b.test/", "http://a.test:x/", "http://[::1/"],
)
def test_what_is_no_url_is_refused_and_not_repeated_in_the_error(url: str) -> None:
    with pytest.raises(Invalid) as caught:
        CallUrl.parse(url)
    assert "a.test" not in str(caught.value)


async def test_requests_with_the_same_head_have_lengths_of_their_own_and_others_heads_of_their_own() -> None:
    async with serving(hello) as server, HttpClient(server.url, headers={"X-Share": "100%d"}) as client:
        for path, headers, body in (
            ("/a", None, b"1"),
            ("/a", None, b"22"),
            ("/a", {"X-More": "5% %s"}, b"22"),
            ("/b?q=%20", None, b"22"),
            ("/a", None, b""),
        ):
            await client.request("POST", path, json=body, headers=headers)
        for number in range(200):
            await client.request("POST", f"/{number}", json=b"4444")
        seen = server.seen
        assert {one.headers["x-share"] for one in seen} == {"100%d"}
        assert [(one.target, one.body, one.headers.get("x-more")) for one in seen[:5]] == [
            ("/a", b"1", None),
            ("/a", b"22", None),
            ("/a", b"22", "5% %s"),
            ("/b?q=%20", b"22", None),
            ("/a", b"", None),
        ]
        assert [one.target for one in seen[5:]] == [f"/{number}" for number in range(200)]


async def test_credentials_in_a_url_are_sent_unless_a_header_has_others() -> None:
    async with serving(hello) as server:
        url = server.url.replace("://", "://us%C3%A9r:p%40ss@")
        async with HttpClient(url) as client:
            await client.request("GET", "/")
        async with HttpClient(url, auth=HttpAuth(bearer="t")) as client:
            await client.request("GET", "/")
        assert [seen.headers["authorization"] for seen in server.seen] == ["Basic dXPDqXI6cEBzcw==", "Bearer t"]


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "Expect", "Upgrade", "a b", "", "X:"])
def test_a_header_that_would_change_the_framing_is_refused(name: str) -> None:
    async def test() -> None:
        async with HttpClient("http://127.0.0.1:9") as client:
            with pytest.raises(Invalid):
                await client.request("POST", "/", headers={name: "5"})

    aio.run(test())


async def test_a_request_says_how_long_its_body_is_and_what_it_is() -> None:
    async with serving(hello) as server, HttpClient(server.url, headers={"host": "other.test"}) as client:
        await client.request("GET", "/", params={"q": "a b&c", "n": 1})
        await client.request("POST", "/?x=1", params=[("x", "2"), ("x", "ü")])
        await client.request("PUT", "/", body=b"x")
        await client.request("PUT", "/", body=b"", headers={"Content-Type": "text/x"})
        get, post, put, empty = server.seen
        assert (get.target, post.target) == ("/?q=a+b%26c&n=1", "/?x=1&x=2&x=%C3%BC")
        assert {"content-length", "content-type"}.isdisjoint(get.headers)
        assert (post.headers["content-length"], "content-type" in post.headers) == ("0", False)
        assert (put.headers["content-length"], put.headers["content-type"]) == ("1", "application/octet-stream")
        assert (empty.headers["content-length"], empty.headers["content-type"]) == ("0", "text/x")
        assert {seen.headers["host"] for seen in server.seen} == {"other.test"}


async def test_a_request_that_says_close_closes() -> None:
    async def handler(exchange: Exchange) -> None:
        close = exchange.headers.get("connection")
        await exchange.answer(b"hello", **({"Connection": close} if close else {}))

    async with serving(handler) as server, HttpClient(server.url, headers={"Connection": "close"}) as client:
        for _ in range(2):
            assert (await client.request("GET", "/")).body == b"hello"
        assert server.connections == 2


# -- bodies ----------------------------------------------------------------------------------------


async def test_a_body_whose_source_fails_is_never_taken_for_a_whole_one() -> None:
    async def pieces(error: Exception) -> AsyncIterator[bytes]:
        yield b"one"
        raise error

    async def handler(exchange: Exchange) -> None:
        raise AssertionError("no request was whole")

    async with serving(handler) as server, HttpClient(server.url) as client:
        with pytest.raises(Invalid, match="the file is gone"):
            await client.request("PUT", "/", body=pieces(Invalid("the file is gone")))
        with pytest.raises(AgentGone, match="not be sent whole"):
            await client.upload("/", {}, [FilePart("a", "b", pieces(OSError("disk")))])
        assert server.seen == []


async def test_a_source_is_closed_when_nobody_wants_more_of_it() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 65536
        finally:
            ended.set()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with HttpClient(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(AgentTimeout):
                await client.request("POST", "/", body=endless(), timeout=0.1)
            await asyncio.wait_for(ended.wait(), 30)


# -- connections -----------------------------------------------------------------------------------


def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async def test() -> None:
        clock = asyncio.get_running_loop()
        assert isinstance(clock, aio.Clock)
        async with serving(hello) as server, HttpClient(server.url) as client:
            await client.request("GET", "/")
            clock.ahead += 3
            await client.request("GET", "/")
            assert server.connections == 1
            clock.ahead += 5
            await client.request("POST", "/")
            assert server.connections == 2
            await aio.later(9)  # and then it is closed
            await until(server.seen[-1].reader.at_eof)

    aio.run(test(), timeout=1000, loop_factory=aio.Clock)


async def test_a_place_in_the_pool_goes_to_who_waited_longest_and_is_not_lost_with_who_gave_up() -> None:
    more = asyncio.Event()

    async def handler(exchange: Exchange) -> None:
        if exchange.target == "/first":
            await more.wait()
        await exchange.answer(b"hello")

    async with serving(handler) as server, HttpClient(server.url, pool_size=1) as client:
        first, *others = [
            asyncio.ensure_future(client.request("GET", path)) for path in ("/first", "/a", "/b", "/c", "/d")
        ]
        await until(lambda: len(server.seen) == 1)
        others[0].cancel()
        more.set()
        await first
        others[1].cancel()  # it may have the place already
        for each in others[2:]:
            assert (await asyncio.wait_for(each, 30)).body == b"hello"
        assert (await client.request("GET", "/e")).body == b"hello"
        assert [seen.target for seen in server.seen if seen.target not in ("/b",)] == ["/first", "/c", "/d", "/e"]


async def test_a_client_that_is_closed_ends_what_waits_for_a_connection() -> None:
    asked = asyncio.Event()

    async def never(host: str, port: int) -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    client = HttpClient("http://a.test", pool_size=1, guard=Guard(resolve=never))
    calls = [asyncio.ensure_future(client.request("GET", "/", timeout=30)) for _ in range(2)]
    await asked.wait()
    await client.aclose()
    for call in calls:
        with pytest.raises(AgentGone, match="closed"):
            await asyncio.wait_for(call, 30)


async def test_a_name_with_several_addresses_is_reached_at_the_one_that_answers() -> None:
    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    guard = Guard(["127.0.0.0/8"], resolve=two)
    async with serving(hello) as server, HttpClient(guard=guard) as client:
        assert (await client.request("GET", f"http://a.test:{server.port}/")).body == b"hello"
        with pytest.raises(Unreachable):
            await client.request("GET", f"http://a.test:{free_port()}/")


def test_a_name_is_resolved_once_for_the_connections_that_are_made_together() -> None:
    class Counting(asyncio.SelectorEventLoop):
        lookups = 0

        async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
            self.lookups += host == "localhost"
            return await super().getaddrinfo("127.0.0.1", port, **options)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Counting)
        async with serving(hello) as server, HttpClient(f"http://localhost:{server.port}") as client:
            await asyncio.gather(*(client.request("GET", "/") for _ in range(10)))
            assert (server.connections, loop.lookups) == (10, 1)

    aio.run(test(), loop_factory=Counting)


# -- TLS -------------------------------------------------------------------------------------------


def trusting(authority: Path) -> HttpAuth:
    return HttpAuth(tls=ReloadedTls((authority,), lambda: ssl.create_default_context(cafile=authority)))


async def test_calls_over_tls_share_a_connection_and_go_only_to_whom_the_context_trusts(tmp_path: Path) -> None:
    (known, chain), (other, _) = authority(tmp_path, "known"), authority(tmp_path, "other")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)
    connections, sizes, large = 0, [], 3 << 20

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                sizes.append(int(head.partition(b"Content-Length: ")[2].partition(b"\r")[0]))
                await reader.readexactly(sizes[-1])
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % large + b"x" * large)
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with HttpClient(url, auth=trusting(known)) as client:
            for body in (b"x", b"y" * large):
                assert (await client.request("POST", "/", body=body)).body == b"x" * large
            async with client.stream("POST", "/", json=b"") as response:
                assert await anext(response.chunks())
        assert (connections, sizes) == (1, [1, large, 0])
        for trusted in (trusting(other), None):
            async with HttpClient(url, auth=trusted) as stranger:
                with pytest.raises(Unreachable, match="no TLS connection"):
                    await stranger.request("GET", "/")
