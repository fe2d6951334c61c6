"""A token that expires ends what its client was let in for; what runs goes on, and a newer token finds it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.core.errors import AgentGone
from gateway.core.types import RunQuery, RunStatus
from gateway.transport.websocket.client import connect
from tests.authentication.rig import Doors, Mcp, bearer, house, token
from tests.support.aio import Clock, run
from tests.support.aio import later as ahead
from tests.support.scripted import until

HOLDS = 120
"""Seconds. Less than a session may be idle, or a run may take."""
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
CONNECT = "/agent-connect"


def timed(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it on a loop whose time can be put forward."""
    run(main(), timeout=HOLDS + 60, loop_factory=Clock)


@contextlib.asynccontextmanager
async def expired(there: Doors) -> AsyncIterator[None]:
    """In the block every token that held at first has expired, and who waits for that knows."""
    with there.later(HOLDS + 1):
        await ahead(HOLDS + 1)
        yield


async def held(there: Doors) -> str:
    """The id of the run that `held` works on, once it does."""
    works = RunQuery(statuses=(RunStatus.RUNNING,))
    async with asyncio.timeout(30):
        while not (found := await there.engine.runs.list(works)):  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.001)
    return found[0].id


async def goes_on(there: Doors, run_id: str) -> None:
    """The run does, to its end."""
    assert (await there.engine.runs.get(run_id)).status is RunStatus.RUNNING
    there.gate.set()
    ended = await there.engine.runs.wait(run_id, 30)
    assert ended is not None and ended.status is RunStatus.SUCCESS


def test_a_stream_says_so_and_ends_and_a_newer_token_follows_the_run_to_its_end() -> None:
    async def main() -> None:
        async with house() as there:
            body = {"agent_id": "held", "input": {"message": "x"}}
            url = f"{there.url}{CONNECT}/runs/stream"
            async with there.http.stream("POST", url, headers=bearer(token(seconds=HOLDS)), json=body) as found:
                lines = found.aiter_lines()
                async for line in lines:
                    if "before" in line:
                        break
                run_id = await held(there)
                async with expired(there):
                    rest = [line async for line in lines]
                    assert [line for line in rest if "the token has expired" in line and '"errcode":401' in line]
                    newer = token(seconds=3 * HOLDS)
                    wait = asyncio.create_task(there.said("GET", f"{CONNECT}/runs/{run_id}/wait", newer))
                    await goes_on(there, run_id)
                    assert (await wait)["output"]["values"] == {"message": "before after"}

    timed(main)


@pytest.mark.parametrize("way", ["runs/wait", "threads"])
def test_whoever_waits_is_told_401_and_the_run_is_not_cancelled(way: str) -> None:
    async def main() -> None:
        async with house() as there:
            body = {"agent_id": "held", "input": {"message": "x"}, "on_disconnect": "cancel"}
            path = f"{CONNECT}/runs/wait"
            if way == "threads":
                made = await there.said(
                    "POST", "/agent-protocol/held/ap/v1/agent/tasks", token(seconds=HOLDS), json={"input": "x"}
                )
                path, body = f"/agent-protocol/held/ap/v1/agent/tasks/{made['task_id']}/steps", {}
            wait = asyncio.create_task(there.call("POST", path, token(seconds=HOLDS), json=body))
            run_id = await held(there)
            async with expired(there):
                found = await wait
                assert (found.status_code, found.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
                assert "the token has expired" in found.text
                await goes_on(there, run_id)

    timed(main)


def test_a_session_over_http_ends_and_so_do_its_streams_and_calls() -> None:
    async def main() -> None:
        async with house() as there:
            client = await there.mcp(token(seconds=HOLDS))
            call = asyncio.create_task(client.post("agents/run", name="held", input={"message": "x"}))
            headers = {**bearer(token(seconds=HOLDS)), **client.headers, "accept": "text/event-stream"}
            async with there.http.stream("GET", f"{there.url}{client.path}", headers=headers) as news:
                run_id = await held(there)
                async with expired(there):
                    assert "the token has expired" in (await call).text
                    assert [line async for line in news.aiter_lines() if line.startswith("data: {")] == []
                    client.shown = token(seconds=3 * HOLDS)
                    assert (await client.post("ping")).status_code == 404, "it is another session from now on"
                    await goes_on(there, run_id)

    timed(main)


def test_of_a_session_that_is_refused_nothing_is_left_that_its_token_could_end() -> None:
    async def main() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
        async with house(max_sessions=1) as there:
            client = await there.mcp(token(seconds=3 * HOLDS))
            call = asyncio.create_task(client.post("agents/run", name="held", input={"message": "x"}))
            await held(there)
            assert (await Mcp(there, "/mcp", token(seconds=HOLDS)).greet()).status_code == 503
            async with expired(there):
                there.gate.set()
                assert "before after" in (await call).text
        assert failures == []

    timed(main)


def test_a_newer_token_of_the_same_client_keeps_the_session() -> None:
    async def main() -> None:
        async with house() as there:
            client = await there.mcp(token(seconds=HOLDS))
            call = asyncio.create_task(client.post("agents/run", name="held", input={"message": "x"}))
            await held(there)
            client.shown = token(seconds=3 * HOLDS)
            assert await client.ask("ping") == {}
            client.shown = token("somebody", seconds=3 * HOLDS)
            assert (await client.post("ping")).status_code == 404
            client.shown = token(seconds=3 * HOLDS, groups=["more"])
            assert (await client.post("ping")).status_code == 404, "who may do more is somebody else"
            client.shown = token(seconds=3 * HOLDS)
            async with expired(there):
                there.gate.set()
                assert "before after" in (await call).text
                assert await client.ask("ping") == {}

    timed(main)


def test_a_websocket_is_closed_with_the_reason() -> None:
    async def main() -> None:
        async with house() as there:
            pipe = await connect(
                f"{there.url}/agent-communication/ws".replace("http", "ws"), headers=bearer(token(seconds=HOLDS))
            )
            client = Mcp(there, "", None)
            who = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}
            for method, params in (("initialize", who), ("agents/run", {"name": "held", "input": {"message": "x"}})):
                await pipe.send([msgspec.json.encode(client.message(method, params))])
            assert b"protocolVersion" in b"".join(each for each in await pipe.receive() if isinstance(each, bytes))
            run_id = await held(there)
            async with expired(there):
                with pytest.raises(AgentGone, match=r"1008.*the token has expired"):
                    while True:
                        await pipe.receive()
                await goes_on(there, run_id)
            await pipe.aclose()

    timed(main)


def test_http_with_sse_ends_and_its_posts_are_the_same_clients() -> None:
    async def main() -> None:
        async with house() as there:
            url = f"{there.url}/agent-communication/sse"
            async with there.http.stream(
                "GET", url, headers={**bearer(token(seconds=HOLDS)), "accept": "text/event-stream"}
            ) as news:
                lines = news.aiter_lines()
                async for line in lines:
                    if line.startswith("data: "):
                        break
                path = line.removeprefix("data: ")
                ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                for shown, status in ((token("somebody"), 404), (None, 401), (token(seconds=HOLDS), 202)):
                    assert (await there.call("POST", path, shown, json=ping)).status_code == status
                async with expired(there):
                    rest = [each async for each in lines]
                    assert '"result":{}' in "".join(rest)
                    assert (await there.call("POST", path, token(seconds=3 * HOLDS), json=ping)).status_code == 404

    timed(main)


def test_whoever_listens_without_a_session_is_told_no_more() -> None:
    async def main() -> None:
        async with house() as there:
            kinds = {"notifications": {"toolsListChanged": True}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {**kinds, "_meta": MODERN}}
            headers = {
                **bearer(token(seconds=HOLDS)),
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "subscriptions/listen",
            }
            url = f"{there.url}/agent-communication/mcp"
            async with there.http.stream("POST", url, headers=headers, json=body) as news:
                lines = news.aiter_lines()
                async for line in lines:
                    if "acknowledged" in line:
                        break
                server = there.inbound["agent_communication"].server
                await until(lambda: len(server.sessions) == 1)
                async with expired(there):
                    assert "the token has expired" in "".join([line async for line in lines])
                    assert len(server.sessions) == 0

    timed(main)


def test_a_call_without_a_session_ends_too_and_its_run_goes_on() -> None:
    async def main() -> None:
        async with house() as there:
            params = {"name": "held", "input": {"message": "x"}, "_meta": MODERN}
            body = {"jsonrpc": "2.0", "id": 1, "method": "agents/run", "params": params}
            headers = {
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "agents/run",
            }
            call = asyncio.create_task(
                there.call("POST", "/agent-communication/mcp", token(seconds=HOLDS), json=body, headers=headers)
            )
            run_id = await held(there)
            async with expired(there):
                found: httpx2.Response = await call
                assert "the token has expired" in found.text
                await goes_on(there, run_id)

    timed(main)
