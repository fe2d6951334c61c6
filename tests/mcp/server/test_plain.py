"""Plain JSON-RPC over HTTP: a POST without MCP's handshake and headers, as curl or an HTTP library sends it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from gateway.mcp import versions, wire
from gateway.wire import jsonrpc
from tests.mcp.server.rig import Events, rig, tool

Headers = dict[str, str]
MESSAGE = {"jsonrpc": "2.0", "id": "a"}


def asked(method: str, params: Any = None) -> dict[str, Any]:
    return {**MESSAGE, "method": method, **({} if params is None else {"params": params})}


async def posted(url: str, message: Any, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
        return await client.post(
            url, json=message, headers={name.replace("_", "-"): at for name, at in headers.items()}
        )


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/*"])
async def test_a_request_without_a_handshake_is_answered_by_a_json_body(accept: str) -> None:
    async with rig() as there:
        for url in (there.mcp, there.root, f"{there.root}/say"):
            answer = await posted(url, asked("tools/call", tool("say", words="hi")), accept=accept)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert answer.json() == {**MESSAGE, "result": {"content": [{"type": "text", "text": "hi"}]}}
            assert wire.SESSION_HEADER not in answer.headers
        listed = (await posted(there.mcp, asked("agents/list"))).json()["result"]
        assert listed.keys() == {"agents"}
        assert (await posted(there.mcp, asked("ping"))).json() == {**MESSAGE, "result": {}}
        assert not there.server.sessions and there.words.seen == []


async def test_what_is_said_on_the_way_is_left_out_unless_the_client_takes_a_stream() -> None:
    async with rig(keep_alive=0.01) as there, httpx2.AsyncClient(timeout=30, trust_env=False) as client:
        flood = asked("tools/call", tool("flood", 1, count=300, size=10_000))
        answer = await client.post(there.mcp, json=flood)
        assert answer.json()["result"]["content"][0]["text"] == "flooded"
        accept = {"accept": "application/json, text/event-stream"}
        message = asked("tools/call", tool("say", 7, words="a b"))
        async with client.stream("POST", there.mcp, json=message, headers=accept) as response:
            said = await Events(response).rest()
        assert [one["params"]["progress"] for one in said[:2]] == [1, 2]
        assert said[2]["result"]["content"][0]["text"] == "a b"


async def test_an_answer_that_takes_longer_than_a_stream_may_be_silent_is_waited_for() -> None:
    async with rig(keep_alive=0.01) as there:
        answer = asyncio.create_task(posted(there.mcp, asked("tools/call", tool("wait"))))
        await there.saw("waits a")
        there.words.go.set()
        assert (await answer).json()["result"]["content"][0]["text"] == "waited"
        there.words.go.clear()
        silent = asyncio.create_task(posted(there.mcp, {**asked("tools/call", tool("wait")), "id": "b"}))
        await there.saw("waits b")
        silent.cancel()
        await there.saw("cancelled b")


async def test_notifications_without_a_handshake_reach_the_service() -> None:
    async with rig() as there:
        for method in ("agent/heartbeat", "notifications/cancelled", "notifications/initialized"):
            answer = await posted(there.mcp, {"jsonrpc": "2.0", "method": method, "params": {"n": 1}})
            assert (answer.status_code, answer.content) == (202, b"")
        assert there.words.seen == ['agent/heartbeat {"n":1}']
        assert there.words.told[0].client.version == versions.V2026_07_28 and not there.words.told[0].alive


REVISION = {"params": {"_meta": {wire.META_VERSION: versions.V2026_07_28, wire.META_CAPABILITIES: {}}}}
REFUSED: dict[str, tuple[Any, Headers, int, int]] = {
    "a session that there is not": (asked("ping"), {"mcp_session_id": "x"}, 404, jsonrpc.INVALID_REQUEST),
    "a revision without its session": (asked("ping"), {"mcp_protocol_version": "2025-11-25"}, 400, -32600),
    "a revision that only the message names": (asked("tools/list") | REVISION, {}, 400, wire.HEADER_MISMATCH),
    "an unknown method": (asked("no/such"), {}, 404, jsonrpc.METHOD_NOT_FOUND),
    "listening": (asked("subscriptions/listen", {"notifications": {}}), {}, 404, jsonrpc.METHOD_NOT_FOUND),
    "a level for a session": (asked("logging/setLevel", {"level": "debug"}), {}, 404, jsonrpc.METHOD_NOT_FOUND),
    "params that are none": (asked("tools/list", [1]), {}, 400, jsonrpc.INVALID_PARAMS),
    "several at once": ([asked("ping")], {}, 400, jsonrpc.INVALID_REQUEST),
    "an answer": ({**MESSAGE, "result": {}}, {}, 400, jsonrpc.INVALID_REQUEST),
    "a null id": ({**asked("ping"), "id": None}, {}, 400, jsonrpc.INVALID_REQUEST),
    "no message": ({}, {}, 400, jsonrpc.INVALID_REQUEST),
    "a form": (asked("ping"), {"content_type": "application/x-www-form-urlencoded"}, 415, jsonrpc.INVALID_REQUEST),
    "a client that takes no JSON": (asked("ping"), {"accept": "text/event-stream"}, 406, jsonrpc.INVALID_REQUEST),
    "a handshake that takes no stream": (asked("initialize", {}), {"accept": "application/json"}, 406, -32600),
    "another site's page": (asked("ping"), {"origin": "https://evil.example"}, 403, jsonrpc.INVALID_REQUEST),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_no_single_request_can_be_is_refused(what: str) -> None:
    message, headers, status, code = REFUSED[what]

    async with rig() as there:
        answer = await posted(there.mcp, message, **headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        assert answer.headers["content-type"] == "application/json"
