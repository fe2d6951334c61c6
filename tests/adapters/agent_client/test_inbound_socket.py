"""The WebSocket endpoint, on a real socket; and the official Python SDK as its client."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import RunStatus
from gateway.transport.websocket import HARD_LIMIT
from gateway.transport.websocket.client import UpgradeRefused, connect
from tests.adapters.agent_client.editor import Editor, said
from tests.adapters.agent_client.inbound_rig import Rig, asking, rig, scripted
from tests.support.agent_client import agent_client_conversations, asked, errors, results, text, updates
from tests.support.scripted import echo, held, until
from tests.support.serving import serving


@asynccontextmanager
async def server(*agents: Any, **options: Any) -> AsyncIterator[tuple[Rig, str]]:
    """The inbound half on a socket, and its address."""
    async with rig(*agents, **options) as gateway:
        app = Starlette(routes=[Mount("/agent-client", routes=list(gateway.inbound.routes()))])
        async with serving(app, ws_max_size=HARD_LIMIT) as url:
            yield gateway, f"{url}/agent-client"


@asynccontextmanager
async def client(url: str, **options: Any) -> AsyncIterator[Editor]:
    """A client of ours, connected."""
    pipe = await connect(url, **options)
    async with Editor(pipe) as editor:
        yield editor


async def test_a_socket_is_a_connection_and_has_an_id() -> None:
    async with server(scripted(echo)) as (_, url), client(f"{url}/scripted") as editor:
        assert len(editor.pipe.headers["acp-connection-id"]) == 32
        await editor.initialize()
        session = await editor.new()
        assert await editor.prompt(session, "over the wire") == {"stopReason": "end_turn"}
        assert editor.text() == "over the wire "


async def test_without_an_agent_in_the_path_the_agents_are_offered() -> None:
    async with server(scripted(echo, "one"), scripted(echo, "two")) as (_, url), client(f"{url}/") as editor:
        await editor.initialize()
        result = await editor.request("session/new", {"cwd": "/", "mcpServers": []})
        assert [each["value"] for each in result["configOptions"][0]["options"]] == ["one", "two"]


@pytest.mark.parametrize(
    ("path", "headers", "status", "told"),
    [("/nobody", {}, 404, "scripted"), ("/scripted", {"Origin": "https://evil.example"}, 403, "evil.example")],
)
async def test_what_may_not_connect_is_refused_before_the_upgrade(
    path: str, headers: dict[str, str], status: int, told: str
) -> None:
    async with server(scripted(echo)) as (gateway, url):
        with pytest.raises(UpgradeRefused) as refused:
            await connect(url + path, headers=headers)
        assert refused.value.status == status
        assert told in refused.value.body.decode()
        assert gateway.inbound.clients.connections == 0


async def test_a_page_that_may_connect_does() -> None:
    page = {"Origin": "https://ide.example"}
    async with (
        server(scripted(echo), origins=(page["Origin"],)) as (_, url),
        client(f"{url}/scripted", headers=page) as editor,
    ):
        await editor.initialize()


async def test_one_client_too_many_is_told_to_come_again_later() -> None:
    async with server(scripted(echo), max_connections=1) as (gateway, url):
        async with client(f"{url}/scripted") as editor:
            await editor.initialize()
            with pytest.raises(UpgradeRefused) as refused:
                await connect(f"{url}/scripted")
            assert refused.value.status == 503
            async with httpx2.AsyncClient() as http:
                hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
                assert (await http.post(f"{url}/scripted", json=hello)).status_code == 503
        await until(lambda: gateway.inbound.clients.connections == 0)


async def test_a_dropped_socket_leaves_the_turn_running() -> None:
    go = asyncio.Event()
    async with server(scripted(held(lambda: go))) as (gateway, url):
        async with client(f"{url}/scripted") as editor:
            await editor.initialize()
            session = await editor.new()
            await editor.start(session)
            await editor.heard("before")
        await until(lambda: not gateway.inbound.clients.connections)
        async with client(f"{url}/scripted") as again:
            await again.initialize()
            await again.load(session)
            assert again.text() == "before "
            go.set()
            await again.heard("before after")
        ended = await gateway.engine.runs.wait((await gateway.run(session)).id)
        assert ended is not None and ended.status is RunStatus.SUCCESS


async def test_a_large_message_passes_and_one_too_large_is_an_error() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta=str(len(context.run.request.input["message"]))))
        context.emit(e.RunFinished())
        await context.drain()

    async with server(scripted(agent), max_message=20_000_000) as (_, url), client(f"{url}/scripted") as editor:
        await editor.initialize()
        session = await editor.new()
        await (await editor.start(session, "x" * 17_000_000))
        assert editor.text() == "17000000"
        error = await editor.refused("session/prompt", said(session, "x" * 20_000_000))
        assert error.code == -32600
        assert (await editor.prompt(session, "small"))["stopReason"] == "end_turn"


async def test_both_transports_see_the_same_session() -> None:
    async with server(scripted(echo)) as (_, url), client(f"{url}/scripted") as editor:
        await editor.initialize()
        session = await editor.new()
        await editor.prompt(session, "hello")
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
        async with httpx2.AsyncClient() as http:
            answer = await http.post(f"{url}/scripted", json=hello)
            assert answer.json()["result"]["agentCapabilities"]["loadSession"] is True
            headers = {"Acp-Connection-Id": answer.headers["acp-connection-id"]}
            params = {"sessionId": session, "cwd": "/", "mcpServers": []}
            load = {"jsonrpc": "2.0", "id": 1, "method": "session/load", "params": params}
            accept = {**headers, "Accept": "text/event-stream"}
            async with http.stream("GET", f"{url}/scripted", headers=accept) as stream:
                assert (await http.post(f"{url}/scripted", json=load, headers=headers)).status_code == 202
                seen = ""
                async for line in stream.aiter_lines():
                    seen += line
                    if '"id":1' in line:
                        break
            assert "user_message_chunk" in seen and "agent_message_chunk" in seen


# --- the official SDK ---------------------------------------------------------------------------------------------


def sdk(url: str, *conversations: str) -> Any:
    """Conversations of the SDK's client, in a thread: it is a process of its own."""
    there = f"{url.replace('http', 'ws')}/scripted"
    each = [{"steps": shlex.split(steps), "url": there} for steps in conversations]
    return asyncio.to_thread(agent_client_conversations, "py", *each)


async def test_the_sdk_talks_lists_and_comes_back() -> None:
    async with server(scripted(echo)) as (_, url):
        (lines,) = await sdk(url, "--say hello --do list --reconnect --session @0 --do load --say more")
        assert [answer["stopReason"] for answer in results(lines, "session/prompt")] == ["end_turn", "end_turn"]
        assert text(lines) == "hello hello more "
        assert [one["content"]["text"] for one in updates(lines, "user_message_chunk")] == ["hello"]
        (listed,) = results(lines, "session/list")
        assert listed["sessions"][0]["title"] == "hello"
        assert not [line for line in lines if "error" in line]


async def test_the_sdk_is_asked_and_can_cancel() -> None:
    async with server(scripted(asking({"enum": ["red", "blue"]}))) as (_, url):
        begin = "--permission never --start go --await request_permission"
        answered, cancelled = await sdk(url, "--permission blue --say go", f"{begin} --do cancel --finish")
        assert len(asked(answered, "session/request_permission")) == 1
        assert text(answered) == "Let me see. answered blue."
        assert results(cancelled, "session/prompt")[0]["stopReason"] == "cancelled"
        assert errors(cancelled, "session/prompt") == []


async def test_the_sdk_fills_in_a_form() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    async with server(scripted(asking(schema))) as (_, url):
        (lines,) = await sdk(url, """--elicitation '{"name": "Ada"}' --say go""")
        assert text(lines) == "Let me see. answered {'name': 'Ada'}."
