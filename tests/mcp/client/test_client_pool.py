"""Sessions leased out: who shares one with whom, and what happens when a server dies, never answers or comes back."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from gateway.core.errors import AgentBroken, AgentGone, AgentTimeout, Unavailable
from tests.mcp.client.rig import Listens, answer, http, notification, pool, result, stream
from tests.support.raw_http import Exchange
from tests.support.websockets import library_serving

SERVER = """
import json, os, sys
opened = ""
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message["method"], message.get("id")
    if method == "initialize" and MODE == "silent":
        continue
    if MODE.startswith("-"):
        say(id=None, error={"code": int(MODE), "message": "not today"})
        continue
    if method == "initialize" and MODE.startswith("{"):
        print(json.dumps({"level": "info", "message": "begins"}), MODE, sep="\\n", flush=True)
        continue
    if MODE == "modern":
        opened = opened or method
        supported = {"supported": ["2026-07-28"]}
        if opened == "initialize":  # it does not change its mind any more
            say(id=id, error={"code": -32022 if method == opened else -32600, "message": "no", "data": supported})
        elif method == "server/discover":
            say(id=id, result={"supportedVersions": ["2026-07-28"], "capabilities": {}})
        else:
            say(id=id, result={"resultType": "complete", "method": method})
    elif method == "initialize" and MODE == "refuses":
        say(id=id, error={"code": -32000, "message": "not today"})
    elif method == "initialize" and MODE == "future":
        say(id=id, result={"protocolVersion": "2030-01-01", "capabilities": {}})
    elif method == "initialize":
        say(id=id, result={"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "s"}})
    elif method == "die":
        token = message["params"]["_meta"]["progressToken"]
        say(method="notifications/agents/run/progress", params={"progressToken": token, "delta": {"text": "so far"}})
        sys.stderr.write("first words\\nout of memory\\n")
        sys.stderr.flush()
        os._exit(3)
    elif method == "close":
        os.close(1)
    elif method == "huge":  # as servers made with the TypeScript SDK write it
        print(json.dumps({"result": {"text": "x" * 20000}, "jsonrpc": "2.0", "id": id}), flush=True)
    elif method == "asks hugely":
        asking = {"method": "elicitation/create", "params": {"message": "x" * 20000}, "jsonrpc": "2.0", "id": "big"}
        print(json.dumps(asking), flush=True)
        say(id=id, result=json.loads(sys.stdin.readline()))
    elif id is not None:
        say(id=id, result={"pid": os.getpid()})
"""


def command(mode: str = "") -> list[str]:
    return [sys.executable, "-S", "-c", f"MODE = {mode!r}\n{SERVER}"]


def pid(found: Any) -> Any:
    return bytes(found)


async def test_a_process_that_dies_in_mid_call_says_how_and_the_next_call_gets_a_new_one() -> None:
    async with pool(command=command()) as made:
        listener = Listens()
        async with made.lease() as session:
            before = pid(await session.call("where"))
            with pytest.raises(AgentGone, match="the server exited with 3: out of memory") as caught:
                await session.call("die", listener=listener)
            assert caught.value.detail == "first words\nout of memory"
            assert listener.heard[0][1]["delta"] == {"text": "so far"}
            assert not session.alive and made.reachable is False
            with pytest.raises(AgentGone):
                await session.call("where")
        async with made.lease() as session:
            assert pid(await session.call("where")) != before and made.reachable


async def test_what_is_over_the_limit_is_answered_or_fails_its_call_though_its_id_stands_last() -> None:
    async with pool(command=command(), max_message=10_000) as made, made.lease() as session:
        with pytest.raises(AgentBroken, match=r"a line of 20\d+ bytes, over the limit of 10000"):
            await session.call("huge", timeout=20)
        told = json.loads(bytes(await session.call("asks hugely", listener=Listens(), timeout=20)))
        assert told["id"] == "big" and "over the limit" in told["error"]["message"]


async def test_a_process_that_closes_its_output_ends_the_call() -> None:
    async with pool(command=command(), stop_timeout=1.0) as made, made.lease() as session:
        with pytest.raises(AgentGone):
            await session.call("close", listener=Listens())


@pytest.mark.parametrize(
    ("mode", "wanted", "why"),
    [
        ("silent", "AgentTimeout", "not ready within 0.5 s"),
        ("refuses", "AgentFailed", "refused initialize: not today"),
        ("future", "AgentFailed", "2030-01-01"),
        ("-32700", "AgentFailed", "refused initialize: not today"),
        ("-32600", "AgentFailed", "refused initialize: not today"),  # and so is `server/discover`
        ("{}", "AgentBroken", r"answered initialize with what is no message .*: \{\}"),
        ('{"protocolVersion": "2025-11-25"}', "AgentBroken", r'no message .*: \{"protocolVersion": "2025-11-25"\}'),
    ],
)
async def test_a_server_that_does_not_shake_hands_is_not_leased(mode: str, wanted: str, why: str) -> None:
    async with pool(command=command(mode), start_timeout=0.5 if mode == "silent" else 30.0) as made:
        with pytest.raises(Exception, match=why) as caught:
            async with made.lease():
                pass
        assert type(caught.value).__name__ == wanted and made.reachable is False


async def test_a_websocket_that_answers_the_handshake_with_no_message_is_not_waited_for() -> None:
    async def garbled(server: ServerConnection) -> None:
        async for _ in server:
            await server.send("hello?")

    async with library_serving(garbled) as url, pool(url=url) as made:
        with pytest.raises(AgentBroken, match=r"answered initialize with what is no message .*: hello\?"):
            async with made.lease():
                pass


async def test_a_process_that_knows_no_handshake_and_was_sent_one_is_started_again_without() -> None:
    async with pool(command=command("modern")) as made, made.lease() as session:
        assert session.version == "2026-07-28"
        assert json.loads(bytes(await session.call("where")))["method"] == "where"


async def test_all_calls_share_a_process() -> None:
    async with pool(command=command()) as made:

        async def one() -> Any:
            async with made.lease() as session:
                return pid(await session.call("where", listener=Listens()))

        assert len(set(await asyncio.gather(*(one() for _ in range(50))))) == 1


# --- over HTTP --------------------------------------------------------------------------------------------------------


async def plain(exchange: Exchange, message: Any) -> None:
    await answer(exchange, result(message["id"], {}))


async def test_a_lease_has_a_session_to_itself_until_there_are_no_more() -> None:
    async with http({"ping": plain}) as server, pool(url=server.url, sessions=3) as made:
        async with AsyncExitStack() as stack:
            leased = [await stack.enter_async_context(made.lease()) for _ in range(5)]
            assert len(set(leased[:3])) == 3 and len(set(leased)) == 3
            assert sorted(leased.count(each) for each in set(leased)) == [1, 2, 2]
        async with made.lease() as one, made.lease(alone=False) as two:
            assert one is not two and one in leased and two in leased
            async with made.lease(alone=False) as three, made.lease() as four:
                assert three not in (one, four) and four is not one  # a free one for the one who wants it alone
        assert len(server.got("initialize")) == 3


async def test_a_session_with_a_call_that_was_given_up_is_not_the_next_ones() -> None:
    async def silent(exchange: Exchange, message: Any) -> None:
        await exchange.gone()

    async with http({"ping": plain, "tools/call": silent}) as server, pool(url=server.url) as made:
        async with made.lease() as first:
            with pytest.raises(AgentTimeout):
                await first.call("tools/call", listener=Listens(), timeout=0.05)
        async with made.lease() as second:
            assert second is not first and first.alive


async def test_those_who_do_not_mind_share() -> None:
    async with http() as server, pool(url=server.url, sessions=5) as made, AsyncExitStack() as stack:
        alone = await stack.enter_async_context(made.lease())
        others = [await stack.enter_async_context(made.lease(alone=False)) for _ in range(5)]
        assert len(set(others)) == 1 and alone not in others


async def test_two_hundred_leases_at_once_open_no_more_sessions_than_there_may_be() -> None:
    async def counts(exchange: Exchange, message: Any) -> None:
        token = message["params"]["_meta"]["progressToken"]
        told = [notification("notifications/progress", progressToken=token, message=n) for n in range(3)]
        await stream(exchange, *told, result(message["id"], {}))

    async with http({"tools/call": counts}) as server, pool(url=server.url, sessions=20) as made:

        async def one() -> None:
            listener = Listens()
            async with made.lease() as session:
                await session.call("tools/call", listener=listener)
            assert listener.said == [0, 1, 2]

        await asyncio.gather(*(one() for _ in range(200)))
        assert len(server.got("initialize")) <= 20
        await asyncio.gather(*(one() for _ in range(20)))
        assert len(server.got("initialize")) <= 20


async def test_a_server_that_comes_back_is_reached_again() -> None:
    refused = [0]

    async def down(exchange: Exchange, message: Any) -> None:
        refused[0] += 1
        if refused[0] == 1:
            await exchange.answer(b"starting", status="500 Internal Server Error")
        else:
            await server.initialized(exchange, message)

    async with http({"initialize": down, "ping": plain}) as server, pool(url=server.url) as made:
        assert made.reachable is None
        with pytest.raises(Exception, match="500: starting"):
            async with made.lease():
                pass
        assert made.reachable is False
        async with made.lease() as session:  # waits for the next try, which comes by itself
            await session.call("ping")
        assert made.reachable is True and refused[0] == 2


async def test_a_burst_at_a_server_that_is_down_makes_one_try() -> None:
    async def down(exchange: Exchange, message: Any) -> None:
        await exchange.answer(status="500 Internal Server Error")

    async with http({"initialize": down}) as server, pool(url=server.url) as made:

        async def one() -> None:
            async with made.lease():
                pass

        found = await asyncio.gather(*(one() for _ in range(50)), return_exceptions=True)
        assert all(isinstance(each, Exception) for each in found) and len(server.got("initialize")) == 1


async def test_a_session_is_ended_when_nobody_has_used_it_for_a_while() -> None:
    async with http() as server, pool(url=server.url, idle=0.05) as made:
        async with made.lease():
            pass
        await server.until(lambda: server.requests[-1][0] == "DELETE")
        async with made.lease():
            pass
        assert len(server.got("initialize")) == 2


async def test_a_closed_pool_leases_nothing() -> None:
    async with pool(command=command()) as made:
        async with made.lease() as session:
            await made.aclose()
            with pytest.raises(AgentGone):
                await session.call("where")
        with pytest.raises(Unavailable):
            async with made.lease():
                pass


async def test_a_call_has_a_time_limit_also_where_the_process_is_silent() -> None:
    async with (
        pool(command=[*command()[:-1], command()[-1].replace("elif id is not None:", "elif False:")]) as made,
        made.lease() as session,
    ):
        with pytest.raises(AgentTimeout):
            await session.call("where", timeout=0.05)
