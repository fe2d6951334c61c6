"""The Streamable HTTP endpoint over time: streams that drop, clients that go, readers that do not read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.types import Message

from adapters.agent_client.inbound.http_connection import session_stream
from gateway.transport.asgi import HttpRequest
from gateway.transport.streamable_http.server import MessageStream
from tests.adapters.agent_client.http_rig import (
    CONNECTION,
    EVENTS,
    INITIALIZE,
    SESSION,
    Client,
    Rig,
    RigThreads,
    client,
    closed,
    dropped,
    rig,
)
from tests.support.aio import Clock, later, on, run
from tests.support.scripted import until


@contextlib.asynccontextmanager
async def raw_stream(here: Client, session: str) -> AsyncIterator[asyncio.StreamReader]:
    """A GET over a socket that nobody reads of its own accord; its head is read."""
    parts = urlsplit(here.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=4096)
    head = f"GET {parts.path} HTTP/1.1\r\nHost: x\r\n{CONNECTION}: {here.connection}\r\n{SESSION}: {session}\r\n"
    writer.write(f"{head}Accept: text/event-stream\r\nConnection: close\r\n\r\n".encode())
    try:
        async with asyncio.timeout(30):
            assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        yield reader
    finally:
        writer.transport.abort()


def written(there: Rig, session: str) -> int:
    """How many messages of a session's stream the only connection has written."""
    (link,) = there.server._connections.all
    lane = link.sessions._sessions[session].lane
    return lane.next - 1 if lane.empty else 0


async def allow(here: Client, question: dict[str, Any], session: str) -> None:
    outcome = {"outcome": {"outcome": "selected", "optionId": "yes"}}
    assert (await here.post({"id": question["id"], "result": outcome}, session)).status_code == 202


async def test_a_stream_that_drops_loses_nothing_that_was_not_written() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as stream:
            await here.prompt(session, "before")
            assert await stream.text() == "before"
            answer = await stream.next()
        await dropped(there.server, session)
        asked = await here.prompt(session, "say in between")
        async with here.stream(session) as stream:
            assert await stream.next() == answer  # it may have been lost
            assert [await stream.text(), await stream.text()] == ["in", "between"]
            assert (await stream.next())["id"] == asked


async def test_what_a_dropped_stream_that_nobody_opens_again_has_to_say_comes_on_the_connections() -> None:
    """The Python SDK 0.12 opens it again only when it sees the session's id on another stream."""
    async with rig(back=0.01) as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as stream:
            waiting = await here.prompt(session, "wait")
            assert await stream.text() == "waiting"
        await dropped(there.server, session)
        await here.post({"method": "session/cancel", "params": {"sessionId": session}}, session)
        assert (await main.next())["id"] == waiting
        asked = await here.prompt(session, "say in between")
        assert [await main.text(), await main.text()] == ["in", "between"]
        assert (await main.next())["id"] == asked
        async with here.stream(session) as stream:
            await here.prompt(session, "back")
            assert await stream.text() == "back"


async def test_what_a_stream_has_to_say_whose_get_never_came_comes_on_the_connections() -> None:
    async with rig(back=0.01) as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main, _meta={"early": "welcome"})
        assert await main.text() == "welcome"
        asked = await here.prompt(session, "hello")
        assert await main.text() == "hello"
        assert (await main.next())["id"] == asked


async def test_an_answer_that_may_have_been_lost_with_its_stream_is_told_again() -> None:
    async with rig(back=0.01) as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as stream:
            asked = await here.prompt(session, "hello")
            assert await stream.text() == "hello"
            answer = await stream.next()
        assert await main.next() == answer
        assert answer["id"] == asked


async def test_a_question_that_may_have_been_lost_with_its_stream_is_asked_on_the_connections() -> None:
    async with rig(back=0.01) as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with raw_stream(here, session):
            asked = await here.prompt(session, "ask")
            await until(lambda: written(there, session) == 1)
        question = await main.next()
        assert question["method"] == "session/request_permission"
        await allow(here, question, session)
        assert await main.text() == "yes"
        assert (await main.next())["id"] == asked


async def test_a_question_that_may_have_been_lost_is_asked_again_on_a_stream_that_is_back_until_it_is_answered() -> (
    None
):
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with raw_stream(here, session):
            asked = await here.prompt(session, "ask")
            await until(lambda: written(there, session) == 1)
        await dropped(there.server, session)
        async with here.stream(session) as stream:
            question = await stream.next()
            assert question["method"] == "session/request_permission"
            await allow(here, question, session)
            assert await stream.text() == "yes"
            answer = await stream.next()
            assert answer["id"] == asked
        await dropped(there.server, session)
        async with here.stream(session) as stream:
            assert await stream.next() == answer


async def test_nothing_is_waited_for_that_a_client_cannot_know_of() -> None:
    """A session is told of before the answer that makes it, and that is an error then."""
    async with rig(back=0.0) as there, client(there.url) as here, here.stream() as main:
        failed = await here.ask("session/new", {"_meta": {"early": "welcome", "fail": True}})
        assert (await main.next())["id"] == failed
        (link,) = there.server._connections.all
        session = link.sessions._sessions["made1"]
        await until(lambda: not session.lane.empty)
        assert not link.sessions._expected


async def test_the_connections_stream_may_be_opened_again_too() -> None:
    async with rig() as there, client(there.url) as here:
        async with here.stream() as main:
            await here.new(main)
        await dropped(there.server)
        asked = await here.ask("session/new", {"cwd": "/", "mcpServers": []})
        async with here.stream() as main:
            assert (await main.next())["id"] == asked


async def test_a_reader_that_hangs_is_replaced_and_what_it_was_not_sent_goes_to_the_next() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with raw_stream(here, session) as hanging:
            asked = await here.prompt(session, "flood 6000")  # more than the sockets hold
            (agent,) = there.alive
            await until(lambda: agent.floods > 1000)
            async with here.stream(session) as stream:
                numbers = []
                while "params" in (message := await stream.next()):
                    numbers.append(int(message["params"]["update"]["content"]["text"]))
                assert message["id"] == asked
            before = (await hanging.read(-1)).count(b"data: ")  # what was on its way to the first
            assert numbers == list(range(before, 6000))


async def test_what_is_written_to_a_client_that_has_just_gone_is_kept() -> None:
    """A server takes it without a word, and says only then that the client has gone."""
    left = asyncio.Event()
    bodies: list[bytes] = []

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            bodies.append(message["body"])
            left.set()

    lane = session_stream(lambda _: None)
    lane.put(b"1")
    lane.put(b"2")
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "path_params": {}}
    await lane.write(HttpRequest(scope, receive, send), 15.0)
    assert bodies == [b"data: 1\n\ndata: 2\n\n"]
    assert not lane.read
    assert lane.take(100) == [b"data: 1\n\n", b"data: 2\n\n"]


async def test_the_answer_of_a_load_waits_until_the_replay_is_written() -> None:
    async with rig(buffer=1 << 26) as there, client(there.url) as here, here.stream() as main:
        there.threads = RigThreads({"old flood"})
        async with raw_stream(here, "old flood") as reader:
            asked = await here.ask("session/load", {"sessionId": "old flood"}, "old flood")
            answer = asyncio.create_task(main.next())
            (agent,) = there.alive
            await until(lambda: agent.floods == 29_999)  # more than the sockets hold
            for _ in range(5):
                assert (await here.post({"method": "_tick"})).status_code == 202
            assert not answer.done()
            while not answer.done():
                await reader.read(1 << 20)
            assert (await answer)["id"] == asked


async def test_a_second_reader_takes_the_place_of_the_first() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        async with here.stream(session) as first, here.stream(session) as second:
            assert await first.next() is None
            await here.prompt(session, "once")
            assert await second.text() == "once"


async def test_silence_is_filled_with_comments() -> None:
    async with rig(keep_alive=0.05) as there, client(there.url) as here, here.stream() as main:
        waiting = asyncio.create_task(main.next())
        await until(lambda: main.comments >= 3)
        asked = await here.ask("_echo", {})
        assert (await waiting)["id"] == asked


@on(Clock)
async def test_a_connection_without_streams_is_ended_after_a_while() -> None:
    async with rig(idle=300) as there, client(there.url) as here:
        await later(290)
        assert len(there.alive) == 1
        await later(20)
        assert not there.alive
        assert (await here.post({"method": "x"})).status_code == 404


@on(Clock)
async def test_an_open_stream_keeps_a_connection() -> None:
    async with rig(idle=300) as there, client(there.url) as here:
        async with here.stream():
            await later(1000)
            assert len(there.alive) == 1
        while there.alive:  # it counts from when the server knows that the stream is closed
            await later(1)


@on(Clock)
async def test_messages_keep_a_connection() -> None:
    async with rig(idle=300) as there, client(there.url) as here:
        for _ in range(4):
            await later(200)
            assert (await here.post({"method": "_tick"})).status_code == 202
        assert len(there.alive) == 1


async def test_connections_are_bounded_by_who_serves_them_and_a_place_is_given_back() -> None:
    async with rig(most=1) as there, client(there.url) as here, httpx2.AsyncClient() as http:
        refused = await http.post(there.url, json=INITIALIZE)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        await here.http.delete(here.url, headers={CONNECTION: here.connection})
        await until(lambda: not there.alive)
        assert (await http.post(there.url, json=INITIALIZE)).status_code == 200


async def test_what_nobody_reads_is_bounded_and_slows_the_agent_down() -> None:
    async with rig(buffer=100_000) as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        asked = await here.prompt(session, "flood 20000")
        (agent,) = there.alive
        await until(lambda: agent.floods > 3000)
        ahead = 0
        async with here.stream(session) as stream:
            for number in range(20000):
                assert int(await stream.text()) == number
                ahead = max(ahead, agent.floods - number)
            assert (await stream.next())["id"] == asked
        assert ahead < 15000  # what this buffer, the peer's queue and the sockets hold


async def test_a_client_that_reads_nothing_for_long_loses_the_connection() -> None:
    async with rig(buffer=100_000, stall=0.3) as there, client(there.url) as here, here.stream() as main:
        session = await here.new(main)
        await here.prompt(session, "flood 20000")
        assert await main.next() is None
        await until(lambda: not there.alive)


async def test_streams_of_one_connection_are_bounded() -> None:
    async with rig(max_sessions=1) as there, client(there.url) as here:
        there.threads = RigThreads({"old1", "old2", "old3"})
        async with here.stream("old1"), here.stream("old2"):
            headers = {CONNECTION: here.connection, SESSION: "old3", **EVENTS}
            refused = await here.http.get(here.url, headers=headers)
            assert refused.status_code == 429
        status = 429
        while status == 429:  # until the server has heard that the others are closed
            async with here.http.stream("GET", here.url, headers=headers) as response:
                status = response.status_code
        assert status == 200


def test_what_is_ready_goes_out_in_one_write() -> None:
    lane = session_stream(lambda _: None)
    lane.put(b'{"a":1}')
    lane.put('{"ü":"\U0001f600"}'.encode())
    assert b"".join(lane.take(100)) == b'data: {"a":1}\n\ndata: {"\\u00fc":"\\ud83d\\ude00"}\n\n'


def test_writes_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    take = MessageStream.take

    def counted(stream: MessageStream, most: int) -> list[bytes]:
        if events := take(stream, most):
            sizes.append(len(events))
        return events

    async def case() -> None:
        async with rig() as there, client(there.url) as here, here.stream() as main:
            session = await here.new(main)
            asked = await here.prompt(session, "flood 1000")
            async with here.stream(session) as stream:
                while "id" not in (message := await stream.next()):
                    pass
                assert message["id"] == asked

    monkeypatch.setattr(MessageStream, "take", counted)
    run(case())
    assert sum(sizes) == 1002
    assert len(sizes) < 100


async def test_the_server_ends_every_connection_when_it_is_closed() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        await here.new(main)
        await closed(there.server)
        assert await main.next() is None
        assert not there.alive


async def test_what_a_client_merely_names_is_not_kept() -> None:
    async with rig() as there, client(there.url) as here, here.stream() as main:
        (link,) = there.server._connections.all
        for number in range(20):
            await here.ask("_echo", {"sessionId": f"no{number}"})
            assert (await main.next())["result"]
        assert not any(f"no{number}" in link.sessions for number in range(20))
