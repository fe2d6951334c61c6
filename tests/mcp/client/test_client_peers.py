"""Servers made with the real SDKs, over every transport that they have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from gateway.core.errors import AgentGone
from gateway.mcp.client import ClientSession, McpPool
from gateway.transport.http import HttpClient
from gateway.wire.jsonrpc import RpcError
from tests.mcp.client.rig import YES, Listens, pool, text
from tests.support.forking import standing_in
from tests.support.peers import PEERS, node, peer_modules, peer_python
from tests.support.processes import Process, free_port, port_answers, start

PROGRESS = "notifications/agents/run/progress"


def bee_py(*args: str) -> list[str]:
    return [str(peer_python("agent-communication-py")), "-P", str(PEERS / "agent_communication_agent.py"), *args]


def bee_ts(*args: str) -> list[str]:
    sdk = ["--sdk", str(peer_modules("agent-communication-ts"))]
    return [str(node()), str(PEERS / "agent_communication_agent.mjs"), *sdk, *args]


def mcp(version: int, *args: str) -> list[str]:
    return [str(peer_python(f"mcp-{version}")), "-P", str(PEERS / f"mcp_server_{version}.py"), *args]


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Process]]:
    """All that are reached by a port, started at once."""
    ports = {name: free_port() for name in ("mcp-1", "mcp-2", "bee-py", "bee-ts")}
    argvs = {
        "mcp-1": mcp(1, str(ports["mcp-1"])),
        "mcp-2": mcp(2, str(ports["mcp-2"])),
        "bee-py": bee_py("--http", str(ports["bee-py"])),
        "bee-ts": bee_ts("--http", str(ports["bee-ts"])),
    }
    with ExitStack() as stack:
        found = {
            name: stack.enter_context(start(argv, port=ports[name], ready=lambda: True)) for name, argv in argvs.items()
        }
        for name, process in found.items():
            process.wait_until(port_answers(ports[name]))
        yield found


def at(servers: dict[str, Process], where: str) -> dict[str, Any]:
    """The options of a target: `SERVER/PATH`, or `SERVER COMMAND` for one on stdio."""
    name, _, path = where.partition("/")
    if path:
        url = servers[name].url
        return {"url": f"{url.replace('http', 'ws') if path == 'ws' else url}/{path}"}
    kind, _, mode = where.partition(" ")
    if mode or kind == "bee-py":
        return {"command": standing_in(mcp(int(kind[-1]), mode) if mode else bee_py())}
    return {"command": bee_ts()}


async def tool(session: ClientSession, name: str, listener: Listens | None = None, **arguments: Any) -> Any:
    params = {"name": name, "arguments": arguments}
    return text(await session.call("tools/call", params, listener=listener, timeout=60))


# --- mcp 1.30.0 and 2.3.0 ---------------------------------------------------------------------------------------------

MCP = {
    "mcp-1 stdio": "2025-11-25",
    "mcp-1/mcp": "2025-11-25",
    "mcp-1/json": "2025-11-25",
    "mcp-1/stateless": "2025-11-25",
    "mcp-1/resume": "2025-11-25",
    "mcp-1/sse": "2025-11-25",
    "mcp-2 modern": "2026-07-28",
    "mcp-2/mcp": "2025-11-25",
    "mcp-2/modern": "2026-07-28",
}
CANNOT_ASK = ("mcp-1/json", "mcp-1/stateless")
"""Servers whose SDK has no way to be answered there."""


@pytest.mark.parametrize("where", MCP)
async def test_a_server_made_with_the_mcp_sdk_is_called(servers: dict[str, Process], where: str) -> None:
    async with pool(**at(servers, where)) as made, made.lease() as session:
        assert session.version == MCP[where]
        tools = [each["name"] for each in await session.list("tools/list", "tools", timeout=60)]
        assert tools[0] == "count" and len(tools) >= 6 and len(set(tools)) == len(tools)
        await counts(session, where)
        if where not in CANNOT_ASK:
            await asks(session)
        await cancels(session, where)


async def counts(session: ClientSession, where: str) -> None:
    listener = Listens()
    assert await tool(session, "count", listener, upto=20) == "20"
    assert listener.said == ([] if where == "mcp-1/json" else [str(n) for n in range(1, 21)])


async def asks(session: ClientSession) -> None:
    listener = Listens()
    answer = json.loads(await tool(session, "ask", listener, about="everything"))
    assert answer["action"] == "accept" and answer["content"] == YES["content"]
    ((method, params),) = listener.asked_for
    assert method == "elicitation/create" and params["message"] == "everything"

    async def refuse(method: str, params: Any) -> Any:
        raise RpcError(-32000, "nobody is here")

    try:
        assert "nobody is here" in await tool(session, "ask", Listens(refuse), about="nothing")
    except RpcError as error:
        assert "nobody is here" in str(error)


async def cancels(session: ClientSession, where: str) -> None:
    before = await seen(session)
    task = asyncio.create_task(tool(session, "slow", Listens()))
    async with asyncio.timeout(30):
        while (await seen(session))["begun"] == before["begun"]:
            pass
        task.cancel()
        await asyncio.wait([task])
        if where == "mcp-1/stateless":  # no request there knows of any other
            return
        while (await seen(session))["cancelled"] == before["cancelled"]:
            pass


async def seen(session: ClientSession) -> Any:
    """What has begun, and what was cancelled, at that server so far."""
    return json.loads(await tool(session, "seen"))


async def test_a_question_beside_every_stream_goes_to_the_lease_that_has_the_session(
    servers: dict[str, Process],
) -> None:
    async with pool(**at(servers, "mcp-1/mcp")) as made:

        async def one(about: str) -> None:
            listener = Listens()
            async with made.lease() as session:
                await tool(session, "ask_astray", listener, about=about)
            assert [params["message"] for _, params in listener.asked_for] == [about]

        await asyncio.gather(*(one(str(n)) for n in range(5)))


async def test_progress_on_the_stream_that_is_nobodys_is_not_lost(servers: dict[str, Process]) -> None:
    async with pool(**at(servers, "mcp-1/mcp")) as made, made.lease() as session:
        listener = Listens()
        await tool(session, "astray", listener, upto=20)
        assert listener.said == [str(n) for n in range(1, 21)]


async def test_a_question_that_nobody_waits_for_is_answered_all_the_same(servers: dict[str, Process]) -> None:
    async def forever(method: str, params: Any) -> Any:
        await asyncio.Event().wait()

    async with pool(**at(servers, "mcp-1/sse")) as made, made.lease() as session:
        await tool(session, "ask_late", Listens(forever), about="?")
        await tool(session, "count", upto=1)


async def test_a_server_that_closes_its_streams_on_purpose_is_polled(servers: dict[str, Process]) -> None:
    async with pool(**at(servers, "mcp-1/resume")) as made, made.lease() as session:
        listener = Listens()
        assert await tool(session, "drop", listener, upto=3) == "3"
        assert listener.said == ["1", "2", "3"]


async def test_a_server_that_forgot_its_sessions_is_spoken_to_in_a_new_one(servers: dict[str, Process]) -> None:
    async with pool(**at(servers, "mcp-1/mcp")) as made, made.lease() as session, HttpClient() as client:
        await tool(session, "count", upto=1)
        assert (await client.request("DELETE", f"{servers['mcp-1'].url}/forget/mcp")).status == 200
        listener = Listens()
        assert await tool(session, "count", listener, upto=3) == "3"
        assert listener.said == ["1", "2", "3"]


@pytest.mark.parametrize("where", ["mcp-1/mcp", "mcp-1/sse", "mcp-2/modern"])
async def test_news_are_told(servers: dict[str, Process], where: str) -> None:
    async with pool(**at(servers, where)) as made:
        told = asyncio.Event()
        heard: list[str] = []

        def tell(method: str, params: Any) -> None:
            heard.append(method)
            told.set()

        made.on_notification(tell)
        async with made.lease() as session, asyncio.timeout(30):
            while not told.is_set():  # the subscription may not be there yet
                await tool(session, "news")
        assert set(heard) == {"notifications/tools/list_changed"}


async def test_questions_of_several_rounds_are_worked_off(servers: dict[str, Process]) -> None:
    async with pool(**at(servers, "mcp-2/modern")) as made, made.lease() as session:

        async def how(method: str, params: Any) -> Any:
            return {"action": "accept", "content": {"sure": params["message"] == "x 2"}}

        listener = Listens(how)
        found = json.loads(await tool(session, "ask_twice", listener, about="x"))
        assert [each["content"]["sure"] for each in found] == [False, True, False]
        assert sorted(params["message"] for _, params in listener.asked_for[:2]) == ["x 1", "x 2"]


async def test_many_calls_at_once_get_each_its_own(servers: dict[str, Process]) -> None:
    async with pool(**at(servers, "mcp-1/mcp"), sessions=10) as made:

        async def one() -> None:
            listener = Listens()
            async with made.lease() as session:
                assert await tool(session, "count", listener, upto=5) == "5"
            assert listener.said == ["1", "2", "3", "4", "5"]

        await asyncio.gather(*(one() for _ in range(60)))


# --- the protocol's own SDKs ------------------------------------------------------------------------------------------

BEES = ("bee-py", "bee-py/sse", "bee-py/ws", "bee-ts", "bee-ts/sse")


@pytest.mark.parametrize("where", BEES)
async def test_a_server_made_with_the_protocols_own_sdk_is_called(servers: dict[str, Process], where: str) -> None:
    async with pool(**at(servers, where)) as made:
        async with made.lease() as session:
            assert session.version == "2024-11-05"
            names = {each["name"] for each in await session.list("agents/list", "agents", timeout=60)}
            assert {"stream", "slow", "ask"} <= names
            await streams(session)
            await gives_up(session)
        await each_its_own(made)
        if "/" not in where:
            await dies(made)


async def streams(session: ClientSession) -> None:
    listener = Listens()
    call = {"name": "stream", "input": {"prompt": "one two three"}}
    result = json.loads(bytes(await session.call("agents/run", call, listener=listener, timeout=60)))
    assert [method for method, _ in listener.heard] == [PROGRESS] * 3
    assert "".join(params["delta"]["text"] for _, params in listener.heard) == result["output"]["text"]


async def gives_up(session: ClientSession) -> None:
    begun = asyncio.Event()

    class Begun(Listens):
        def notification(self, method: str, params: Any) -> None:
            begun.set()

    call = {"name": "slow", "input": {"prompt": "x"}}
    task = asyncio.create_task(session.call("agents/run", call, listener=Begun()))
    async with asyncio.timeout(30):
        await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    await streams(session)  # the session has not suffered


async def each_its_own(made: McpPool) -> None:
    async def one() -> None:
        async with made.lease() as session:
            await streams(session)

    await asyncio.gather(*(one() for _ in range(20)))


async def dies(made: McpPool) -> None:
    async with made.lease() as session:
        listener = Listens()
        with pytest.raises(AgentGone, match="exited with 3"):
            call = {"name": "die", "input": {"prompt": "x"}}
            await session.call("agents/run", call, listener=listener, timeout=60)
        assert len(listener.heard) == 1
