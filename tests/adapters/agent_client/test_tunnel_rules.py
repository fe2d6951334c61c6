"""MCP over the connection on a governed route: what is listed, what is called, and what the audit says of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.core.types import Answer, RunQuery
from gateway.governance.binding import Binding
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.test_tunnel_stateless import DISCOVERED, META
from tests.adapters.agent_client.tunnel_rig import KIT, Provider, rig
from tests.governance.enforcing.support import ANN, YES, documents, told, verified
from tests.support.scripted import until

GRANTS = ({"kind": "mcp", "server": "kit", "allow": ["read", "send", "drop"]},)
LISTED = {"tools": [{"name": name} for name in ("read", "other", "send")], "nextCursor": "2", "_meta": {"z": 1}}
CONNECT = ["ask", "mcp/connect", {"serverId": {"$": [0, 0, "id"]}}]


def binding(folder: Path) -> Binding:
    """`read` is allowed, `send` needs an editor's word, `drop` is denied; of others the operator has none."""
    return documents(folder, tools=GRANTS)


def message(method: str, **params: Any) -> list[Any]:
    """A step: on the connection that the one after the servers has made."""
    there = {"connectionId": {"$": [1, "result", "connectionId"]}}
    return ["ask", "mcp/message", {**there, "method": method, "params": params}]


async def opened(client: Provider, folder: Path) -> str:
    """Its session."""
    client.replies |= {"tools/list": LISTED, "tools/call": {"content": []}}
    return await client.new(cwd=str(folder), mcpServers=[KIT])


def called(client: Provider) -> list[str]:
    """The tools that the client's server was told to call."""
    return [each["params"]["name"] for each in client.of_mcp("mcp/message") if each["method"] == "tools/call"]


def calls(folder: Path) -> list[str]:
    """What the audit says of tools."""
    verified(folder)
    return [each for each in told(folder) if each.startswith(("tool.", "approval."))]


async def test_only_tools_that_the_operator_has_are_listed_and_can_be_called(tmp_path: Path) -> None:
    async with rig("native", governed=binding(tmp_path)) as it:
        client = await it.connect()
        said = await client.steps(
            await opened(client, tmp_path),
            ["servers"],
            CONNECT,
            message("tools/list"),
            message("tools/call", name="read", arguments={"a": 1}),
            message("tools/call", name="other"),
            message("tools/call", name="drop"),
            message("tools/call"),
        )
        assert said[2]["result"] == {**LISTED, "tools": [{"name": "read"}, {"name": "send"}]}
        assert said[3]["result"] == {"content": []}
        assert [each["error"]["code"] for each in said[4:]] == [-32600, -32600, -32602]
        assert "drop" in said[5]["error"]["message"]
        assert called(client) == ["read"]
        refused = ["tool.refused other", "tool.refused drop"]
        assert calls(tmp_path) == ["tool.call read", "tool.result read", *refused]


async def test_of_these_those_are_listed_that_may_be_called_for_whoever_has_prompted(tmp_path: Path) -> None:
    people = [
        {"name": "ana", "token": "ana-token-0123456789", "oversees": True},
        {"name": "bob", "token": "bob-token-0123456789", "tools": ["re*", "other"]},
    ]

    async with rig("native", governed=binding(tmp_path), clients=people) as it:
        bob = await it.connect(token="bob-token-0123456789")
        session = await opened(bob, tmp_path)
        steps = (["servers"], CONNECT, message("tools/list"), message("tools/call", name="send"))
        said = await bob.steps(session, *steps)
        assert said[2]["result"]["tools"] == [{"name": "read"}]
        assert said[3]["error"]["code"] == -32600 and not called(bob)
        [server] = it.tunnels._servers.values()
        [end] = [each for each in it.tunnels.ends.of(server) if each._client is not None]
        listing = jsonrpc.raw({"connectionId": end.id, "method": "tools/list", "params": {}})
        listed = jsonrpc.members(await end.ask(listing))["tools"]
        assert bytes(listed) == b'[{"name":"read"}]', "between prompts, too"
        ana = await it.connect(token="ana-token-0123456789")
        await ana.request("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        said = await ana.steps(session, *steps[:3])
        assert said[2]["result"]["tools"] == [{"name": "read"}, {"name": "send"}]


async def test_they_are_listed_so_before_a_prompt_by_an_agent_in_another_process(tmp_path: Path) -> None:
    bob = {"name": "bob", "token": "bob-token-0123456789", "tools": ["re*", "other"]}
    file = tmp_path / "store.db"
    async with (
        rig("native", governed=binding(tmp_path), clients=[bob], file=file, host="here") as one,
        rig("native", governed=binding(tmp_path), clients=[bob], file=file, host="there") as two,
    ):
        opener, client = await one.connect(token=bob["token"]), await two.connect(token=bob["token"])
        session = await opener.new(cwd=str(tmp_path), mcpServers=[KIT])
        client.replies |= {"tools/list": LISTED}
        await client.request("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": [KIT]})
        await opener.pipe.aclose()
        [server] = one.tunnels._servers.values()
        agent, context = server.session.connection, server.session.context
        assert agent is not None and context is not None
        await until(lambda: not one.inbound.clients.open(session) and context.caller is not None)
        made = jsonrpc.unpack(await one.tunnels.answer(agent, "mcp/connect", jsonrpc.raw({"serverId": server.id})))
        listing = {"connectionId": made["connectionId"], "method": "tools/list", "params": {}}
        result = await one.tunnels.answer(agent, "mcp/message", jsonrpc.raw(listing))
        assert bytes(jsonrpc.members(result)["tools"]) == b'[{"name":"read"}]'


async def test_a_call_that_needs_a_word_waits_for_it_and_one_that_fails_is_audited_so(tmp_path: Path) -> None:
    async with rig(governed=binding(tmp_path)) as it:
        client = await it.connect()
        session = await opened(client, tmp_path)
        client.replies["tools/call"] = (-1, "no such thing")
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send", "arguments": {}}}
        steps = [["open", 0], ["write", 0, call], ["read", 0], ["close", 0]]
        prompt = await client.start(session, json.dumps(steps))
        await client.until(lambda: any(each["method"] == "session/request_permission" for each in client.asked))
        assert not called(client)
        [asking] = await it.engine.runs.list(RunQuery(thread=session))
        await it.engine.runs.answer(asking.id, Answer(value=YES, by=ANN))
        await prompt
        text = client.text()
        assert '"code": -1' in text
        assert called(client) == ["send"]
        assert calls(tmp_path)[:2] == ["tool.call send", "approval.requested send"]
        assert calls(tmp_path)[-1] == "tool.result send"


async def test_rules_hold_whatever_is_spoken_and_outside_of_runs_nothing_is_called(tmp_path: Path) -> None:
    async with rig("native", governed=binding(tmp_path)) as it:
        client = await it.connect(stateless=True)
        session = await opened(client, tmp_path)
        client.replies |= {"server/discover": DISCOVERED}

        def step(request: str, method: str, **params: Any) -> list[Any]:
            about = {"serverId": {"$": [0, 0, "serverId"]}, "requestId": request}
            return ["ask", "mcp/message", {**about, "method": method, "params": {"_meta": META, **params}}]

        said = await client.steps(
            session,
            ["servers"],
            step("a", "tools/list"),
            step("b", "tools/call", name="read"),
            step("c", "tools/call", name="drop"),
        )
        assert [each["name"] for each in said[1]["result"]["result"]["tools"]] == ["read", "send"]
        assert said[2]["result"] == {"result": {"content": []}}
        assert said[3]["result"]["error"]["code"] == -32600
        # the agent's MCP client goes on after the turn
        [server] = it.tunnels._servers.values()
        [end] = it.tunnels.ends.of(server)
        late = jsonrpc.raw({"requestId": "d", "method": "tools/call", "params": {"name": "read", "_meta": META}})
        async with asyncio.timeout(30):
            try:
                await end.ask(late)
            except RpcError as error:
                assert "while a prompt" in str(error)
            else:
                raise AssertionError("it was called")
        assert called(client) == ["read"]
        assert calls(tmp_path)[-1] == "tool.refused read"


def reported(call: str, tool: str, **words: Any) -> list[Any]:
    """A step: the agent says of a call that it is of a tool of the client's server."""
    meta = {"aip44": {"tool": tool, "server": "kit"}}
    update = {"sessionUpdate": "tool_call", "toolCallId": call, "title": tool, "_meta": meta, **words}
    return ["tell", "session/update", {"sessionId": "s0", "update": update}]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("tool", ["read", "send"])
async def test_a_call_that_the_agent_also_tells_of_is_decided_and_asked_about_once(
    tmp_path: Path, first: bool, tool: str
) -> None:
    async with rig("native", governed=binding(tmp_path)) as it:
        client = await it.connect()
        session = await opened(client, tmp_path)
        told_of = reported("c1", tool, kind="read", rawInput={"a": 1}, status="in_progress")
        there = {"connectionId": {"$": [1, "result", "connectionId"]}}
        params = {"name": tool, "arguments": {"a": 1}}
        begin = ["begin", "mcp/message", {**there, "method": "tools/call", "params": params}]
        ended = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}
        end = ["tell", "session/update", {"sessionId": "s0", "update": ended}]
        again = [] if tool == "send" else [message("tools/call", **params)]
        steps = [["servers"], CONNECT, *([told_of, begin] if first else [begin, told_of]), ["answer", 0], end]
        prompt = await client.start(session, json.dumps([*steps, *again]))
        asked = [] if tool == "read" else ["approval.requested send", "approval.granted send"]
        if asked:
            await client.until(lambda: any(each["method"] == "session/request_permission" for each in client.asked))
            [asking] = await it.engine.runs.list(RunQuery(thread=session))
            await it.engine.runs.answer(asking.id, Answer(value=YES, by=ANN))
        await prompt
        assert called(client) == [tool] * (1 + len(again))
        done = calls(tmp_path)
        assert [each for each in done if each.startswith("approval.")] == asked
        assert not [each for each in done if "refused" in each]
        # the call, its result by the server and by the agent; and where it is made again, that
        assert done.count(f"tool.result {tool}") == 2 + len(again)
