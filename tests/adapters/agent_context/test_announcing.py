"""Agents of one gateway, announced at the directory of another: called there, kept alive, and taken back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from adapters.agent_context.directory import Directory, announcing
from tests.adapters.agent_context.directory.rig import ANYBODY
from tests.adapters.agent_context.inbound_rig import Rig, rig
from tests.adapters.agent_context.inbound_talker import refused, text_of
from tests.support.processes import free_port
from tests.support.scripted import Scripted, echo, route, until

LOCAL = ["127.0.0.0/8"]


async def until_known(foreign: Rig, *names: str) -> None:
    """Until the directory has these of the poets."""
    ids = foreign.inbound.directory.ids
    await until(lambda: {each for each in ids() if each.startswith("poet")} == {*names})


def announcing_at(url: str) -> Any:
    return {"announce": [{"url": url, "agents": ["poet*", "echo"], "heartbeat": 0.1}]}


async def test_an_agent_is_called_by_clients_of_the_other_directory_until_its_gateway_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announcing, "FIRST_PAUSE", 0.05)

    async with rig(endpoints=LOCAL) as foreign, foreign.socket() as client:
        poet = route("poet", labels={"tools": [], "models": [], "specializations": ["rhyme"]})
        async with rig((poet, Scripted(echo)), (route("painter"), Scripted(echo)), **announcing_at(foreign.url)) as own:
            await until_known(foreign, "poet")
            members = foreign.inbound.directory._members.by_id
            await until(lambda: members["poet"].joined.endpoint == {"url": f"{own.url}/poet"})
            assert text_of(await client.message("poet", "a b")) == "a b "
            task = {"id": "t", "type": "x", "payload": "c d", "requirements": {"capabilities": ["rhyme"]}}
            done = await client.ask("agent/delegate", task=task)
            assert (done["task"]["agent"], done["task"]["status"]) == ("poet", "completed")
            assert (await own.newest("poet")).request.protocol == "agent_context"
            assert "painter" not in foreign.inbound.directory.ids(), "no pattern has it"
            assert text_of(await client.message("echo", "mine")) == "mine ", "its own stays its own"

            directory = foreign.inbound.directory
            await directory.unregister("poet", ANYBODY, next(iter(directory._members.connections)))
            await until_known(foreign, "poet")  # by the next heartbeat
        await until_known(foreign)
        assert (await refused(client.message("poet"))).code == -32002


async def test_of_two_gateways_that_announce_an_agent_the_second_has_it_once_the_first_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rig(endpoints=LOCAL) as foreign, contextlib.AsyncExitStack() as longer:
        there = route("poet"), Scripted(echo)
        async with rig(there, **announcing_at(foreign.url)):
            await until_known(foreign, "poet")
            second = await longer.enter_async_context(rig(there, **announcing_at(foreign.url)))
            await until(lambda: "does not register agent poet" in caplog.text)
        members = foreign.inbound.directory._members.by_id
        await until(lambda: "poet" in members and members["poet"].joined.endpoint == {"url": f"{second.url}/poet"})
        assert caplog.text.count("does not register agent poet") == 1


async def test_an_agent_that_the_directory_is_just_registering_when_its_gateway_stops_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, over, register = asyncio.Event(), asyncio.Event(), Directory.register

    async def slow(directory: Directory, *args: Any) -> None:
        await register(directory, *args)
        there.set()
        await over.wait()

    async with rig(endpoints=LOCAL) as foreign:
        monkeypatch.setattr(Directory, "register", slow)
        async with rig((route("poet"), Scripted(echo)), **announcing_at(foreign.url)):
            await there.wait()
            assert "poet" in foreign.inbound.directory.ids()
        await until_known(foreign)
        over.set()


@pytest.mark.parametrize("address", ["ws://127.0.0.1:{}/agent-context/ws", "http://127.0.0.1:{}/agent-context"])
async def test_an_agent_is_taken_back_from_a_directory_that_was_away_a_moment_ago(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(announcing, "FIRST_PAUSE", 3600.0)

    port = free_port()
    url = address.format(port)
    async with rig(endpoints=LOCAL) as foreign:
        to = urlsplit(foreign.url).port
        async with contextlib.AsyncExitStack() as way:
            await way.enter_async_context(forwarding(port, to))
            async with rig((route("poet"), Scripted(echo)), **announcing_at(url)) as own:
                (to_foreign,) = own.inbound.announcing
                await until_known(foreign, "poet")
                await until(lambda: any(to_foreign._told.values()))
                await way.aclose()
                await until(lambda: not any(to_foreign._told.values()))
                await way.enter_async_context(forwarding(port, to))
            await until_known(foreign)


async def test_a_directory_that_is_away_is_tried_again_until_it_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(announcing, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(announcing, "LONGEST_PAUSE", 0.2)

    port = free_port()
    async with (
        rig(endpoints=LOCAL) as foreign,
        rig((route("poet"), Scripted(echo)), **announcing_at(f"http://127.0.0.1:{port}/agent-context")),
    ):
        await until(lambda: "cannot be announced" in caplog.text)
        async with forwarding(port, urlsplit(foreign.url).port):
            await until_known(foreign, "poet")


@asynccontextmanager
async def forwarding(port: int, to: int | None) -> AsyncIterator[None]:
    """What connects to this port of ours is connected to that one, while the block lasts."""
    open_: list[asyncio.StreamWriter] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        open_.extend((writer, far_writer))
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for writer in open_:
            writer.close()
