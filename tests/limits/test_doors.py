"""Too much, at every door: refused in its protocol's words with the time to wait, and served after that."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import httpx2
import pytest

from gateway import tracing
from gateway.transport.websocket.client import UpgradeRefused, connect
from tests.authentication.rig import bearer
from tests.limits.rig import ANA, BOB, Limited, gateway
from tests.support.scripted import until

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}},
}
STREAM = {"accept": "text/event-stream"}
EITHER = {"accept": "application/json, text/event-stream"}
EDITOR = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
DOORS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "agent_client": ("POST", "/agent-client", {"json": EDITOR}),
    "agent_communication": ("POST", "/agent-communication/mcp", {"json": HELLO, "headers": EITHER}),
    "agent_connect": ("POST", "/agent-connect/agents/search", {"json": {}}),
    "agent_context": ("POST", "/agent-context", {"json": HELLO, "headers": EITHER}),
    "agent_protocol": ("GET", "/agent-protocol/echo/ap/v1/agent/tasks", {}),
    "example": ("GET", "/example/agents", {}),
}
"""A request of each that is served."""
SOCKETS = {
    "agent_client": "/agent-client",
    "agent_communication": "/agent-communication/ws",
    "agent_context": "/agent-context/ws",
}


def routes(limits: str = "", *, door: str = "", own: str = "", all_doors: Sequence[str] = tuple(DOORS)) -> str:
    """A routes.yaml whose doors all know Ana, who may have limits of her `own`, and Bob."""
    lines = [f"limits: {{{limits}}}", "store: {url: 'sqlite://'}", "inbound:"]
    for name in all_doors:
        people = f"clients: [{{name: ana, token: {ANA}, limits: {{{own}}}}}, {{name: bob, token: {BOB}}}]"
        asked = f"access: {{{people}}}" if name == "agent_context" else f"authentication: {{{people}}}"
        lines.append(f"  {name}: {{limits: {{{door}}}, {asked}}}")
    return "\n".join([*lines, "routes: []"])


def said(door: str, found: httpx2.Response) -> str:
    """The message, where the door's protocol has it."""
    body = found.json()
    if door == "agent_connect":
        return str(body)
    if door == "agent_protocol":
        return str(body["message"])
    if door in ("agent_communication", "agent_context"):
        return str(body["error"]["message"])
    return str(body["error"])


async def too_much(there: Limited, door: str, status: int) -> None:
    """A request is refused, and served once the time has passed that it is told."""
    method, path, options = DOORS[door]
    found = await there.call(method, path, ANA, **options)
    assert found.status_code == status, (door, found.status_code, found.text)
    assert said(door, found).startswith("too many requests")
    there.clock.now += int(found.headers["retry-after"])
    again = await there.call(method, path, ANA, **options)
    assert again.status_code == 200, (door, again.text)


async def test_a_client_with_too_many_requests_is_refused_at_every_door_and_others_are_not() -> None:
    async with gateway(routes(own="requests: 1")) as there:
        for door, (method, path, options) in DOORS.items():
            there.clock.now += 1
            assert (await there.call(method, path, **options)).status_code == 200
            await too_much(there, door, 429)
            assert (await there.call(method, path, BOB, **options)).status_code == 200
            assert tracing.metrics.limited.value(door, "client_requests") == 1


async def test_who_shows_no_token_that_holds_is_told_so_however_often_and_counts_for_no_client() -> None:
    async with gateway(routes("client: {requests: 1}")) as there:
        for door, (method, path, options) in DOORS.items():
            for shown in (None, "nobodys", None, "nobodys"):
                found = await there.call(method, path, shown, **options)
                later = door == "agent_context" or (door == "agent_client" and shown is None)
                assert found.status_code == (200 if later else 401), (door, found.text)


async def test_a_door_with_too_many_requests_is_unavailable_to_everybody() -> None:
    async with gateway(routes(door="requests: 0.5")) as there:
        for door, (method, path, options) in DOORS.items():
            served = await there.call(method, path, BOB, **options)
            assert served.status_code == 200, (door, served.text)
            await too_much(there, door, 503)
            assert tracing.metrics.limited.value(door, "door_requests") == 1
        page = (await there.call("GET", "/metrics")).text
        assert 'interlingua_limited_total{door="example",limit="door_requests"} 1' in page


async def test_a_websocket_is_refused_before_its_upgrade_and_requests_on_one_are_answered_with_an_error() -> None:
    async with gateway(routes(own="requests: 3")) as there:
        url = there.url.replace("http", "ws")
        headers = {"authorization": f"Bearer {ANA}"}
        for door, path in SOCKETS.items():
            there.clock.now += 10
            hello = EDITOR if door == "agent_client" else HELLO
            async with aclosing(await connect(f"{url}{path}", headers=headers)) as pipe:
                for id in (1, 2, 3):
                    await pipe.send([json.dumps({**hello, "id": id}).encode()])
                answers: dict[int, Any] = {}
                while len(answers) < 3:
                    for message in await pipe.receive():
                        assert isinstance(message, bytes)
                        answer = json.loads(message)
                        answers[answer["id"]] = answer
                assert "result" in answers[1] and "result" in answers[2]
                refused = answers[3]["error"]
                assert refused["code"] == -32029 and refused["message"].startswith("too many requests")
                assert refused["data"]["code"] == "limited" and refused["data"]["retryable"] is True
                assert 0.33 < refused["data"]["retryAfter"] < 0.34
                with pytest.raises(UpgradeRefused) as other:
                    await connect(f"{url}{path}", headers=headers)
                assert other.value.status == 429 and dict(other.value.headers)["retry-after"] == "1"
                there.clock.now += refused["data"]["retryAfter"]
                await pipe.send([json.dumps({**hello, "id": 4}).encode()])
                assert b'"result"' in (await pipe.receive())[0]


async def test_runs_beyond_a_limit_are_refused_at_every_door_and_one_that_ends_makes_room() -> None:
    async with gateway(routes(own="runs: 1"), runs=2) as there:
        first = await there.held()
        assert first.status_code == 200
        for token, status, limit in ((ANA, 429, "client_runs"), (BOB, 503, "route_runs")):
            if token == BOB:
                assert (await there.held(BOB)).status_code == 200
            for answer in (
                await there.held(token),
                await there.call("POST", "/example/held", token, json={"input": {"message": "x"}}),
            ):
                assert (answer.status_code, answer.headers["retry-after"]) == (status, "1"), answer.text
            assert tracing.metrics.limited.value("agent_connect", limit) == 1
        cancelled = await there.call("POST", f"/agent-connect/runs/{first.json()['run_id']}/cancel")
        assert cancelled.status_code in (200, 204)
        await until(lambda: there.going_on == 1)
        assert (await there.held()).status_code == 200


async def test_a_run_that_never_came_to_be_takes_no_room() -> None:
    async with gateway(routes(own="runs: 1")) as there:
        for _ in range(3):
            wrong = await there.held(input={"message": 5})
            assert wrong.status_code == 422, wrong.text
        assert (await there.held()).status_code == 200


async def test_runs_that_wait_on_a_thread_are_as_many_as_may_be() -> None:
    async with gateway(routes("queue: 2")) as there:
        thread = (await there.call("POST", "/agent-connect/threads", json={})).json()["thread_id"]
        body = {"agent_id": "held", "input": {"message": "x"}, "multitask_strategy": "enqueue"}
        path = f"/agent-connect/threads/{thread}/runs"
        for status in (200, 200, 429):
            found = await there.call("POST", path, json=body)
            assert found.status_code == status, found.text
        assert found.headers["retry-after"] == "1" and "the thread has as many runs" in found.json()
        there.gate.set()
        await until(lambda: not there.going_on)
        assert (await there.call("POST", path, json=body)).status_code == 200


async def test_streams_and_websockets_are_connections_until_they_have_ended() -> None:
    async with gateway(routes(own="connections: 2")) as there:
        await there.held()
        body = {"agent_id": "held", "input": {"message": "x"}}
        socket = await connect(
            f"{there.url.replace('http', 'ws')}/agent-client", headers={"authorization": f"Bearer {ANA}"}
        )
        stream = asyncio.create_task(there.call("POST", "/agent-connect/runs/wait", json=body))
        await until(lambda: there.going_on == 2)
        for door, (method, path, options) in DOORS.items():
            refused = await there.call(method, path, **options)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1"), (door, refused.text)
            assert "as many connections as you may" in refused.text
            assert (await there.call(method, path, BOB, **options)).status_code == 200
            assert tracing.metrics.limited.value(door, "client_connections") == 1
        there.gate.set()
        assert (await stream).status_code == 200
        assert (await there.held()).status_code == 200
        await socket.aclose()
        both = await asyncio.gather(there.held(), there.held())
        assert [each.status_code for each in both] == [200, 200]


IN_HTTP = {
    "agent_client": "acp-connection-id",
    "agent_communication": "mcp-session-id",
    "agent_context": "mcp-session-id",
}
"""Doors with sessions over HTTP that last without a connection, and the header that names one."""


async def test_a_client_has_no_more_sessions_than_it_may_and_the_one_that_is_idle_makes_room() -> None:
    async with gateway(routes(own="sessions: 2")) as there:
        for door, header in IN_HTTP.items():
            _, path, options = DOORS[door]

            async def opened(token: str = ANA, path: str = path, options: Any = options) -> httpx2.Response:
                return await there.call("POST", path, token, **options)

            async def lives(session: str, path: str = path, header: str = header) -> bool:
                found = await there.call("DELETE", path, headers={header: session})
                return found.status_code != 404

            first, second, third = [(await opened()).headers[header] for _ in range(3)]
            assert not await lives(first) and await lives(second), door

            busy = [third, (await opened()).headers[header]]
            streams = [
                there.http.stream("GET", f"{there.url}{path}", headers={**bearer(ANA), **STREAM, header: session})
                for session in busy
            ]
            async with contextlib.AsyncExitStack() as stack:
                for stream in streams:
                    assert (await stack.enter_async_context(stream)).status_code == 200, door
                refused = await opened()
                assert (refused.status_code, refused.headers["retry-after"]) == (429, "1"), (door, refused.text)
                assert "as many sessions as you may" in said(door, refused)
                assert (await opened(BOB)).status_code == 200
                assert tracing.metrics.limited.value(door, "client_sessions") == 1
