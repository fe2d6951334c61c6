"""Resources, tools and sampling, as a client uses them that knows nothing of the protocol but MCP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from adapters.agent_context.inbound import resources
from gateway.mcp.versions import V2024_11_05, V2025_03_26, V2025_06_18, V2026_07_28
from gateway.mcp.wire import META_CAPABILITIES, META_VERSION
from gateway.wire import sse
from tests.adapters.agent_context.inbound_rig import Rig, rig
from tests.adapters.agent_context.inbound_talker import AGENT, Refused, Talker, record, refused, request, text_of
from tests.adapters.agent_context.wire_schema import check_answer, check_said
from tests.support.aio import Clock, later, on

METRICS = "agent://metrics/echo"
TOOLS = ["agentSearch", "taskAssign", "agentEvaluate", "taskAnswer", "taskList", "taskCancel"]


async def body(client: Talker, uri: str) -> Any:
    """What a resource says."""
    found = await client.ask("resources/read", uri=uri)
    return json.loads(found["contents"][0]["text"])


@pytest.mark.parametrize("version", [V2024_11_05, V2025_03_26, V2025_06_18])
async def test_a_client_of_any_revision_lists_and_reads_resources_and_calls_tools(version: str) -> None:
    async with rig() as there, there.socket(version=version, hello=None) as client:
        hello = await client.initialize()
        assert hello["protocolVersion"] == version
        assert hello["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}
        assert hello["capabilities"]["agent"]["protocols"] == ["ACP-0.1"]
        uris = [each["uri"] for each in (await client.ask("resources/list"))["resources"]]
        assert uris[:2] == ["agent://directory", "agent://tasks"] and METRICS in uris
        (template,) = (await client.ask("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"] == "agent://metrics/{agentId}"
        for uri in uris:
            await body(client, uri)
        tools = [each["name"] for each in (await client.ask("tools/list"))["tools"]]
        assert tools == [*TOOLS, "agentRevoke", "agentRestore"]
        await client.ask("tools/call", name="agentSearch", arguments={})
        found = await client.ask("tools/call", name="taskAssign", arguments={"message": "a b", "agentId": "echo"})
        assert found["content"][0]["text"] == "a b "


async def test_the_protocols_own_version_may_be_negotiated() -> None:
    async with rig() as there:
        for proposed in ("ACP-0.1", "ACP-1.0"):
            async with there.socket(hello=None) as client:
                assert (await client.initialize(proposed=proposed))["protocolVersion"] == "ACP-0.1"
                assert text_of(await client.message("echo", "x")) == "x "


async def test_lists_come_in_pages() -> None:
    async with rig(page_size=3) as there, there.socket() as client:
        for method, key in (("resources/list", "resources"), ("tools/list", "tools")):
            found, cursor = [], None
            while True:
                page = await client.ask(method, **({} if cursor is None else {"cursor": cursor}))
                assert len(page[key]) <= 3
                found += [each["name"] for each in page[key]]
                if (cursor := page.get("nextCursor")) is None:
                    break
            assert len(set(found)) == len(found) > 3
        error = await refused(client.ask("resources/list", cursor="nonsense"))
        assert (error.code, error.data["path"]) == (-32001, "/cursor")


@pytest.mark.parametrize("uri", ["agent://metrics/nobody", "agent://metrics/", "agent://x", "file:///etc/passwd", ""])
async def test_a_resource_that_there_is_not_is_not_found(uri: str) -> None:
    async with rig() as there, there.socket() as client:
        for method in ("resources/read", "resources/subscribe"):
            error = await refused(client.ask(method, uri=uri, meta={"correlationId": "u"}))
            assert (error.code, error.data["uri"], error.data["correlationId"]) == (-32002, uri, "u")
        assert await client.ask("resources/unsubscribe", uri=uri) == {}


async def test_one_subscription_too_many_is_refused_as_a_limit_and_the_client_may_free_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resources, "MOST_SUBSCRIPTIONS", 1)

    async with rig() as there, there.socket() as client:
        await client.ask("resources/subscribe", uri="agent://tasks")
        error = await refused(client.ask("resources/subscribe", uri=METRICS, meta={"correlationId": "u"}))
        assert (error.code, error.message) == (-32029, "no more than 1 subscriptions")
        assert error.data == {"code": "limited", "retryable": True, "retryAfter": 1.0, "correlationId": "u"}
        assert await client.ask("resources/subscribe", uri="agent://tasks") == {}
        await client.ask("resources/unsubscribe", uri="agent://tasks")
        assert await client.ask("resources/subscribe", uri=METRICS) == {}


async def test_metrics_tell_numbers_and_nothing_that_anybody_said() -> None:
    async with rig() as there, there.socket() as client:
        await client.message("echo", "my password is swordfish", meta={"correlationId": "private"})
        await refused(client.message("failer"))
        for score in (7, 8, 9):
            made_up = {"agentId": "echo", "score": score, "review": "swordfish was kept", "taskId": str(score)}
            await client.ask("tools/call", name="agentEvaluate", arguments=made_up)
        task = {"id": "8", "type": "x", "payload": "x"}
        await client.ask("agent/delegate", task=task, target="echo")
        for score, agent in ((8, "echo"), (1, "failer")):
            arguments = {"agentId": agent, "score": score, "taskId": "8"}
            found = await client.ask("tools/call", name="agentEvaluate", arguments=arguments)
            assert found["structuredContent"]["agentId"] == agent
        said = await body(client, METRICS)
        assert (said["agentId"], said["runs"]["success"], said["evaluation"]["evaluationCount"]) == ("echo", 2, 2)
        assert said["evaluation"]["qualityScore"] == 8.5
        assert "swordfish" not in json.dumps(said) and "private" not in json.dumps(said)
        assert (await body(client, "agent://metrics/failer"))["runs"]["error"] == 1


@on(Clock)
async def test_who_subscribed_is_told_of_changes_joined_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "CALM_SECONDS", 15.0)

    async with rig() as there, there.socket() as client, there.socket() as other:

        def told() -> list[Any]:
            return list(client.params_of("notifications/resources/updated"))

        for uri in ("agent://tasks", METRICS):
            await client.ask("resources/subscribe", uri=uri)
        for number in range(5):
            found = await other.ask("tools/call", name="taskAssign", arguments={"message": "x", "agentId": "echo"})
            assert not found["isError"], number
        done = 0
        while done < 5:
            done = (await body(other, METRICS))["runs"]["success"]
        while {each["uri"] for each in told()} != {METRICS, "agent://tasks"}:
            await there.inbound.refresh()  # as the gateway does about once a second
            await later(16)
        assert len(told()) < 5, "fewer than there were changes"
        counts = []
        for _ in range(3):
            await there.inbound.refresh()
            await there.inbound.settled()
            await later(16)
            await client.ask("ping")
            counts.append(len(told()))
        assert counts[1] == counts[2]
        assert other.told == []


# --- MCP 2026-07-28 --------------------------------------------------------------------------------------------------


def modern(method: str, number: int, capabilities: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    """A request of that revision."""
    meta = {META_VERSION: V2026_07_28, META_CAPABILITIES: capabilities or {}, **params.pop("meta", {})}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}


async def post(there: Rig, method: str, capabilities: dict[str, Any] | None = None, **params: Any) -> Any:
    """Its result, over HTTP. Raises Refused."""
    message = modern(method, 1, capabilities, **params)
    headers = {
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": V2026_07_28,
        "Mcp-Method": method,
        **(
            {"Mcp-Name": params[key]}
            if (key := {"tools/call": "name", "resources/read": "uri"}.get(method, ""))
            else {}
        ),
    }
    async with httpx2.AsyncClient(timeout=30) as http:
        answer = await http.post(there.url, json=message, headers=headers)
        if answer.headers["content-type"].startswith("application/json"):
            messages = [answer.json()]
        else:
            decoder = sse.SseDecoder()
            messages = [json.loads(frame.data) for frame in decoder.feed(answer.content) if frame.data]
    *told, last = messages
    for each in told:
        check_said(each, V2026_07_28)
    check_answer(last, V2026_07_28, method, params)
    if "error" in last:
        raise Refused(last["error"])
    return last["result"]


async def test_a_client_without_a_session_can_do_all_of_it() -> None:
    async with rig() as there:
        found = await post(there, "server/discover")
        assert found["capabilities"]["resources"]["subscribe"]
        uris = [each["uri"] for each in (await post(there, "resources/list"))["resources"]]
        assert "agent://directory" in uris
        assert "echo" in (await post(there, "resources/read", uri="agent://directory"))["contents"][0]["text"]
        found = await post(there, "tools/call", name="agentSearch", arguments={})
        assert found["structuredContent"]["agents"]
        content = request("a b")
        found = await post(there, "agent/message", target="echo", content=content, meta={"progressToken": 1})
        assert text_of(found) == "a b "
        error = await refused(post(there, "agent/message", target="nobody", content=content))
        assert error.code == -32002
        error = await refused(post(there, "agent/register", agent=record("painter")))
        assert error.code == -32001 and "endpoint" in error.data["details"]["expected"]


async def test_such_a_client_is_asked_by_the_answer_to_its_call_and_comes_back() -> None:
    async with rig(routes={"echo": {"delegation": {"approve": True}}}) as there:
        can = {"elicitation": {"form": {}}}
        asked: dict[str, Any] = {"target": "asker", "content": request("?")}
        found = await post(there, "agent/message", can, **asked)
        ((key, question),) = found["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        answer = {key: {"action": "accept", "content": {"ok": True}}}
        again = {**asked, "inputResponses": answer, "requestState": found["requestState"]}
        assert text_of(await post(there, "agent/message", can, **again)) == "Let me see. answered {'ok': True}"

        arguments = {"message": "say it", "agentId": "echo"}
        found = await post(there, "tools/call", can, name="taskAssign", arguments=arguments)
        ((key, question),) = found["inputRequests"].items()
        answer = {key: {"action": "accept", "content": {"optionId": "approve"}}}
        again = {"inputResponses": answer, "requestState": found["requestState"]}
        found = await post(there, "tools/call", can, name="taskAssign", arguments=arguments, **again)
        assert (found["isError"], found["content"][0]["text"]) == (False, "say it ")


async def test_such_a_client_that_does_not_wait_is_not_asked_and_reads_of_its_task() -> None:
    async with rig(routes={"echo": {"delegation": {"approve": True}}}) as there:
        task = {"id": "t", "type": "x", "payload": {"messages": [{"text": "x"}]}}
        can: dict[str, Any] = {"elicitation": {"form": {}}}
        found = await post(there, "agent/delegate", can, task=task, target="echo", wait=False)
        assert found["task"]["id"] == "t"
        async with asyncio.timeout(30):
            while True:
                said = (await post(there, "resources/read", uri="agent://tasks"))["contents"][0]["text"]
                if json.loads(said)["tasks"][0]["status"] == "awaiting_approval":
                    break
        arguments = {"taskId": "t", "answer": {"optionId": "approve"}}
        found = await post(there, "tools/call", name="taskAnswer", arguments=arguments)
        assert (found["isError"], found["content"][0]["text"]) == (False, "x ")


async def test_such_a_client_listens_to_what_it_wants_to_know() -> None:
    async with rig() as there, httpx2.AsyncClient(timeout=30) as http, there.socket(hello=AGENT) as painter:
        wanted = {"resourcesListChanged": True, "resourceSubscriptions": ["agent://directory"]}
        message = modern("subscriptions/listen", 4, notifications=wanted)
        headers = {"Mcp-Protocol-Version": V2026_07_28, "Mcp-Method": "subscriptions/listen"}
        headers["Accept"] = "application/json, text/event-stream"
        heard: list[str] = []
        async with http.stream("POST", there.url, json=message, headers=headers) as response:
            decoder = sse.SseDecoder()
            async with asyncio.timeout(30):
                async for chunk in response.aiter_bytes():
                    for frame in decoder.feed(chunk):
                        said = json.loads(frame.data)
                        heard.append(said["method"])
                        if said["method"] == "notifications/resources/updated":
                            assert said["params"]["uri"] == "agent://directory"
                    if heard == ["notifications/subscriptions/acknowledged"]:
                        await painter.register("painter")
                    if len({*heard}) >= 3:
                        break
        assert {*heard[1:]} == {"notifications/resources/list_changed", "notifications/resources/updated"}


async def test_such_a_client_may_listen_to_as_many_resources_as_one_with_a_session() -> None:
    async with rig() as there:
        wanted = {"resourceSubscriptions": [f"agent://tasks/{number}" for number in range(1001)]}
        error = await refused(post(there, "subscriptions/listen", notifications=wanted))
        assert (error.code, error.message) == (-32029, "no more than 1000 subscriptions")
        assert error.data == {"code": "limited", "retryable": True, "retryAfter": 1.0}


# --- tools -----------------------------------------------------------------------------------------------------------


async def test_a_search_finds_what_matches_in_the_form_of_the_protocol() -> None:
    routes = {
        "echo": {
            "labels": {"tools": ["analysis"], "models": [], "specializations": []},
            "delegation": {"quality": 8, "cost": 0.0008},
        },
        "held": {
            "labels": {"tools": ["analysis"], "models": [], "specializations": []},
            "delegation": {"quality": 9, "cost": 0.002},
        },
    }
    async with rig(routes=routes) as there, there.socket() as client:

        async def search(**arguments: Any) -> Any:
            return await client.ask("tools/call", name="agentSearch", arguments=arguments)

        found = await search(capabilities=["Analysis"], minScore=7.5, maxCost=0.001)
        assert found["content"][0] == {"type": "text", "text": "Found 1 matching agent"}
        agents = [{"id": "echo", "name": "echo", "qualityScore": 8.0, "costPerToken": 0.0008}]
        assert found["_meta"] == {"agents": agents} and found["structuredContent"] == {"agents": agents}
        found = await search(capabilities=["analysis"])
        assert [each["id"] for each in found["_meta"]["agents"]] == ["held", "echo"]
        assert (await search(capabilities=["flying"]))["content"][0]["text"] == "No matching agents"
        for wrong in (
            {"capabilities": "x"},
            {"minScore": "high"},
            {"capabilities": [1]},
            {"maxCost": None, "minScore": []},
        ):
            told = await search(**wrong)
            assert told["isError"] and told["_meta"]["interlingua/failure"]["details"]["expected"]


async def test_an_evaluation_that_does_not_fit_is_told_to_the_model_and_an_unknown_tool_is_an_error() -> None:
    async with rig() as there, there.socket() as client:
        for arguments in (
            {"agentId": "echo", "score": 11},
            {"agentId": "echo"},
            {"score": 1},
            {"agentId": 1, "score": 1},
        ):
            told = await client.ask("tools/call", name="agentEvaluate", arguments=arguments)
            assert told["isError"] and told["_meta"]["interlingua/failure"]["path"].startswith("/arguments")
        error = await refused(client.ask("tools/call", name="nothing", arguments={}, meta={"correlationId": "x"}))
        assert (error.code, error.data["correlationId"]) == (-32602, "x")
