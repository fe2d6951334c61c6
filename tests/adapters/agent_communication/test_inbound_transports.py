"""The methods over the transports: a WebSocket or standard input, Streamable HTTP, 2026-07-28; news; leaving."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from adapters.agent_communication import ADAPTER
from gateway.cli.banner import example
from gateway.contract import CallingBack, Conversing, Inbound, Informed, Leaving
from gateway.core.errors import Denied, NotFound, Unavailable, Unsupported
from gateway.core.types import RunStatus
from gateway.mcp.versions import V2025_11_25, V2026_07_28
from tests.adapters.agent_communication.inbound_rig import YES_NO, Rig, asking, rig, scripted
from tests.adapters.agent_communication.inbound_server import served
from tests.support.curl import curl
from tests.support.pipes import MemoryPipe, pair
from tests.support.rpc import hear, say
from tests.support.scripted import Scripted, echo, held, route, until, use

BOTH = {"accept": "application/json, text/event-stream"}
MODERN = {"io.modelcontextprotocol/protocolVersion": V2026_07_28, "io.modelcontextprotocol/clientCapabilities": {}}


def request(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def initialize(version: str = V2025_11_25, **capabilities: Any) -> dict[str, Any]:
    info = {"name": "test", "version": "1"}
    return request(0, "initialize", protocolVersion=version, capabilities=capabilities, clientInfo=info)


@asynccontextmanager
async def talking(made: Rig, agent: str | None = None) -> AsyncIterator[MemoryPipe]:
    """The client's end of a connection that has said nothing yet."""
    ours, theirs = pair()
    serving = asyncio.create_task(made.inbound.converse(theirs, agent))
    try:
        yield ours
    finally:
        await ours.aclose()
        await asyncio.wait([serving], timeout=30)
        assert serving.done()
        serving.result()


# --- a pipe ------------------------------------------------------------------------------------------------------


async def test_a_whole_conversation_over_one_connection() -> None:
    async with rig(scripted(echo)) as made, talking(made) as pipe:
        await say(pipe, initialize())
        (welcome,) = await hear(pipe, 1)
        assert welcome["result"]["serverInfo"]["name"] == "interlingua"
        await say(pipe, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        params = {"name": "scripted", "input": {"message": "one two"}, "_meta": {"progressToken": 0}}
        await say(pipe, request(1, "agents/run", **params))
        heard: list[Any] = []
        while not heard or "id" not in heard[-1]:
            heard += await hear(pipe, 1)
        assert [each["params"]["progressToken"] for each in heard[:-1]] == [0] * (len(heard) - 1)
        assert "".join(each["params"]["delta"]["message"] for each in heard[:-1]) == "one two "
        assert heard[-1]["result"]["output"] == {"message": "one two "}
        await say(pipe, request(2, "agents/nothing"))
        assert (await hear(pipe, 1))[0]["error"]["code"] == -32601


async def test_a_connection_for_an_agent_that_there_is_not_is_refused_with_the_names_there_are() -> None:
    async with rig(scripted(echo)) as made, talking(made, "nobody") as pipe:
        await say(pipe, initialize())
        (refused,) = await hear(pipe, 1)
        assert refused["error"]["code"] == -32602
        assert "nobody" in refused["error"]["message"] and "scripted" in refused["error"]["message"]


async def test_every_session_is_told_when_the_agents_change() -> None:
    async with rig(scripted(echo)) as made, talking(made) as one, talking(made) as other:
        for pipe in (one, other):
            await say(pipe, initialize())
            await hear(pipe, 1)
        made.engine.agents.on_change(made.inbound.agents_changed)
        use(made.engine, (route("new"), Scripted(echo)))
        for pipe in (one, other):
            told = [message["method"] for message in await hear(pipe, 2)]
            assert told == ["notifications/agents/list_changed", "notifications/tools/list_changed"]


async def test_a_request_that_its_client_cancels_is_answered_and_its_run_ends() -> None:
    gate = asyncio.Event()
    route_, agent = scripted(held(lambda: gate))
    agent.on_cancel = gate.set
    async with rig((route_, agent)) as made, talking(made) as pipe:
        await say(pipe, initialize())
        await hear(pipe, 1)
        await say(pipe, request(7, "agents/run", name="scripted", input={"message": "hi"}))
        await until(lambda: bool(agent.contexts))
        await say(pipe, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        (answer,) = await hear(pipe, 1)
        assert (answer["id"], answer["error"]["code"]) == (7, -32800)
        ended = await made.engine.runs.wait((await made.newest()).id)
        assert ended is not None and ended.status is RunStatus.CANCELLED


@pytest.mark.parametrize("quiet", [False, True])
async def test_a_connection_that_ends_cancels_its_runs_unless_it_is_the_gateway_that_ends(quiet: bool) -> None:
    gate = asyncio.Event()
    route_, agent = scripted(held(lambda: gate))
    async with rig((route_, agent)) as made:
        made.inbound.server.linger = 0.0
        async with talking(made) as pipe:
            await say(pipe, initialize())
            await hear(pipe, 1)
            await say(pipe, request(1, "agents/run", name="scripted", input={"message": "hi"}))
            await until(lambda: bool(agent.contexts))
            if quiet:
                made.inbound.quiet()
        await made.inbound.runs.settled()
        assert ((await made.newest()).cancel_reason is None) is quiet
        gate.set()
        ended = await made.engine.runs.wait((await made.newest()).id)
        assert ended is not None
        assert ended.status is (RunStatus.SUCCESS if quiet else RunStatus.CANCELLED)


async def test_a_client_that_goes_while_it_is_asked_leaves_no_run_that_waits_for_it() -> None:
    """It may have closed its half alone, to read on: then it learns that its run is over."""
    async with rig((route("scripted"), Scripted(asking(YES_NO)))) as made:
        async with talking(made) as pipe:
            await say(pipe, initialize(elicitation={}))
            await hear(pipe, 1)
            await say(pipe, request(1, "agents/run", name="scripted", input={"message": "hi"}))
            (asked,) = await hear(pipe, 1)
            assert asked["method"] == "elicitation/create"
            pipe.half_close()
            (answer,) = await hear(pipe, 1)
            assert (answer["id"], answer["error"]["code"]) == (1, -32800)
        await made.inbound.runs.settled()
        ended = await made.engine.runs.wait((await made.newest()).id)
        assert ended is not None and ended.status is RunStatus.CANCELLED


# --- Streamable HTTP ---------------------------------------------------------------------------------------------


async def opened(http: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """The headers of a session's requests."""
    answer = await http.post(url, json=initialize(), headers=BOTH)
    assert answer.status_code == 200, answer.text
    return {**BOTH, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": V2025_11_25}


def streamed(text: str) -> list[Any]:
    """The messages of a stream."""
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line]


async def test_a_run_over_streamable_http_is_json_without_progress_and_a_stream_with_it() -> None:
    async with served() as there, httpx2.AsyncClient(timeout=30) as http:
        url = f"{there.url}/mcp"
        headers = await opened(http, url)
        asked = request(1, "agents/run", name="echo", input={"message": "one two"})
        plain = await http.post(url, json=asked, headers=headers)
        assert plain.headers["content-type"].startswith("application/json")
        assert plain.json()["result"]["output"] == {"message": "one two "}
        asked["params"]["_meta"] = {"progressToken": "t"}
        told = await http.post(url, json=asked, headers=headers)
        assert told.headers["content-type"].startswith("text/event-stream")
        *deltas, answer = streamed(told.text)
        assert "".join(each["params"]["delta"]["message"] for each in deltas) == "one two "
        assert answer["result"]["output"] == {"message": "one two "}


async def test_a_session_below_an_agents_path_has_that_agent_alone() -> None:
    async with served() as there, httpx2.AsyncClient(timeout=30) as http:
        url = f"{there.url}/mcp/echo"
        headers = await opened(http, url)
        listed = (await http.post(url, json=request(1, "tools/list"), headers=headers)).json()["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["echo"]
        nobody = await http.post(f"{there.url}/mcp/nobody", json=initialize(), headers=BOTH)
        assert (nobody.status_code, nobody.json()["error"]["code"]) == (404, -32602)


async def test_a_modern_client_needs_no_handshake_and_asks_again_with_its_answer() -> None:
    async with served() as there, httpx2.AsyncClient(timeout=30) as http:
        headers = {**BOTH, "mcp-protocol-version": V2026_07_28, "mcp-method": "tools/call", "mcp-name": "asker"}
        meta = {**MODERN, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        params = {"name": "asker", "arguments": {"message": "hi"}, "_meta": meta}
        asked = await http.post(f"{there.url}/mcp", json=request(1, "tools/call", **params), headers=headers)
        wanted = asked.json()["result"]
        assert wanted["resultType"] == "input_required"
        ((key, form),) = wanted["inputRequests"].items()
        assert form["method"] == "elicitation/create"
        params |= {
            "requestState": wanted["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"ok": True}}},
        }
        done = await http.post(f"{there.url}/mcp", json=request(2, "tools/call", **params), headers=headers)
        assert done.json()["result"]["structuredContent"]["message"].endswith("answered {'ok': True}. ")


async def test_who_listens_is_told_when_the_agents_change() -> None:
    async with served() as there, httpx2.AsyncClient(timeout=30) as http:
        headers = {**BOTH, "mcp-protocol-version": V2026_07_28, "mcp-method": "subscriptions/listen"}
        wanted = {"agentsListChanged": True}
        asked = request(1, "subscriptions/listen", notifications=wanted, _meta=MODERN)
        async with http.stream("POST", f"{there.url}/mcp", json=asked, headers=headers) as response:
            lines = response.aiter_lines()
            heard = [await _data(lines)]
            assert heard[0]["params"]["notifications"] == wanted
            use(there.engine, (route("new"), Scripted(echo)))
            assert (await _data(lines))["method"] == "notifications/agents/list_changed"


async def _data(lines: AsyncIterator[str]) -> Any:
    async for line in lines:
        if line.startswith("data:") and line[5:].strip():
            return json.loads(line[5:])
    raise AssertionError("the stream has ended")


async def test_the_line_to_try_works_as_it_is_printed() -> None:
    async with served() as there:
        line = example(ADAPTER, there.url, "", "echo", document={"message": "Hello"}, prompt="Hello")
        answer = await asyncio.to_thread(curl, line)
        assert answer.json()["result"]["output"] == {"message": "Hello "}


# --- the adapter -------------------------------------------------------------------------------------------------


async def test_the_inbound_half_offers_all_that_the_gateway_asks_for() -> None:
    async with rig(scripted(echo)) as made:
        inbound: Inbound = made.inbound
        assert isinstance(inbound, Conversing) and isinstance(inbound, Informed) and isinstance(inbound, Leaving)
        assert not isinstance(inbound, CallingBack)


@pytest.mark.parametrize(
    ("error", "status"), [(NotFound("x"), 404), (Denied("x"), 403), (Unavailable("x"), 503), (Unsupported("x"), 400)]
)
async def test_what_reaches_no_route_is_refused_with_its_status(error: Any, status: int) -> None:
    async with rig(scripted(echo)) as made:
        response = made.inbound.refusal(error)
        told = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "x"}}
        assert (response.status_code, json.loads(bytes(response.body))) == (status, told)
