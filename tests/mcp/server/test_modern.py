"""2026-07-28, which has no handshake: over HTTP, and over a pipe."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.mcp import versions, wire
from gateway.wire import jsonrpc
from tests.mcp.server.rig import modern_client, modern_tool, rig, stated, valid
from tests.mcp.server.test_pipe import Line, line

VERSION = versions.V2026_07_28
SERVER = {wire.META_SERVER: {"name": "rig", "version": "1"}}
ANSWERED = {"q": {"action": "accept", "content": {"answer": "blue"}}}


async def test_discovery_tells_what_is_served() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        answer = await here.ask("server/discover", stated())
        assert answer["result"]["supportedVersions"] == list(versions.ALL)
        assert answer["result"]["instructions"] == "Say words."
        assert answer["result"]["_meta"] == SERVER
    async with line() as pipe:
        pipe.version = VERSION
        assert (await pipe.answer("server/discover", stated()))["result"] == answer["result"]


async def test_requests_stand_alone_and_their_results_say_what_they_are() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        listed = (await here.ask("tools/list", stated()))["result"]
        assert (listed["resultType"], listed["ttlMs"], listed["cacheScope"]) == ("complete", 0, "private")
        said = (await here.ask("tools/call", modern_tool("say", words="hi")))["result"]
        assert said == {"resultType": "complete", "content": [{"type": "text", "text": "hi"}], "_meta": SERVER}
        async with here.stream(here.request("tools/call", modern_tool("say", 0, words="a b"))) as events:
            told = [valid(one, VERSION) for one in await events.rest()]
        assert [one.get("method") for one in told] == ["notifications/progress"] * 2 + [None]
        assert events.ids == [] and told[0]["params"]["progressToken"] == 0
        assert there.words.calls[-1].client.info == {"name": "by hand", "version": "0"}
        assert there.words.seen == [] and not there.server.sessions


async def test_a_result_keeps_what_the_service_put_in_it() -> None:
    async with line() as here:
        here.version = VERSION
        own = {"resultType": "other", "_meta": {"a": "\ud800", wire.META_SERVER: {"name": "x", "version": "2"}}}

        async def request(call: Any) -> Any:
            return own

        here.words.request = request  # type: ignore[method-assign]
        result = (await here.answer("tools/call", stated()))["result"]
        assert result == own


@pytest.mark.parametrize("over", ["http", "pipe"])
async def test_a_question_is_a_result_and_its_answer_comes_with_the_next_request(over: str) -> None:
    async def through(ask: Any) -> None:
        params = modern_tool("ask", question="colour?")
        asked = (await ask("tools/call", params))["result"]
        assert (asked["resultType"], asked["requestState"]) == ("input_required", "asked once")
        assert asked["inputRequests"]["q"]["params"]["message"] == "colour?"
        params |= {"requestState": asked["requestState"], "inputResponses": ANSWERED}
        assert (await ask("tools/call", params))["result"]["content"][0]["text"] == "accept blue"

    if over == "http":
        async with rig() as there, modern_client(there.mcp) as here:
            await through(here.ask)
    else:
        async with line() as pipe:
            pipe.version = VERSION
            await through(pipe.answer)


def _headers(**said: str | None) -> dict[str, str | None]:
    return said


WRONG: dict[str, tuple[str, Any, dict[str, str | None], int, int]] = {
    "another method in the header": ("tools/list", stated(), _headers(Mcp_Method="tools/call"), 400, -32020),
    "no method in the header": ("tools/list", stated(), _headers(Mcp_Method=None), 400, -32020),
    "another name in the header": ("tools/call", modern_tool("say"), _headers(Mcp_Name="wait"), 400, -32020),
    "no name in the header": ("tools/call", modern_tool("say"), _headers(Mcp_Name=None), 400, -32020),
    "a spoilt name in the header": ("tools/call", modern_tool("say"), _headers(Mcp_Name="=?base64?!?="), 400, -32020),
    "another revision in the header": ("tools/list", stated(version="2027-01-01"), {}, 400, -32020),
    "an unknown revision": (
        "tools/list",
        stated(version="2027-01-01"),
        _headers(MCP_Protocol_Version="2027-01-01"),
        400,
        -32022,
    ),
    "no revision in the message": ("tools/list", {"_meta": {}}, {}, 400, -32602),
    "nothing about itself": ("tools/list", None, {}, 400, -32602),
    "no capabilities": ("tools/list", {"_meta": {wire.META_VERSION: VERSION}}, {}, 400, -32602),
    "capabilities that are none": ("tools/list", stated(capabilities=[]), {}, 400, -32602),
    "an unknown level": ("tools/list", stated(**{wire.META_LOG_LEVEL: "loud"}), {}, 400, -32602),
    "an unknown method": ("no/such", stated(), {}, 404, -32601),
    "what is not of this revision": ("ping", stated(), {}, 404, -32601),
    "a handshake": ("initialize", stated(), {}, 404, -32601),
    "levels for all": ("logging/setLevel", {**stated(), "level": "debug"}, {}, 404, -32601),
    "a subscription to nothing": ("subscriptions/listen", stated(), {}, 400, -32602),
    "a failure of the service": ("tools/call", modern_tool("boom"), {}, 200, -32603),
    "an error of the service": ("tools/call", modern_tool("gone"), {}, 200, -32002),
    "a client that takes no stream": ("tools/list", stated(), _headers(Accept="application/json"), 406, -32600),
}


async def test_what_is_wrong_has_the_status_of_its_code() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        for what, (method, params, headers, status, code) in WRONG.items():
            answer = await here.post(here.request(method, params), **headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), f"{what}: {answer.text}"
            assert valid(answer.json(), VERSION)
        for said in (b"{", b"[]", b"[{}]", b'{"jsonrpc": "2.0", "id": 1, "result": {}}', b"7"):
            assert (await here.post(said)).status_code == 400
        null = await here.post({**here.request("tools/list", stated()), "id": None})
        assert (null.status_code, null.json()["error"]["code"]) == (400, -32600)
        told = await here.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        assert (told.status_code, told.content) == (202, b"")
        for other in ("GET", "DELETE"):
            refused = await here.http.request(other, here.url, headers=here.headers())
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_a_header_that_was_sent_twice_is_refused() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        message = here.request("tools/call", modern_tool("say", words="x"))
        headers = here.headers(Mcp_Method="tools/call", Mcp_Name="say")
        for name in ("Mcp-Method", "Mcp-Name", wire.VERSION_HEADER):
            answer = await here.http.post(here.url, json=message, headers=[*headers.items(), (name, headers[name])])
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


def test_a_name_that_no_header_can_hold_comes_in_base64() -> None:
    assert wire.header_value("say") == "say"
    for name in ("größer", " say", "=?base64?eA==?=", "a\nb"):
        assert wire.header_value(name).startswith("=?base64?") and wire.header_said(wire.header_value(name)) == name
    assert wire.header_said(None) is None
    for spoilt in ("=?base64?x?=", "=?base64?eB==?=", "=?base64?/w==?="):
        assert wire.header_said(spoilt) is None


async def test_who_goes_away_has_cancelled_the_request() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        async with here.stream(here.request("tools/call", modern_tool("wait", 1), id="w")) as events:
            await events.next()
        await there.saw("cancelled w")
        silent = asyncio.create_task(here.post(here.request("tools/call", modern_tool("wait"), id="s")))
        await there.saw("waits s")
        silent.cancel()
        await there.saw("cancelled s")


async def test_who_does_not_read_is_waited_for_and_who_leaves_ends_it() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        flood = here.request("tools/call", modern_tool("flood", 1, count=2000, size=10_000), id="f")
        async with here.stream(flood) as events:
            await events.next()
        await there.saw("cancelled f")
        assert there.words.flooded < 1900


async def test_only_what_was_subscribed_to_is_told() -> None:
    async def listening(listen: Any, sessions: Any) -> None:
        assert valid(await listen(), VERSION) == {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"toolsListChanged": True}, "_meta": {wire.META_SUBSCRIPTION: "sub"}},
        }
        (session,) = sessions()
        session.tell("notifications/agents/list_changed")
        session.tell("notifications/tools/list_changed")
        told = valid(await listen(), VERSION)
        assert told["method"] == "notifications/tools/list_changed"
        assert told["params"]["_meta"] == {wire.META_SUBSCRIPTION: "sub"}

    params = {**stated(), "notifications": {"toolsListChanged": True, "promptsListChanged": True, "x": True}}

    async with rig() as there, modern_client(there.mcp) as here:
        async with here.stream(here.request("subscriptions/listen", params, id="sub")) as events:
            await listening(events.next, lambda: there.server.sessions)
            there.server.quiet()
            ended = valid(await events.next(), VERSION)
            assert ended["id"] == "sub" and ended["result"]["_meta"][wire.META_SUBSCRIPTION] == "sub"
            assert await events.next() is None
        assert there.words.seen == ["joined", "left"]
    async with line() as pipe:
        pipe.version = VERSION
        await pipe.ask("subscriptions/listen", params, id="sub")
        await listening(pipe.next, lambda: pipe.server.sessions)
        await pipe.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "sub"}})
        assert (await pipe.next())["error"]["code"] == jsonrpc.REQUEST_CANCELLED
        assert pipe.words.seen == ["joined", "left"]
        await pipe.ask("subscriptions/listen", params, id="again")
        await pipe.next()
        pipe.server.quiet()
        assert (await pipe.next())["result"]["_meta"][wire.META_SUBSCRIPTION] == "again"


RESOURCES = {"resources": {"subscribe": True, "listChanged": True}}


@pytest.mark.parametrize(
    ("offered", "wanted", "told"),
    [
        (RESOURCES, {"resourceSubscriptions": ["x:b", "x:a", "x:a"]}, {"resourceSubscriptions": ["x:a", "x:b"]}),
        (RESOURCES, {"resourcesListChanged": True}, {"resourcesListChanged": True}),
        (RESOURCES, {"resourceSubscriptions": [], "resourcesListChanged": False}, {}),
        ({"resources": {}}, {"resourceSubscriptions": ["x:a"], "resourcesListChanged": True}, {}),
        ({}, {"resourceSubscriptions": ["x:a"], "resourcesListChanged": True}, {}),
    ],
)
async def test_resources_are_listened_to_as_far_as_the_server_offers_that(offered: Any, wanted: Any, told: Any) -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        there.words.capabilities = offered
        params = {**stated(), "notifications": wanted}
        async with here.stream(here.request("subscriptions/listen", params, id="sub")) as events:
            assert valid(await events.next(), VERSION)["params"]["notifications"] == told
            (session,) = there.server.sessions
            for uri in ("x:a", "x:b", "x:c"):
                assert session.subscribed(uri) is (uri in told.get("resourceSubscriptions", ()))
                session.tell("notifications/resources/updated", {"uri": uri})
            session.tell("notifications/resources/updated")
            session.tell("notifications/resources/list_changed")
            session.tell("notifications/tools/list_changed")
            there.server.quiet()
            *said, _ = [valid(one, VERSION) for one in await events.rest()]
            assert [one["params"].get("uri", "list") for one in said] == [
                *told.get("resourceSubscriptions", ()),
                *(["list"] if told.get("resourcesListChanged") else []),
            ]
            assert all(one["params"]["_meta"] == {wire.META_SUBSCRIPTION: "sub"} for one in said)
        await there.saw("left")
        assert not session.subscribed("x:a")


@pytest.mark.parametrize("uris", ["x:a", [1], {"x:a": True}])
async def test_what_are_no_uris_cannot_be_listened_to(uris: Any) -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        params = {**stated(), "notifications": {"resourceSubscriptions": uris}}
        answer = await here.post(here.request("subscriptions/listen", params))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, jsonrpc.INVALID_PARAMS)


async def test_what_a_client_tells_reaches_the_service_in_order() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        for number in range(3):
            await here.notify("agent/heartbeat", {**stated(), "number": number})
        for method, params in (("notifications/cancelled", stated()), ("x", {}), ("x", stated(version=1))):
            await here.notify(method, params)
        assert [json.loads(one.partition(" ")[2])["number"] for one in there.words.seen] == [0, 1, 2]
        assert {session.client.version for session in there.words.told} == {VERSION}
    async with line() as pipe:
        pipe.version = VERSION
        for number in range(3):
            params = {**stated(), "number": number}
            await pipe.say({"jsonrpc": "2.0", "method": "agent/heartbeat", "params": params})
        assert (await pipe.answer("tools/list", stated()))["result"]
        assert [json.loads(one.partition(" ")[2])["number"] for one in pipe.words.seen] == [0, 1, 2]


async def test_who_listens_and_leaves_is_not_told_any_more() -> None:
    params = {**stated(), "notifications": {"agentsListChanged": True}}
    async with rig(max_sessions=1) as there, modern_client(there.mcp) as here:
        async with here.stream(here.request("subscriptions/listen", params)) as events:
            await events.next()
            full = await here.post(here.request("tools/list", stated()))
            assert full.status_code == 503
        await there.saw("left")
        assert not there.server.sessions
        assert (await here.ask("tools/list", stated()))["result"]


async def test_messages_come_only_where_the_request_asks_for_them() -> None:
    async with line() as here:
        here.version = VERSION
        assert (await here.answer("tools/call", modern_tool("tell", words="x", level="error")))["result"]
        params = modern_tool("tell", words="x", level="error")
        params["_meta"][wire.META_LOG_LEVEL] = "warning"
        await here.ask("tools/call", params)
        assert (await here.next())["method"] == "notifications/message"
        assert (await here.next())["result"]


async def test_on_a_pipe_every_request_says_what_it_is() -> None:
    async def asked(here: Line, method: str, params: Any) -> int:
        return int((await here.answer(method, params))["error"]["code"])

    async with line() as here:
        here.version = VERSION
        assert await asked(here, "tools/list", stated(version="2027-01-01")) == wire.UNSUPPORTED_VERSION
        assert await asked(here, "tools/list", stated(version=7)) == jsonrpc.INVALID_PARAMS
        assert await asked(here, "tools/list", {"_meta": {wire.META_VERSION: VERSION}}) == jsonrpc.INVALID_PARAMS
        assert await asked(here, "no/such", stated()) == jsonrpc.METHOD_NOT_FOUND
        await here.ask("tools/call", modern_tool("wait"), id=5)
        await here.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        assert (await here.next())["error"]["code"] == jsonrpc.REQUEST_CANCELLED
        await here.initialize(versions.V2025_11_25)  # who finds that it would rather shake hands may
        assert (await here.answer("ping"))["result"] == {}


async def test_a_call_that_is_under_way_when_the_gateway_stops_is_answered() -> None:
    async with rig() as there, modern_client(there.mcp) as here:
        silent = asyncio.create_task(here.post(here.request("tools/call", modern_tool("wait"), id="s")))
        async with here.stream(here.request("tools/call", modern_tool("wait", 1), id="w")) as events:
            await events.next()
            await there.saw("waits s", "waits w")
            there.server.quiet()
            assert (await events.next())["error"]["message"] == "the gateway is stopping"
            assert (await silent).json()["error"]["message"] == "the gateway is stopping"
