"""What a server can be called by, and who calls: further names of versions, a root of its own, tokens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.mcp import versions, wire
from gateway.mcp.server.http.session import StreamableSession
from gateway.mcp.server.hub import Hub
from gateway.wire import jsonrpc
from tests.mcp.server.rig import (
    SESSION,
    Client,
    Words,
    client,
    initialize,
    modern_client,
    modern_tool,
    rig,
    stated,
    tool,
)
from tests.mcp.server.test_events import link

DIALECTS = {"ACP-0.0": versions.V2024_11_05, "ACP-0.1": versions.V2025_11_25}


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposed", "answered", "revision"),
    [
        ("ACP-0.1", "ACP-0.1", versions.V2025_11_25),
        ("ACP-0.0", "ACP-0.0", versions.V2024_11_05),
        ("ACP-9.9", "ACP-0.1", versions.V2025_11_25),
        ("ACP-", "ACP-0.1", versions.V2025_11_25),
        ("ACP", versions.V2025_11_25, versions.V2025_11_25),
        ("1999-01-01", versions.V2025_11_25, versions.V2025_11_25),
        (versions.V2025_06_18, versions.V2025_06_18, versions.V2025_06_18),
        (None, versions.V2025_11_25, versions.V2025_11_25),
    ],
)
async def test_a_client_may_propose_a_dialect_by_its_name(proposed: Any, answered: str, revision: str) -> None:
    async with rig(dialects=DIALECTS) as there, client(there.mcp) as other:
        answer = await other.http.post(
            there.mcp, json=initialize(proposed), headers={"Accept": "application/json, text/event-stream"}
        )
        assert answer.json()["result"]["protocolVersion"] == answered
        here = Client(other.http, there.mcp, revision, answer.headers[SESSION])
        name = None if answered == revision else answered
        for said in (answered, revision, None):  # its own name, the revision's, and none at all
            called = await here.post(here.request("tools/call", tool("say")), MCP_Protocol_Version=said)
            assert called.status_code == 200
            assert there.words.calls[-1].client.dialect == name
            assert there.words.calls[-1].client.version == revision


async def test_a_name_that_there_is_not_is_refused_as_a_header_and_dialects_are_listed() -> None:
    async with rig(dialects=DIALECTS) as there, client(there.mcp) as here, modern_client(there.mcp) as modern:
        for said in ("ACP-9.9", "ACP-", "1999-01-01"):
            refused = await here.post(here.request("ping"), MCP_Protocol_Version=said)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, wire.UNSUPPORTED_VERSION)
            assert refused.json()["error"]["data"]["supported"] == [*versions.ALL, *DIALECTS]
        found = await modern.ask("server/discover", stated())
        assert found["result"]["supportedVersions"] == [*versions.ALL, *DIALECTS]
        named = await modern.post(modern.request("tools/list", stated(version="ACP-0.1")))
        assert named.json()["error"]["code"] == wire.HEADER_MISMATCH
    async with rig() as there, client(there.mcp) as here:
        refused = await here.post(here.request("ping"), MCP_Protocol_Version="ACP-0.1")
        assert refused.status_code == 400


def test_a_dialect_stands_for_a_revision_that_shakes_hands() -> None:
    with pytest.raises(ValueError, match="2026-07-28"):
        Hub(Words(), dialects={"ACP-0.2": versions.V2026_07_28})


# --- paths ------------------------------------------------------------------------------------------------------------


async def test_the_endpoint_can_be_the_mount_point_itself() -> None:
    async with rig() as there:
        socket = there.root.replace("http:", "ws:") + "/ws"
        async with client(there.root) as here, client(there.root + "/say") as bound, modern_client(there.root) as new:
            assert [session.agent for session in there.server.sessions] == [None, "say"]
            assert (await here.post(bound.request("ping"), Mcp_Session_Id=bound.session)).status_code == 404
            async with here.listen():
                session = next(iter(there.server.sessions))
                assert session.can_ask
            assert (await new.ask("tools/list", stated()))["result"]["tools"]
            nobody = await here.http.post(there.root + "/ghost", json=initialize(), headers=here.headers())
            assert nobody.status_code in (400, 404)
            for path in ("/ws", "/ws/say"):
                for method in ("GET", "POST"):
                    answer = await here.http.request(method, there.root + path)
                    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
            assert (await here.http.get(there.root + "/say/more")).status_code == 404
        for url, agent in ((socket, None), (f"{socket}/say", "say")):
            async with connect(url) as line:
                await line.send(json.dumps(initialize()))
                await line.recv()
                assert list(there.server.sessions)[-1].agent == agent
        paths = [route.path for route in there.server.at("/x")]  # type: ignore[attr-defined]
        assert set(paths) == {"/x", "/x/{agent}", "/x/ws", "/x/ws/{agent}"}
        with pytest.raises(InvalidStatus):
            await connect(there.root.replace("http:", "ws:") + "/say")


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_call_has_the_token_of_its_own_request() -> None:
    async with rig() as there, client(there.mcp) as here, modern_client(there.mcp) as modern:
        (session,) = there.server.sessions
        assert session.bearer is None
        for token in ("one", "two"):
            await here.post(here.request("tools/call", tool("say")), Authorization=f"Bearer {token}")
            await modern.post(modern.request("tools/call", modern_tool("say")), Authorization=f"Bearer {token}")
        await here.post(here.request("tools/call", tool("say")))
        assert [call.bearer for call in there.words.calls] == ["one", "one", "two", "two", None]
        assert isinstance(session, StreamableSession)
        session.bearer = "its own"
        session.take([jsonrpc.Request(9, "tools/list")])
        session.bearer = "of the next"
        await asyncio.wait(session.tasks)
        assert there.words.calls[-1].bearer == "its own"
        told = {"jsonrpc": "2.0", "method": "agent/heartbeat", "params": stated()}
        await here.post(told, Authorization="Bearer three")
        assert there.words.told[-1] is session and session.bearer == "three"
        await modern.post(told, Authorization="Bearer four")
        assert there.words.told[-1].bearer == "four"
        assert not there.words.told[-1].alive


async def test_a_connection_has_the_token_that_it_was_opened_with() -> None:
    token = {"Authorization": "Bearer abc"}

    async with rig() as there:
        call: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": tool("say")}
        async with connect(there.url.replace("http:", "ws:") + "/ws", additional_headers=token) as socket:
            for message in (initialize(), call, {**call, "params": modern_tool("say")}):
                await socket.send(json.dumps(message))
                await socket.recv()
        async with link(there, **token) as here:
            for message in (initialize(versions.V2024_11_05), call):
                await here.post(message, Authorization="Bearer another")
                await here.next()
        assert [one.bearer for one in there.words.calls] == ["abc"] * 3
