"""Streamable HTTP over time: streams that break off, clients that go, readers that do not read, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from starlette.types import Message

from gateway.contract import unguessable
from gateway.core.errors import Unavailable
from gateway.mcp import versions
from gateway.mcp.server import McpCall
from gateway.mcp.server.http import session as sessions
from gateway.mcp.server.http.session import StreamableSession
from gateway.mcp.server.http.streams import numbered
from gateway.mcp.server.hub import Hub
from gateway.transport.asgi import HttpRequest
from gateway.transport.streamable_http.server import MessageStream
from tests.mcp.server.rig import SESSION, Client, Words, client, initialize, raw, rig, stalled, tool
from tests.support.aio import Clock, later, on
from tests.support.rpc import settled
from tests.support.scripted import until

WITHIN = 30.0


async def test_a_stream_that_broke_off_goes_on_where_it_was() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.stream(here.request("tools/call", tool("wait", "t"), id="w")) as events:
            assert (await events.next())["params"]["progress"] == 1
        assert events.ids == ["1-0", "1-1"]
        there.words.go.set()
        async with here.listen(after="1-0") as again:
            said = await again.rest()
        assert [one.get("id") for one in said] == [None, "w"]
        assert again.ids == ["1-1", "1-2"]
        async with here.listen(after="1-1") as again:  # it is kept for a while, even now
            assert [one["id"] for one in await again.rest()] == ["w"]
        assert "cancelled w" not in there.words.seen


async def test_a_question_is_asked_again_on_the_stream_that_goes_on() -> None:
    async with rig() as there, client(there.mcp, capabilities={"elicitation": {}}) as here:
        async with here.stream(here.request("tools/call", tool("ask"))) as events:
            await events.frame()
        async with here.listen(after="1-0") as again:
            asked = await again.next()
            answer = {"action": "accept", "content": {"answer": "blue"}}
            await here.post({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
            assert (await again.next())["result"]["content"][0]["text"] == "accept blue"


async def test_only_the_revisions_that_know_it_get_an_event_without_a_message() -> None:
    for version, first in ((versions.V2025_06_18, "1-1"), (versions.V2025_11_25, "1-0")):
        async with rig() as there, client(there.mcp, version) as here:
            async with here.stream(here.request("tools/call", tool("say", 1, words="x"))) as events:
                await events.rest()
            assert events.ids[0] == first


async def test_what_is_not_kept_any_more_is_passed_over_but_never_the_answer() -> None:
    async with rig(replay=3000) as there, client(there.mcp) as here:
        asked = here.request("tools/call", tool("flood", 1, count=20, size=1000))
        async with here.stream(asked) as events:
            assert len(await events.rest()) == 21
        async with here.listen(after="1-1") as again:
            said = await again.rest()
        assert 2 <= len(said) <= 4 and "result" in said[-1]


async def test_a_stream_that_is_opened_again_is_taken_from_who_had_it() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.listen() as first, here.listen() as second:
            assert await first.next() is None
            (session,) = there.server.sessions
            session.tell("notifications/tools/list_changed")
            assert (await second.next())["method"] == "notifications/tools/list_changed"
        async with here.stream(here.request("tools/call", tool("wait", 1))) as lost:
            await lost.next()
            async with here.listen(after="1-1") as taken:
                assert await lost.next() is None
                there.words.go.set()
                assert (await taken.next())["result"]


@pytest.mark.parametrize("there_now", [True, False])
async def test_who_does_not_read_is_waited_for(there_now: bool) -> None:
    async with rig() as there, client(there.mcp) as here:
        flood = here.request("tools/call", tool("flood", 1, count=2000, size=10_000))
        async with raw("POST", here.url, here.headers(), flood):
            if there_now:
                assert await stalled(lambda: there.words.flooded) < 1900
        assert await stalled(lambda: there.words.flooded) < 1900
        async with here.listen(after="1-0") as again:
            while "result" not in (last := await again.next()):
                pass
        assert last["result"]["content"][0]["text"] == "flooded" and there.words.flooded == 2000


async def test_delete_in_the_middle_of_a_call_cancels_it_and_answers_it() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.listen() as news, here.stream(here.request("tools/call", tool("wait", 1), id=5)) as events:
            await events.next()
            answer = await here.http.delete(here.url, headers=here.headers())
            assert answer.status_code == 200
            assert (await events.next())["error"]["code"] == -32800
            assert await events.next() is None and await news.next() is None
        assert there.words.seen == ["joined", "waits 5", "left", "cancelled 5"]
        assert (await here.post(here.request("ping"))).status_code == 404


@on(Clock)
async def test_an_idle_session_ends_but_not_while_anything_is_open() -> None:
    async with rig(idle=300) as there, client(there.mcp) as here:
        async with here.listen():
            await later(1000)
            assert there.server.sessions
        async with here.stream(here.request("tools/call", tool("wait", 1), id="w")) as events:
            await events.next()
            await later(1000)
            assert there.server.sessions
        while there.server.sessions:  # nobody comes back for it
            await later(1)
        await there.saw("left", "cancelled w")
        assert (await here.post(here.request("ping"))).status_code == 404


async def test_a_flood_of_sessions_pushes_out_only_those_that_wait_for_nothing() -> None:
    async with (
        rig(max_sessions=3) as there,
        client(there.mcp) as busy,
        busy.listen(),
        client(there.mcp) as caller,
        caller.stream(caller.request("tools/call", tool("wait", 1))) as events,
    ):
        await events.next()
        first = await busy.http.post(there.mcp, json=initialize())
        again = await busy.http.post(there.mcp, json=initialize())
        assert (first.status_code, again.status_code) == (200, 200)
        for name, status in ((first.headers[SESSION], 404), (again.headers[SESSION], 200)):
            made = Client(busy.http, there.mcp, versions.V2025_11_25, name)
            assert (await made.post(made.request("ping"))).status_code == status
        held = Client(busy.http, there.mcp, versions.V2025_11_25, again.headers[SESSION])
        async with held.listen():
            full = await busy.http.post(there.mcp, json=initialize())
            assert full.status_code == 503 and "retry-after" in full.headers
        assert len(there.server.sessions) == 3


async def test_a_session_of_a_client_makes_room_for_its_next_unless_it_waits_for_something() -> None:
    def one(door: str, client: str | None, held: int, spare: Callable[[], bool]) -> None:
        if client is not None and held and not spare():
            raise Unavailable("you have one")

    gateway = Mock(new_id=unguessable, requests=Mock(return_value=Hub(Words()).requests))
    gateway.limits.session = one

    async with rig(gateway, client=lambda session: session.bearer) as there, client(there.mcp) as other:

        async def opened() -> tuple[int, Client]:
            made = await other.http.post(there.mcp, json=initialize(), headers={"Authorization": "Bearer ana"})
            return made.status_code, Client(other.http, there.mcp, versions.V2025_11_25, made.headers.get(SESSION))

        (_, first), (status, second) = await opened(), await opened()
        assert status == 200 and (await first.post(first.request("ping"))).status_code == 404
        async with second.listen():
            assert (await opened())[0] == 503
        assert (await second.ask("ping"))["result"] == {} and (await other.ask("ping"))["result"] == {}


async def test_a_call_whose_client_has_lost_its_stream_keeps_its_session() -> None:
    async with rig(max_sessions=2) as there, client(there.mcp) as here:
        async with here.stream(here.request("tools/call", tool("wait", "t"), id="w")) as events:
            await events.next()
        for _ in range(4):
            assert (await here.http.post(there.mcp, json=initialize())).status_code == 200
        there.words.go.set()
        async with here.listen(after="1-1") as again:
            assert [one["id"] for one in await again.rest()] == ["w"]
        assert "cancelled w" not in there.words.seen


async def test_when_the_gateway_stops_everything_that_is_open_ends() -> None:
    async with rig() as there, client(there.mcp) as here:
        quick = asyncio.create_task(here.post(here.request("tools/call", tool("wait"))))
        async with here.listen() as news, here.stream(here.request("tools/call", tool("wait", 1))) as events:
            await events.next()
            await there.saw("waits 1", "waits 2")
            there.server.quiet()
            assert (await quick).json()["error"]["message"] == "the gateway is stopping"
            assert (await events.next())["error"]["message"] == "the gateway is stopping"
            assert await events.next() is None and await news.next() is None
        assert (await here.http.post(there.mcp, json=initialize())).status_code == 503
        assert not there.server.sessions


async def test_whoever_closes_the_server_waits_for_every_call_to_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as there, client(there.mcp) as here:

        async def tidy(call: McpCall, given: Any, params: Any) -> str:
            try:
                return await there.words.wait(call, given, params)
            finally:
                await there.words.go.wait()

        monkeypatch.setattr(there.words, "say", tidy)
        calls = [
            asyncio.create_task(here.post(here.request("tools/call", tool(name), id=name))) for name in ("say", "wait")
        ]
        await there.saw("waits say", "waits wait")
        assert (await here.http.delete(here.url, headers=here.headers())).status_code == 200
        await there.saw("cancelled wait")
        closes = [asyncio.create_task(there.server.aclose()) for _ in range(2)]
        await settled()
        assert not any(close.done() for close in closes)
        there.words.go.set()
        await asyncio.gather(*closes)
        assert "cancelled say" in there.words.seen
        await asyncio.gather(*calls)


async def test_a_call_whose_client_left_before_anything_was_said_ends_all_the_same() -> None:
    async with rig() as there, client(there.mcp) as here:
        task = asyncio.create_task(here.post(here.request("tools/call", tool("wait"), id="w")))
        await there.saw("waits w")
        task.cancel()
        there.words.go.set()
        assert (await here.ask("ping"))["result"] == {}
        assert "cancelled w" not in there.words.seen


@pytest.mark.parametrize(
    ("most", "streams", "expected"),
    [(2, 4.0, [400, 400, 200, 200]), (4, 0.5, [400, 400, 400, 200]), (4, 2.0, [400, 400, 200, 200])],
)
@on(Clock)
async def test_no_more_than_so_many_finished_streams_are_kept_nor_more_bytes_than_of_so_many(
    monkeypatch: pytest.MonkeyPatch, most: int, streams: float, expected: list[int]
) -> None:
    monkeypatch.setattr(sessions, "MOST_LATE", most)
    async with rig() as there, client(there.mcp) as here:
        (session,) = there.server.sessions
        assert isinstance(session, StreamableSession)
        for number in range(4):
            async with here.stream(here.request("tools/call", tool("say", 1, words="x"))) as events:
                await events.rest()
            if not number:
                found = session.find("1-0")
                assert found is not None
                monkeypatch.setattr(sessions, "LATE_BYTES", int(streams * found[0].size))
        statuses = []
        for number in range(1, 5):
            sent = here.headers(Accept="text/event-stream", Last_Event_ID=f"{number}-0")
            statuses.append((await here.http.get(here.url, headers=sent)).status_code)
        assert statuses == expected
        await later(100)  # nothing that is left of them hurts


async def test_a_stream_whose_call_is_under_way_is_not_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_LATE", 1)

    async with rig() as there, client(there.mcp) as here:
        async with here.stream(here.request("tools/call", tool("wait", 1))) as events:
            await events.next()
        for _ in range(2):
            async with here.stream(here.request("tools/call", tool("say", 1, words="x"))) as events:
                await events.rest()
        async with here.listen(after="1-0") as again:
            there.words.go.set()
            assert "result" in (await again.rest())[-1]


@pytest.mark.parametrize("said", ["as JSON", "as a stream"])
async def test_an_answer_that_cannot_be_said_is_an_error(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unsayable(call: McpCall, given: Any, params: Any) -> Any:
        if said == "as a stream":
            call.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        return object()

    async with rig() as there, client(there.mcp) as here:
        monkeypatch.setattr(there.words, "say", unsayable)
        asked = here.request("tools/call", tool("say", 1))
        if said == "as JSON":
            last = (await here.post(asked)).json()
        else:
            async with here.stream(asked) as events:
                *_, last = await events.rest()
        assert last["error"] == {"code": -32603, "message": "internal error"}


@pytest.mark.parametrize(("streams", "expected"), [(0.5, [400, 400, 400, 200]), (2.0, [400, 400, 200, 200])])
async def test_answers_that_nobody_comes_back_for_are_kept_up_to_so_many_bytes(
    monkeypatch: pytest.MonkeyPatch, streams: float, expected: list[int]
) -> None:
    async with rig() as there, client(there.mcp) as here:
        (session,) = there.server.sessions
        assert isinstance(session, StreamableSession)
        for number in range(1, 5):
            there.words.go.clear()
            async with here.stream(here.request("tools/call", tool("wait", 1))) as events:
                await events.next()
            (stream, _) = session.find(f"{number}-0") or (None, 0)
            assert stream is not None
            await until(lambda stream=stream: not stream.read)  # type: ignore[misc]
            there.words.go.set()
            await until(lambda: not session.busy)
            if number == 1:
                monkeypatch.setattr(sessions, "UNREAD_BYTES", int(streams * stream.size))
        statuses = []
        for number in range(1, 5):
            sent = here.headers(Accept="text/event-stream", Last_Event_ID=f"{number}-0")
            statuses.append((await here.http.get(here.url, headers=sent)).status_code)
        assert statuses == expected


@on(Clock)
async def test_a_stream_that_is_read_again_is_kept_for_as_long_again() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.stream(here.request("tools/call", tool("say", 1, words="x"))) as events:
            await events.rest()
        for _ in range(3):
            await settled()  # it is seen that it was read
            await later(50)
            async with here.listen(after="1-0") as again:
                assert "result" in (await again.rest())[-1]


@on(Clock)
async def test_a_stream_whose_time_is_over_while_it_is_read_is_kept_again() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.stream(here.request("tools/call", tool("say", 1, words="x"))) as events:
            await events.rest()
        (session,) = there.server.sessions
        assert isinstance(session, StreamableSession)
        (stream, _) = session.find("1-0") or (None, 0)
        assert stream is not None
        await later(50)
        await later(100)
        assert session.find("1-0") is None
        session.keep(stream)  # whoever read it has its end now
        async with here.listen(after="1-0") as again:
            assert "result" in (await again.rest())[-1]


async def test_a_finished_stream_is_kept_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LATE_SECONDS", 0.05)
    async with rig() as there, client(there.mcp) as here:
        async with here.stream(here.request("tools/call", tool("say", 1, words="x"))) as events:
            await events.rest()

        (session,) = there.server.sessions
        assert isinstance(session, StreamableSession)
        await until(lambda: session.find("1-0") is None)
        sent = here.headers(Accept="text/event-stream", Last_Event_ID="1-0")
        assert (await here.http.get(here.url, headers=sent)).status_code == 400


async def test_a_stream_that_is_taken_before_its_response_began_is_a_response_all_the_same() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    stream = MessageStream("1", numbered("1"), keep=1000)
    writing = asyncio.create_task(stream.write(HttpRequest({"headers": []}, receive, send), 15.0))
    await asyncio.sleep(0)
    await stream.vacate()
    await writing
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
