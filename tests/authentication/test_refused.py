"""Without a token that holds nobody gets in, by any door; the refusal is in each protocol's own words."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from adapters import agent_communication, agent_connect, agent_protocol
from gateway.contract import Adapter
from gateway.transport.websocket.client import UpgradeRefused, connect
from tests.authentication.rig import ANA, AUTHENTICATION, Doors, bearer, house, token, wrong_tokens
from tests.support.aio import run
from tests.support.scripted import engine

SOME = "00000000-0000-4000-8000-000000000000"
RUN = {"agent_id": "echo", "input": {"message": "hi"}}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
WHO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": WHO}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "agents/list", "params": {"_meta": MODERN}}
PLAIN = {"jsonrpc": "2.0", "id": 1, "method": "agents/list", "params": {}}
NEWER = {"mcp-protocol-version": "2026-07-28", "mcp-method": "agents/list"}
EITHER = {"accept": "application/json, text/event-stream"}

CONNECT: list[tuple[str, str, Any]] = [
    ("POST", "/agents/search", {}),
    ("GET", f"/agents/{SOME}", None),
    ("GET", f"/agents/{SOME}/descriptor", None),
    ("GET", f"/agents/{SOME}/errors", None),
    ("POST", f"/agents/{SOME}/instances", {}),
    ("DELETE", f"/agents/{SOME}/instances/{SOME}", None),
    ("POST", "/threads", {}),
    ("POST", "/threads/search", {}),
    ("GET", f"/threads/{SOME}", None),
    ("PATCH", f"/threads/{SOME}", {}),
    ("DELETE", f"/threads/{SOME}", None),
    ("POST", f"/threads/{SOME}/copy", None),
    ("GET", f"/threads/{SOME}/history", None),
    ("GET", f"/threads/{SOME}/runs", None),
    ("POST", f"/threads/{SOME}/runs", RUN),
    ("POST", "/runs/search", {}),
    *((("POST", f"/runs{way}", RUN)) for way in ("", "/wait", "/stream")),
    *((("GET", f"/runs/{SOME}{way}", None)) for way in ("", "/wait", "/stream")),
    ("POST", f"/runs/{SOME}", {"ok": True}),
    ("POST", f"/runs/{SOME}/cancel", None),
    ("DELETE", f"/runs/{SOME}", None),
]
PROTOCOL: list[tuple[str, str, Any]] = [
    ("GET", "/tasks", None),
    ("POST", "/tasks", {"input": "hi"}),
    ("GET", f"/tasks/{SOME}", None),
    ("GET", f"/tasks/{SOME}/steps", None),
    ("POST", f"/tasks/{SOME}/steps", {}),
    ("GET", f"/tasks/{SOME}/steps/{SOME}", None),
    ("GET", f"/tasks/{SOME}/artifacts", None),
    ("POST", f"/tasks/{SOME}/artifacts", None),
    ("GET", f"/tasks/{SOME}/artifacts/{SOME}", None),
]
COMMUNICATION: list[tuple[str, str, Any, dict[str, str]]] = [
    ("POST", "/mcp", HELLO, EITHER),
    ("POST", "/mcp/echo", HELLO, EITHER),
    ("POST", "/mcp", LIST, {**EITHER, **NEWER}),
    ("POST", "/mcp", PLAIN, {}),
    ("GET", "/mcp", None, {"accept": "text/event-stream", "mcp-session-id": SOME}),
    ("DELETE", "/mcp", None, {"mcp-session-id": SOME}),
    ("GET", "/sse", None, {"accept": "text/event-stream"}),
    ("POST", f"/messages?session_id={SOME}", PING, {}),
]


async def refused(there: Doors, method: str, path: str, shown: str | None, **options: Any) -> Any:
    """What a request is told that nobody is let in with."""
    found = await there.call(method, path, shown, **options)
    assert found.status_code == 401, (method, path, found.status_code, found.text)
    missing = shown is None
    wanted = 'Bearer realm="interlingua"' if missing else 'Bearer error="invalid_token"'
    assert found.headers["www-authenticate"] == wanted
    assert found.headers["content-type"].startswith("application/json")
    return found.json()


def told(shown: str | None) -> str:
    return "a token is missing: send Authorization: Bearer" if shown is None else "the token is not valid"


async def test_without_a_token_that_holds_no_operation_of_any_protocol_is_served() -> None:
    async with house() as there:
        for shown in (None, "stolen-token"):
            for method, path, body in CONNECT:
                said = await refused(there, method, f"/agent-connect{path}", shown, json=body)
                assert said == told(shown), "an ErrorResponse is a text"
            for method, path, body in PROTOCOL:
                for prefix in ("/ap/v1/agent", "/agent", "/echo/ap/v1/agent", "/nobody/ap/v1/agent"):
                    said = await refused(there, method, f"/agent-protocol{prefix}{path}", shown, json=body)
                    assert said == {"message": told(shown)}
            for method, path, body, headers in COMMUNICATION:
                options = {"headers": headers} if body is None else {"headers": headers, "json": body}
                said = await refused(there, method, f"/agent-communication{path}", shown, **options)
                assert (said["id"], said["error"]["message"]) == (None, told(shown))


@pytest.mark.parametrize("what", wrong_tokens())
def test_a_token_that_does_not_hold_is_refused_by_every_door_and_never_logged(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    shown = wrong_tokens()[what]

    async def main() -> None:
        with caplog.at_level(logging.DEBUG):
            async with house() as there:
                for headers in ({}, {"x-api-key": shown}):
                    by = None if headers else shown
                    for path, body in (("/agent-connect/runs/wait", RUN), ("/agent-protocol/echo/agent/tasks", {})):
                        found = await there.call("POST", path, by, json=body, headers=headers)
                        assert found.status_code == 401 and shown not in found.text
                found = await there.call("POST", "/agent-communication/mcp", shown, json=HELLO, headers=EITHER)
                assert found.status_code == 401 and shown not in found.text
                with pytest.raises(UpgradeRefused) as caught:
                    await connect(f"{there.url}/agent-communication/ws".replace("http", "ws"), headers=bearer(shown))
                assert caught.value.status == 401

    run(main())
    ours = [each.getMessage() for each in caplog.records if each.name.startswith(("gateway", "adapters", "uvicorn"))]
    assert any("the token is not valid" in line for line in ours) and shown not in str(ours)


@pytest.mark.parametrize(
    ("adapter", "path"),
    [
        (agent_connect.ADAPTER, "/agents/search"),
        (agent_protocol.ADAPTER, "/agent/tasks"),
        (agent_communication.ADAPTER, "/mcp"),
    ],
)
async def test_a_door_that_asks_serves_nobody_where_nothing_finds_out_who_it_is(adapter: Adapter, path: str) -> None:
    async with engine() as running:
        assert adapter.serve is not None
        served = adapter.serve(adapter.serve_options.model_validate({"authentication": AUTHENTICATION}), running)
        transport = httpx2.ASGITransport(Starlette(routes=list(served.routes())))
        async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
            headers = {**bearer(ANA), **EITHER}
            assert (await client.post(path, json={}, headers=headers)).status_code == 500


@pytest.mark.parametrize("asked", [True, False])
async def test_the_scheme_of_authentication_is_told_to_anybody(asked: bool) -> None:
    async with house(AUTHENTICATION if asked else None) as there:
        told = await there.said("GET", "/agent-connect/authentication", None)
        bearer_, key = {"type": "http", "scheme": "bearer"}, {"type": "apiKey", "in": "header", "name": "x-api-key"}
        assert told == ([bearer_, key] if asked else [])
        assert (await there.call("GET", "/agent-connect/authentication", "stolen-token")).status_code == 200


async def test_a_token_is_shown_by_either_header_and_the_scheme_is_in_any_case() -> None:
    async with house() as there:
        shown = token()
        for headers in (
            {"authorization": f"Bearer {shown}"},
            {"authorization": f"bearer  {shown}"},
            {"x-api-key": shown},
            {"Authorization": f"Bearer {ANA}", "x-api-key": "stolen-token"},
        ):
            for path in ("/agent-connect/agents/search", "/agent-protocol/echo/ap/v1/agent/tasks"):
                assert (await there.call("POST", path, None, headers=headers, json={})).status_code == 200
        for headers in ({"authorization": f"Basic {shown}"}, {"authorization": shown}, {"x-api-key": ""}):
            found = await there.call("POST", "/agent-connect/agents/search", None, headers=headers, json={})
            assert found.status_code == 401
        twice = [("authorization", f"Bearer {ANA}"), ("authorization", f"Bearer {shown}")]
        found = await there.http.post(f"{there.url}/agent-connect/agents/search", headers=twice, json={})
        assert found.status_code == 401


async def test_where_nobody_is_asked_everything_is_as_before() -> None:
    async with house(None) as there:
        body = {**RUN, "input": {"message": "for anybody"}}
        said = await there.said("POST", "/agent-connect/runs/wait", None, json=body)
        assert said["output"]["values"] == {"message": "for anybody "}
        found = await there.engine.runs.get(said["run"]["run_id"])
        assert (found.request.principal, found.request.tools) == (None, None)
        task = await there.said("POST", "/agent-protocol/echo/ap/v1/agent/tasks", None, json={"input": "x"})
        thread = await there.engine.threads.get(task["task_id"])
        assert "owner" not in thread.attributes
        await there.said("GET", f"/agent-protocol/echo/ap/v1/agent/tasks/{task['task_id']}", "stolen-token")
        client = await there.mcp(None)
        client.shown = "stolen-token"
        listed = await client.ask("agents/list")
        assert [each["name"] for each in listed["agents"]] == ["echo", "asker", "held", "maker"]
