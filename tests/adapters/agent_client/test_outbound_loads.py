"""Sessions that clients load and close while something else happens to them: none of it is told as anything else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.errors import AgentGone, Unsupported
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.outbound_agent import (
    MANUAL,
    SETUP,
    Client,
    Refusal,
    Rig,
    beside,
    chunk,
    new,
    relay,
    rig,
    settled,
    thread_of,
)
from tests.support.aio import Clock, later, on, run
from tests.support.context import FakeContext
from tests.support.scripted import until

LOAD = {**SETUP, "sessionId": "t1"}


def known(context: FakeContext) -> Any:
    """What the gateway remembers of the session."""
    return thread_of(context).upstream["wire"]


def again(context: FakeContext) -> FakeContext:
    """The same conversation for another client."""
    return beside("t1", caller=Client(), upstream=known(context))


def loading(it: Rig, context: FakeContext) -> asyncio.Task[Any]:
    return asyncio.create_task(relay(it, context, "session/load", **LOAD))


def told(context: FakeContext) -> list[str]:
    """The texts that are told beside runs."""
    return [note.data["content"]["text"] for note in context.notes if note.kind == "output"]


def said(context: FakeContext) -> str:
    """What the run's agent said, in the run and beside it."""
    return "".join(each.delta for each in context.events if isinstance(each, e.PartDelta)) + "".join(told(context))


async def test_a_session_that_was_closed_and_could_not_be_loaded_is_opened_before_the_next_prompt() -> None:
    async with rig() as it:
        it.can(loadSession=True, sessionCapabilities={"close": {}})
        it.handlers["session/close"] = lambda _: {}
        it.handlers["session/load"] = _refuse
        context = await new(it)
        with pytest.raises(RpcError, match="not now"):
            await loading(it, context)
        it.handlers["session/load"] = lambda _: {}
        await it.turn(it.context(thread="t1", upstream_thread=known(context)), "hello")
        methods = [each["method"] for each in it.wire.got]
        assert methods[2:] == ["session/close", "session/load", "session/load", "session/prompt"]


@pytest.mark.parametrize("leaves", [False, True])
async def test_what_is_replayed_is_nothing_of_a_run_that_begins_meanwhile_though_the_client_has_gone(
    leaves: bool,
) -> None:
    async with rig() as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = lambda _: MANUAL
        context = await new(it)
        other, prompting = again(context), it.context(thread="t1", upstream_thread=known(context))
        load = loading(it, other)
        asked = await it.wire.find("session/load")
        if leaves:
            load.cancel()
            await asyncio.wait([load])
        turn = asyncio.create_task(it.outbound.run(prompting))
        await settled()
        it.wire.chunk("s1", "what was")
        it.wire.say({"id": asked["id"], "result": {}})
        prompt = await it.wire.prompt()
        it.wire.chunk("s1", "the answer")
        it.wire.end(prompt)
        await asyncio.wait([turn, load])
        assert said(prompting) == "the answer"
        assert told(other) == ([] if leaves else ["what was"]) and told(context) == []


@pytest.mark.parametrize("closes", [False, True])
async def test_a_session_is_loaded_when_all_was_told_to_a_client_that_left_also_if_it_was_closed(closes: bool) -> None:
    async with rig() as it:
        it.can(loadSession=True, sessionCapabilities={"close": {}})
        it.handlers |= {"session/close": lambda _: {}, "session/load": lambda _: MANUAL}
        context = await new(it)
        gone, other = again(context), again(context)
        load = loading(it, gone)
        first = await it.wire.find("session/load")
        if not closes:  # the client leaves while the agent tells on behind its answer
            it.wire.say({"id": first["id"], "result": {}})
            await settled()
        load.cancel()
        await asyncio.wait([load])
        if closes:
            await relay(it, other, "session/close", sessionId="t1")
        load = loading(it, other)
        await settled()
        it.wire.chunk("s1", "what was")
        assert len(it.wire.sent("session/load")) == 1
        if closes:
            it.wire.say({"id": first["id"], "result": {}})
        second = await it.wire.find("session/load")
        it.wire.chunk("s1", "what was")
        it.wire.say({"id": second["id"], "result": {}})
        await load
        assert (told(gone), told(other), told(context)) == ([], ["what was"], [])


async def test_a_load_that_fails_after_its_client_has_gone_leaves_a_session_that_is_opened_again() -> None:
    async with rig() as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = lambda _: MANUAL
        context = await new(it)
        load = loading(it, again(context))
        asked = await it.wire.find("session/load")
        load.cancel()
        await asyncio.wait([load])
        it.wire.say({"id": asked["id"], "error": {"code": -32603, "message": "not now"}})
        it.handlers["session/load"] = lambda _: {}
        await it.turn(it.context(thread="t1", upstream_thread=known(context)), "hello")
        assert len(it.wire.sent("session/load")) == 2


async def test_an_agent_that_dies_when_it_has_loaded_a_session_fails_the_run_alone_that_waited_for_that() -> None:
    async with rig() as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = lambda _: {}
        upstream = {"session": "s1", "cwd": "/w"}
        first = asyncio.create_task(it.outbound.run(it.context(thread="t1", upstream_thread=upstream)))
        await (await it.connected()).find("session/load")
        await settled()
        it.wire.die()
        with pytest.raises(AgentGone, match="out of luck"):
            await first
        second = it.context(run="run-2", thread="t1", upstream_thread=upstream)
        await it.turn(second, "here again")
        assert said(second) == "here again"


@pytest.mark.parametrize("behind", [False, True])
async def test_a_load_whose_agent_dies_with_or_behind_its_answer_is_an_error_and_the_next_is_whole(
    behind: bool,
) -> None:
    async with rig() as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = lambda _: MANUAL
        context = await new(it)
        torn, other = again(context), again(context)
        load = loading(it, torn)
        asked = await it.wire.find("session/load")
        it.wire.say({"id": asked["id"], "result": {}}, chunk("s1", "what "))
        if behind:
            await settled()
            it.wire.chunk("s1", "w")
            await settled()
        it.wire.die()
        with pytest.raises(AgentGone, match="out of luck"):
            await load
        load = loading(it, other)
        asked = await (await it.connected(2)).find("session/load")
        it.wire.say(chunk("s1", "what was"), {"id": asked["id"], "result": {}})
        await load
        assert told(other) == ["what was"]


async def test_an_agent_that_tells_on_behind_its_answer_is_not_asked_for_the_session_again() -> None:
    async with rig() as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = lambda _: MANUAL
        context = await new(it)
        one, other = again(context), again(context)
        load = loading(it, one)
        asked = await it.wire.find("session/load")
        it.wire.say(chunk("s1", "what "), {"id": asked["id"], "result": {}})
        await settled()
        it.wire.chunk("s1", "was ")
        await load
        with pytest.raises(Unsupported, match="cannot replay"):
            await loading(it, other)
        it.wire.chunk("s1", "long ago")
        await settled()
        prompting = it.context(thread="t1", upstream_thread=known(context))
        await it.turn(prompting, "the answer")
        assert (told(one), told(other), said(prompting)) == (["what ", "was ", "long ago"], [], "the answer")
        it.wire.die()
        await until(lambda: not it.outbound._sessions.of(other).open)
        load = loading(it, other)
        asked = await (await it.connected(2)).find("session/load")
        it.wire.say(chunk("s1", "what was"), {"id": asked["id"], "result": {}})
        await load
        assert told(other) == ["what was"], "another process of the agent's has told nothing of it yet"


def test_what_an_agent_tells_late_of_what_was_is_history_until_the_next_prompt_and_how_things_stand_is_news() -> None:
    async def body() -> None:
        async with rig() as it:
            it.can(loadSession=True)
            it.handlers |= {"session/load": lambda _: {}, "session/set_mode": lambda _: {}}
            context = it.context(thread="t1", upstream_thread={"session": "s1", "cwd": "/w"})
            await relay(it, context, "session/set_mode", sessionId="t1", modeId="code")
            it.wire.say(chunk("s1", "what was"))
            it.wire.update("s1", "available_commands_update", availableCommands=[])
            await settled()
            assert [note.kind for note in context.notes] == ["available_commands_update"]
            await it.turn(context, "the answer")
            it.wire.chunk("s1", " and more")
            await settled()
            assert said(context) == "the answer and more"

    run(body())


@on(Clock)
async def test_a_session_is_loaded_once_a_prompt_that_was_given_up_has_ended_or_its_agent_was() -> None:
    async with rig(stop_timeout=5) as it:
        it.can(loadSession=True)
        context = await new(it)
        [turn] = await it.started(it.context(thread="t1", upstream_thread=known(context)))
        turn.cancel()
        await asyncio.wait([turn])

        def replay(_: Any) -> dict[str, Any]:
            it.wire.say(chunk("s1", "what was"))
            return {}

        it.handlers["session/load"], other = replay, again(context)
        load = loading(it, other)
        await settled()
        assert not it.wire.sent("session/load")
        await later(6)
        await load
        assert told(other) == ["what was"] and len(it.wires) == 2


async def test_a_session_whose_close_nobody_waits_for_any_more_is_opened_before_the_next_prompt() -> None:
    async with rig() as it:
        it.can(loadSession=True, sessionCapabilities={"close": {}})
        it.handlers |= {"session/close": lambda _: MANUAL, "session/load": lambda _: {}}
        context = await new(it)
        close = asyncio.create_task(relay(it, context, "session/close", sessionId="t1"))
        await it.wire.find("session/close")
        close.cancel()
        await asyncio.wait([close])
        await it.turn(it.context(thread="t1", upstream_thread=known(context)), "hello")
        assert len(it.wire.sent("session/load")) == 1


async def test_a_session_that_is_loaded_while_another_client_closes_it_is_told_whole() -> None:
    async with rig() as it:
        it.can(loadSession=True, sessionCapabilities={"close": {}})
        it.handlers |= {"session/close": lambda _: MANUAL, "session/load": lambda _: MANUAL}
        context = await new(it)
        other = again(context)
        close = asyncio.create_task(relay(it, context, "session/close", sessionId="t1"))
        closing = await it.wire.find("session/close")
        load = loading(it, other)
        await settled()
        it.wire.say({"id": closing["id"], "result": {}})
        asked = await it.wire.find("session/load")
        await close
        it.wire.chunk("s1", "what was")
        it.wire.say({"id": asked["id"], "result": {}})
        await load
        assert told(other) == ["what was"]


def _refuse(_: Any) -> Any:
    raise Refusal(-32603, "not now")
