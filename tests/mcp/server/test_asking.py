"""Clients that are asked while no request of theirs is under way: over pipes, sockets, and a GET that breaks off."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from msgspec import Raw
from websockets.asyncio.client import connect

from gateway.core.errors import AgentGone, AgentTimeout, Unavailable, Unsupported
from gateway.mcp import versions
from gateway.mcp.server import McpSession
from gateway.mcp.server.http import streams
from gateway.mcp.server.http.session import StreamableSession
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError
from tests.mcp.server.rig import Client, client, initialize, modern_client, modern_tool, rig, stated, tool
from tests.mcp.server.test_pipe import line
from tests.support.aio import Clock, later, on, run
from tests.support.rpc import settled
from tests.support.scripted import until

WITHIN = 30.0
SAMPLE = "sampling/createMessage"
WORDS = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}


def ask(
    session: McpSession, method: str = SAMPLE, params: Any = None, timeout: float | None = WITHIN
) -> asyncio.Task[Raw]:
    """Begin to ask."""
    return asyncio.create_task(session.ask(method, WORDS if params is None else params, timeout=timeout))


def answer(to: Any, **result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": to["id"], "result": result}


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


async def failure(asked: asyncio.Task[Raw]) -> Exception:
    """What became of a question that failed."""
    async with asyncio.timeout(WITHIN):
        (error,) = await asyncio.gather(asked, return_exceptions=True)
    assert isinstance(error, Exception), error
    return error


async def lost(session: McpSession) -> None:
    """Wait until it is seen that its GET has gone."""
    assert isinstance(session, StreamableSession)
    await until(lambda: not session.standalone.stream.read)


# --- pipes ------------------------------------------------------------------------------------------------------------


async def test_a_client_of_a_pipe_is_asked_outside_of_its_calls_and_no_two_questions_have_one_id() -> None:
    async with line() as here:
        await here.initialize()
        (session,) = here.server.sessions
        assert session.can_ask and session.alive and session.bearer is None and not session.subscribed("x:y")
        await here.ask("tools/call", tool("ask"), id=1)
        first = await here.next()
        asked = ask(session)
        second = await here.next()
        assert (first["method"], second["method"]) == ("elicitation/create", SAMPLE) and first["id"] != second["id"]
        await here.say(answer(second, model="m"), answer(first, action="cancel"))
        assert jsonrpc.unpack(await asked) == {"model": "m"}
        assert (await here.next())["result"]["content"][0]["text"] == "cancel None"
        refused = ask(session)
        to = await here.next()
        await here.say({"jsonrpc": "2.0", "id": to["id"], "error": {"code": -1, "message": "no"}})
        error = await failure(refused)
        assert isinstance(error, RpcError) and error.error.code == -1


async def test_what_a_client_tells_meanwhile_is_seen_in_order_and_before_its_answer() -> None:
    async with line() as here:
        await here.initialize()
        (session,) = here.server.sessions

        async def asking() -> None:
            await session.ask(SAMPLE, {**WORDS, "_meta": {"progressToken": "ours"}}, timeout=WITHIN)
            here.words.seen.append("answered")

        asked = asyncio.create_task(asking())
        to = await here.next()
        told = [note("notifications/progress", progressToken="ours", progress=number) for number in (1, 2)]
        await here.say(told[0], note("agent/heartbeat"), told[1], answer(to), note("agent/late"))
        await asked
        await until(lambda: len(here.words.seen) == 6)
        assert [one.partition(" ")[0] for one in here.words.seen[1:]] == [
            "notifications/progress",
            "agent/heartbeat",
            "notifications/progress",
            "answered",
            "agent/late",
        ]
        assert here.words.seen[1].endswith('"progress": 1}') and here.words.seen[3].endswith('"progress": 2}')


async def test_a_client_is_told_that_nobody_waits_for_its_answer_any_more() -> None:
    async with line() as here:
        await here.initialize()
        (session,) = here.server.sessions
        asked = ask(session)
        to = await here.next()
        asked.cancel()
        told = await here.next()
        assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", to["id"])
        late = ask(session, timeout=0.01)
        to = await here.next()
        assert isinstance(await failure(late), AgentTimeout)
        assert (await here.next())["params"]["requestId"] == to["id"]


async def test_too_many_questions_are_refused_and_those_there_are_end_with_the_connection() -> None:
    async with line(max_calls=1) as here:
        await here.initialize()
        (session,) = here.server.sessions
        asked = ask(session)
        await here.next()
        assert isinstance(await failure(ask(session)), Unavailable)
        await here.ask("tools/call", tool("wait"))
        await until(lambda: "waits 1" in here.words.seen)
        await here.pipe.aclose()
        assert isinstance(await failure(asked), AgentGone)
        assert not session.alive and not session.can_ask
        assert isinstance(await failure(ask(session)), AgentGone)


LONG = {"message": "x" * 600_000}


def test_who_does_not_read_its_questions_is_asked_no_more() -> None:
    async def over_a_pipe() -> None:
        async with line() as here:
            await here.initialize()
            (session,) = here.server.sessions
            asked = []
            for _ in range(4):  # the pipe takes two, two are queued
                asked.append(ask(session, params=LONG))
                await settled()
            assert not any(one.done() for one in asked)
            assert isinstance(await failure(ask(session, params=LONG)), Unavailable)
            for one in asked:
                one.cancel()

    async def over_http() -> None:
        async with rig() as there, client(there.mcp) as here:
            async with here.listen():
                session = await there.session()
            await lost(session)
            asked = [ask(session, params=LONG) for _ in range(2)]
            await settled()
            assert not any(one.done() for one in asked)
            assert isinstance(await failure(ask(session, params=LONG)), Unavailable)
            for one in asked:
                one.cancel()

    run(over_a_pipe())
    run(over_http())


async def test_a_client_over_a_websocket_is_asked_and_a_binary_message_is_answered() -> None:
    async with rig() as there:
        async with connect(there.url.replace("http:", "ws:") + "/ws") as socket:
            await socket.send(json.dumps(initialize()))
            await socket.recv()
            session = await there.session()
            asked = ask(session)
            to = json.loads(await socket.recv())
            await socket.send(b"no text")
            told = json.loads(await socket.recv())
            assert (told["id"], told["error"]["code"]) == (None, jsonrpc.INVALID_REQUEST)
            assert "binary" in told["error"]["message"]
            await socket.send(json.dumps(answer(to, model="m")))
            assert jsonrpc.unpack(await asked) == {"model": "m"}
        await until(lambda: not session.alive)


# --- Streamable HTTP --------------------------------------------------------------------------------------------------


async def test_a_client_is_asked_over_its_get_and_answers_with_a_post() -> None:
    async with rig(max_calls=2) as there, client(there.mcp) as here:
        (session,) = there.server.sessions
        assert session.alive and not session.can_ask
        assert isinstance(await failure(ask(session)), AgentGone)  # it has no GET open
        async with here.listen() as events:
            assert await there.session() is session
            asked = ask(session), ask(session)
            first, second = await events.next(), await events.next()
            assert isinstance(await failure(ask(session)), Unavailable)
            async with here.stream(here.request("tools/call", tool("ask"))) as call:
                third = await call.next()
                assert len({first["id"], second["id"], third["id"]}) == 3
                await here.notify("notifications/progress", {"progressToken": 1, "progress": 1})
                for to in (second, third, first):
                    answered = await here.post(answer(to, action=f"a{to['id']}"))
                    assert answered.status_code == 202
                assert (await call.next())["result"]["content"][0]["text"] == f"a{third['id']} None"
            said = [jsonrpc.unpack(await one)["action"] for one in asked]
            assert said == [f"a{first['id']}", f"a{second['id']}"]
            assert there.words.seen[-1] == 'notifications/progress {"progressToken": 1, "progress": 1}'
            asked = ask(session), ask(session, timeout=0.3)
            first, second = await events.next(), await events.next()
            told = await events.next()
            assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", second["id"])
            session.end()  # type: ignore[attr-defined]
            assert isinstance(await failure(asked[0]), AgentGone) and not session.alive and not session.can_ask


@on(Clock)
async def test_a_question_without_a_time_limit_is_waited_for_however_long() -> None:
    async with rig() as there, client(there.mcp) as here, here.listen() as events:
        asked = asyncio.create_task((await there.session()).ask(SAMPLE, WORDS))
        to = await events.next()
        await later(1000)
        await here.post(answer(to, model="m"))
        assert jsonrpc.unpack(await asked) == {"model": "m"}


async def test_a_question_outlives_the_get_it_was_asked_over() -> None:
    async with rig(replay=2000) as there, client(there.mcp) as here:
        async with here.listen() as events:
            session = await there.session()
            read = ask(session, params={"number": 0})
            first = await events.next()
            unread = ask(session, params={"number": 1})
            await until(lambda: _written(session) == 2)
        assert events.ids == ["0-0", "0-1"]
        await lost(session)
        assert session.can_ask
        last = ask(session, params={"number": 2})
        await until(lambda: _waiting(session) == 1)
        for _ in range(100):
            session.tell("notifications/tools/list_changed")
        async with here.listen(after="0-1") as events:
            seen = [await events.next(), await events.next()]
            assert [each["params"]["number"] for each in seen] == [1, 2]
            assert (await events.next())["method"] == "notifications/tools/list_changed"
            for to, number in ((first, 0), (seen[0], 1), (seen[1], 2)):
                await here.post(answer(to, number=number))
            for number, asked in enumerate((read, unread, last)):
                assert jsonrpc.unpack(await asked) == {"number": number}
        async with here.listen(after="0-0") as events:  # what is answered is not asked again
            assert (await events.next())["method"] == "notifications/tools/list_changed"


async def test_who_lost_the_get_before_anything_was_said_can_come_back_all_the_same() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.listen() as events:
            session = await there.session()
            assert (await events.frame()).data == b""  # type: ignore[union-attr]
        await lost(session)
        asked = ask(session)
        await until(lambda: _waiting(session) == 1)
        async with here.listen(after=events.ids[0]) as events:
            await here.post(answer(await events.next(), model="m"))
            await asked
    async with rig() as there, client(there.mcp, versions.V2025_06_18) as here, here.listen() as events:
        asked = ask(await there.session())
        assert (await events.frame()).id == "0-1"  # type: ignore[union-attr]
    assert isinstance(await failure(asked), AgentGone)


async def test_a_question_that_is_given_up_before_it_went_out_does_not_go_out() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.listen():
            session = await there.session()
        await lost(session)
        given_up, asked = ask(session, timeout=0.01), ask(session)
        assert isinstance(await failure(given_up), AgentTimeout)
        async with here.listen(after="0-0") as events:
            to = await events.next()
            assert to["id"] == 2
            await here.post(answer(to))
            await asked
            session.tell("notifications/tools/list_changed")
            assert (await events.next())["method"] == "notifications/tools/list_changed"


async def test_news_do_not_crowd_out_a_question() -> None:
    async with rig() as there, client(there.mcp) as here:
        async with here.listen():
            session = await there.session()
        await lost(session)
        asked = ask(session, params={"large": "x" * 300_000})
        await until(lambda: _waiting(session) == 1)
        for _ in range(100):
            session.tell("notifications/tools/list_changed")
        assert _waiting(session) == 65
        async with here.listen() as events:  # it knows of no event to go on from
            to = await events.next()
            assert to["method"] == SAMPLE
            assert (await events.next())["method"] == "notifications/tools/list_changed"
            await here.post(answer(to))
            await asked


async def test_who_does_not_come_back_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RETURN_SECONDS", 0.5)

    async with rig() as there, client(there.mcp) as here:
        async with here.listen() as events:
            session = await there.session()
            sent = ask(session)
            to = await events.next()
            assert isinstance(session, StreamableSession)
            session.standalone._heard = math.inf  # as if it said something all the time
        await lost(session)
        waiting = ask(session)
        assert isinstance(await failure(waiting), AgentGone)
        assert not session.can_ask and session.alive
        await asyncio.wait([sent], timeout=0.3)
        assert not sent.done()  # it may be at work
        await here.notify("notifications/progress", {"progressToken": 1, "progress": 1})
        assert isinstance(await failure(sent), AgentGone)
        assert (await here.post(answer(to))).status_code == 202


async def test_a_get_that_another_takes_over_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RETURN_SECONDS", 0.05)

    async with rig() as there, client(there.mcp) as here, here.listen() as first:
        session = await there.session()
        asked = ask(session)
        await first.next()
        async with here.listen(after="0-0") as second:
            assert session.can_ask and await first.next() is None
            to = await second.next()
            await asyncio.wait([asked], timeout=0.15)
            assert session.can_ask
            await here.post(answer(to))
            await asked


async def test_who_is_asked_something_does_not_make_room_for_another() -> None:
    async with rig(max_sessions=1) as there, client(there.mcp) as here:
        async with here.listen():
            session = await there.session()
            asked = ask(session)
        await lost(session)
        another = Client(here.http, here.url, here.version)
        assert (await another.post(initialize())).status_code == 503
        asked.cancel()
        await asyncio.wait([asked])
        assert (await another.post(initialize())).status_code == 200
        assert not session.alive


def _written(session: Any) -> int:
    """How many messages of its GET were written."""
    stream = session.standalone.stream
    return int(stream._last - len(stream._waiting))


def _waiting(session: Any) -> int:
    return len(session.standalone.stream._waiting)


# --- 2026-07-28 -------------------------------------------------------------------------------------------------------


async def test_a_client_without_sessions_is_never_asked() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        there.words.capabilities["resources"] = {"subscribe": True}
        params = {**stated(), "notifications": {"resourceSubscriptions": ["x:y"]}}
        async with here.stream(here.request("subscriptions/listen", params)) as events:
            await events.next()
            (session,) = there.server.sessions
            assert session.alive and not session.can_ask
            assert isinstance(await failure(ask(session)), Unsupported)
        await there.saw("left")
        await until(lambda: not session.alive)


async def test_a_call_can_see_whether_its_client_gave_it_up() -> None:
    seen: list[bool] = []
    async with rig() as there, modern_client(there.mcp) as modern, client(there.mcp) as here:
        waiting, words = there.words.wait, there.words

        async def wait(call: Any, given: Any, params: Any) -> str:
            try:
                return await waiting(call, given, params)
            except asyncio.CancelledError:
                seen.append(call.session.alive)
                raise

        words.wait = wait  # type: ignore[method-assign]
        for one, id in ((modern, "leaves"), (modern, "too"), (here, "cancels"), (here, "ends")):
            params = modern_tool("wait", 1) if one is modern else tool("wait", 1)
            async with one.stream(one.request("tools/call", params, id=id)) as events:
                await events.next()
                if id == "cancels":
                    await here.notify("notifications/cancelled", {"requestId": id})
                elif id == "ends":
                    await here.http.delete(here.url, headers=here.headers())
                else:
                    continue
                await events.rest()
            await there.saw(f"cancelled {id}")
        await until(lambda: len(seen) == 4)
        assert seen[-2:] == [True, False] and seen[:2] == [True, True]
        stopped = asyncio.create_task(modern.post(modern.request("tools/call", modern_tool("wait"), id="q")))
        await there.saw("waits q")
        there.server.quiet()
        await stopped
        assert seen[4:] == [False]
