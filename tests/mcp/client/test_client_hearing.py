"""Listening for longer than one call, and what is marked with a key: for protocols that answer in messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from gateway.core.errors import AgentFailed, Denied
from gateway.mcp.client.pool import Connector, McpPool
from gateway.transport.guard import Guard
from gateway.wire import jsonrpc
from tests.mcp.client.rig import (
    CAPABILITIES,
    INFO,
    PROGRESS,
    YES,
    Answerer,
    Listens,
    answer,
    http,
    notification,
    played,
    request,
    result,
    stream,
    target,
)
from tests.support.rpc import settled


def keyed(method: str, params: Raw) -> str | None:
    """The key that the tests' servers mark things with."""
    found = jsonrpc.unpack(params).get("key")
    return found if isinstance(found, str) else None


async def test_a_listener_hears_after_the_answer_until_the_block_ends() -> None:
    async with played(keyed=keyed) as it:
        listens = Listens()
        with it.session.hearing(listens, "k") as hearing:
            assert hearing.id is None
            task = asyncio.create_task(it.session.call("x", {}, listener=hearing))
            (asked,) = await it.hear()
            assert asked["params"]["_meta"]["progressToken"] == hearing.token and asked["id"] == hearing.id
            await it.say(result(asked["id"], {}))
            await task
            await it.say(notification(PROGRESS, progressToken=hearing.token, progress=1, message="late"))
            await it.say(notification("agent/message", key="k", n=1))
            await it.say(request("q", "agent/message", key="k", n=2))
            (answered,) = await it.hear()
            assert (answered["id"], answered["result"]) == ("q", YES)
        assert [method for method, _ in listens.heard] == [PROGRESS, "agent/message"]
        assert listens.asked_for == [("agent/message", {"key": "k", "n": 2})]
        await it.say(notification("agent/message", key="k"))
        await it.say(request("r", "agent/message", key="k"))
        (answered,) = await it.hear()
        assert answered["error"]["code"] == -32601
        assert it.unclaimed == ["agent/message"] and not it.news and len(listens.heard) == 2


async def test_keys_tell_the_calls_of_one_session_apart() -> None:
    async with played(keyed=keyed) as it:
        one, two = Listens(), Listens()
        with it.session.hearing(one, "1") as first, it.session.hearing(two, "2") as second:
            tasks = [asyncio.create_task(it.session.call("x", {}, listener=each)) for each in (first, second)]
            asked = await it.hear(2)
            await it.say(notification("m", key="2", n=1), request("q", "elicitation/create", key="1"))
            await it.say(request("p", "elicitation/create"))  # it is not said which
            answers = {each["id"]: each for each in await it.hear(2)}
            assert answers["q"]["result"] == YES and answers["p"]["error"]["code"] == -32601
            for each in asked:
                await it.say(result(each["id"], {}))
            await asyncio.gather(*tasks)
        assert not one.heard and two.heard == [("m", {"key": "2", "n": 1})]
        assert [method for method, _ in one.asked_for] == ["elicitation/create"] and not two.asked_for


async def test_a_key_has_one_listener() -> None:
    async with played(keyed=keyed) as it:
        with it.session.hearing(Listens(), "k"), pytest.raises(ValueError, match="k"):
            it.session.hearing(Listens(), "k").__enter__()
        with it.session.hearing(Listens(), "k"):
            pass


async def test_what_asks_when_the_block_ends_is_stopped() -> None:
    async def never(method: str, params: Any) -> Any:
        await asyncio.Event().wait()

    async with played(keyed=keyed) as it:
        listens = Listens(never)
        with it.session.hearing(listens, "k"):
            await it.say(request("q", "agent/message", key="k"))
            while not listens.asked_for:
                await settled(1)
        (answered,) = await it.hear()
        assert answered["error"]["code"] == -32800


async def test_a_session_tells_what_it_is_given() -> None:
    async with played() as it:
        await it.session.tell("agent/message", {"a": 1})
        assert await it.hear() == [{"jsonrpc": "2.0", "method": "agent/message", "params": {"a": 1}}]


async def test_a_revision_may_go_by_another_name() -> None:
    async with played({"protocolVersion": "ACP-0.1"}, dialects={"ACP-0.1": "2025-11-25"}) as it:
        assert it.session.version == "2025-11-25" and it.session.server["protocolVersion"] == "ACP-0.1"
    with pytest.raises(AgentFailed):
        async with played({"protocolVersion": "ACP-0.1"}):
            pass


async def test_over_http_a_key_counts_before_the_stream_that_it_came_on() -> None:
    async def call(exchange: Any, message: Any) -> None:
        await stream(
            exchange,
            notification("m", key="mine"),
            notification("m", key="other"),
            notification("m", n=1),
            request("q", "agent/message", key="mine"),
            request("p", "agent/message", key="nobody's"),
            end=False,
        )
        await server.until(lambda: len(server.got("answer")) == 2)
        await exchange.say(b'data: {"jsonrpc":"2.0","id":%d,"result":{}}\n\n' % message["id"])
        exchange.writer.close()

    on: dict[str, Answerer] = {"x": call}
    wrong: list[Any] = []
    async with http(on) as server:
        connector = Connector(
            target(url=server.url),
            capabilities=CAPABILITIES,
            info=INFO,
            keyed=keyed,
            unclaimed=lambda session, method, params: wrong.append(session.version),
        )
        pool = McpPool(connector)
        try:
            listens = Listens()
            async with pool.lease() as session:
                with session.hearing(listens, "mine") as hearing:
                    await session.call("x", {}, listener=hearing)
            assert [params for _, params in listens.heard] == [{"key": "mine"}, {"n": 1}]
            assert wrong == ["2025-11-25"]
            answers = {each["id"]: each for each in server.got("answer")}
            assert answers["q"]["result"] == YES and answers["p"]["error"]["code"] == -32601
        finally:
            await pool.aclose()


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_an_endpoint_that_a_stranger_named_is_judged_by_its_address(scheme: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == "inside.example" else ["93.184.216.34", "10.0.0.1"]

    async def refused(exchange: Any, message: Any) -> None:
        await answer(exchange, {}, "418 no websocket")

    async with http({"GET": refused}) as server:
        port = server.url.rpartition(":")[2]
        for host in ("127.0.0.1", "inside.example", "half.example"):
            guard = Guard(resolve=resolve, what="endpoint")
            there = target(url=f"{scheme}://{host}:{port}")
            pool = McpPool(Connector(there, capabilities={}, info=INFO, guard=guard))
            with pytest.raises(Denied, match="endpoint"):
                async with pool.lease():
                    pass
            await pool.aclose()
        assert not server.requests
        guard = Guard(["127.0.0.0/8"], resolve=resolve)
        there = target(url=f"{scheme}://inside.example:{port}/mcp")
        pool = McpPool(Connector(there, capabilities={}, info=INFO, guard=guard))
        try:
            if scheme == "http":
                async with pool.lease() as session:
                    assert session.version == "2025-11-25"
            else:
                with pytest.raises(AgentFailed, match="418"):
                    async with pool.lease():
                        pass
        finally:
            await pool.aclose()
        assert server.requests and server.requests[0][1]["host"].startswith("inside.example")
