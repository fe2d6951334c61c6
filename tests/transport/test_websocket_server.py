"""`gateway.transport.websocket.ServerSocket` under uvicorn, as the gateway runs it; clients that are not ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import pytest
import uvloop
from msgspec import Raw
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect as library_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.core.errors import AgentGone, Invalid
from gateway.transport.pipe import LIMIT, Eager, Pipe, Unreadable
from gateway.transport.rpc import Peer
from gateway.transport.websocket import HARD_LIMIT, ServerSocket
from gateway.transport.websocket.client import UpgradeRefused, connect
from gateway.wire.jsonrpc import Id
from tests.support import aio
from tests.support.aio import EACH_LOOP
from tests.support.rpc import Recorder, settled, value
from tests.support.websockets import library_serving, uvicorn_serving

pytestmark = EACH_LOOP

MIB = 1024 * 1024
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Endpoint = Callable[[ServerSocket], Coroutine[Any, Any, None]]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return lambda coro: aio.run(coro, loop_factory=request.param)


class Served:
    """An endpoint that gives its pipe to the test and keeps it open until the test is done with it."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._pipe: asyncio.Future[ServerSocket] = asyncio.get_running_loop().create_future()
        self.done = asyncio.Event()

    async def __call__(self, websocket: WebSocket) -> None:
        self._pipe.set_result(await ServerSocket.accept(websocket, **self._options))
        await self.done.wait()

    async def pipe(self) -> ServerSocket:
        return await asyncio.wait_for(self._pipe, 30)


async def echo(websocket: WebSocket) -> None:
    """Every message back, and what is unreadable by its reason."""
    pipe = await ServerSocket.accept(websocket, limit=1000)
    while arrived := await pipe.receive():
        await pipe.send([m.reason.encode() if isinstance(m, Unreadable) else m for m in arrived])


async def test_messages_go_both_ways_in_order_as_text() -> None:
    async with uvicorn_serving(echo) as url, library_connect(url) as client:
        sent = [f'{{"n":{n},"t":"é"}}' for n in range(500)]
        for message in sent:
            await client.send(message)
        assert [await client.recv() for _ in sent] == sent
        await client.send(["in ", "three ", "fragments"])
        assert await client.recv() == "in three fragments"


async def test_it_is_closed_when_no_message_went_for_so_long_and_it_is_not_busy() -> None:
    busy = iter((True, True, True, False))
    endpoint = Served()
    async with uvicorn_serving(endpoint) as url, library_connect(url) as client:
        pipe = await endpoint.pipe()
        pipe.close_when_idle(0.05, lambda: next(busy))
        told = monotonic()
        assert pipe.offer([b"{}"]) and await client.recv() == "{}"
        assert await pipe.receive() == []
        assert monotonic() - told >= 0.15 and next(busy, None) is None
        with pytest.raises(ConnectionClosed) as end:
            await client.recv()
        assert end.value.rcvd is not None
        assert (end.value.rcvd.code, end.value.rcvd.reason) == (1001, "idle for 0.05 s")
        endpoint.done.set()


async def test_what_is_binary_or_over_the_limit_is_unreadable_and_the_connection_lives_on() -> None:
    async with uvicorn_serving(echo) as url, library_connect(url) as client:
        for message in (b"{}", "x" * 1001, "x" * 1000, "é" * 501):
            await client.send(message)
        assert [await client.recv() for _ in range(4)] == [
            "a binary message",
            "a message of more than 1000 bytes",
            "x" * 1000,
            "a message of more than 1000 bytes",
        ]


@pytest.mark.parametrize("text", [b'{"a":"\xff"}', b"\xed\xa0\x80", b'{"a":"\xc3'])
def test_text_that_is_not_utf_8_ends_the_connection_and_is_one_line_in_the_log(
    text: bytes, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def endpoint(websocket: WebSocket) -> None:
        with contextlib.suppress(AgentGone):
            await echo(websocket)

    async def main() -> None:
        async with uvicorn_serving(endpoint) as url:
            async with library_connect(url) as client:
                await client.send("é")
                assert await client.recv() == "é"
                await client.send(text, text=True)
                with pytest.raises(ConnectionClosed) as closed:
                    await client.recv()
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1007
            async with library_connect(url) as client:
                await client.send([text[:-1].decode("latin-1"), "é"])
                assert await client.recv() == text[:-1].decode("latin-1") + "é"

    run(main())
    told = [(record.levelname, record.exc_info) for record in caplog.records if "UTF-8" in record.getMessage()]
    assert told == [("INFO", None)]
    assert all(record.levelno < logging.WARNING for record in caplog.records)


async def test_a_message_over_the_hard_limit_ends_the_connection() -> None:
    async with uvicorn_serving(echo, ws_max_size=1500) as url, library_connect(url) as client:
        await client.send("x" * 1501)
        with pytest.raises(ConnectionClosed) as caught:
            await client.recv()
        assert caught.value.rcvd is not None and caught.value.rcvd.code == 1009


async def test_the_answer_to_the_upgrade_carries_headers_and_a_subprotocol_and_no_compression() -> None:
    served = Served(headers={"Acp-Connection-Id": "c1", "X": "é"}, subprotocol="rpc")
    async with uvicorn_serving(served) as url, library_connect(url, subprotocols=["rpc"]) as client:  # type: ignore[list-item]
        assert client.response is not None
        assert client.response.headers["Acp-Connection-Id"] == "c1"
        assert client.response.headers["X"] == "é"
        assert client.subprotocol == "rpc"
        assert "Sec-WebSocket-Extensions" not in client.response.headers
        assert (await served.pipe()).name.startswith("the client at 127.0.0.1:")
        served.done.set()


def test_an_upgrade_that_is_refused_is_answered_and_nothing_is_logged_as_wrong(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(websocket: WebSocket) -> None:
        await websocket.send_denial_response(JSONResponse({"error": "no agent nosuch"}, 404))

    async def main() -> None:
        async with uvicorn_serving(refuse) as url:
            with pytest.raises(UpgradeRefused, match=r"status 404: no agent nosuch$") as caught:
                await connect(url)
            assert caught.value.body == b'{"error":"no agent nosuch"}'

    run(main())
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_header_that_would_smuggle_another_is_not_sent(run: Run) -> None:
    refused: list[Exception] = []

    async def endpoint(websocket: WebSocket) -> None:
        try:
            await ServerSocket.accept(websocket, headers={"X": "a\r\nSet-Cookie: b"})
        except Invalid as error:
            refused.append(error)
            await websocket.close()

    async def main() -> None:
        async with uvicorn_serving(endpoint) as url:
            with pytest.raises(InvalidStatus):
                await library_connect(url)

    run(main())
    assert len(refused) == 1


async def test_a_client_that_closes_is_the_end() -> None:
    for code, told in ((1000, None), (1001, None), (1011, "1011 full"), (4001, "4001 full")):
        served = Served()
        async with uvicorn_serving(served) as url:
            client = await library_connect(url)
            pipe = await served.pipe()
            await client.close(code, "full")
            if told is None:
                assert await pipe.receive() == []
            else:
                with pytest.raises(AgentGone, match=told):
                    await pipe.receive()
            assert await pipe.receive() == []
            with pytest.raises(AgentGone):
                await pipe.send([b"1"])
            await pipe.aclose()
            served.done.set()


async def test_a_client_that_is_cut_off_is_the_end() -> None:
    served = Served()
    async with uvicorn_serving(served) as url:
        client = await library_connect(url)
        pipe = await served.pipe()
        await client.send("1")
        assert await pipe.receive() == [b"1"]
        client.transport.abort()
        assert await pipe.receive() == []
        served.done.set()


async def test_closing_ends_a_receive_that_waits_and_tells_the_client() -> None:
    served = Served()
    async with uvicorn_serving(served) as url, library_connect(url) as client:
        pipe = await served.pipe()
        receiving = asyncio.create_task(pipe.receive())
        await settled()
        await pipe.aclose(4000, "moved")
        assert await receiving == []
        await pipe.aclose()
        with pytest.raises(AgentGone):
            await pipe.send([b"1"])
        with pytest.raises(ConnectionClosed, match="moved"):
            await client.recv()
        served.done.set()


async def test_a_server_that_receives_nothing_makes_the_client_wait() -> None:
    served = Served()
    async with uvicorn_serving(served) as url:
        pipe = await connect(url)
        other = await served.pipe()
        sending = asyncio.create_task(pipe.send([b"x" * MIB] * 64))
        done, _ = await asyncio.wait([sending], timeout=0.3)
        assert not done
        for _ in range(64):
            [message] = await other.receive()
            assert len(message) == MIB  # type: ignore[arg-type]
        await sending
        await pipe.aclose()
        served.done.set()


async def test_a_server_that_sends_waits_for_a_client_that_does_not_read_and_loses_nothing() -> None:
    served = Served()
    async with uvicorn_serving(served) as url, library_connect(url, max_queue=1, max_size=None) as client:
        pipe = await served.pipe()
        sizes = [0, 125, 126, 65535, 65536, 1, 3 * MIB]
        said = 0
        while pipe.offer([b"%d" % said, b"x" * 65000]):
            said += 1
            assert said < 1000
        sending = asyncio.create_task(pipe.send([b"x" * size for size in sizes]))
        done, _ = await asyncio.wait([sending], timeout=0.2)
        assert not done and not pipe.offer([b"behind"])
        for n in range(said):
            assert [await client.recv(), len(await client.recv())] == [str(n), 65000]
        assert [len(await client.recv()) for _ in sizes] == sizes
        await sending
        assert pipe.offer([b"last", "é".encode()])
        assert [await client.recv(), await client.recv()] == ["last", "é"]
        sending = asyncio.create_task(pipe.send([b"x" * MIB] * 40))
        await asyncio.wait([sending], timeout=0.2)
        client.transport.abort()
        with pytest.raises(AgentGone):
            await sending
        assert not pipe.offer([b"nobody"])
        served.done.set()


async def test_a_server_without_the_short_way_sends_message_by_message() -> None:
    async with uvicorn_serving(echo, ws="websockets-sansio") as url, library_connect(url) as client:
        for message in ("1", "é"):
            await client.send(message)
        assert [await client.recv(), await client.recv()] == ["1", "é"]


def test_a_server_socket_is_an_eager_pipe() -> None:
    made: Callable[..., Pipe] = ServerSocket
    assert made is ServerSocket and issubclass(ServerSocket, Eager)
    assert HARD_LIMIT > LIMIT


# --- peers over it -----------------------------------------------------------------------------------------------


def serving(handler: Any, **options: Any) -> Callable[[WebSocket], Coroutine[Any, Any, None]]:
    async def endpoint(websocket: WebSocket) -> None:
        await Peer(await ServerSocket.accept(websocket), handler, **options).run()

    return endpoint


async def test_two_peers_of_ours_talk_and_messages_of_sixteen_mebibytes_pass_both_ways() -> None:
    theirs, ours = Recorder(), Recorder()
    async with uvicorn_serving(serving(theirs)) as url:
        async with Peer(await connect(url), ours) as peer:
            for n in range(2000):
                peer.notify("n", n)
                await peer.drain()
            assert value(await peer.request("echo", 1)) == 1
            assert [n for _, _, n in theirs.heard] == [*range(2000), 1]
            large = Raw(b'"' + b"x" * (17 * MIB) + b'"')
            assert bytes(await peer.request("echo", large, timeout=50)) == bytes(large)
        assert peer.closed


@pytest.mark.parametrize("before", [True, False], ids=["early", "late"])
@pytest.mark.parametrize("last", ["not json", b"binary", '{"jsonrpc":"2.0","method":"slow"}'])
async def test_an_idle_connection_has_no_task_that_reads_or_writes_and_loses_nothing_of_what_needs_one(
    last: str | bytes, before: bool
) -> None:
    """`before`: a message is there before its peer is."""
    handler = Recorder()
    heard = asyncio.Event()
    scopes: list[Any] = []

    async def endpoint(websocket: WebSocket) -> None:
        scopes.append(websocket.scope)
        pipe = await ServerSocket.accept(websocket)
        if before:
            await heard.wait()
        await Peer(pipe, handler).run()

    def working() -> set[str]:
        return {task.get_name().split()[-1] for task in asyncio.all_tasks()} & {"reader", "writer"}

    async with uvicorn_serving(endpoint) as url, library_connect(url) as client:
        if before:
            await client.send('{"jsonrpc":"2.0","method":"early"}')
            await (await client.ping())
            heard.set()
        for n in range(3):
            await client.send(f'{{"jsonrpc":"2.0","id":{n},"method":"m"}}')
            assert json.loads(await client.recv())["id"] == n
        assert not before or handler.heard[0] == ("notify", "early", None)
        assert working() == ({"reader"} if before else set()) and scopes == [{}]
        handler.hold = asyncio.Event()
        await client.send(last)
        await client.send('{"jsonrpc":"2.0","id":3,"method":"m"}')
        await (await client.ping())
        handler.hold.set()
        while json.loads(await client.recv()).get("id") != 3:
            pass
        assert [each[0] for each in handler.heard[-2:]] in (["unreadable", "request"], ["notify", "request"])
        assert working() == {"reader"}


async def test_a_message_between_the_limits_is_answered_with_an_error_and_the_next_one_served() -> None:
    async def endpoint(websocket: WebSocket) -> None:
        await Peer(await ServerSocket.accept(websocket, limit=1000), Recorder()).run()

    async with uvicorn_serving(endpoint) as url, Peer(await connect(url, limit=2000), Recorder()) as peer:
        with pytest.raises(Exception, match="a message of more than 1000 bytes") as caught:
            await peer.request("echo", "x" * 1000)
        assert type(caught.value).__name__ == "RpcError"
        assert value(await peer.request("echo", "x" * 900)) == "x" * 900


async def test_a_client_in_plain_json_is_served_both_ways() -> None:
    class Agent(Recorder):
        peer: Peer

        async def request(self, method: str, params: Raw, id: Id) -> Any:
            self.peer.notify("session/update", {"text": "hm"})
            chosen = value(await self.peer.request("session/request_permission", {"options": ["a"]}))
            return {"chosen": chosen}

    async def endpoint(websocket: WebSocket) -> None:
        agent = Agent()
        agent.peer = Peer(await ServerSocket.accept(websocket), agent)
        await agent.peer.run()

    async with uvicorn_serving(endpoint) as url, library_connect(url) as client:
        await client.send('{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}')
        update, question = json.loads(await client.recv()), json.loads(await client.recv())
        assert update == {"jsonrpc": "2.0", "method": "session/update", "params": {"text": "hm"}}
        assert (question["id"], question["method"]) == (1, "session/request_permission")  # the same id, live
        await client.send("not json")
        assert json.loads(await client.recv())["error"]["code"] == -32700
        await client.send('{"jsonrpc":"2.0","id":1,"result":"a"}')
        assert json.loads(await client.recv()) == {"jsonrpc": "2.0", "id": 1, "result": {"chosen": "a"}}


async def test_an_agent_that_dies_in_mid_turn_fails_who_waits() -> None:
    async def agent(connection: Any) -> None:
        request = json.loads(await connection.recv())
        await connection.send(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": request["id"]}))
        connection.transport.abort()

    async with library_serving(agent) as url:
        handler = Recorder()
        async with Peer(await connect(url), handler) as peer:
            with pytest.raises(AgentGone, match="lost"):
                await peer.request("session/prompt")
            assert handler.heard == [("notify", "session/update", 1)]
            await asyncio.wait_for(peer.wait_closed(), 30)


async def test_a_client_that_leaves_in_mid_turn_ends_the_endpoint_and_its_tasks() -> None:
    before = asyncio.all_tasks()
    ended = asyncio.Event()

    async def forever(params: Raw, id: Id) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with uvicorn_serving(serving(Recorder(wait=forever))) as url:
        client = await library_connect(url)
        await client.send('{"jsonrpc":"2.0","id":1,"method":"wait"}')
        await client.send('{"jsonrpc":"2.0","id":2,"method":"echo"}')
        await client.recv()
        client.transport.abort()
        await asyncio.wait_for(ended.wait(), 30)
    await settled()
    assert not asyncio.all_tasks() - before
