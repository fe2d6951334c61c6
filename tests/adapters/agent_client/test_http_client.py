"""Our client of Streamable HTTP against our server: two Peers that do not notice what is between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from adapters.agent_client.outbound.http import HttpPipe
from gateway.core.errors import AgentGone, Invalid
from gateway.transport.rpc import Peer
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.http_rig import Rig, closed, rig
from tests.support.scripted import until

NEW: dict[str, Any] = {"cwd": "/", "mcpServers": []}


class Editor:
    """The client's handler: notes what it is told, says yes to every question."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.unread: list[object] = []
        self.answer = asyncio.Event()
        self.answer.set()

    async def request(self, method: str, params: Raw, id: object) -> Any:
        self.asked.append(method)
        await self.answer.wait()
        return {"outcome": {"outcome": "selected", "optionId": "yes"}}

    def notification(self, method: str, params: Raw) -> None:
        self.said.append(msgspec.json.decode(params)["update"]["content"]["text"])

    def unreadable(self, what: object) -> None:
        self.unread.append(what)


class Connected:
    """A Peer over HttpPipe, initialized."""

    def __init__(self, pipe: HttpPipe) -> None:
        self.pipe = pipe
        self.editor = Editor()
        self.peer = Peer(pipe, self.editor, first_id=0)

    async def ask(self, method: str, params: Any, timeout: float = 60) -> Any:
        return msgspec.json.decode(await self.peer.request(method, params, timeout=timeout))

    async def prompt(self, session: str, text: str) -> Any:
        return await self.ask("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    async def new(self, **params: Any) -> str:
        return str((await self.ask("session/new", {**NEW, **params}))["sessionId"])


@contextlib.asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Connected]:
    here = Connected(HttpPipe(url, **options))
    async with here.peer:
        assert (await here.ask("initialize", {"protocolVersion": 1}))["protocolVersion"] == 1
        yield here


@contextlib.asynccontextmanager
async def both(**options: Any) -> AsyncIterator[tuple[Rig, Connected]]:
    async with rig(**options) as there, connected(there.url + "rig") as here:
        yield there, here


async def test_a_turn_with_text_and_a_question() -> None:
    async with both() as (_, here):
        session = await here.new()
        assert await here.prompt(session, "say hello world") == {"stopReason": "end_turn"}
        assert await here.prompt(session, "ask") == {"stopReason": "end_turn"}
        assert here.editor.said == ["hello", "world", "yes"]
        assert here.editor.asked == ["session/request_permission"]
        assert await here.ask("_echo", {"a": [1]}) == {"a": [1]}


async def test_what_comes_before_the_answer_that_names_the_session_is_not_lost() -> None:
    async with both() as (_, here):
        await here.new(_meta={"early": "commands"})
        await until(lambda: here.editor.said == ["commands"])


async def test_cancel_follows_the_prompt() -> None:
    async with both() as (_, here):
        session = await here.new()
        turn = asyncio.create_task(here.prompt(session, "wait"))
        await until(lambda: here.editor.said == ["waiting"])
        here.peer.notify("session/cancel", {"sessionId": session})
        assert await turn == {"stopReason": "cancelled"}


async def test_a_question_that_waits_blocks_no_other_session() -> None:
    async with both() as (_, here):
        one, two = await here.new(), await here.new()
        here.editor.answer.clear()
        turn = asyncio.create_task(here.prompt(one, "ask"))
        await until(lambda: bool(here.editor.asked))
        await here.prompt(two, "other")
        assert here.editor.said == ["other"]
        here.editor.answer.set()
        await turn


async def test_a_loaded_session_is_replayed_before_the_answer() -> None:
    async with both() as (_, here):
        assert await here.ask("session/load", {**NEW, "sessionId": "old1"}) == {}
        assert here.editor.said == ["first", "second"]
        await here.prompt("old1", "third")
        assert here.editor.said[2:] == ["third"]


async def test_a_load_that_fails_is_the_agents_own_error() -> None:
    async with both() as (_, here):
        with pytest.raises(RpcError) as caught:
            await here.ask("session/load", {**NEW, "sessionId": "unheard"})
        assert caught.value.error.code == -32002
        await here.new()


async def test_a_request_that_the_server_refuses_fails_alone() -> None:
    async with both() as (_, here):
        session = await here.new()
        with pytest.raises(RpcError, match="404: no session unheard"):
            await here.prompt("unheard", "x")
        assert await here.prompt(session, "x") == {"stopReason": "end_turn"}


async def test_a_message_that_is_too_large_for_the_server_fails_alone() -> None:
    async with both(max_body=10_000) as (_, here):
        with pytest.raises(RpcError, match="413") as caught:
            await here.ask("_echo", {"large": "x" * 10_000})
        assert msgspec.json.decode(caught.value.error.data)["status"] == 413
        assert await here.ask("_echo", {"small": 1}) == {"small": 1}


async def test_a_closed_session_keeps_no_stream() -> None:
    async with both() as (there, here):
        session = await here.new()
        await here.prompt(session, "x")
        assert await here.ask("session/close", {"sessionId": session}) == {}
        (link,) = there.server._connections.all
        await until(lambda: session not in link.sessions)
        with pytest.raises(RpcError, match="404"):
            await here.prompt(session, "x")


async def test_messages_of_16_mib_pass_both_ways_and_a_larger_one_is_an_error() -> None:
    large = "ü" * (9 << 20)

    async with rig() as there, connected(there.url, limit=60 << 20) as here:
        assert await here.ask("_echo", {"large": large}, timeout=50) == {"large": large}
    async with rig() as there, connected(there.url, limit=1000) as here:
        with pytest.raises(Exception, match="cannot be read"):
            await here.ask("_echo", {"large": "x" * 1200})
        assert here.editor.unread
        assert await here.ask("_echo", {"small": 1}) == {"small": 1}


async def test_a_flood_arrives_whole_and_in_order_however_slowly_it_is_received() -> None:
    async with rig() as there, connected(there.url, buffer=10_000) as here:
        session = await here.new()
        await here.prompt(session, "flood 5000")
        assert [int(text) for text in here.editor.said] == list(range(5000))


async def test_closing_ends_the_connection_over_there() -> None:
    async with rig() as there:
        async with connected(there.url) as here:
            await here.new()
            assert there.alive
        await until(lambda: not there.alive)
        with pytest.raises(AgentGone):
            await here.pipe.send([b'{"jsonrpc":"2.0","method":"x"}'])


async def test_a_server_that_ends_the_connection_is_gone() -> None:
    async with both() as (there, here):
        session = await here.new()
        turn = asyncio.create_task(here.prompt(session, "wait"))
        await until(lambda: here.editor.said == ["waiting"])
        await closed(there.server)
        with pytest.raises(AgentGone, match="404"):
            await turn
        assert here.peer.gone is not None


async def test_an_agent_that_is_not_there_refuses_initialize() -> None:
    async with rig() as there:
        here = Connected(HttpPipe(there.url + "nobody"))
        async with here.peer:
            with pytest.raises(RpcError, match="404: no agent nobody"):
                await here.ask("initialize", {})


async def test_a_server_that_is_not_there_is_gone() -> None:
    here = Connected(HttpPipe("http://127.0.0.1:1/"))
    async with here.peer:
        with pytest.raises(AgentGone, match="no connection"):
            await here.ask("initialize", {})


def test_an_url_of_another_kind_is_refused() -> None:
    with pytest.raises(Invalid):
        HttpPipe("ws://127.0.0.1/")
