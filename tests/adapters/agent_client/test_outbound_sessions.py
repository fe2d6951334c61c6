"""Sessions of threads: found again, loaded, forked, closed; and the connections that they are open on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.core.errors import AgentBroken, Unsupported
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.outbound_agent import (
    MODES,
    SETUP,
    Client,
    Refusal,
    beside,
    chunk,
    new,
    relay,
    rig,
    settled,
    thread_of,
)
from tests.support.scripted import until


def _refuse(code: int, message: str, data: Any = None) -> Any:
    def handler(params: Any) -> Any:
        raise Refusal(code, message, data)

    return handler


@pytest.mark.parametrize("way", ["resume", "load", "neither", "refused"])
async def test_a_session_is_found_again_after_a_restart(way: str) -> None:
    upstream: Any = None
    async with rig() as it:
        context = await new(it, client=Client(terminal=True))
        upstream = thread_of(context).upstream["wire"]
    async with rig() as it:
        if way == "resume":
            it.can(sessionCapabilities={"resume": {}}, loadSession=True)
        elif way in ("load", "refused"):
            it.can(loadSession=True)

        def load(params: Any) -> Any:
            if way == "refused":
                raise Refusal(-32602, "unknown session")
            it.wire.say(chunk("s1", "what was said before"))
            return None

        it.handlers["session/resume"] = lambda _: {}
        it.handlers["session/load"] = load
        it.handlers["session/new"] = lambda _: {"sessionId": "s9"}
        after = it.context(thread="t1", upstream_thread=upstream)
        await it.turn(after, "on we go")
        assert after.output == {"message": "on we go"}
        assert not after.notes
        assert it.wire.sent("initialize")[0]["clientCapabilities"] == {"terminal": True}
        methods = [m["method"] for m in it.wire.got if "method" in m]
        expected = {
            "resume": ["session/resume"],
            "load": ["session/load"],
            "neither": ["session/new"],
            "refused": ["session/load", "session/new"],
        }[way]
        assert methods == ["initialize", *expected, "session/prompt"]
        asked = it.wire.sent(expected[-1])[0]
        assert {key: asked[key] for key in SETUP} == SETUP
        forgotten = way in ("neither", "refused")
        assert bool(after.losses["session_forgotten"]) is forgotten
        assert thread_of(after).upstream["wire"]["session"] == ("s9" if forgotten else "s1")


async def test_a_session_that_the_agent_knows_and_the_gateway_does_not_is_loaded_with_its_history() -> None:
    async with rig() as it:
        it.can(loadSession=True)

        def load(params: Any) -> Any:
            it.wire.say(chunk(params["sessionId"], "long ago"))
            return {"modes": MODES}

        it.handlers["session/load"] = load
        context = beside("older", caller=Client())
        assert await relay(it, context, "session/load", sessionId="older", **SETUP) == {"modes": MODES}
        assert [(n.kind, n.kept) for n in context.notes] == [("output", True), ("modes", False)]
        assert it.wire.sent("session/load") == [{"sessionId": "older", **SETUP}]
        run_ = it.context(thread="older", upstream_thread=thread_of(context).upstream["wire"])
        await it.turn(run_, "now")
        assert it.wire.sent("session/prompt")[0]["sessionId"] == "older"
        it.handlers["session/load"] = _refuse(-32002, "no such session")
        with pytest.raises(RpcError):
            await relay(it, beside("none", caller=Client()), "session/load", sessionId="none", **SETUP)


async def test_a_replay_that_would_not_be_the_conversation_is_not_asked_for() -> None:
    """While the agent works in the session, and once it has forgotten how the thread began."""
    upstream: Any = None
    async with rig() as it:
        it.can(loadSession=True)
        context = await new(it)
        upstream = thread_of(context).upstream["wire"]
        working = asyncio.create_task(it.outbound.run(it.context(thread="t1", upstream_thread=upstream)))
        prompt = await it.wire.prompt()
        with pytest.raises(Unsupported):
            await relay(it, context, "session/load", sessionId="t1", **SETUP)
        it.wire.say({"id": prompt["id"], "result": {"stopReason": "end_turn"}})
        await working
        it.handlers["session/load"] = lambda _: {}
        assert await relay(it, context, "session/load", sessionId="t1", **SETUP) == {}
    async with rig() as it:
        it.can(loadSession=True)
        it.handlers["session/load"] = _refuse(-32602, "unknown session")
        it.handlers["session/new"] = lambda _: {"sessionId": "s9"}
        after = it.context(thread="t1", upstream_thread=upstream)
        await it.turn(after, "on we go")
        it.handlers["session/load"] = lambda _: {}
        again = it.context(thread="t1", upstream_thread=thread_of(after).upstream["wire"])
        with pytest.raises(Unsupported):
            await relay(it, again, "session/load", sessionId="t1", **SETUP)


async def test_a_fork_becomes_the_session_of_the_thread_that_is_made_for_it() -> None:
    async with rig() as it:
        context = await new(it)
        it.handlers["session/fork"] = lambda _: {"sessionId": "forked", "modes": MODES}
        result = await relay(it, context, "session/fork", sessionId="t1", cwd="/w")
        assert result["sessionId"] == "forked"
        it.wire.chunk("forked", "between")
        forked = it.context(thread="forked")
        forked.caller = Client()
        await it.turn(forked, "x")
        assert it.wire.sent("session/prompt")[0]["sessionId"] == "forked"
        assert [note.kind for note in forked.notes] == ["output"]
        assert len(it.wire.sent("session/new")) == 1


async def test_a_closed_session_is_forgotten_and_closing_what_is_not_open_starts_nothing() -> None:
    async with rig() as it:
        it.can(sessionCapabilities={"close": {}, "resume": {}})
        it.handlers["session/close"] = lambda _: {}
        it.handlers["session/resume"] = lambda _: {}
        context = await new(it)
        assert await relay(it, context, "session/close", sessionId="t1") == {}
        it.wire.chunk("s1", "nobody listens")
        await settled()
        assert not context.notes
        again = it.context(thread="t1", upstream_thread=thread_of(context).upstream["wire"])
        again.caller = context.caller
        await it.turn(again, "x")
        assert len(it.wire.sent("session/resume")) == 1
    async with rig() as it:
        assert await relay(it, beside("t1", caller=Client()), "session/close", sessionId="t1") == {}
        assert await relay(it, beside("t1", caller=Client()), "session/delete", sessionId="t1") == {}
        assert not it.wires
        it.handlers["session/delete"] = lambda _: {"_meta": {"gone": True}}
        known = beside("t1", caller=Client(), upstream=thread_of(context).upstream["wire"])
        assert await relay(it, known, "session/delete", sessionId="t1") == {"_meta": {"gone": True}}
        assert [m["method"] for m in it.wire.got] == ["initialize", "session/delete"]
        assert it.wire.sent("session/delete") == [{"sessionId": "s1"}]


async def test_a_session_that_nobody_uses_is_put_away_and_taken_up_again() -> None:
    async with rig(idle=0.05) as it:
        it.can(sessionCapabilities={"close": {}, "resume": {}})
        it.handlers["session/close"] = lambda _: {}
        it.handlers["session/resume"] = lambda _: {}
        busy = await it.started(it.context(run="r0", thread="t0"))
        first = it.context(run="r1", thread="t1")
        await it.turn(first, "x")
        await it.wire.find("session/close")
        assert it.wire.sent("session/close") == [{"sessionId": "s2"}]
        await until(lambda: "t1" not in it.outbound._sessions._by_thread)
        await it.turn(it.context(run="r2", thread="t1", upstream_thread=thread_of(first).upstream["wire"]), "y")
        assert it.wire.sent("session/resume")[0]["sessionId"] == "s2"
        it.wire.end(await it.wire.prompt())
        await asyncio.wait(busy)
        assert len(it.wires) == 1


async def test_a_new_session_with_the_id_of_a_busy_one_is_the_agents_mistake() -> None:
    async with rig() as it:
        it.handlers["session/new"] = lambda _: {"sessionId": "same"}
        first = it.context(run="r1", thread="t1")
        [task] = await it.started(first)
        with pytest.raises(AgentBroken, match="busy"):
            await it.outbound.run(it.context(run="r2", thread="t2"))
        it.wire.end(await it.wire.prompt())
        await task
        await it.turn(it.context(run="r3", thread="t3"), "x")


@pytest.mark.parametrize("answer", [None, {}, {"sessionId": ""}, {"sessionId": 7}, [1]])
async def test_a_session_without_an_id_is_the_agents_mistake(answer: Any) -> None:
    async with rig() as it:
        it.handlers["session/new"] = lambda _: answer
        with pytest.raises(AgentBroken):
            await it.turn(it.context())


@pytest.mark.parametrize("answer", [None, [], {"protocolVersion": 2, "agentCapabilities": {}}, {}])
async def test_an_agent_of_another_version_is_refused(answer: Any) -> None:
    async with rig() as it:
        it.initialized = answer
        with pytest.raises(AgentBroken):
            await it.outbound.describe()
        assert it.outbound.reachable is False
        assert it.wire.closed


async def test_readiness_tells_whether_the_agent_is_there() -> None:
    async with rig(idle=600) as it:
        assert it.outbound.reachable is None
        await it.outbound.describe()
        assert it.outbound.reachable is True


async def test_a_process_is_kept_while_its_client_is_there_and_for_a_while_after() -> None:
    async with rig(idle=0.05) as it:
        client = Client()
        context = await new(it, client=client)
        session = it.outbound._sessions.of(context)
        await until(lambda: session.lease._timer is not None)
        for _ in range(3):
            last = session.lease._timer
            await until(lambda last=last: session.lease._timer is not last)  # type: ignore[misc]
        assert not it.wire.closed
        context.caller = None
        await until(lambda: it.wire.closed)
