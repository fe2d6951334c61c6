"""MCP over the connection as it is spoken without connections, and where only one of both sides speaks it so."""

from __future__ import annotations

import json
from typing import Any

from gateway.core.version import version
from tests.adapters.agent_client.tunnel_rig import KIT, Provider, Rig, rig

SERVERS = ["servers"]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "mine", "version": "3"}},
}


def message(request: str, method: str, **params: Any) -> dict[str, Any]:
    """Params of a message to the session's first server."""
    about = {"serverId": {"$": [0, 0, "serverId"]}, "requestId": request}
    return {**about, "method": method, "params": {"_meta": META, **params}}


def ask(request: str, method: str, **params: Any) -> list[Any]:
    """A step."""
    return ["ask", "mcp/message", message(request, method, **params)]


async def opened(it: Rig, *, stateless: bool) -> tuple[Provider, str]:
    """A client and its session."""
    client = await it.connect(stateless=stateless)
    return client, await client.new(mcpServers=[KIT])


async def test_both_sides_stateless_pass_outcomes_verbatim_with_requests_named_anew() -> None:
    async with rig("native") as it:
        client, session = await opened(it, stateless=True)
        client.replies |= {"tools/list": {"tools": [], "new": [1.0]}, "tools/call": (-32602, "no", {"why": 1})}
        said = await client.steps(
            session,
            SERVERS,
            ask("a", "tools/list", cursor="1"),
            ask("b", "tools/call"),
            ["ask", "mcp/message", {**message("c", "ping"), "serverId": "kit-1"}],
            ["ask", "mcp/message", {**message("c", "ping"), "requestId": None}],
        )
        assert said[1]["result"] == {"result": {"tools": [], "new": [1.0]}}
        assert said[2]["result"] == {"error": {"code": -32602, "message": "no", "data": {"why": 1}}}
        assert [each["error"]["code"] for each in said[3:]] == [-33001, -32602]
        one, two = client.of_mcp("mcp/message")
        assert one == {**one, "serverId": "kit-1", "method": "tools/list", "params": {"_meta": META, "cursor": "1"}}
        assert one["requestId"] not in ("a", two["requestId"])
        assert len(client.of_mcp("mcp/connect")) == 1  # by which it is known how the client speaks


async def test_what_a_stateless_server_tells_reaches_the_request_that_it_is_about_before_its_answer() -> None:
    async with rig("native") as it:
        client, session = await opened(it, stateless=True)
        steps = [SERVERS, ["begin", "mcp/message", message("a", "tools/call")], ["hear"], ["answer", 0]]
        prompt = await client.start(session, json.dumps(steps))
        called = (await client.message("tools/call"))["params"]
        about = {"serverId": "kit-1", "requestId": called["requestId"]}
        await client.notify("mcp/message", {**about, "method": "notifications/progress", "params": {"progress": 1}})
        await client.notify("mcp/message", {**about, "requestId": "none", "method": "notifications/progress"})
        await client.answer(await client.message("tools/call"), {"result": {}})
        await prompt
        [servers, _, told, answer] = client.said(0)
        server = servers[0]["serverId"]
        params = {"serverId": server, "requestId": "a", "method": "notifications/progress"}
        assert told["params"] == {**params, "params": {"progress": 1}}
        assert answer["result"] == {"result": {}}


async def test_a_stateless_agent_and_a_client_with_connections_that_knows_its_revision_understand_each_other() -> None:
    async with rig("native") as it:
        client, session = await opened(it, stateless=False)
        client.replies |= {"server/discover": DISCOVERED, "tools/list": {"tools": []}, "prompts/list": (-1, "no")}
        steps = [
            SERVERS,
            ask("a", "tools/list"),
            ask("b", "prompts/list"),
            ["begin", "mcp/message", message("c", "tools/call", _meta={**META, "progressToken": 7})],
            ["begin", "mcp/message", message("d", "subscriptions/listen")],
            ["hear"],
            ["hear"],
            ["drop", 1],
            ["answer", 1],
            ["answer", 0],
        ]
        prompt = await client.start(session, json.dumps(steps))
        called = await client.message("tools/call")
        await client.message("subscriptions/listen")
        note = {"connectionId": "mcp-0", "method": "notifications/progress", "params": {"progressToken": 7}}
        await client.notify("mcp/message", note)
        await client.notify("mcp/message", {"connectionId": "mcp-0", "method": "notifications/tools/list_changed"})
        refused = await client.refused("mcp/message", {"connectionId": "mcp-0", "method": "roots/list"})
        assert refused.code == -32601  # nobody asks an agent that speaks so
        await client.until(lambda: any(each["method"] == "$/cancel_request" for each in client.told))
        await client.answer(called, {"content": []})
        await prompt
        _, listed, failed, _, _, progress, news, _, dropped, answer = client.said(0)
        assert listed["result"] == {"result": {"tools": []}}
        assert failed["result"] == {"error": {"code": -1, "message": "no"}}
        assert (progress["params"]["requestId"], news["params"]["requestId"]) == ("c", "d")
        assert dropped["error"]["code"] == -32800
        assert answer["result"] == {"result": {"content": []}}
        methods = [each["method"] for each in client.of_mcp("mcp/message")]
        assert methods == ["server/discover", "tools/list", "prompts/list", "tools/call", "subscriptions/listen"]


async def test_an_agent_with_connections_and_a_stateless_client_understand_each_other_in_the_same_revision() -> None:
    async with rig("native") as it:
        client, session = await opened(it, stateless=True)
        client.replies |= {"tools/list": {"tools": []}, "tools/call": (-32602, "no", {"why": 1})}
        there = {"connectionId": {"$": [1, "result", "connectionId"]}}
        said = await client.steps(
            session,
            SERVERS,
            ["ask", "mcp/connect", {"serverId": {"$": [0, 0, "serverId"]}}],
            ["ask", "mcp/message", {**there, "method": "tools/list", "params": {"_meta": META}}],
            ["ask", "mcp/message", {**there, "method": "tools/call", "params": {"_meta": META}}],
            ["ask", "mcp/disconnect", there],
        )
        assert sorted(said[1]["result"]) == ["connectionId"]
        assert said[2]["result"] == {"tools": []}
        assert said[3]["error"] == {"code": -32602, "message": "no", "data": {"why": 1}}
        assert said[4]["result"] == {}
        assert not client.of_mcp("mcp/disconnect")


async def test_a_handshake_with_a_stateless_server_is_the_gateways_and_what_follows_is_put_in_its_revision() -> None:
    async with rig() as it:
        client, session = await opened(it, stateless=True)
        wanted = {"resultType": "input_required", "requestState": "s", "inputRequests": {"q": QUESTION}}
        client.replies |= {"server/discover": DISCOVERED, "tools/call": wanted}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {"sampling": {}}, "clientInfo": {"name": "x"}}
        call = {"name": "n", "_meta": {"progressToken": 0}}
        steps = [
            ["open", 0],
            ["write", 0, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}],
            ["read", 0],
            ["write", 0, {"jsonrpc": "2.0", "method": "notifications/initialized"}],
            ["write", 0, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}],
            ["read", 0],
            ["write", 0, {"jsonrpc": "2.0", "id": 1, "result": {"text": "mine"}}],
            ["read", 0],
            ["read", 0],
            ["close", 0],
        ]
        prompt = await client.start(session, json.dumps(steps))
        first = (await client.message("tools/call"))["params"]
        client.replies.pop("tools/call")
        again = await client.message("tools/call", 2)
        params = again["params"]["params"]
        note = {"serverId": "kit-1", "requestId": again["params"]["requestId"], "method": "notifications/progress"}
        token = params["_meta"]["progressToken"]
        await client.notify("mcp/message", {**note, "params": {"progressToken": token, "progress": 1}})
        await client.answer(again, {"result": {"resultType": "complete", "content": []}})
        await prompt
        _, _, greeted, _, _, question, _, progress, answer, code = client.said(0)
        assert greeted["result"]["protocolVersion"] == "2025-06-18"
        assert greeted["result"]["serverInfo"] == {"name": "mine", "version": "3"}
        assert (question["method"], question["params"]) == (QUESTION["method"], QUESTION["params"])
        assert (params["inputResponses"], params["requestState"]) == ({"q": {"text": "mine"}}, "s")
        assert first["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {"sampling": {}}
        assert progress["params"] == {"progressToken": 0, "progress": 1}
        assert answer["result"]["content"] == []
        assert code == 0


FOLLOWED = {**DISCOVERED, "capabilities": {"resources": {"subscribe": True}}}
UPDATED = "notifications/resources/updated"


async def test_a_handshake_client_follows_resources_of_a_stateless_server_by_one_subscription() -> None:
    async with rig() as it:
        client, session = await opened(it, stateless=True)
        client.replies |= {"server/discover": FOLLOWED, "resources/list": {"resources": []}}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        requests = [
            ("initialize", hello),
            ("resources/subscribe", {"uri": "a:1"}),
            ("resources/subscribe", {"uri": "a:2"}),
            ("resources/subscribe", {"uri": "a:3"}),
            ("resources/unsubscribe", {"uri": "a:1"}),
            ("resources/list", {}),
        ]
        steps: list[Any] = [["open", 0]]
        for number, (method, params) in enumerate(requests):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            steps += [["write", 0, request], ["read", 0]]
        prompt = await client.start(session, json.dumps([*steps, ["read", 0], ["read", 0], ["close", 0]]))

        async def listening(number: int, agreed: list[str]) -> dict[str, Any]:
            asked = (await client.message("subscriptions/listen", number))["params"]
            about = {"serverId": "kit-1", "requestId": asked["requestId"]}
            told = {"notifications": {"resourceSubscriptions": agreed} if agreed else {}}
            method = "notifications/subscriptions/acknowledged"
            await client.notify("mcp/message", {**about, "method": method, "params": told})
            assert asked["params"]["_meta"] and about["requestId"]
            return {**about, "wanted": asked["params"]["notifications"]["resourceSubscriptions"]}

        assert (await listening(1, ["a:1"]))["wanted"] == ["a:1"]
        assert (await listening(2, ["a:1", "a:2"]))["wanted"] == ["a:1", "a:2"]
        refused = await listening(3, ["a:1", "a:2"])
        assert refused["wanted"] == ["a:1", "a:2", "a:3"]
        last = await listening(4, ["a:2"])
        assert last.pop("wanted") == ["a:2"]
        await client.message("resources/list")
        belongs = {"io.modelcontextprotocol/subscriptionId": 1}
        for uri in ("a:1", "a:2"):
            await client.notify("mcp/message", {**last, "method": UPDATED, "params": {"uri": uri, "_meta": belongs}})
        await client.notify("mcp/message", {**last, "method": "notifications/resources/list_changed"})
        await prompt
        answers = client.said(0)
        assert [each["result"] for each in (answers[4], answers[6], answers[10])] == [{}, {}, {}]
        assert answers[8]["error"]["code"] == -32602 and "a:3" in answers[8]["error"]["message"]
        assert answers[-3] == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "a:2"}}
        assert answers[-2]["method"] == "notifications/resources/list_changed"
        await client.until(lambda: sum(each["method"] == "$/cancel_request" for each in client.told) == 4)


async def test_a_stateless_client_follows_resources_of_a_server_with_a_handshake_while_it_listens() -> None:
    async with rig("native") as it:
        client, session = await opened(it, stateless=False)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {"resources": {"subscribe": True}}}
        client.replies |= {"server/discover": (-32601, "unknown"), "resources/subscribe": {}}
        client.replies |= {"initialize": {**hello, "serverInfo": {"name": "old", "version": "1"}}}
        client.replies["resources/unsubscribe"] = {}
        wanted = {"resourceSubscriptions": ["a:1", "a:2"]}
        steps = [
            SERVERS,
            ask("a", "server/discover"),
            ["begin", "mcp/message", message("b", "subscriptions/listen", notifications=wanted)],
            ["hear"],
            ["hear"],
            ["drop", 0],
            ["answer", 0],
        ]
        prompt = await client.start(session, json.dumps(steps))
        await client.message("resources/subscribe", 2)
        line = client.connections[-1]["connectionId"]
        for uri in ("a:9", "a:2"):
            await client.notify("mcp/message", {"connectionId": line, "method": UPDATED, "params": {"uri": uri}})
        await prompt
        acknowledged, updated = (each["params"] for each in client.said(0)[3:5])
        assert acknowledged["params"]["notifications"] == wanted
        assert (updated["method"], updated["requestId"]) == (UPDATED, "b")
        assert updated["params"]["uri"] == "a:2"
        await client.message("resources/unsubscribe", 2)
        followed = [each for each in client.of_mcp("mcp/message") if each["method"].startswith("resources/")]
        assert [each["params"] for each in followed if each["method"] == "resources/subscribe"] == [
            {"uri": "a:1"},
            {"uri": "a:2"},
        ]


QUESTION = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}


async def test_a_stateless_agent_is_asked_what_a_server_with_a_handshake_asks_by_the_answer_to_its_request() -> None:
    async with rig("native") as it:
        client, session = await opened(it, stateless=False)
        hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old"}}
        client.replies |= {"server/discover": (-32601, "unknown"), "initialize": hello}
        prompt = await client.start(session, json.dumps([SERVERS, ask("a", "server/discover"), ask("b", "tools/call")]))
        called = await client.message("tools/call")
        question = await client.begin("mcp/message", {"connectionId": "mcp-1", **QUESTION})
        await prompt
        [[server], discovered, wanted] = client.said(0)
        assert discovered["result"]["result"]["capabilities"] == {"tools": {}}
        result = wanted["result"]["result"]
        [[key, request]] = result["inputRequests"].items()
        assert (result["resultType"], request) == ("input_required", QUESTION)
        given = {"requestState": result["requestState"], "inputResponses": {key: {"text": "mine"}}}
        again = {**message("c", "tools/call", **given), "serverId": server["serverId"]}
        before = len(client.updates)
        prompt = await client.start(session, json.dumps([["ask", "mcp/message", again]]))
        assert await question == {"text": "mine"}
        await client.answer(called, {"content": []})
        await prompt
        [answer] = client.said(before)
        assert answer["result"]["result"]["content"] == []
        greeting = client.of_mcp("mcp/message")[2]
        assert greeting["method"] == "initialize"
        assert greeting["params"]["capabilities"] == {"sampling": {}}
        assert greeting["params"]["clientInfo"] == {"name": "interlingua", "version": version()}
