"""MCP over the connection between a client and an agent that both speak it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.store.sqlite import disk_thread
from gateway.wire import jsonrpc
from tests.adapters.agent_client.editor import Refused
from tests.adapters.agent_client.tunnel_rig import KIT, TOOLS, Provider, ProviderV2, Rig, rig

SERVERS = ["servers"]
FIRST = {"$": [0, 0, "id"]}


def connect(server: Any = FIRST, **more: Any) -> list[Any]:
    """A step."""
    return ["ask", "mcp/connect", {"serverId": server, **more}]


def message(step: int, method: str, **more: Any) -> dict[str, Any]:
    """Params of a message on the connection that a step has made."""
    return {"connectionId": {"$": [step, "result", "connectionId"]}, "method": method, **more}


async def opened(it: Rig, *servers: dict[str, Any]) -> tuple[Provider, str]:
    """A client and its session."""
    client = await it.connect()
    return client, await client.new(mcpServers=list(servers))


async def test_a_client_is_told_that_it_may_offer_servers_and_its_agent_gets_them_under_ids_of_the_gateways() -> None:
    async with rig("native") as it:
        client = await it.connect()
        can = (await client.initialize())["agentCapabilities"]["mcpCapabilities"]
        assert can == {"acp": True}
        other = {"name": "plain", "command": "/bin/true", "args": [], "env": []}
        session = await client.new(mcpServers=[TOOLS, other, KIT])
        [[tools, plain, kit]] = await client.steps(session, SERVERS)
        assert plain == other
        assert tools["id"] == tools["serverId"] not in ("tools-1", kit["id"])
        assert kit == {**KIT, "id": kit["id"], "serverId": kit["id"]}


async def test_requests_results_errors_and_what_stands_beside_them_pass_verbatim() -> None:
    async with rig("native") as it:
        client, session = await opened(it, TOOLS, KIT)
        big = {"content": [{"type": "text", "text": "x" * 3_000_000}]}
        client.replies |= {"tools/list": {"tools": [], "new": [1.0]}, "tools/call": (-32602, "no", {"why": 1})}
        client.replies["resources/read"] = big
        said = await client.steps(
            session,
            SERVERS,
            connect(_meta={"q": 1}),
            ["ask", "mcp/message", message(1, "tools/list", params={"cursor": "1"}, _meta={"m": 1}, new=2)],
            ["ask", "mcp/message", message(1, "tools/call", params={"name": "x", "sessionId": "theirs"})],
            ["ask", "mcp/message", message(1, "resources/read")],
            ["ask", "mcp/disconnect", {"connectionId": {"$": [1, "result", "connectionId"]}}],
            ["ask", "mcp/message", message(1, "tools/list")],
        )
        assert said[1]["result"]["_meta"] == {"acme": 2}
        assert said[2]["result"] == {"tools": [], "new": [1.0]}
        assert said[3]["error"] == {"code": -32602, "message": "no", "data": {"why": 1}}
        assert said[4]["result"] == big
        assert said[5]["result"] == {}
        assert said[6]["error"]["code"] == -33001
        assert client.of_mcp("mcp/connect") == [{"acpId": "tools-1", "_meta": {"q": 1}}]
        listed, called, _ = client.of_mcp("mcp/message")
        params = {"method": "tools/list", "params": {"cursor": "1"}, "_meta": {"m": 1}, "new": 2}
        assert listed == {"connectionId": "mcp-0", **params}
        assert called["params"] == {"name": "x", "sessionId": "theirs"}
        assert client.of_mcp("mcp/disconnect") == [{"connectionId": "mcp-0"}]


async def test_a_server_asks_and_tells_its_client_at_the_agent_and_progress_comes_before_the_answer() -> None:
    async with rig("native") as it:
        client, session = await opened(it, KIT)
        steps = [
            SERVERS,
            connect(),
            ["tell", "mcp/message", message(1, "notifications/initialized")],
            ["begin", "mcp/message", message(1, "tools/call", params={"name": "slow"})],
            ["hear"],
            ["hear"],
            ["answer", 0],
        ]
        prompt = await client.start(session, json.dumps(steps))
        called = await client.message("tools/call")
        assert [each["params"]["method"] for each in client.told] == ["notifications/initialized"]
        progress = {"connectionId": "mcp-0", "method": "notifications/progress", "params": {"progress": 1}}
        await client.notify("mcp/message", progress)
        asked = {"connectionId": "mcp-0", "method": "sampling/createMessage", "params": {"messages": []}}
        assert await client.request("mcp/message", asked) == {"heard": "sampling/createMessage"}
        await client.answer(called, {"content": []})
        await prompt
        _, _, _, _, told, question, answer = client.said(0)
        assert told["params"] | {"connectionId": "mcp-0"} == progress
        assert question["params"] | {"connectionId": "mcp-0"} == asked
        assert answer["result"] == {"content": []}
        error = await client.refused("mcp/message", {**asked, "connectionId": "mcp-9"})
        assert error.code == -33001


async def test_a_request_that_either_side_gives_up_is_given_up_at_the_other() -> None:
    async with rig("native") as it:
        client, session = await opened(it, KIT)
        steps = [SERVERS, connect(), ["begin", "mcp/message", message(1, "tools/call")], ["drop", 0], ["answer", 0]]
        said = await client.steps(session, *steps)
        assert said[-1]["error"]["code"] == -32800
        called = await client.message("tools/call")
        await client.until(lambda: any(each["method"] == "$/cancel_request" for each in client.told))
        assert {"requestId": called["id"]} in [each["params"] for each in client.told]


async def test_connections_to_one_server_are_apart_and_those_of_other_sessions_out_of_reach() -> None:
    async with rig("native") as it:
        one, session = await opened(it, KIT)
        two, other = await opened(it, KIT)  # the same id, from another client
        for client, name in ((one, "one"), (two, "two")):
            client.replies["ping"] = {"by": name}
        said = await one.steps(
            session,
            SERVERS,
            connect(),
            connect(),
            ["ask", "mcp/message", message(1, "ping")],
            ["ask", "mcp/message", message(2, "ping")],
        )
        assert [each["result"] for each in said[3:]] == [{"by": "one"}] * 2
        assert [each["connectionId"] for each in one.of_mcp("mcp/message")] == ["mcp-0", "mcp-1"]
        said = await two.steps(other, SERVERS, connect(), ["ask", "mcp/message", message(1, "ping")])
        assert said[2]["result"] == {"by": "two"}
        theirs = {"connectionId": "mcp-1", "method": "ping"}
        assert (await two.refused("mcp/message", theirs)).code == -33001
        said = await two.steps(other, ["ask", "mcp/connect", {"serverId": "kit-1"}])
        assert said[0]["error"]["code"] == -33001


async def test_a_client_that_is_gone_in_mid_call_fails_it_and_one_that_is_back_is_connected_anew() -> None:
    async with rig("native") as it:
        client, session = await opened(it, KIT)
        client.replies["initialize"] = {"capabilities": {}}
        steps = [
            SERVERS,
            connect(),
            ["ask", "mcp/message", message(1, "initialize", params={"protocolVersion": "2025-06-18"})],
            ["tell", "mcp/message", message(1, "notifications/initialized")],
            ["ask", "mcp/message", message(1, "tools/call")],
            ["hear"],
            ["ask", "mcp/message", message(1, "tools/list")],
        ]
        await client.start(session, json.dumps(steps))
        await client.message("tools/call")
        await client.pipe.aclose()
        back = await it.connect()
        back.replies |= {"initialize": {"capabilities": {}}, "tools/list": {"tools": []}}
        offer = {**KIT, "serverId": "kit-2"}
        await back.request("session/resume", {"sessionId": session, "cwd": "/work", "mcpServers": [offer]})
        # what the agent waits for comes from the server: who is back may not have been asked anything yet
        [end] = it.tunnels.ends._ends.values()
        await end.told(end_message("notifications/tools/list_changed"))
        await back.heard('"tools": []')
        failed = back.said(0)[4]
        assert failed["error"]["code"] == -32603
        assert back.of_mcp("mcp/connect") == [{"serverId": "kit-2"}]
        methods = [each["method"] for each in back.of_mcp("mcp/message")]
        assert methods == ["initialize", "tools/list"]


async def test_servers_that_are_new_in_a_session_that_is_taken_up_are_told_its_agent() -> None:
    files = {"name": "files", "command": "/bin/files", "args": [], "env": []}
    more = {**KIT, "name": "more", "serverId": "more-1"}

    async with rig("native") as it:
        client, session = await opened(it, KIT, files)
        back = await it.connect()
        for known in ([{**KIT, "serverId": "other"}], [files], []):
            asked = {"sessionId": session, "cwd": "/work", "mcpServers": known}
            assert await back.request("session/resume", asked) == {}
        old = (await client.steps(session, SERVERS))[0][0]
        back.replies["tools/list"] = {"tools": []}
        asked = {"sessionId": session, "cwd": "/work", "mcpServers": [more, {**files, "args": ["-v"]}]}
        assert await back.request("session/load", asked) == {}
        listing = ["ask", "mcp/message", message(1, "tools/list")]
        told = (await client.steps(session, SERVERS, connect(), listing))[0]
        assert [each["name"] for each in told] == ["more", "files", "kit"], "and what the first one has"
        assert told[1]["args"] == ["-v"] and told[2]["serverId"] != old["serverId"]
        assert back.of_mcp("mcp/connect") == [{"serverId": "more-1"}]


async def test_where_the_agent_works_the_answer_says_that_it_was_not_told_of_new_servers() -> None:
    async with rig("native") as it:
        client, session = await opened(it, KIT)
        await client.start(session, json.dumps([SERVERS, connect(), ["hear"]]))
        await client.until(lambda: bool(client.of_mcp("mcp/connect")))  # so it works
        back = await it.connect()
        more = [{**KIT, "name": "more", "serverId": "more-1"}]
        asked = {"sessionId": session, "cwd": "/work", "mcpServers": more}
        answer = await back.request("session/resume", asked)
        assert answer == {"_meta": {"interlingua": {"lost": ["mcp_servers"]}}}
        await client.notify("session/cancel", {"sessionId": session})


def end_message(method: str) -> Any:
    """As the switchboard sends it."""

    return jsonrpc.raw({"method": method})


async def test_what_a_session_had_open_is_disconnected_with_it() -> None:
    async with rig("native") as it:
        client, session = await opened(it, KIT)
        await client.steps(session, SERVERS, connect())
        await client.request("session/close", {"sessionId": session})
        await client.until(lambda: bool(client.of_mcp("mcp/disconnect")))
        assert not len(it.tunnels.ends)
        assert not it.tunnels.ends.connected
        async with asyncio.timeout(30):
            assert (await client.refused("mcp/message", {"connectionId": "mcp-0", "method": "ping"})).code == -33001


async def test_without_servers_the_methods_are_unknown_and_a_flood_of_connections_ends() -> None:
    async with rig("native") as it:
        client, session = await opened(it)
        [answer] = await client.steps(session, ["ask", "mcp/connect", {"serverId": "kit-1"}])
        assert answer["error"]["code"] == -32601
        session = await client.new(mcpServers=[KIT])
        said = await client.steps(session, SERVERS, *[connect()] * 101)
        assert [each.get("error", {}).get("code") for each in said[1:]] == [*[None] * 100, -33001]


async def test_a_client_of_version_2_offers_servers_in_its_own_words() -> None:
    async with rig("native") as it:
        client = await it.connect(kind=ProviderV2, shake=False)
        hello = {"protocolVersion": 2, "capabilities": {}, "info": {"name": "new", "version": "2"}}
        said = await client.request("initialize", hello)
        assert said["capabilities"]["session"]["mcp"]["acp"] == {}
        session = (await client.request("session/new", {"cwd": "/work", "mcpServers": [KIT]}))["sessionId"]
        client.replies["tools/list"] = {"tools": []}
        steps = [SERVERS, connect(), ["ask", "mcp/message", message(1, "tools/list")], ["hear"]]
        await client.prompt(session, json.dumps(steps))
        await client.message("tools/list")
        note = {"connectionId": "mcp-0", "method": "notifications/tools/list_changed"}
        await client.notify("mcp/message", note)
        await client.heard("list_changed")
        assert '"tools": []' in client.text()
        assert client.of_mcp("mcp/connect") == [{"serverId": "kit-1"}]


async def test_another_process_of_the_agent_reaches_nothing_of_this_ones() -> None:
    async with rig("native") as it:
        client, session = await opened(it, KIT)
        [[server], connected] = await client.steps(session, SERVERS, connect())
        other = await it.connect(can={"fs": {"readTextFile": True}})  # told to a process of its own
        elsewhere = await other.new(mcpServers=[KIT])
        there = {"connectionId": connected["result"]["connectionId"], "method": "ping"}
        said = await other.steps(
            elsewhere,
            connect(server["serverId"]),
            ["ask", "mcp/message", there],
            ["ask", "mcp/message", {"serverId": server["serverId"], "requestId": "a", "method": "ping"}],
        )
        assert [each["error"]["code"] for each in said] == [-33001] * 3
        assert not other.of_mcp("mcp/message")
        assert not client.of_mcp("mcp/message")


async def test_an_agent_that_dies_lets_go_of_its_connections() -> None:
    async with rig("native") as it:
        client, session = await opened(it, KIT)
        await client.steps(session, SERVERS, connect())
        failed = await client.start(session, json.dumps([["exit"]]))
        await client.until(lambda: bool(client.of_mcp("mcp/disconnect")))
        assert not len(it.tunnels.ends)
        with contextlib.suppress(Refused):
            await failed


@pytest.mark.parametrize("how", ["tell", "ask"])
async def test_over_an_open_connection_nothing_is_said_in_a_run_that_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    disk, came = threading.Event(), asyncio.Event()
    disk.set()
    monkeypatch.setattr(disk_thread, "sync", lambda _: disk.wait(30))

    async with rig("native", file=tmp_path / "store.db") as it:
        client, session = await opened(it, TOOLS)
        _, made = await client.steps(session, SERVERS, connect())
        open_one = {"connectionId": made["result"]["connectionId"]}
        said = {"mcp/disconnect": open_one}
        if how == "tell":
            said = {"mcp/message": {**open_one, "method": "notifications/roots/list_changed"}}
        [(method, params)] = said.items()
        name = {"tell": "tell", "ask": "answer"}[how]
        takes = getattr(it.tunnels, name)

        async def taken(*args: Any) -> Any:
            came.set()
            return await takes(*args)

        setattr(it.tunnels, name, taken)
        client.order.clear()
        disk.clear()
        prompting = await client.start(session, json.dumps([[how, method, params]]))
        await asyncio.wait_for(came.wait(), 30)
        await asyncio.wait([prompting], timeout=0.05)
        early = list(client.order)
        disk.set()
        await prompting
        assert not early and method in client.order
