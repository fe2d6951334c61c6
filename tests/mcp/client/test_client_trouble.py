"""Servers that are hostile, or busy, over Streamable HTTP."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from gateway.core.errors import AgentBroken, AgentGone
from gateway.mcp.client.http.streamable import pause
from gateway.transport.streamable_http.client import Cursor
from gateway.wire.jsonrpc import RpcError
from tests.mcp.client.rig import (
    PROGRESS,
    Listens,
    answer,
    http,
    notification,
    one,
    played,
    pool,
    request,
    result,
    stream,
)
from tests.support.aio import Clock, later, on
from tests.support.raw_http import Exchange
from tests.support.rpc import settled


async def test_a_call_is_taken_back_before_the_question_about_it_is_answered() -> None:
    order: list[str] = []
    asked = asyncio.Event()

    async def asks(exchange: Exchange, message: Any) -> None:
        await stream(exchange, request("q", "elicitation/create"), end=False)
        await exchange.gone()

    async def taken_back(exchange: Exchange, message: Any) -> None:
        await settled(200)
        order.append("cancelled")
        await exchange.answer(status="202 Accepted")

    async def answered(exchange: Exchange, message: Any) -> None:
        order.append("answer")
        assert message["error"]["code"] == -32800
        await exchange.answer(status="202 Accepted")

    async def never(method: str, params: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    on = {"tools/call": asks, "notifications/cancelled": taken_back, "answer": answered}
    async with one(on) as (server, _, session):
        call = asyncio.create_task(session.call("tools/call", listener=Listens(never)))
        await asked.wait()
        call.cancel()
        await server.until(lambda: server.got("answer"))
        assert order == ["cancelled", "answer"]


@pytest.mark.parametrize("later", [True, False])
async def test_a_call_is_sent_again_only_where_it_was_certainly_not_taken(
    later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy says 503 as well when its server goes away in the middle of a request."""
    monkeypatch.setattr("gateway.mcp.client.http.address.AGAIN", (0.0,))

    async def busy(exchange: Exchange, message: Any) -> None:
        if len(server.got("tools/call")) > 1:
            await answer(exchange, result(message["id"], {}))
        else:
            await exchange.answer(b"", "503 Service Unavailable", **({"Retry_After": "1"} if later else {}))

    async with one({"tools/call": busy}) as (server, _, session):
        if later:
            assert bytes(await session.call("tools/call")) == b"{}"
        else:
            with pytest.raises(AgentGone, match="503"):
                await session.call("tools/call")
            assert len(server.got("tools/call")) == 1


@pytest.mark.parametrize(("retry", "first"), [(None, 0.1), (0.0, 0.01), (2.0, 2.0)])
def test_a_stream_on_which_nothing_comes_is_opened_less_and_less_often(retry: float | None, first: float) -> None:
    cursor = Cursor()
    cursor.retry = retry
    delays = [pause(cursor, tries, 30.0) for tries in range(40)]
    assert delays[0] == first and delays[-1] == 30.0
    assert all(later >= earlier for earlier, later in itertools.pairwise(delays))


async def test_an_error_with_half_a_character_is_an_error_that_can_be_told() -> None:
    async with played() as server:
        call, id, _ = await server.began()
        await server.say(b'{"jsonrpc":"2.0","id":%d,"error":{"code":-5,"message":"\\ud83d no","data":"\\ud83d"}}' % id)
        with pytest.raises(RpcError) as caught:
            await call
        assert str(caught.value) == "\ufffd no: \ufffd" and caught.value.error.code == -5


# --- 2026-07-28 -------------------------------------------------------------------------------------------------------


async def unknown(exchange: Exchange, message: Any) -> None:
    error = {"code": -32601, "message": "Method not found"}
    await answer(exchange, {"jsonrpc": "2.0", "id": message["id"], "error": error}, "404 Not Found")


async def discovered(exchange: Exchange, message: Any) -> None:
    await answer(exchange, result(message["id"], {"supportedVersions": ["2026-07-28"], "capabilities": {}}))


MODERN = {"initialize": unknown, "server/discover": discovered}


async def test_a_listener_learns_that_its_call_is_sent_again() -> None:
    async def asks(exchange: Exchange, message: Any) -> None:
        token = message["params"]["_meta"]["progressToken"]
        found: dict[str, Any] = {"resultType": "complete"}
        if "inputResponses" not in message["params"]:
            wanted = {"q": {"method": "elicitation/create", "params": {}}}
            found = {"resultType": "input_required", "inputRequests": wanted}
        progress = notification(PROGRESS, progressToken=token, progress=1, message="hm")
        await stream(exchange, progress, result(message["id"], found))

    async with http({**MODERN, "tools/call": asks}) as server, pool(url=server.url) as made:
        listener = Listens()
        async with made.lease() as session:
            await session.call("tools/call", listener=listener)
        assert [method for method, _ in listener.heard] == [PROGRESS, "again", PROGRESS]


async def test_a_call_that_is_given_up_is_told_by_the_end_of_its_stream_alone() -> None:
    gone = asyncio.Event()

    async def silent(exchange: Exchange, message: Any) -> None:
        await stream(exchange, end=False)
        await exchange.gone()
        gone.set()

    async with http({**MODERN, "tools/call": silent}) as server:
        async with pool(url=server.url) as made, made.lease() as session:
            calling = asyncio.create_task(session.call("tools/call", listener=Listens()))
            await server.until(lambda: server.got("tools/call"))
            calling.cancel()
            await asyncio.wait_for(gone.wait(), 30)
        assert not server.got("notifications/cancelled")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "does not say which"),
        ({"inputRequests": {}}, "does not say which"),
        ({"inputRequests": 7}, "cannot be read"),
        ({"inputRequests": {"q": 7}}, "cannot be read"),
        ({"inputRequests": {"q": {"params": {}}}}, "cannot be read"),
    ],
)
async def test_a_server_that_asks_what_cannot_be_read_is_broken(asked: Any, why: str) -> None:
    async def asks(exchange: Exchange, message: Any) -> None:
        await answer(exchange, result(message["id"], {"resultType": "input_required", **asked}))

    on = {**MODERN, "tools/call": asks}
    async with http(on) as server, pool(url=server.url) as made, made.lease() as session:
        with pytest.raises(AgentBroken, match=why):
            await session.call("tools/call", listener=Listens())


@on(Clock)
async def test_changes_are_subscribed_to_again_until_the_server_does_not_want_it() -> None:
    async def tells(exchange: Exchange, message: Any) -> None:
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
        await answer(exchange, result(message["id"], found))

    async def subscribed(exchange: Exchange, message: Any) -> None:
        if len(server.got("subscriptions/listen")) < 3:
            await stream(exchange, notification("notifications/tools/list_changed"))
        else:
            await unknown(exchange, message)

    told: list[str] = []

    async def listed(exchange: Exchange, message: Any) -> None:
        await answer(exchange, result(message["id"], {"tools": []}))

    on = {**MODERN, "server/discover": tells, "subscriptions/listen": subscribed, "tools/list": listed}
    async with http(on) as server, pool(url=server.url) as made:
        made.on_notification(lambda method, params: told.append(method))
        async with made.lease() as session:
            await server.until(lambda: len(server.got("subscriptions/listen")) == 3)
            for _ in range(2):  # the first comes behind the refusal, the second behind whatever is due by then
                await session.call("tools/list")
                await later(10_000)
            await session.call("tools/list")
        assert len(server.got("subscriptions/listen")) == 3
        assert told == 2 * ["notifications/tools/list_changed"]


async def test_nobody_is_asked_thousands_of_things_at_once() -> None:
    async def asks(exchange: Exchange, message: Any) -> None:
        wanted = {str(n): {"method": "elicitation/create", "params": {}} for n in range(101)}
        await answer(exchange, result(message["id"], {"resultType": "input_required", "inputRequests": wanted}))

    async with http({**MODERN, "tools/call": asks}) as server, pool(url=server.url) as made:
        listener = Listens()
        async with made.lease() as session:
            with pytest.raises(AgentBroken, match="101 things"):
                await session.call("tools/call", listener=listener)
        assert listener.asked_for == []
