"""Our client of Streamable HTTP towards servers that differ, fail, and come back."""

from __future__ import annotations

import asyncio
import collections
import json
from typing import Any

import msgspec
import pytest

from adapters.agent_client.outbound import http
from adapters.agent_client.outbound.http import HttpPipe
from adapters.agent_client.wire import SESSION_ID
from gateway.core.errors import AgentGone
from gateway.transport.http import HttpAuth
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.http_fake import Fake, fake, update
from tests.adapters.agent_client.test_http_client import NEW, Connected, connected
from tests.support.aio import Clock, on
from tests.support.raw_http import Exchange
from tests.support.scripted import until

COOKIES = ["a=1; Path=/", "c=9", 'q="a b"', "none", "b=1=2;max-age=60", "c=; Max-Age=0", "d=; max-age=-1"]


async def test_authentication_and_cookies_go_with_every_request() -> None:
    async with fake() as there:

        async def sets(exchange: Exchange) -> None:
            body = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": 1}}
            names = {
                "Acp_Connection_Id": "c1",
                "Content_Type": "application/json",
                "Set_Cookie": "\r\nSet-Cookie: ".join(COOKIES),
            }
            await exchange.answer(json.dumps(body).encode(), **names)

        async def renews(exchange: Exchange, message: dict[str, Any]) -> None:
            await exchange.answer(status="202 Accepted", Set_Cookie="a=2; HttpOnly")
            there.tell(None, {"id": message["id"], "result": {}})

        there.initialize, there.post = sets, renews
        async with connected(there.url, auth=HttpAuth(bearer="key")) as here:
            await here.ask("_one", {})
            await here.ask("_two", {})
        posts = there.of("POST")
        assert [request.headers.get("cookie") for request in posts] == [None, "a=1; b=1=2", "a=2; b=1=2"]
        assert there.of("DELETE")[0].headers["cookie"] == "a=2; b=1=2"
        assert {request.headers["authorization"] for request in there.requests} == {"Bearer key"}


async def test_a_message_about_a_session_names_it_once_its_stream_is_open() -> None:
    async with fake() as there, connected(there.url) as here:
        await here.ask("session/prompt", {"sessionId": "s1"})
        await here.ask("session/prompt", {"sessionId": "s1"})
        assert [r.headers.get("acp-session-id") for r in there.requests if r.method != "DELETE"] == [
            None,  # initialize
            *([None, "s1"]),  # the streams
            *(["s1", "s1"]),
        ]


async def test_the_session_of_a_new_answer_gets_its_stream_at_once() -> None:
    async with fake() as there, connected(there.url) as here:

        async def makes(exchange: Exchange, message: dict[str, Any]) -> None:
            await exchange.answer(status="202 Accepted")
            there.tell(None, {"id": message["id"], "result": {"sessionId": "s1"}})

        there.post = makes
        await here.ask("session/new", NEW)
        await there.say("s1", update("s1", "hello"))
        await until(lambda: here.editor.said == ["hello"])


async def test_an_answer_to_a_question_names_the_session_that_asked() -> None:
    async with fake() as there, connected(there.url) as here:
        await here.ask("session/prompt", {"sessionId": "s1"})
        await there.say("s1", {"id": "q", "method": "session/request_permission", "params": {"sessionId": "s1"}})
        await until(lambda: there.posts[-1].get("id") == "q")
        assert there.requests[-1].headers["acp-session-id"] == "s1"
        await there.say(None, {"id": "r", "method": "_ask", "params": {}})
        await until(lambda: there.posts[-1].get("id") == "r")
        assert "acp-session-id" not in there.requests[-1].headers


async def test_a_server_that_knows_a_session_only_once_it_is_loaded_is_asked_without_the_header() -> None:
    """The Python SDK's: 404 for its stream, and for the header; everything is on the connection's stream then."""
    async with fake() as there, connected(there.url) as here:

        async def knows_none(exchange: Exchange, session: str | None) -> None:
            await (there.stream(exchange, None) if session is None else exchange.answer(status="404 Not Found"))

        async def loads(exchange: Exchange, message: dict[str, Any]) -> None:
            if "acp-session-id" in exchange.headers:
                await exchange.answer(b'{"error": "Unknown session id"}', "404 Not Found")
                return
            await exchange.answer(status="202 Accepted")
            there.tell(None, update("s1", "replay"), {"id": message["id"], "result": {}})

        there.get, there.post = knows_none, loads
        assert await here.ask("session/load", {**NEW, "sessionId": "s1"}) == {}
        assert here.editor.said == ["replay"]


async def test_a_server_that_insists_on_the_header_gets_it_though_it_has_no_stream_for_the_session() -> None:
    async with fake() as there, connected(there.url) as here:

        async def main_only(exchange: Exchange, session: str | None) -> None:
            await (there.stream(exchange, None) if session is None else exchange.answer(status="405 Not"))

        async def insists(exchange: Exchange, message: dict[str, Any]) -> None:
            if "acp-session-id" not in exchange.headers:
                await exchange.answer(b"Missing Acp-Session-Id", "400 Bad Request")
                return
            await exchange.answer(status="202 Accepted")
            there.tell(None, {"id": message["id"], "result": {"ok": True}})

        there.get, there.post = main_only, insists
        assert await here.ask("session/prompt", {"sessionId": "s1"}) == {"ok": True}


async def test_a_session_id_that_no_header_can_hold_goes_in_the_message_alone() -> None:
    async with fake() as there, connected(there.url) as here:
        for name in ("line\r\nX-Evil: 1", "ü", " s "):
            assert await here.ask("session/prompt", {"sessionId": name}) == {"sessionId": name}
        assert all("acp-session-id" not in request.headers for request in there.requests)


@on(Clock)
async def test_the_answer_of_a_load_that_overtakes_the_replay_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SETTLE_SECONDS", 20.0)  # which are over when the test says so
    monkeypatch.setattr(http, "SETTLE_MOST", 40.0)

    async with fake() as there, connected(there.url) as here:

        async def loads(exchange: Exchange, message: dict[str, Any]) -> None:
            await exchange.answer(status="202 Accepted")
            if message.get("method") == "session/load":
                told = {"id": message["id"], "result": {}}
                await there.say(None, told, {"id": 99, "method": "_now", "params": {}})

        there.post = loads
        load = asyncio.create_task(here.ask("session/load", {**NEW, "sessionId": "s1"}))
        await until(lambda: here.editor.asked == ["_now"])  # the answer was there before this
        await there.say("s1", update("s1", "one"), update("s1", "two"))
        await until(lambda: here.editor.said == ["one", "two"])
        assert not load.done()
        clock = asyncio.get_running_loop()
        assert isinstance(clock, Clock)
        clock.ahead += 21
        assert await load == {}


async def test_streams_that_drop_are_opened_again() -> None:
    async with fake() as there, connected(there.url) as here:
        await here.ask("session/prompt", {"sessionId": "s1"})
        for number in range(3):
            there.drop(None)
            there.drop("s1")
            await there.say("s1", update("s1", str(number)))
            await there.say(None, update("s1", f"main {number}"))
            await until(lambda: len(here.editor.said) == 2 * number + 2)  # noqa: B023 - awaited here


async def test_a_stream_that_the_server_believes_is_still_open_is_asked_for_until_it_does_not() -> None:
    async with fake() as there:
        refused: list[Exchange] = []

        async def taken(exchange: Exchange, session: str | None) -> None:
            if len(refused) < 3:
                refused.append(exchange)
                await exchange.answer(status="409 Conflict")
            else:
                await there.stream(exchange, session)

        there.get = taken
        async with connected(there.url) as here:
            assert await here.ask("_echo", {"a": 1}) == {"a": 1}


async def test_a_connection_whose_stream_stays_away_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_DELAY", 0.001)

    async with fake() as there, connected(there.url) as here:
        await here.ask("_echo", {})
        there.get = lambda exchange, _: exchange.answer(status="503 Service Unavailable")
        there.drop(None)
        with pytest.raises(AgentGone, match="503"):
            await here.peer.request("_never", {})
        assert len(there.of("GET")) == 1 + http.TRIES


async def test_a_session_whose_stream_stays_away_fails_alone() -> None:
    async with fake() as there, connected(there.url) as here:
        await here.ask("session/prompt", {"sessionId": "s1"})

        async def ended(exchange: Exchange, session: str | None) -> None:
            await (there.stream(exchange, None) if session is None else exchange.answer(status="404 Not Found"))

        there.get, there.post = ended, lambda exchange, _: exchange.answer(status="202 Accepted")
        turn = asyncio.create_task(here.ask("session/prompt", {"sessionId": "s1"}))
        await until(lambda: len(there.posts) == 2)
        there.drop("s1")
        with pytest.raises(RpcError, match="the stream of session s1 with status 404"):
            await turn
        there.post = there.accept
        assert await here.ask("_echo", {"a": 1}) == {"a": 1}


async def cut_in_silence(there: Fake, here: Connected, times: int, *sessions: str | None) -> None:
    """Have so many streams of each session given up for their silence; until the one after them, which lasts, is open.

    Which stream is impatient is counted as it is opened, so that nothing depends on when this is looked at.
    """
    stream, opened = here.pipe.client.stream, collections.Counter[str | None]()

    def impatient(method: str, path: str, *, headers: dict[str, str], idle_timeout: float, **options: Any) -> Any:
        session = headers.get(SESSION_ID)
        opened[session] += 1
        idle = min(0.05, idle_timeout) if opened[session] <= times else idle_timeout
        return stream(method, path, headers=headers, idle_timeout=idle, **options)

    here.pipe.client.stream = impatient  # type: ignore[method-assign, assignment]
    there.drop(None)  # it was opened before
    for session in sessions:
        if session is not None:
            here.peer.notify("session/cancel", {"sessionId": session})
        extra = times + (2 if session is None else 1)

        def lasts(session: str | None = session, count: int = extra) -> bool:
            asked = [get for get in there.of("GET") if get.headers.get("acp-session-id") == session]
            return len(asked) == count and there.streams.get(session) is asked[-1]

        await until(lasts)


async def test_a_stream_without_a_sign_of_life_is_opened_again() -> None:
    async with fake() as there, connected(there.url) as here:
        await here.ask("_echo", {})
        await cut_in_silence(there, here, 1, None)
        assert await here.ask("_echo", {"a": 1}) == {"a": 1}


async def test_streams_may_be_cut_in_silence_as_often_as_one_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TRIES", 2)
    monkeypatch.setattr(http, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(http, "LASTING_SECONDS", 0.04)

    async with fake() as there, connected(there.url) as here:
        await here.ask("_echo", {})
        await cut_in_silence(there, here, 6, None, "s1")
        assert await here.ask("session/prompt", {"sessionId": "s1"}) == {"sessionId": "s1"}
        assert await here.ask("_echo", {"a": 1}) == {"a": 1}


async def test_the_stream_of_a_session_that_was_closed_is_closed_too() -> None:
    async with fake() as there, connected(there.url) as here:
        await here.ask("session/prompt", {"sessionId": "s1"})
        await here.ask("session/close", {"sessionId": "s1"})
        await until(lambda: there.left == ["s1"])
        assert await here.ask("_echo", {"a": 1}) == {"a": 1}
        assert len(there.of("GET")) == 2


async def test_what_is_not_received_is_not_read_for_ever() -> None:
    async with fake() as there:
        here = HttpPipe(there.url, buffer=10_000)
        await here.send([b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'])
        assert await here.receive()
        there.tell(None, *(update("s1", "x" * 1000) for _ in range(20_000)))
        await until(lambda: here._inbox.size > 10_000)
        for _ in range(50):  # while it is not received, much else happens
            await here.send([b'{"jsonrpc":"2.0","method":"_tick"}'])
        assert here._inbox.size < 1 << 20
        count = 0
        while count < 20_000:
            count += len(await here.receive())
        await here.aclose()


async def test_a_server_that_answers_a_get_only_when_it_has_something_to_say_is_sent_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "OPEN_SECONDS", 0.05)

    async with fake() as there, connected(there.url) as here:
        taken = asyncio.Event()

        async def late(exchange: Exchange, session: str | None) -> None:
            if session is not None:
                await taken.wait()
            await there.stream(exchange, session)

        async def takes(exchange: Exchange, message: dict[str, Any]) -> None:
            taken.set()
            await there.accept(exchange, message)

        there.get, there.post = late, takes
        assert await here.ask("session/prompt", {"sessionId": "s1"}) == {"sessionId": "s1"}


async def test_an_event_far_over_the_limit_is_reported_and_what_follows_is_heard() -> None:
    async with fake() as there, connected(there.url, limit=1000) as here:
        there.tell(None, update("s1", "x" * 100_000))  # of which not all need be read
        await until(lambda: len(here.editor.unread) == 1)
        await until(lambda: len(there.of("GET")) == 2)
        assert await here.ask("_echo", {"a": 1}) == {"a": 1}


async def test_a_busy_server_is_asked_again() -> None:
    async with fake() as there, connected(there.url) as here:

        async def busy(exchange: Exchange, message: dict[str, Any]) -> None:
            if len(there.posts) < 3:
                await exchange.answer(status="503 Service Unavailable")
            else:
                await there.accept(exchange, message)

        there.post = busy
        assert await here.ask("_echo", {"a": 1}) == {"a": 1}


async def test_a_post_whose_connection_is_lost_fails_a_request_and_repeats_what_may_be_said_twice() -> None:
    async with fake() as there, connected(there.url) as here:

        async def dies(exchange: Exchange, message: dict[str, Any]) -> None:
            if len(there.posts) in (1, 2):
                exchange.reset()
            else:
                await there.accept(exchange, message)

        there.post = dies
        with pytest.raises(RpcError, match=r"lost|closed"):
            await here.ask("_once", {})
        here.peer.notify("session/cancel", {"sessionId": "s1"})
        assert await here.ask("_echo", {"a": 1}) == {"a": 1}
        assert [post["method"] for post in there.posts] == ["_once", *["session/cancel"] * 2, "_echo"]


async def test_an_answer_in_the_body_of_a_post_is_taken() -> None:
    async with fake() as there, connected(there.url) as here:

        async def at_once(exchange: Exchange, message: dict[str, Any]) -> None:
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"at": "once"}})
            await exchange.answer(body.encode(), Content_Type="application/json")

        there.post = at_once
        assert await here.ask("_echo", {}) == {"at": "once"}


ANSWERS = {
    "401 Unauthorized": (b'{"error": "no key"}', "status 401: no key", -32000),
    "404 Not Found": (b"<html>not here</html>", "status 404: Not Found", -32603),
    "307 Temporary Redirect": (b"", "status 307: it redirects; the address must be given", -32603),
    "500 Internal Server Error": (b"boom", "status 500: boom", -32603),
    "200 OK": (b"{}", "without the header Acp-Connection-Id", -32603),
}


@pytest.mark.parametrize("status", ANSWERS)
async def test_initialize_that_is_refused_says_why(status: str) -> None:
    body, told, code = ANSWERS[status]

    async with fake() as there:
        there.initialize = lambda exchange: exchange.answer(body, status)
        here = Connected(HttpPipe(there.url))
        async with here.peer:
            with pytest.raises(RpcError, match=told) as caught:
                await here.ask("initialize", {})
            assert caught.value.error.code == code


async def test_what_a_refusal_says_is_kept_with_the_error() -> None:
    async with fake() as there, connected(there.url) as here:
        there.post = lambda exchange, _: exchange.answer(b'{"error": "too much"}', "413 Too Large")
        with pytest.raises(RpcError, match="too much") as caught:
            await here.ask("_x", {})
        assert msgspec.json.decode(caught.value.error.data) == {"status": 413, "body": '{"error": "too much"}'}


async def test_a_page_instead_of_an_answer_fails_the_request() -> None:
    async with fake() as there, connected(there.url) as here:
        page = b"<html><title>Log in</title></html>"
        there.post = lambda exchange, _: exchange.answer(page, Content_Type="text/html; charset=utf-8")
        with pytest.raises(RpcError, match="answered a message with status 200: Log in"):
            await here.ask("_x", {})


@pytest.mark.parametrize("body", [b'{"jsonrpc": "2.0", "re', b'{"ok": true}'])
async def test_an_answer_that_is_no_message_fails_the_request(body: bytes) -> None:
    async with fake() as there, connected(there.url) as here:
        there.post = lambda exchange, _: exchange.answer(body, Content_Type="application/json")
        with pytest.raises(RpcError, match="answered with no message"):
            await here.ask("_x", {})


async def test_nothing_can_be_said_before_initialize() -> None:
    async with fake() as there:
        one = HttpPipe(there.url)
        with pytest.raises(AgentGone, match="before initialize"):
            await one.send([b'{"jsonrpc":"2.0","method":"x"}'])
        await one.aclose()
        assert not there.requests


async def test_closing_takes_a_bounded_time_though_the_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CLOSE_SECONDS", 0.1)

    async with fake() as there:
        never = asyncio.Event()
        plain = there.handle

        async def handle(exchange: Exchange) -> None:
            await (never.wait() if exchange.method == "DELETE" else plain(exchange))

        there.handle = handle
        async with asyncio.timeout(30):
            async with connected(there.url) as here:
                await here.ask("_echo", {})
