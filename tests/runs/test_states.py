"""Where a thread's state is, with an agent or in the gateway's record: read, handed on, patched and copied."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core import thread_state
from gateway.core.errors import AgentGone, AgentTimeout, NotFound, Unsupported
from gateway.core.types import ChatMessage, Checkpoint, Json, JsonObject, Role, Thread
from gateway.runs import Engine, states
from tests.runs.test_memory import Listening, agent
from tests.support.aio import run
from tests.support.scripted import engine, request, route

NUMBERS: JsonObject = {"type": "object", "properties": {"turns": {"type": "array"}}}


class Keeping(Listening):
    """Keeps threads whose state is `{"turns": [...]}`, the prompts that it was given or has taken."""

    def __init__(self, schema: JsonObject = NUMBERS, *, takes: bool = True) -> None:
        super().__init__(replace(agent(threads=True), thread_schema=schema))
        self.threads: dict[str, Any] = {}
        self.takes = takes
        self.error: Exception | None = None
        self.copies = True
        self.slow = False

    async def answer(self, context: RunContext) -> None:
        known = context.upstream_thread or {"id": f"{self.agent.name}-{len(self.threads)}"}
        there = self.threads.setdefault(known["id"], {"turns": []})
        state = await context.thread_state()
        if state is not None and self.takes:
            self.threads[known["id"]] = there = dict(state.values)
        fresh = context.upstream_thread is None
        given = await context.recall(fresh=fresh, knows=state is not None and self.takes)
        self.inputs.append(given.input)
        await context.set_upstream({"run": 1}, thread=known)
        asked = context.run.request.input["message"]
        there["turns"] = [*there.get("turns", []), asked]
        context.emit(e.PartDelta(part="text", delta=f"answer to {asked}"), e.RunFinished())

    async def _may(self) -> None:
        if self.slow:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def read_thread(self, upstream: JsonObject) -> Checkpoint:
        await self._may()
        return Checkpoint(id="", thread="", created_at=0.0, values=self.threads[upstream["id"]], replaces=True)

    async def read_history(self, upstream: JsonObject, *, limit: int, before: str | None) -> Sequence[Checkpoint]:
        return [replace(await self.read_thread(upstream), id=f"{limit} {before}")]

    async def copy_thread(self, upstream: JsonObject) -> JsonObject:
        await self._may()
        if not self.copies:
            raise Unsupported("no copies")
        self.threads["copy"] = dict(self.threads[upstream["id"]])
        return {"id": "copy"}

    async def update_thread(
        self, upstream: JsonObject, *, base: str | None, values: Json, messages: Sequence[ChatMessage] | None
    ) -> None:
        await self._may()
        self.threads[upstream["id"]] = dict(values)


async def said(gateway: Engine, *turns: tuple[str, str], thread: str = "t") -> None:
    for name, text in turns:
        started = await gateway.runs.start(request(agent=name, input={"message": text}, thread=thread))
        ended = await gateway.runs.wait(started.id, timeout=60)
        assert ended is not None and ended.failure is None, ended


async def begun(gateway: Engine) -> None:
    await gateway.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))


async def values(gateway: Engine, thread: str = "t") -> Any:
    return (await gateway.threads.state(thread)).values


def test_agents_of_one_schema_hand_the_state_on_and_are_told_nothing_beside_it(tmp_path: Path) -> None:
    ada, bob = Keeping(), Keeping()

    async def talk(*turns: tuple[str, str]) -> Any:
        async with engine((route("ada"), ada), (route("bob"), bob), file=tmp_path / "s.db") as gateway:
            await gateway.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0), or_get=True)
            await said(gateway, *turns)
            history = await gateway.threads.states("t", limit=7, before="x")
            assert [(one.id, one.values) for one in history] == [("7 x", await values(gateway))]
            return await values(gateway)

    assert run(talk(("ada", "one"), ("bob", "two"))) == {"turns": ["one", "two"]}
    assert run(talk(("ada", "three"), ("bob", "four"))) == {"turns": ["one", "two", "three", "four"]}
    assert [one["message"] for one in (*ada.inputs, *bob.inputs)] == ["one", "three", "two", "four"]


async def test_an_agent_that_does_not_take_the_state_is_told_the_conversation() -> None:
    ada, bob = Keeping(), Keeping(takes=False)

    async with engine((route("ada"), ada), (route("bob"), bob)) as gateway:
        await begun(gateway)
        await said(gateway, ("ada", "one"), ("bob", "two"))
        ada.error = AgentGone("down")
        await said(gateway, ("bob", "three"))
    assert "user: one" in bob.inputs[0]["message"] and bob.inputs[1] == {"message": "three"}


async def test_where_the_other_agent_cannot_be_asked_the_conversation_is_told() -> None:
    ada, bob = Keeping(), Keeping()

    async with engine((route("ada"), ada), (route("bob"), bob)) as gateway:
        await begun(gateway)
        await said(gateway, ("ada", "one"))
        ada.error = AgentGone("down")
        await said(gateway, ("bob", "two"))
    assert "user: one" in bob.inputs[0]["message"]


async def test_an_agent_of_another_schema_is_refused_and_one_without_is_not() -> None:
    ada, bob, eve = Keeping(), Keeping({**NUMBERS, "required": ["turns"]}), Listening(agent())

    async with engine((route("ada"), ada), (route("bob"), bob), (route("eve"), eve)) as gateway:
        await begun(gateway)
        await said(gateway, ("ada", "one"), ("eve", "two"))
        assert [m["content"] for m in (await values(gateway))["messages"]][::2] == ["one", "two"]
        with pytest.raises(
            Unsupported, match=r"agent bob cannot go on with a thread of agent ada: .*different schemas"
        ):
            await said(gateway, ("bob", "three"))
        await said(gateway, ("ada", "three"))
        assert await values(gateway) == {"turns": ["one", "three"]}
    assert "user: two" in ada.inputs[1]["message"], "another schema: the turn is told in the prompt"


async def test_an_agent_that_publishes_no_schema_shows_no_state() -> None:
    async with engine((route("ada"), Keeping({}))) as gateway:
        await begun(gateway)
        await said(gateway, ("ada", "one"))
        state = await gateway.threads.state("t")
        assert state.values is None and [one.content for one in state.messages] == ["one", "answer to one"]
        with pytest.raises(NotFound, match="before: the thread has no checkpoint 'none'"):
            await gateway.threads.states("t", before="none")


@pytest.mark.parametrize("error", [AgentGone("down"), None])
async def test_an_agent_that_cannot_be_asked_is_an_error_in_time_and_none_where_it_is_not_to_be_asked(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(states, "STATE_SECONDS", 0.2)
    ada = Keeping()

    async with engine((route("ada"), ada)) as gateway:
        await begun(gateway)
        await said(gateway, ("ada", "one"))
        ada.error, ada.slow = error, error is None
        with pytest.raises(AgentTimeout if error is None else AgentGone):
            await gateway.threads.state("t")
        assert (await gateway.threads.state("t", ask=False)).values is None


@pytest.mark.parametrize("copies", [True, False])
async def test_a_copy_goes_on_from_the_state_as_it_was(copies: bool) -> None:
    ada = Keeping()
    ada.copies = copies

    async with engine((route("ada"), ada)) as gateway:
        await begun(gateway)
        await said(gateway, ("ada", "one"))
        copy = await gateway.threads.copy("t")
        await said(gateway, ("ada", "two"), thread=copy.id)
        await said(gateway, ("ada", "three"))
        assert await values(gateway, copy.id) == {"turns": ["one", "two"]}
        assert await values(gateway) == {"turns": ["one", "three"]}
    assert [one["message"] for one in ada.inputs] == ["one", "two", "three"], "it knows: nothing is told"


@pytest.mark.parametrize(("schema", "copied"), [(NUMBERS, False), ({}, True)])
async def test_a_copy_of_an_agent_s_thread_that_cannot_be_had_is_refused_unless_nobody_is_shown_it(
    schema: JsonObject, copied: bool
) -> None:
    ada = Keeping(schema)

    async with engine((route("ada"), ada)) as gateway:
        await begun(gateway)
        await said(gateway, ("ada", "one"))
        ada.error = AgentGone("down")
        if not copied:
            with pytest.raises(AgentGone):
                await gateway.threads.copy("t")
            return
        copy = await gateway.threads.copy("t")
        await said(gateway, ("ada", "two"), thread=copy.id)
        assert "user: one" in ada.inputs[1]["message"]


def test_a_thread_of_an_older_version_has_its_messages_as_state_and_is_remembered() -> None:
    eve, old = Listening(agent()), {"message": "answer to one"}
    messages = (ChatMessage(role=Role.USER, content="one"), ChatMessage(role=Role.ASSISTANT, content="answer to one"))
    point = Checkpoint(
        id="c", thread="t", created_at=2.0, run="r", values=old, messages=messages, metadata={"agent": "eve"}
    )

    async def scene() -> None:
        async with engine((route("eve"), eve)) as gateway:
            await gateway.store.create_thread(Thread(id="t", created_at=1.0, updated_at=1.0, values=old), [point])
            assert [one["content"] for one in (await values(gateway))["messages"]] == ["one", "answer to one"]
            await said(gateway, ("eve", "two"))
            copy = await gateway.threads.copy("t")
            assert len((await values(gateway, copy.id))["messages"]) == 4

    run(scene())
    assert "user: one" in eve.inputs[0]["message"]


async def test_a_patch_is_made_at_the_agent_and_reaches_the_others_of_the_thread() -> None:
    ada, bob = Keeping(), Keeping()

    async with engine((route("ada"), ada), (route("bob"), bob)) as gateway:
        await begun(gateway)
        await said(gateway, ("ada", "one"), ("bob", "two"))
        await gateway.threads.patch("t", values={"turns": ["zero"]})
        assert await values(gateway) == {"turns": ["zero"]}
        await said(gateway, ("ada", "three"))
        assert await values(gateway) == {"turns": ["zero", "three"]}


def test_patched_messages_are_what_an_agent_without_threads_is_told() -> None:
    eve = Listening(agent())
    messages = [{"role": "user", "content": "my name is John"}, {"role": "assistant", "content": "hello"}]

    async def scene() -> None:
        async with engine((route("eve"), eve)) as gateway:
            await begun(gateway)
            await gateway.threads.patch("t", values={"messages": messages})
            await said(gateway, ("eve", "one"))
            await gateway.threads.patch("t", values={"messages": messages[:1]})
            await said(gateway, ("eve", "two"))
            assert [one["content"] for one in (await values(gateway))["messages"]] == [
                "my name is John",
                "two",
                "answer to two",
            ]

    run(scene())
    first, second = (one["message"] for one in eve.inputs)
    assert "user: my name is John\n\nassistant: hello" in first
    assert (
        "user: my name is John" in second and "hello" not in second and "one" not in second.replace("conversation", "")
    )


async def test_a_thread_whose_agent_has_gone_shows_what_was_put_into_it(tmp_path: Path) -> None:
    async with engine((route("eve"), Listening(agent())), file=tmp_path / "s.db") as gateway:
        await begun(gateway)
        await gateway.threads.patch("t", values={"colour": "blue"})
        await said(gateway, ("eve", "one"))
    async with engine(file=tmp_path / "s.db") as gateway:
        state = await gateway.threads.state("t")
        assert state.values["colour"] == "blue"
        assert [one["content"] for one in state.values["messages"]] == ["one", "answer to one"]


async def test_a_run_does_not_store_the_state_again() -> None:
    async with engine((route("eve"), Listening(agent()))) as gateway:
        await begun(gateway)
        await said(gateway, ("eve", "one"), ("eve", "two"))
        assert [(one.values, len(one.messages)) for one in await gateway.threads.history("t")] == [(None, 2)] * 2
        assert thread_state.kept(await gateway.threads.state("t")) == await values(gateway)
