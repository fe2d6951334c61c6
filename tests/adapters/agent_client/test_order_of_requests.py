"""What an agent says reaches a client through a run's log, what it asks of the client does not: its order holds still.

Both halves over one engine. Whoever watches a run or a thread gets what happens there many turns of the loop later.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.agent_client.inbound import AgentClientInbound
from adapters.agent_client.options import AgentClientServe
from gateway.agents.entry import Entry
from gateway.config import Route
from gateway.core.types import JsonObject
from gateway.runs import Engine
from gateway.store.opening import open_store
from gateway.store.sqlite import disk_thread
from tests.adapters.agent_client.editor import Editor
from tests.adapters.agent_client.outbound_agent import MANUAL, Rig, chunk
from tests.support.pipes import LIMIT, pair
from tests.support.scripted import until

TURNS = 60
ASK: JsonObject = {"method": "_x/ask", "params": {"sessionId": "s1"}}


class Late:
    """A watch of a run or a thread that gives what it has some turns of the loop later."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._holding = 0

    @property
    def behind(self) -> int:
        return int(self._watch.behind) + self._holding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)

    async def next(self) -> Any:
        found = await self._watch.next()
        await self._late()
        return found

    async def follow(self, take: Any, timeout: float | None = None) -> bool:
        async def late(batch: Any) -> None:
            await self._late()
            if (waiting := take(batch)) is not None:
                await waiting

        return bool(await self._watch.follow(late, timeout))

    async def _late(self) -> None:
        self._holding = 1
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._holding = 0


def late(owner: Any, method: str) -> None:
    """What this method of the engine's watches is late."""
    watches = getattr(owner, method)

    @contextlib.asynccontextmanager
    async def watched(*args: Any, **more: Any) -> AsyncIterator[Any]:
        async with watches(*args, **more) as watch:
            yield Late(watch)

    setattr(owner, method, watched)


@contextlib.asynccontextmanager
async def halves(file: Path | None = None) -> AsyncIterator[tuple[Rig, Callable[[], Awaitable[Editor]]]]:
    """An agent in the test's own process, and what connects an editor to it. The store is in memory, or in `file`."""
    agent = Rig()
    agent.can(loadSession=True)
    engine = Engine(open_store(f"sqlite:///{file}" if file else "sqlite://"))
    late(engine.runs, "watch")
    late(engine.backchannel, "join")
    engine.use([Entry(Route(name="prog", target=agent.outbound._target), agent.outbound)])
    await engine.open()
    inbound = AgentClientInbound(AgentClientServe(), engine)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)

        async def connect() -> Editor:
            ours, theirs = pair(LIMIT)
            editor = await stack.enter_async_context(Editor(ours))
            serving = asyncio.create_task(inbound.converse(theirs, "prog"))
            stack.push_async_callback(asyncio.wait, [serving])
            stack.callback(serving.cancel)
            editor.on_ask = lambda _: {}
            editor.lenient = True
            await editor.initialize()
            return editor

        yield agent, connect


def disk_of(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set while the disk takes what is synced."""
    disk = threading.Event()
    disk.set()
    monkeypatch.setattr(disk_thread, "sync", lambda _: disk.wait(30))
    return disk


async def prompted(agent: Rig, editor: Editor, disk: threading.Event) -> tuple[asyncio.Future[Any], JsonObject]:
    """The answer to come and the prompt of an editor's second turn, which begins when the disk is stuck."""
    session = await editor.new()
    first = await editor.start(session)
    agent.wire.end(await agent.wire.prompt())
    await first
    editor.order.clear()
    disk.clear()
    return await editor.start(session), await agent.wire.prompt()


@pytest.mark.parametrize("first", [True, False])
async def test_a_request_in_a_turn_is_asked_behind_what_was_said_before_it(first: bool) -> None:
    async with halves() as (agent, connect):
        editor = await connect()
        session = await editor.new()
        answer = await editor.start(session)
        prompt = await agent.wire.prompt()
        if not first:
            agent.wire.chunk("s1", "zero")
            await editor.heard("zero")
        editor.order.clear()
        agent.wire.say(chunk("s1", "one"), chunk("s1", "two"), {"id": 1, **ASK}, chunk("s1", "three"))
        await agent.wire.answer(1)
        before = editor.order[: editor.order.index("_x/ask")]
        assert before.count("session/update") >= 2
        agent.wire.end(prompt)
        async with asyncio.timeout(30):
            await answer
        assert editor.text() == ("" if first else "zero") + "onetwothree"


async def test_what_comes_behind_the_end_of_a_turn_is_asked_and_told_behind_it() -> None:
    async with halves() as (agent, connect):
        editor = await connect()
        answer = await editor.start(await editor.new())
        prompt = await agent.wire.prompt()
        note = {"method": "_x/note", "params": {"sessionId": "s1"}}
        end = {"id": prompt["id"], "result": {"stopReason": "end_turn"}}
        editor.order.clear()
        agent.wire.say(chunk("s1", "in"), end, chunk("s1", "behind"), {"id": 1, **ASK}, note)
        await agent.wire.answer(1)
        await editor.until(lambda: "_x/note" in editor.order)
        assert editor.order[:2] == ["session/update", "session/prompt"]
        assert editor.order.index("_x/ask") > 2
        assert [each for each in editor.order if each.startswith("session/update")] == ["session/update"] * 2
        assert editor.order[2] == "session/update"
        await answer
        editor.order.clear()
        agent.wire.say(chunk("s1", "between"), {"id": 2, **ASK})
        await agent.wire.answer(2)
        assert editor.order == ["session/update", "_x/ask"]


@pytest.mark.parametrize("recorded", [True, False])
async def test_a_request_while_its_session_is_loaded_does_not_wait_for_that(recorded: bool) -> None:
    async with halves() as (agent, connect):
        editor = await connect()
        name = await editor.new() if recorded else "s1"
        agent.handlers["session/load"] = lambda _: MANUAL
        other = await connect()
        asked = {"sessionId": name, "cwd": "/work", "mcpServers": []}
        loading = asyncio.create_task(other.request("session/load", asked))
        await until(lambda: any(wire.sent("session/load") for wire in agent.wires))
        load = await agent.wire.find("session/load")
        agent.wire.say(chunk("s1", "as it was"), {"id": 1, **ASK})
        await agent.wire.answer(1, within=4)
        assert not loading.done()
        assert other.asked[0]["method"] == "_x/ask"
        agent.wire.say({"id": load["id"], "result": {}})
        await loading


@pytest.mark.parametrize("told", ["session/update", "_x/note", "_x/ask"])
async def test_what_comes_behind_the_end_of_a_prompt_that_is_not_on_the_disk_is_told_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    disk = disk_of(monkeypatch)
    said: dict[str, JsonObject] = {
        "session/update": chunk("s1", "behind"),
        "_x/note": {"method": "_x/note", "params": {"sessionId": "s1"}},
        "_x/ask": {"id": 1, **ASK},
    }

    async with halves(tmp_path / "store.db") as (agent, connect):
        editor = await connect()
        answer, prompt = await prompted(agent, editor, disk)
        agent.wire.say(chunk("s1", "in"), {"id": prompt["id"], "result": {"stopReason": "end_turn"}}, said[told])
        await asyncio.wait([answer], timeout=0.1)
        early = list(editor.order)
        disk.set()
        async with asyncio.timeout(30):
            await answer
        await editor.until(lambda: editor.order[-1] == told)
        assert not early and editor.order == ["session/update", "session/prompt", told]


@pytest.mark.parametrize("of", [{"sessionId": "s1"}, {}], ids=["of the session", "of no session"])
async def test_a_prompt_is_with_its_agent_when_it_is_written_and_the_client_hears_of_it_when_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: JsonObject
) -> None:
    disk = disk_of(monkeypatch)

    async with halves(tmp_path / "store.db") as (agent, connect):
        editor = await connect()
        answer, prompt = await prompted(agent, editor, disk)
        ask, note = {"method": "_x/ask", "params": of}, {"method": "_x/note", "params": of}
        agent.wire.say(chunk("s1", "one"), {"id": 1, **ask}, note, chunk("s1", "two"))
        answered = asyncio.ensure_future(agent.wire.answer(1))
        await asyncio.wait([answered], timeout=0.1)
        assert editor.order == []
        disk.set()
        await answered
        agent.wire.end(prompt)
        async with asyncio.timeout(30):
            await answer
        assert editor.order[-1] == "session/prompt" and (editor.order[0] == "session/update" or not of)
        assert sorted(editor.order[:-1]) == ["_x/ask", "_x/note", "session/update", "session/update"]
