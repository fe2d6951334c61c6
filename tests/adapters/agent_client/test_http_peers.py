"""Streamable HTTP with the official SDKs: their clients at our server, our client at their servers.

Between the two nothing is translated here: what a client posts is what the agent is posted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from adapters.agent_client.outbound import http
from adapters.agent_client.outbound.http import HttpPipe
from gateway.core.errors import AgentGone
from gateway.transport.pipe import Pipe
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.http_rig import RigThreads, rig
from tests.adapters.agent_client.test_http_client import Connected
from tests.support.agent_client import (
    SDKS,
    Line,
    Sdk,
    agent_client_agent_server,
    agent_client_client,
    asked,
    errors,
    example_remote_client,
    results,
    text,
    turns,
    updates,
)
from tests.support.aio import run
from tests.support.processes import Process

WITHIN = 120.0


class Relay:
    """Serves connections by handing every message on to a server at `url`, and back."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def __call__(self, client: Pipe, agent: str | None) -> None:
        server = HttpPipe(self.url)
        down = asyncio.create_task(self._pass(client, server))
        up = asyncio.create_task(self._pass(server, client))
        try:
            await asyncio.wait([down, up], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (down, up):
                task.cancel()
            await asyncio.gather(down, up, return_exceptions=True)
            await server.aclose()
            await client.aclose()

    @staticmethod
    async def _pass(source: Pipe, sink: Pipe) -> None:
        try:
            while messages := await source.receive():
                await sink.send([data for data in messages if isinstance(data, bytes)])
        except AgentGone:
            return


def through(client: Sdk, server: Process, *steps: str, **options: Any) -> list[Line]:
    """A client of one SDK, our server, our client, and the server of an SDK."""

    async def case(url: str) -> list[Line]:
        async with rig(Relay(url), **options) as there:
            there.threads = Everything()
            return await asyncio.to_thread(agent_client_client, client, *steps, url=there.url)

    return run(case(server.url + "/acp"), WITHIN)


class Everything(RigThreads):
    """Holds every session: the agent has them, and nobody here knows which."""

    def __contains__(self, name: object) -> bool:
        return True


CLIENTS: dict[Sdk, Sdk] = {"ts-0": "py", "ts-2": "ts-0", "py": "ts-2"}
"""Who talks to which SDK's server."""


@pytest.fixture(scope="module", params=CLIENTS)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Sdk, Process]]:
    """Each SDK's agent as a server."""
    with agent_client_agent_server(request.param) as process:
        yield request.param, process


def test_a_conversation_passes_from_one_sdk_to_the_other(server: tuple[Sdk, Process]) -> None:
    """None of them sends `Origin`: their connections are not refused, as those of unknown pages are."""
    lines = through(
        CLIENTS[server[0]],
        server[1],
        *("--say", "hello Grüße \U0001f600 世界"),
        *("--permission", "allow", "--say", "tool perm"),
        *("--start", "slow please", "--await", "1 ", "--do", "cancel", "--finish"),
        *("--set-mode", "code", "--call", '_rig/hello {"a": 1}'),
        *("--say", "flood 300 done", "--say", f"big {3 << 20}"),
        *("--reconnect", "--do", "load", "--say", "after all"),
    )
    first, second, third, fourth, fifth, last = turns(lines)
    assert text(first) == "hello Grüße \U0001f600 世界 "
    assert asked(second, "session/request_permission")
    assert "permission" in text(second)
    assert text(third).startswith("0 1 ")
    assert text(fourth).startswith("".join(f"{number} " for number in range(300)))
    assert len(text(fifth)) >= 3 << 20
    assert text(last).endswith("after all ")
    said = [update["content"]["text"] for update in updates(last, "user_message_chunk")]
    assert said[:2] == ["hello Grüße \U0001f600 世界", "tool perm"]
    ends = [turn["stopReason"] for turn in results(lines, "session/prompt")]
    assert ends == ["end_turn", "end_turn", "cancelled", "end_turn", "end_turn", "end_turn"]
    assert [error["code"] for error in errors(lines, "_rig/hello")] == [-32601]
    assert results(lines, "session/set_mode") == [{}]
    assert len(results(lines, "session/load")) == 1


@pytest.mark.parametrize("client", SDKS)
def test_their_example_client_works_unchanged(client: Sdk) -> None:
    async def case() -> int:
        async with rig() as there:
            await asyncio.to_thread(example_remote_client, client, there.url)
            return there.sessions

    assert run(case(), WITHIN) == 1


@contextlib.asynccontextmanager
async def cutting(port: int, word: bytes) -> AsyncIterator[int]:
    """A proxy that loses what a server writes with `word` in it, and the connection with that, once."""
    done = asyncio.Event()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, cut: bool) -> None:
        while data := await reader.read(1 << 16):
            if cut and word in data and not done.is_set():
                done.set()
                return
            writer.write(data)
            await writer.drain()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection("127.0.0.1", port)
        tasks = [
            asyncio.create_task(copy(reader, onward, cut=False)),
            asyncio.create_task(copy(there, writer, cut=True)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        onward.transport.abort()
        writer.transport.abort()

    async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        assert done.is_set()


def test_a_question_that_is_lost_on_the_way_to_the_python_sdk_is_asked_again() -> None:
    """It goes on with the connection's stream, and the agent would wait for ever."""

    async def case() -> list[Line]:
        async with rig(back=0.1) as there:
            url = urlsplit(there.url)
            assert url.port is not None
            async with cutting(url.port, b"session/request_permission") as port:
                steps = ("--permission", "allow", "--say", "ask")
                return await asyncio.to_thread(
                    agent_client_client, "py", *steps, url=f"http://127.0.0.1:{port}{url.path}"
                )

    (turn,) = turns(run(case(), WITHIN))
    assert len(asked(turn, "session/request_permission")) == 1
    assert text(turn) == "yes"


def test_our_client_talks_to_their_server(server: tuple[Sdk, Process]) -> None:
    async def case(url: str) -> None:
        here = Connected(HttpPipe(url))
        async with here.peer:
            await here.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
            session = await here.new(cwd=str(Path.cwd()))
            assert (await here.prompt(session, "hello"))["stopReason"] == "end_turn"
            assert "".join(here.editor.said) == "hello "
            with pytest.raises(RpcError):
                await here.prompt("unheard", "hello")
            assert (await here.prompt(session, "again"))["stopReason"] == "end_turn"

    run(case(server[1].url + "/acp"), WITHIN)


@pytest.mark.parametrize("sdk", ["py", "ts-2"])
def test_our_client_notices_that_their_server_is_gone(sdk: Sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_DELAY", 0.01)

    async def case() -> None:
        with agent_client_agent_server(sdk) as process:
            here = Connected(HttpPipe(process.url + "/acp"))
            async with here.peer:
                await here.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
                session = await here.new(cwd=str(Path.cwd()))
                turn = asyncio.create_task(here.prompt(session, "slow"))
                while not here.editor.said:  # noqa: ASYNC110 - bounded by `run`
                    await asyncio.sleep(0.01)
                process.kill9()
                with pytest.raises(AgentGone):
                    await turn

    run(case(), WITHIN)
