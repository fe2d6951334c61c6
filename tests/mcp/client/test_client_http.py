"""Streamable HTTP and HTTP+SSE, with a server that says exactly what a test wants."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.core.errors import AgentBroken, AgentBusy, AgentFailed, AgentGone, AgentTimeout, InterlinguaError
from gateway.mcp import wire
from gateway.mcp.client.http import streamable
from gateway.mcp.client.session import ClientSession
from gateway.wire.jsonrpc import RpcError
from tests.mcp.client.rig import (
    PROGRESS,
    YES,
    Listens,
    answer,
    events,
    http,
    notification,
    one,
    pool,
    request,
    result,
    stream,
    target,
)
from tests.support.aio import Clock, later, on
from tests.support.raw_http import Exchange
from tests.support.rpc import settled


def progress(message: Any, *numbers: int) -> list[Any]:
    """Of the call that a message is."""
    token = message["params"]["_meta"]["progressToken"]
    return [notification(PROGRESS, progressToken=token, progress=n, message=str(n)) for n in numbers]


async def plain(exchange: Exchange, message: Any) -> None:
    await answer(exchange, result(message["id"], {"said": message["params"].get("name")}))


def said(raw: Any) -> Any:
    return json.loads(bytes(raw))


async def test_headers_are_those_of_the_revision_and_the_session_is_ended() -> None:
    async with http({"tools/call": plain}) as server:
        async with pool(url=server.url, auth={"bearer": "secret"}) as made, made.lease() as session:
            assert said(await session.call("tools/call", {"name": "x"})) == {"said": "x"}
        first, *others = server.requests
        assert "mcp-session-id" not in first[1] and "mcp-protocol-version" not in first[1]
        assert [method for method, _ in server.requests] == ["POST", "POST", "GET", "POST", "DELETE"]
        for method, headers in others:
            assert headers["mcp-session-id"] == "s1" and headers["mcp-protocol-version"] == "2025-11-25"
            assert headers["authorization"] == "Bearer secret"
            if method == "POST":
                assert headers["accept"] == "application/json, text/event-stream"
                assert headers["content-type"] == "application/json"


async def test_a_question_belongs_to_the_call_on_whose_stream_it_comes() -> None:
    both = asyncio.Event()
    waiting: list[Any] = []

    async def asks(exchange: Exchange, message: Any) -> None:
        waiting.append(message)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        name = message["params"]["name"]
        await stream(exchange, *progress(message, 1), request(name, "elicitation/create", of=name), end=False)
        await server.until(lambda: [each for each in server.got("answer") if each["id"] == name])
        await events(exchange, result(message["id"], {"said": name}))
        exchange.writer.close()

    async with http({"tools/call": asks}, session="") as server, pool(url=server.url) as made:

        async def call(name: str) -> Listens:
            listener = Listens()
            async with made.lease() as session:
                assert said(await session.call("tools/call", {"name": name}, listener=listener)) == {"said": name}
            return listener

        for name, listener in zip("ab", await asyncio.gather(call("a"), call("b")), strict=True):
            assert listener.asked_for == [("elicitation/create", {"of": name})] and listener.said == ["1"]
        assert len(server.got("initialize")) == 1  # nothing can be confused, so one session does
        assert sorted((each["id"], each["result"]["action"]) for each in server.got("answer")) == [
            ("a", YES["action"]),
            ("b", YES["action"]),
        ]


async def test_a_stream_that_breaks_off_is_gone_on_with_where_it_was() -> None:
    state: dict[str, Any] = {}

    async def breaks(exchange: Exchange, message: Any) -> None:
        state["message"] = message
        await stream(exchange, b"", *progress(message, 1, 2), ids=True)

    async def goes_on(exchange: Exchange, _: Any) -> None:
        at = exchange.headers.get("last-event-id")
        if at is None:
            await exchange.answer(status="405 Method Not Allowed")
        elif at == "e3":
            await stream(exchange, *progress(state["message"], 3), ids=True, first=4)
        elif state.setdefault("tries", 0) == 0:
            state["tries"] = 1
            await exchange.answer(status="503 Service Unavailable")
        else:
            await stream(exchange, *progress(state["message"], 4), result(state["message"]["id"], {"said": at}))

    async with http({"tools/call": breaks, "GET": goes_on}) as server, pool(url=server.url) as made:
        listener = Listens()
        async with made.lease() as session:
            assert said(await session.call("tools/call", listener=listener)) == {"said": "e4"}
        assert listener.said == ["1", "2", "3", "4"] and len(server.got("tools/call")) == 1


async def test_a_stream_that_cannot_be_gone_on_with_ends_the_call_and_what_was_heard_stays() -> None:
    async def breaks(exchange: Exchange, message: Any) -> None:
        await stream(exchange, *progress(message, 1), ids=message["params"]["name"] == "with ids")

    async with one({"tools/call": breaks}) as (_, _, session):
        for name in ("without", "with ids"):
            listener = Listens()
            with pytest.raises(AgentGone):
                await session.call("tools/call", {"name": name}, listener=listener)
            assert listener.said == ["1"]
        assert session.alive


async def test_a_session_that_is_forgotten_is_made_again_and_nothing_is_lost() -> None:
    async def forgetful(exchange: Exchange, message: Any) -> None:
        if exchange.headers["mcp-session-id"] == "s1":
            server.session = "s2"
            await exchange.answer(b"Session not found", status="404 Not Found")
        else:
            await plain(exchange, message)

    async with one({"tools/call": forgetful}) as (server, _, session):
        calls = [session.call("tools/call", {"name": str(n)}) for n in range(20)]
        found = await asyncio.gather(*calls)
        assert [said(each)["said"] for each in found] == [str(n) for n in range(20)]
        assert len(server.got("initialize")) == 2
    assert server.requests[-1] == ("DELETE", server.requests[-1][1])
    assert server.requests[-1][1]["mcp-session-id"] == "s2"


async def test_what_is_said_while_a_new_session_is_made_is_said_in_it() -> None:
    making = asyncio.Event()
    made_it = asyncio.Event()

    async def begins(exchange: Exchange, message: Any) -> None:
        if len(server.got("initialize")) == 2:
            making.set()
            await made_it.wait()
        await server.initialized(exchange, message)

    async def forgetful(exchange: Exchange, message: Any) -> None:
        known = exchange.headers.get("mcp-session-id")
        if known is None:
            await exchange.answer(b"Missing session ID", status="400 Bad Request")
        elif known == "s1":
            server.session = "s2"
            await exchange.answer(b"Session not found", status="404 Not Found")
        else:
            await plain(exchange, message)

    on = {"initialize": begins, "tools/call": forgetful}
    async with http(on) as server, pool(url=server.url) as made, made.lease() as session:
        first = asyncio.create_task(session.call("tools/call", {"name": "first"}))
        await making.wait()
        second = asyncio.create_task(session.call("tools/call", {"name": "second"}))
        await settled(200)
        made_it.set()
        assert [said(await each)["said"] for each in (first, second)] == ["first", "second"]
        assert len(server.got("tools/call")) == 3


async def test_a_server_that_forgets_every_session_is_not_asked_for_ever() -> None:
    async def never(exchange: Exchange, message: Any) -> None:
        await exchange.answer(status="404 Not Found")

    async with http({"tools/call": never}) as server, pool(url=server.url) as made:
        async with made.lease() as session:
            with pytest.raises(AgentGone):
                await session.call("tools/call")
        assert len(server.got("tools/call")) == 2


@pytest.mark.parametrize(
    ("status", "body", "wanted"),
    [
        ("401 Unauthorized", b"", AgentFailed),
        ("403 Forbidden", b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}', AgentFailed),
        ("400 Bad Request", b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32602,"message":"bad"}}', RpcError),
        ("500 Internal Server Error", b"<html>oops</html>", AgentFailed),
        ("502 Bad Gateway", b"", AgentGone),
        ("429 Too Many Requests", b"", AgentBusy),
        ("202 Accepted", b"", AgentBroken),
        ("200 OK", b"<html>login</html>", AgentBroken),
        ("200 OK", b'{"jsonrpc":"2.0","id":3,"result":{"x"', AgentBroken),
        ("200 OK", b'{"jsonrpc":"2.0","method":"notifications/x"}', AgentGone),
    ],
)
async def test_what_a_server_answers_instead_of_a_result_is_told_apart(
    status: str, body: bytes, wanted: type[InterlinguaError]
) -> None:
    async def refuses(exchange: Exchange, message: Any) -> None:
        kind = "text/html" if body.startswith(b"<") else "application/json"
        await exchange.answer(body, status, Content_Type=kind)

    async with one({"tools/call": refuses}) as (_, _, session):
        with pytest.raises(wanted) as caught:
            await session.call("tools/call", listener=Listens())
        assert type(caught.value) is wanted or wanted is AgentFailed
        assert session.alive


async def test_a_second_answer_and_one_to_somebody_else_are_dropped() -> None:
    async def twice(exchange: Exchange, message: Any) -> None:
        id = message["id"]
        mine = result(id, {"said": 1})
        await stream(exchange, result(99, {}), mine, result(id, {"said": 2}), *progress(message, 7))

    async def late(exchange: Exchange, message: Any) -> None:
        await stream(exchange, result(str(message["id"]), {"said": "an id that was made a string"}))

    async with one({"tools/call": twice, "tools/late": late}) as (_, _, session):
        listener = Listens()
        assert said(await session.call("tools/call", listener=listener)) == {"said": 1}
        assert listener.heard == []
        assert "string" in said(await session.call("tools/late"))["said"]


async def test_several_messages_in_an_array_are_taken_with_the_answer_last() -> None:
    async def batch(exchange: Exchange, message: Any) -> None:
        await answer(
            exchange, [result(message["id"], {"said": 1}), *progress(message, 1, 2), result(message["id"], {})]
        )

    async with one({"tools/call": batch}) as (_, _, session):
        listener = Listens()
        assert said(await session.call("tools/call", listener=listener)) == {"said": 1}
        assert listener.said == ["1", "2"]


@pytest.mark.parametrize("size", [1200, 2000])
async def test_a_message_over_the_limit_fails_its_call_alone(size: int) -> None:
    async def huge(exchange: Exchange, message: Any) -> None:
        await stream(exchange, *progress(message, 1), result(message["id"], {"text": "x" * size}))

    async with one({"tools/call": huge, "tools/x": plain}, max_message=1000) as (_, _, session):
        with pytest.raises(AgentBroken):
            await session.call("tools/call", listener=Listens())
        await session.call("tools/x")


@pytest.mark.parametrize("where", ["its stream", "nobody's stream"])
async def test_a_question_over_the_limit_is_refused_and_its_call_goes_on(where: str) -> None:
    question = request("q", "elicitation/create", message="x" * 1200)

    async def asks(exchange: Exchange, message: Any) -> None:
        if where == "its stream":
            await stream(exchange, question, end=False)
            await server.until(lambda: server.got("answer"))
            await events(exchange, result(message["id"], {"said": 1}))
            exchange.writer.close()
        else:
            await server.until(lambda: server.got("answer"))
            await answer(exchange, result(message["id"], {"said": 1}))

    async def news(exchange: Exchange, _: Any) -> None:
        await stream(exchange, *([] if where == "its stream" else [question]), end=False)
        await exchange.gone()

    async with one({"tools/call": asks, "GET": news}, max_message=1000) as (server, _, session):
        assert said(await session.call("tools/call", listener=Listens(), timeout=20)) == {"said": 1}
        [refused] = server.got("answer")
        assert (refused["id"], refused["error"]["code"]) == ("q", -32600)
        assert refused["error"]["message"] == "a message of more than 1000 bytes"


@on(Clock)
async def test_a_call_that_is_given_up_is_told_by_a_message_of_its_own() -> None:
    gone = asyncio.Event()

    async def silent(exchange: Exchange, message: Any) -> None:
        await stream(exchange, *progress(message, 1), end=False)
        await exchange.gone()
        gone.set()

    async with one({"tools/call": silent}) as (server, _, session):
        calling = asyncio.create_task(session.call("tools/call", listener=Listens(), timeout=100))
        await server.until(lambda: server.got("tools/call"))
        await later(101)
        with pytest.raises(AgentTimeout):
            await calling
        await server.until(lambda: server.got("notifications/cancelled"))
        (told,) = server.got("notifications/cancelled")
        assert told["params"]["requestId"] == server.got("tools/call")[0]["id"]
        async with asyncio.timeout(30):
            await gone.wait()


async def test_a_question_that_the_server_takes_back_is_stopped_and_answered_all_the_same() -> None:
    stopped = asyncio.Event()

    async def asks(exchange: Exchange, message: Any) -> None:
        await stream(exchange, request("q", "elicitation/create"), request("r", "elicitation/create"), end=False)
        await server.until(lambda: [each for each in server.got("answer") if each["id"] == "r"])
        await events(exchange, notification("notifications/cancelled", requestId="q"))
        await server.until(lambda: len(server.got("answer")) == 2)
        await events(exchange, result(message["id"], {"said": "done"}))
        exchange.writer.close()

    async def how(method: str, params: Any) -> Any:
        if len(listener.asked_for) == 2:
            return YES
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    listener = Listens(how)
    async with http({"tools/call": asks}) as server, pool(url=server.url) as made, made.lease() as session:
        assert said(await session.call("tools/call", listener=listener)) == {"said": "done"}
        assert stopped.is_set() and server.got("answer")[1]["error"]["code"] == -32800


async def test_a_question_that_was_taken_back_cleans_up_undisturbed_by_the_end_of_the_session() -> None:
    asked, stops, cleaned, done = [asyncio.Event() for _ in range(4)]

    async def asks(exchange: Exchange, message: Any) -> None:
        await stream(exchange, request("q", "elicitation/create"), end=False)
        await asked.wait()
        await events(exchange, notification("notifications/cancelled", requestId="q"))
        await exchange.gone()

    async def how(method: str, params: Any) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stops.set()
            await cleaned.wait()
            done.set()

    async with one({"tools/call": asks}) as (_, _, session):
        call = asyncio.create_task(session.call("tools/call", listener=Listens(how)))
        await stops.wait()
        assert isinstance(session, ClientSession)
        closing = asyncio.create_task(session.aclose())
        await settled()
        cleaned.set()
        await closing
        assert done.is_set()
        with pytest.raises(AgentGone):
            await call


async def test_a_slow_listener_keeps_the_stream_from_being_read() -> None:
    written = [0]

    async def floods(exchange: Exchange, message: Any) -> None:
        await stream(exchange, end=False)
        (long,) = progress(message, 1)
        long["params"]["message"] = "x" * 1000
        block = b"data: " + json.dumps(long).encode() + b"\n\n"
        for _ in range(200):
            await exchange.say(block * 100)
            written[0] += 100
        await events(exchange, result(message["id"], {}))
        exchange.writer.close()

    async with http({"tools/call": floods}) as server, pool(url=server.url) as made, made.lease() as session:
        listener = Listens()
        listener.hold = asyncio.Event()
        task = asyncio.create_task(session.call("tools/call", listener=listener))
        before = -1
        while before != written[0] or not listener.heard:  # until the server is stuck
            before = written[0]
            await asyncio.wait([task], timeout=0.05)
        assert written[0] < 15_000 and len(listener.heard) == 1
        listener.hold.set()
        await task
        assert len(listener.heard) == 20_000


async def test_news_and_questions_come_on_the_stream_that_is_nobodys() -> None:
    async def news(exchange: Exchange, _: Any) -> None:
        if exchange.headers.get("last-event-id") is None:
            await stream(exchange, notification("notifications/tools/list_changed"), ids=True)
        else:
            assert exchange.headers["last-event-id"] == "e1"
            await stream(exchange, notification("notifications/agents/list_changed"), end=False)
            await server.until(lambda: server.got("tools/call"))
            await events(exchange, *progress(server.got("tools/call")[0], 1), request("q", "elicitation/create"))
            await exchange.gone()

    async def asks(exchange: Exchange, message: Any) -> None:
        await server.until(lambda: server.got("answer"))
        await plain(exchange, message)

    told: list[str] = []
    async with http({"GET": news, "tools/call": asks}) as server, pool(url=server.url) as made:
        made.on_notification(lambda method, params: told.append(method))
        async with made.lease() as session:
            listener = Listens()
            await session.call("tools/call", listener=listener)
            assert listener.said == ["1"] and len(listener.asked_for) == 1
        assert told == ["notifications/tools/list_changed", "notifications/agents/list_changed"]


async def test_the_last_progress_is_waited_for_where_it_comes_on_another_stream() -> None:
    async def news(exchange: Exchange, _: Any) -> None:
        await stream(exchange, end=False)
        await server.until(lambda: server.got("tools/call"))
        call = server.got("tools/call")[0]
        await events(exchange, *progress(call, 1))
        half.set()
        await done.wait()
        await events(exchange, *progress(call, 2))
        await exchange.gone()

    async def late(exchange: Exchange, message: Any) -> None:
        await half.wait()
        await plain(exchange, message)
        done.set()

    half, done = asyncio.Event(), asyncio.Event()
    async with one({"GET": news, "tools/call": late}) as (server, _, session):
        listener = Listens()
        await session.call("tools/call", listener=listener)
        assert listener.said == ["1", "2"]


async def test_progress_that_comes_together_with_the_answer_on_another_stream_is_heard() -> None:
    """As both do for a client that was not given the processor for a while."""

    async def news(exchange: Exchange, _: Any) -> None:
        opened.append(exchange)
        await stream(exchange, end=False)
        await exchange.gone()

    async def at_once(exchange: Exchange, message: Any) -> None:
        body = json.dumps(result(message["id"], {})).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        exchange.writer.write(head.encode() + body)  # and no `drain`: the client finds all of it at once
        for told in progress(message, 1, 2):
            opened[0].writer.write(b"data: " + json.dumps(told).encode() + b"\n\n")

    opened: list[Exchange] = []
    async with one({"GET": news, "tools/call": at_once}) as (_, _, session):
        for _ in range(5):
            listener = Listens()
            await session.call("tools/call", listener=listener)
            assert listener.said == ["1", "2"]


async def test_a_redirect_is_followed_on_the_same_origin_only() -> None:
    async def moved(exchange: Exchange, message: Any) -> None:
        if exchange.target == "/mcp":
            await exchange.answer(status="307 Temporary Redirect", Location="/mcp/")
        else:
            await server.initialized(exchange, message)

    async def away(exchange: Exchange, message: Any) -> None:
        await exchange.answer(status="307 Temporary Redirect", Location=f"{server.url}/other")

    async with http({"initialize": moved, "tools/call": plain}) as server:
        async with pool(url=server.url) as made, made.lease() as session:
            await session.call("tools/call")
            targets = [each.target for each in server.server.seen]
            assert targets[0] == "/mcp" and set(targets[1:]) == {"/mcp/"}
        async with http({"initialize": away}) as elsewhere, pool(url=elsewhere.url) as made:
            before = len(server.requests)
            with pytest.raises(AgentFailed):
                async with made.lease():
                    pass
            assert len(server.requests) == before


@pytest.mark.parametrize("what", ["the pool", "the session"])
async def test_what_is_closed_fails_the_calls_that_are_under_way(what: str) -> None:
    async def silent(exchange: Exchange, message: Any) -> None:
        await exchange.gone()

    async with one({"tools/call": silent}) as (server, made, session):
        task = asyncio.create_task(session.call("tools/call", listener=Listens()))
        await server.until(lambda: server.got("tools/call"))
        assert isinstance(session, ClientSession)
        await (made if what == "the pool" else session).aclose()
        with pytest.raises(AgentGone):
            await task
        assert not session.alive and session.closed.done()


async def test_whoever_closes_a_session_waits_until_it_is_closed() -> None:
    told = asyncio.Event()

    async def slow(exchange: Exchange, message: Any) -> None:
        await told.wait()
        await exchange.answer()

    async with one({"DELETE": slow}) as (server, _, session):
        assert isinstance(session, ClientSession)
        closes = [asyncio.create_task(session.aclose())]
        await server.until(lambda: server.requests[-1][0] == "DELETE")
        closes.append(asyncio.create_task(session.aclose()))
        await settled()
        assert not any(close.done() for close in closes)
        told.set()
        await asyncio.gather(*closes)
        assert [method for method, _ in server.requests].count("DELETE") == 1


# --- which transport --------------------------------------------------------------------------------------------------


class Sse:
    """HTTP+SSE at `/old`: answers a POST there with 405, as Streamable HTTP is not known."""

    def __init__(self, endpoint: str = "/posts?session_id=7") -> None:
        self.endpoint = endpoint
        self.stream: Exchange | None = None

    async def handle(self, exchange: Exchange, message: Any) -> None:
        if exchange.method == "GET":
            self.stream = exchange
            await stream(exchange, end=False)
            await exchange.say(f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
            await exchange.gone()
        elif exchange.target != "/posts?session_id=7":
            await exchange.answer(status="405 Method Not Allowed")
        elif message["method"] == "tools/refused":
            await exchange.answer(b"Could not parse message", status="400 Bad Request")
        else:
            await exchange.answer(b"Accepted", status="202 Accepted")
            assert self.stream is not None
            if message["method"] == "tools/gone":
                self.stream.writer.close()
            elif "id" in message:
                said = {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {}}
                await events(self.stream, *(progress(message, 1) if "_meta" in message["params"] else ()))
                await events(self.stream, result(message["id"], said))

    @property
    def on(self) -> dict[str, Any]:
        names = ("GET", "initialize", "notifications/initialized", "tools/call", "tools/refused", "tools/gone")
        return dict.fromkeys(names, self.handle)


async def test_http_with_sse_is_found_where_a_post_is_refused_and_remembered() -> None:
    old = Sse()
    async with http(old.on) as server, pool(url=f"{server.server.url}/old") as made:
        listener = Listens()
        async with made.lease() as session:
            assert session.version == "2024-11-05"
            await session.call("tools/call", listener=listener)
            assert listener.said == ["1"]
            with pytest.raises(RpcError, match="Could not parse"):
                await session.call("tools/refused")
            await session.call("tools/call")
            with pytest.raises(AgentGone):
                await session.call("tools/gone")
        async with made.lease() as session:
            await session.call("tools/call")
        assert [each.target for each in server.server.seen].count("/old") == 3  # a POST, and two GETs


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/posts", "https://example.com/posts", "//example.com/"])
async def test_messages_are_posted_to_no_other_origin(endpoint: str) -> None:
    async with http(Sse(endpoint).on) as server, pool(url=f"{server.server.url}/sse") as made:
        with pytest.raises(AgentGone, match="another origin"):
            async with made.lease():
                pass
        assert server.messages == []


async def test_the_first_refusal_is_told_where_neither_transport_is_there() -> None:
    async def nothing(exchange: Exchange, _: Any) -> None:
        await exchange.answer(b"no such page", status="404 Not Found")

    async with http({"initialize": nothing, "GET": nothing}) as server, pool(url=server.url) as made:
        with pytest.raises(AgentFailed, match=r"404: no such page; nor is HTTP.SSE there"):
            async with made.lease():
                pass
        assert made.reachable is False


# --- 2026-07-28 -------------------------------------------------------------------------------------------------------


async def test_a_server_without_handshake_is_told_everything_in_each_request() -> None:
    async def unknown(exchange: Exchange, message: Any) -> None:
        error = {"code": -32601, "message": "Method not found"}
        await answer(exchange, {"jsonrpc": "2.0", "id": message["id"], "error": error}, "404 Not Found")

    async def discovered(exchange: Exchange, message: Any) -> None:
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0, "resultType": "complete"}
        meta = {"io.modelcontextprotocol/serverInfo": {"name": "it", "version": "3"}}
        await answer(exchange, result(message["id"], {**found, "_meta": meta}))

    on = {"initialize": unknown, "server/discover": discovered, "tools/call": plain}
    async with http(on) as server, pool(url=server.url) as made:
        async with made.lease() as session:
            assert (session.version, session.server["capabilities"]) == ("2026-07-28", {})
            assert wire.server_info(session.server) == {"name": "it", "version": "3"}
            await session.call("tools/call", {"name": "grün", "_meta": {"x": 1}}, listener=Listens())
        (call,) = server.got("tools/call")
        meta = call["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {"elicitation": {}}
        assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "tests" and meta["x"] == 1
        _, headers = server.requests[-1]
        assert headers["mcp-protocol-version"] == "2026-07-28" and headers["mcp-method"] == "tools/call"
        assert headers["mcp-name"] == "=?base64?Z3LDvG4=?=" and "mcp-session-id" not in headers
        assert [method for method, _ in server.requests] == ["POST"] * 3  # no news, nothing to end


async def test_a_server_that_only_asks_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.mcp.client.session.MOST_ROUNDS", 5)

    async def unknown(exchange: Exchange, message: Any) -> None:
        error = {"code": -32022, "message": "?", "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"}}
        await answer(exchange, {"jsonrpc": "2.0", "id": message["id"], "error": error}, "400 Bad Request")

    async def discovered(exchange: Exchange, message: Any) -> None:
        await answer(exchange, result(message["id"], {"supportedVersions": ["2026-07-28"], "capabilities": {}}))

    async def asks(exchange: Exchange, message: Any) -> None:
        asked = {"q": {"method": "elicitation/create", "params": {"n": 1}}}
        found = {"resultType": "input_required", "requestState": "s", "inputRequests": asked}
        await answer(exchange, result(message["id"], found))

    on = {"initialize": unknown, "server/discover": discovered, "tools/call": asks}
    async with http(on) as server, pool(url=server.url) as made, made.lease() as session:
        listener = Listens()
        with pytest.raises(AgentBroken, match="after 5 times"):
            await session.call("tools/call", listener=listener)
        assert len(listener.asked_for) == 5
        last = server.got("tools/call")[-1]["params"]
        assert last["requestState"] == "s" and last["inputResponses"] == {"q": YES}
        with pytest.raises(AgentFailed, match="nobody is there"):
            await session.call("tools/call")

        async def refuse(method: str, params: Any) -> Any:
            raise RpcError(-7, "no")

        with pytest.raises(RpcError, match="no"):
            await session.call("tools/call", listener=Listens(refuse))


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"url": "http://x", "command": ["x"]},
        {"url": "ftp://x"},
        {"url": "ws://x", "transport": "sse"},
        {"url": "http://x", "transport": "ws"},
        {"command": ["x"], "transport": "ws"},
        {"url": "http://x", "sessions": 0},
    ],
)
def test_a_target_is_in_one_place_and_spoken_to_in_one_way(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        target(**options)


async def test_the_first_call_waits_for_nothing_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamable, "OPEN_SECONDS", 0.2)

    async def never(exchange: Exchange, _: Any) -> None:
        await exchange.gone()

    async with http({"GET": never, "tools/call": plain}) as server, pool(url=server.url) as made:
        async with made.lease() as session:
            assert said(await session.call("tools/call", {"name": "x"})) == {"said": "x"}
        await settled()
