"""Streamable HTTP with all of the inbound half behind it, and an agent that is a function."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.routing import Mount

from adapters.agent_client.inbound import AgentClientInbound
from adapters.agent_client.inbound.http import HttpServer
from adapters.agent_client.options import AgentClientServe
from gateway.contract import RunContext
from gateway.core import events as e
from tests.adapters.agent_client.http_rig import CONNECTION, MOUNT, Client, Stream, client, dropped
from tests.support import scripted
from tests.support.serving import serving


@contextlib.asynccontextmanager
async def gateway(script: scripted.Script) -> AsyncIterator[tuple[str, HttpServer]]:
    """The URL of a gateway with the agent `scripted`, and its server."""
    async with scripted.engine((scripted.route(), scripted.Scripted(script))) as engine:
        inbound = AgentClientInbound(AgentClientServe(), engine)
        async with serving(Starlette(routes=[Mount(MOUNT, routes=list(inbound.routes()))])) as url:
            yield f"{url}{MOUNT}/scripted", inbound._http


async def opened(here: Client, main: Stream) -> str:
    """A new session, whose modes and options nobody cares for."""
    asked = await here.ask("session/new", {"cwd": "/", "mcpServers": []})
    while "id" not in (message := await main.next()):
        pass
    assert message["id"] == asked, message
    return str(message["result"]["sessionId"])


async def said(stream: Stream, until: str) -> list[str]:
    """The chunks of the agent's up to the one that is `until`."""
    found: list[str] = []
    while not found or found[-1] != until:
        message = await stream.next()
        update = message.get("params", {}).get("update", {})
        if update.get("sessionUpdate") == "agent_message_chunk":
            found.append(update["content"]["text"])
    return found


async def test_a_turn_goes_on_without_its_connection_and_is_followed_on_another() -> None:
    gate = asyncio.Event()

    async def gated(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="one "))
        await context.drain()
        await gate.wait()
        context.emit(e.PartDelta(part="text", delta="two"), e.RunFinished())

    async with gateway(gated) as (url, _):
        async with client(url) as here, here.stream() as main:
            session = await opened(here, main)
            async with here.stream(session) as stream:
                await here.prompt(session, "go")
                assert await said(stream, "one ") == ["one "]
                await here.http.delete(here.url, headers={CONNECTION: here.connection})
        async with client(url) as here, here.stream() as main, here.stream(session) as stream:
            load = await here.ask("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []}, session)
            assert await said(stream, "one ") == ["one "]
            assert (await main.next())["id"] == load
            gate.set()
            assert await said(stream, "two") == ["two"]


async def test_a_stream_that_drops_in_a_turn_goes_on_where_it_was() -> None:
    gate = asyncio.Event()

    async def gated(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="one "))
        await context.drain()
        await gate.wait()
        context.emit(e.PartDelta(part="text", delta="two"), e.RunFinished())

    async with gateway(gated) as (url, server), client(url) as here, here.stream() as main:
        session = await opened(here, main)
        async with here.stream(session) as stream:
            asked = await here.prompt(session, "go")
            assert await said(stream, "one ") == ["one "]
        await dropped(server, session)
        gate.set()
        async with here.stream(session) as stream:
            assert await said(stream, "two") == ["two"]
            while "id" not in (message := await stream.next()):
                pass
            assert message == {"jsonrpc": "2.0", "id": asked, "result": {"stopReason": "end_turn"}}
