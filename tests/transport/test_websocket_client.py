"""`gateway.transport.websocket.connect`, against servers that are not ours."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import socket
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

import pytest
import uvloop
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from gateway.core.errors import AgentBroken, AgentGone, AgentTimeout, Invalid
from gateway.transport.http import Unreachable
from gateway.transport.pipe import Pipe, Unreadable
from gateway.transport.refusal import refusal_reason
from gateway.transport.websocket.client import ClientSocket, UpgradeRefused, connect
from tests.support import aio
from tests.support.aio import EACH_LOOP
from tests.support.websockets import library_serving, tcp_serving

pytestmark = EACH_LOOP

MIB = 1024 * 1024
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return lambda coro: aio.run(coro, loop_factory=request.param)


async def echo(server: ServerConnection) -> None:
    async for message in server:
        await server.send(message)


async def receive(pipe: Pipe, count: int) -> list[bytes | Unreadable]:
    """`count` messages, fewer if it ends."""
    found: list[bytes | Unreadable] = []
    while len(found) < count and (arrived := await pipe.receive()):
        found += arrived
    return found


async def test_messages_go_both_ways_in_order_as_text() -> None:
    kinds: list[type] = []

    async def server(connection: ServerConnection) -> None:
        async for message in connection:
            kinds.append(type(message))
            await connection.send(message)

    async with library_serving(server) as url:
        pipe = await connect(url)
        sent = [b'{"n":%d,"t":"\xc3\xa9"}' % n for n in range(500)]
        await pipe.send(sent)
        assert await receive(pipe, 500) == sent
        assert set(kinds) == {str}
        await pipe.aclose()
        assert await pipe.receive() == []
        await pipe.aclose()


async def test_sixteen_mebibytes_and_more_pass_both_ways_whole_or_in_fragments() -> None:
    async def server(connection: ServerConnection) -> None:
        message = await connection.recv()
        assert isinstance(message, str)
        await connection.send(message)
        await connection.send(message[at : at + MIB] for at in range(0, len(message), MIB))

    async with library_serving(server) as url:
        pipe = await connect(url)
        large = b'{"a":"' + b"x" * (17 * MIB) + b'"}'
        await pipe.send([large])
        assert [m == large for m in await receive(pipe, 2)] == [True, True]
        await pipe.aclose()


async def test_over_the_limit_is_unreadable_and_the_connection_lives_on() -> None:
    async with library_serving(echo) as url:
        pipe = await connect(url, limit=1000)
        await pipe.send([b"x" * 1000, b'{"id":1,' + b"y" * 1200, b"z"])
        whole, over, last = await receive(pipe, 3)
        assert (whole, last) == (b"x" * 1000, b"z")
        assert over == Unreadable("a message of more than 1000 bytes", b'{"id":1,' + b"y" * 192, 1208, b"y" * 200)
        await pipe.send([b"x" * 3000])
        with pytest.raises(AgentGone, match="far over the limit"):
            await pipe.receive()
        await pipe.aclose()


async def test_a_binary_message_is_unreadable_and_nothing_is_read_into_it() -> None:
    async def server(connection: ServerConnection) -> None:
        await connection.send(b'{"jsonrpc":"2.0","id":1,"method":"m"}')
        await connection.send("text")

    async with library_serving(server) as url:
        pipe = await connect(url)
        assert await receive(pipe, 3) == [Unreadable("a binary message", b"", 37), b"text"]
        await pipe.aclose()


def test_what_the_upgrade_says_both_ways(run: Run) -> None:
    seen: list[Request] = []

    async def server(connection: ServerConnection) -> None:
        assert connection.request is not None
        seen.append(connection.request)

    def respond(connection: ServerConnection, request: Request, response: Response) -> None:
        response.headers["Acp-Connection-Id"] = "c1"
        response.headers["X-Many"] = "a"
        response.headers["X-Many"] = "b"

    async def main() -> None:
        async with library_serving(server, process_response=respond, subprotocols=["rpc", "x"]) as url:
            pipe = await connect(
                url.replace("ws://", "http://"),
                headers={"Authorization": "Bearer s", "X-Latin": "é"},
                subprotocols=["x", "rpc"],
            )
            assert pipe.headers["acp-connection-id"] == "c1"
            assert pipe.headers["x-many"] == "a, b"
            assert pipe.headers["sec-websocket-protocol"] == "rpc"
            assert pipe.name == url.removeprefix("ws://")
            await pipe.aclose()

    run(main())
    [first] = (request.headers for request in seen)
    assert first["Authorization"] == "Bearer s"
    assert first["X-Latin"] == "é"
    assert first["User-Agent"] == "interlingua"
    assert "Sec-WebSocket-Extensions" not in first  # no compression


@pytest.mark.parametrize(
    "headers",
    [
        {"X": "a\r\nHost: evil"},
        {"X": "a\nb"},
        {"X": "a\0"},
        {"X\r\nY": "a"},
        {"X Y": "a"},
        {"": "a"},
        {"X": "\u2028"},
        {"Host": "evil"},
        {"Sec-WebSocket-Key": "a"},
        {"connection": "close"},
    ],
    ids=repr,
)
def test_a_header_that_would_smuggle_another_is_refused_without_its_value(headers: dict[str, str]) -> None:
    with pytest.raises(Invalid) as caught:
        aio.run(connect("ws://127.0.0.1:1/", headers=headers))
    assert "evil" not in str(caught.value) + caught.value.detail


@pytest.mark.parametrize(
    "url", ["", "ftp://h/", "ws://", "ws:///p", "ws://h:x/", "ws://h/a b", "ws://h/\r\nX: y", "ws://[::1/", "h:80"]
)
def test_what_is_no_url_is_invalid(url: str) -> None:
    with pytest.raises(Invalid):
        aio.run(connect(url))


async def test_credentials_and_queries_stay_out_of_names_and_errors() -> None:
    async with library_serving(echo) as url:
        pipe = await connect(url.replace("ws://", "ws://user:secret@") + "?token=secret")
        assert "secret" not in pipe.name
        await pipe.aclose()
    with pytest.raises(Unreachable) as caught:
        await connect(url.replace("ws://", "ws://user:secret@") + "?token=secret")
    assert "secret" not in str(caught.value) + caught.value.detail


# --- no connection -----------------------------------------------------------------------------------------------


async def test_a_status_that_is_no_upgrade_is_told_with_what_came() -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response:
        response = connection.respond(HTTPStatus.NOT_FOUND, "no such agent")
        response.headers["X-Reason"] = "r"
        return response

    async with library_serving(echo, process_request=refuse) as url:
        with pytest.raises(UpgradeRefused, match=r"status 404: no such agent$") as caught:
            await connect(url)
        assert (caught.value.status, caught.value.body) == (404, b"no such agent")
        assert caught.value.headers["x-reason"] == "r"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error": "no agent nosuch;\\n there are a, b"}', ": no agent nosuch; there are a, b"),
        (b'{"error": {"code": 1, "message": "not you"}}', ": not you"),
        (b"not  here\n", ": not here"),
        (b'{"error": "' + b"x" * 9000 + b'"}', f": {'x' * 200}"),
        (b"y" * 9000, f": {'y' * 200}"),
        (b"<html>Oops</html>", ": Not Found"),
        (b"<!doctype html>\n<TITLE lang=en>Oops &lt;1&gt;</TITLE><h1>x</h1>", ": Oops <1>"),
        (b'{"error": 3}', ": Not Found"),
        (b"[]", ": []"),
        (b"", ": Not Found"),
    ],
)
def test_a_refusal_is_told_in_the_servers_words_on_one_line_and_in_bounds(body: bytes, told: str) -> None:
    assert refusal_reason(404, body) == told
    assert refusal_reason(799, b"") == ""


def test_a_redirect_is_not_followed_and_nothing_secret_goes_anywhere_else(run: Run) -> None:
    visited: list[str] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visited.append((await reader.read(1000)).decode())

    async def main() -> None:
        async with tcp_serving(elsewhere) as other:

            async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 307 T\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % other.encode())
                await writer.drain()
                await reader.read()

            async with tcp_serving(redirect) as url:
                with pytest.raises(UpgradeRefused) as caught:
                    await connect(url, headers={"X-Api-Key": "s"})
                assert caught.value.status == 307
                assert caught.value.headers["location"] == other

    run(main())
    assert visited == []


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")

    async with library_serving(echo) as url:
        pipe = await connect(url)
        await pipe.send([b"1"])
        assert await pipe.receive() == [b"1"]
        await pipe.aclose()


def test_nobody_there_is_unreachable(run: Run) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable):
            run(connect(f"ws://127.0.0.1:{bound.getsockname()[1]}/"))
    with pytest.raises(Unreachable):
        run(connect("ws://nowhere.invalid/"))


async def test_who_does_not_answer_the_upgrade_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)

    async with tcp_serving(silent) as url:
        with pytest.raises(AgentTimeout):
            await connect(url, open_timeout=0.1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", AgentGone),
        (b"SSH-2.0-OpenSSH_9.2\r\n", AgentBroken),
        (
            b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n",
            AgentBroken,
        ),
        (b"HTTP/1.1 101 S\r\n\r\n", AgentBroken),
    ],
)
async def test_who_does_not_speak_websocket_is_told_so(answer: bytes, error: type[Exception]) -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.write_eof()
        await reader.read()

    async with tcp_serving(odd) as url:
        with pytest.raises(error) as caught:
            await connect(url, open_timeout=30)
        assert type(caught.value) is error


def test_why_no_connection_is_made_to_a_name_with_two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", 1)) for last in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    with pytest.raises(Unreachable, match=r"to agent\.example:1: connection refused$"):
        aio.run(connect("ws://agent.example:1"))


async def test_tls_is_refused_by_who_has_none() -> None:
    async with library_serving(echo) as url:
        with pytest.raises(AgentGone):
            await connect(url.replace("ws://", "wss://"))


async def test_a_caller_that_is_cancelled_while_connecting_leaves_nothing() -> None:
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        connected.set()
        with contextlib.suppress(ConnectionError):
            await reader.read(-1)
        gone.set()

    connected = asyncio.Event()
    async with tcp_serving(silent) as url:
        connecting = asyncio.create_task(connect(url))
        await connected.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await asyncio.wait_for(gone.wait(), 30)


# --- the end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason", "told"),
    [(1000, "", None), (1001, "bye", None), (1011, "out of memory", "1011 out of memory"), (4000, "", r"4000\)")],
)
async def test_a_close_is_the_end_and_says_why_where_there_is_more_to_say(
    code: int, reason: str, told: str | None
) -> None:
    async def server(connection: ServerConnection) -> None:
        await connection.send("last")
        await connection.close(code, reason)

    async with library_serving(server) as url:
        pipe = await connect(url)
        assert await pipe.receive() == [b"last"]
        if told is None:
            assert await pipe.receive() == []
        else:
            with pytest.raises(AgentGone, match=told):
                await pipe.receive()
        with pytest.raises(AgentGone):
            await pipe.send([b"1"])
        await pipe.aclose()
        assert await pipe.receive() == []


async def test_a_connection_that_is_cut_is_gone() -> None:
    async def server(connection: ServerConnection) -> None:
        await connection.recv()
        connection.transport.abort()

    async with library_serving(server) as url:
        pipe = await connect(url)
        await pipe.send([b"1"])
        with pytest.raises(AgentGone, match="lost"):
            await pipe.receive()
        await pipe.aclose()


async def test_text_that_is_no_utf8_ends_the_connection() -> None:
    async def server(connection: ServerConnection) -> None:
        await connection.send(b"\xff", text=True)
        await connection.wait_closed()
        assert connection.close_code == 1007

    async with library_serving(server) as url:
        pipe = await connect(url)
        with pytest.raises(AgentGone, match="not UTF-8"):
            await pipe.receive()
        await pipe.aclose()


async def upgraded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the upgrade by hand (RFC 6455, section 4.2.2)."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    key = next(line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
    head = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept.decode()}\r\n\r\n"
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\n" + head.encode())
    await writer.drain()


async def test_who_answers_no_ping_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.transport.websocket.client.PING_INTERVAL", 0.02)

    async def dead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await upgraded(reader, writer)
        await reader.read(-1)

    async with tcp_serving(dead) as url:
        pipe = await connect(url, patience=0.05)
        with pytest.raises(AgentGone, match=r"did not answer a ping, and not a byte has come or gone for 0.05 s"):
            await pipe.receive()
        await pipe.aclose()


@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_line_on_which_bytes_move_is_not_given_up_however_long_a_pong_waits(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message is on its way for longer than nothing may move. The system's buffers hold several MiB of it."""
    monkeypatch.setattr("gateway.transport.websocket.client.PING_INTERVAL", 0.02)
    monkeypatch.setattr("gateway.transport.websocket.client.LOOKS", 100)
    patience, pieces = 1.0, 40

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await upgraded(reader, writer)
        if way == "down":
            writer.write(b"\x81\x7f" + (pieces * MIB).to_bytes(8, "big"))
        for _ in range(pieces):
            await asyncio.sleep(patience / 16)
            if way == "up":
                await reader.readexactly(MIB)
            else:
                writer.write(b"x" * MIB)
                await writer.drain()
        writer.write(b"\x88\x02\x03\xe8")  # the end, in good order
        await reader.read(-1)

    async with tcp_serving(slow) as url:
        pipe = await connect(url, patience=patience)
        if way == "up":
            await pipe.send([b"x" * (pieces * MIB)])
        assert sum(map(len, await pipe.receive())) == (pieces * MIB if way == "down" else 0)
        await pipe.aclose()


async def test_who_is_not_received_from_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pongs are not read: they wait behind its messages."""
    monkeypatch.setattr("gateway.transport.websocket.client.PING_INTERVAL", 0.02)

    async def server(connection: ServerConnection) -> None:
        for _ in range(3):
            await connection.send("x" * (4 * MIB))
        await connection.wait_closed()

    async with library_serving(server) as url:
        pipe = await connect(url, patience=0.1)
        await asyncio.sleep(1.0)  # ten times as long as a silent one is waited for
        assert [len(data) for data in await receive(pipe, 3)] == [4 * MIB] * 3
        await pipe.aclose()


async def test_closing_is_bounded_though_the_other_end_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.transport.websocket.client.CLOSE_SECONDS", 0.2)

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await upgraded(reader, writer)
        await asyncio.Event().wait()

    async with tcp_serving(deaf) as url:
        pipe = await connect(url)
        sending = asyncio.create_task(pipe.send([b"x" * MIB] * 64))
        done, _ = await asyncio.wait([sending], timeout=0.2)
        assert not done  # it waits for the reader, and holds little
        await asyncio.wait_for(pipe.aclose(), 30)
        with pytest.raises(AgentGone):
            await asyncio.wait_for(sending, 30)


async def test_a_client_that_receives_nothing_makes_the_server_wait() -> None:
    sent = 0

    async def server(connection: ServerConnection) -> None:
        nonlocal sent
        for _ in range(64):
            await connection.send("x" * MIB)
            sent += 1

    async with library_serving(server) as url:
        pipe = await connect(url)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.5)
        assert sent < 24  # most of it in the system's buffers
        assert len(await receive(pipe, 64)) == 64
        await pipe.aclose()


def test_a_client_socket_is_a_pipe() -> None:
    made: Callable[..., Pipe] = ClientSocket
    assert made is ClientSocket
