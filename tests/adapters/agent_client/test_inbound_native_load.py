"""Sessions on record whose agent speaks the protocol and loads them: it is asked, and what it says is told as it is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gateway.config import Route
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentGone, NotFound
from gateway.core.types import ThreadUpdate
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.editor import Editor, Refused
from tests.adapters.agent_client.governed_rules import Rules
from tests.adapters.agent_client.inbound_rig import LOAD, Native, Rig, native, note, rig, update
from tests.support.rpc import settled
from tests.support.scripted import Script, echo, until

MODES = {"currentModeId": "code", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]}


def say(context: Any, text: str) -> None:
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    context.note(ThreadUpdate(protocol="agent_client", kind="output", data=said, kept=True))


def retell(context: Any, text: str) -> None:
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    context.retell(ThreadUpdate(protocol="agent_client", kind="output", data=said, kept=True))


def keeping(script: Script = echo) -> tuple[Route, Native]:
    """An agent that has kept one message of each session, and two commands."""
    route, agent = native(script)

    async def new(context: Any, _: Raw) -> dict[str, Any]:
        await context.set_thread({"session": "theirs"})
        return {"sessionId": context.thread.id}

    async def load(context: Any, _: Raw) -> dict[str, Any]:
        say(context, "kept ")
        await asyncio.sleep(0)
        commands = {"sessionUpdate": "available_commands_update", "availableCommands": []}
        context.note(ThreadUpdate(protocol="agent_client", kind="available_commands_update", data=commands))
        return {"modes": MODES, "_acme": 1}

    agent.answers |= {"session/new": new, "session/load": load}
    return route, agent


async def prompted(gateway: Rig) -> tuple[Editor, str]:
    """A client, and its session with one turn in it."""
    editor, session = await gateway.opened()
    await editor.prompt(session, "hello")
    editor.updates.clear()
    return editor, session


async def test_the_agent_tells_the_client_that_loads_and_no_other_and_nothing_is_recorded_twice() -> None:
    async with rig(keeping()) as gateway:
        editor, session = await prompted(gateway)
        one, two = await gateway.connect(), await gateway.connect()
        for each in (one, two, one):
            assert await each.load(session) == {"modes": MODES, "_acme": 1}
            assert each.kinds() == ["agent_message_chunk", "available_commands_update"]
            assert each.text() == "kept "
        await one.prompt(session, "more")
        await two.heard("more")
        assert two.text() == "kept more " and editor.text() == "more ", "what comes later is everyone's"
        await gateway.engine.conversations.settled()
        thread = await gateway.engine.threads.get(session)
        assert [update.kind for update in thread.updates if update.kept] == []
        assert [update.kind for update in thread.updates] == ["available_commands_update"]


async def test_what_the_agent_tells_behind_its_answer_is_told_who_loaded_alone_until_that_leaves() -> None:
    route, agent = keeping()
    async with rig((route, agent)) as gateway:
        editor, session = await prompted(gateway)
        other = await gateway.connect()
        await other.load(session)
        context = agent.beside[-1]
        retell(context, "late ")
        note(context, update("current_mode_update", currentModeId="ask"))
        await editor.until(lambda: "current_mode_update" in editor.kinds())
        await other.until(lambda: "current_mode_update" in other.kinds())
        assert (editor.text(), other.text()) == ("", "kept late ")
        await other.request("session/close", {"sessionId": session})
        retell(context, "too late ")
        other.updates.clear()
        await other.load(session)
        assert (editor.text(), other.text()) == ("", "kept ")
        await gateway.engine.conversations.settled()
        thread = await gateway.engine.threads.get(session)
        assert not any(update.kept for update in thread.updates), "the record has it in its runs"


async def test_two_clients_that_load_at_once_are_each_told_once() -> None:
    async with rig(keeping()) as gateway:
        _, session = await prompted(gateway)
        editors = [await gateway.connect() for _ in range(5)]
        await asyncio.gather(*(each.load(session) for each in editors))
        assert [each.text() for each in editors] == ["kept "] * 5


async def test_while_a_run_is_in_progress_the_record_is_told_and_the_run_goes_on_being_told() -> None:
    gate = asyncio.Event

    go_on = gate()

    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="one "))
        await context.drain()
        await go_on.wait()
        context.emit(e.PartDelta(part="text", delta="two"), e.RunFinished())

    route, agent = keeping(script)
    async with rig((route, agent)) as gateway:
        editor, session = await gateway.opened()
        prompt = await editor.start(session)
        await editor.heard("one")
        other = await gateway.connect()
        await other.load(session)
        assert other.text() == "one " and other.text("user_message_chunk") == "hello there"
        go_on.set()
        await other.heard("two")
        await prompt
        assert [method for method, _, _ in agent.relayed] == ["session/new"]
        await other.load(session)
        assert other.text() == "kept " and agent.relayed[-1][0] == "session/load"


@pytest.mark.parametrize(
    "error",
    [RpcError(-32602, "unknown session", {"it": "is gone"}), RpcError(-32603, "Internal error"), AgentGone("?")],
)
async def test_the_record_serves_where_the_agent_tells_nothing(error: Exception) -> None:
    route, agent = keeping()
    agent.answers["session/load"] = error
    async with rig((route, agent)) as gateway:
        _, session = await prompted(gateway)
        other = await gateway.connect()
        assert await other.load(session) == {}
        assert (other.text("user_message_chunk"), other.text()) == ("hello", "hello ")
        assert len(gateway.connections(session)) == 2, "none is left of what came to nothing"


async def test_an_error_after_a_part_of_the_replay_is_the_clients_and_so_is_that_it_is_to_authenticate() -> None:
    route, agent = keeping()

    def half(context: Any, _: Raw) -> None:
        say(context, "half ")
        raise RpcError(-32042, "torn", {"page": 2})

    async with rig((route, agent)) as gateway:
        _, session = await prompted(gateway)
        other = await gateway.connect()
        for answer, code, told in ((half, -32042, "half "), (RpcError(-32000, "Authentication required"), -32000, "")):
            agent.answers["session/load"] = answer
            other.updates.clear()
            error = await other.refused("session/load", {"sessionId": session, "cwd": "/work", "mcpServers": []})
            assert (error.code, other.text()) == (code, told)
            assert len(gateway.connections(session)) == 1


async def test_of_a_governed_agent_the_record_is_told_since_a_replay_was_not_decided(tmp_path: Path) -> None:
    route, agent = keeping()
    async with rig((route, agent)) as gateway:
        gateway.engine.agents.extension = lambda name, protocol, key: Rules(tmp_path)  # type: ignore[method-assign]
        editor = await gateway.connect()
        session = await editor.new(cwd=str(tmp_path))
        await editor.prompt(session, "hello")
        other = await gateway.connect()
        await other.request("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        assert other.text() == "hello " and [method for method, _, _ in agent.relayed] == ["session/new"]


@pytest.mark.parametrize("begins", ["session/load", "session/set_mode"])
async def test_a_session_that_the_agent_does_not_load_for_one_editor_is_asked_for_again_for_the_next(
    begins: str,
) -> None:
    route, agent = keeping()
    answers: list[asyncio.Future[Any]] = []

    async def load(context: Any, _: Raw) -> Any:
        answers.append(asyncio.get_running_loop().create_future())
        await answers[-1]
        say(context, "kept ")
        return {"modes": MODES}

    agent.answers |= {"session/load": load, "session/resume": load}
    async with rig((route, agent)) as gateway:
        one, two, three = [await gateway.connect() for _ in range(3)]
        refused = await one.begin("session/load", {"sessionId": "theirs", **LOAD})
        await until(lambda: len(answers) == 1)
        params = {"sessionId": "theirs", **LOAD} if begins == "session/load" else {"modeId": "code"}
        waiting = [await each.begin(begins, {"sessionId": "theirs", **params}) for each in (two, three)]
        await settled()
        answers[0].set_exception(RpcError(-32603, "not now"))
        with pytest.raises(Refused, match="not now"):
            await refused
        await until(lambda: len(answers) == 2)
        answers[1].set_result(None)
        if begins == "session/load":  # by the first of the others from the agent, by the last from what was kept
            await waiting[0]
            assert two.text() == "kept "
        await asyncio.gather(*waiting)
        await two.prompt("theirs", "more")
        await three.heard("more")
        assert three.text() == ("kept more " if begins == "session/load" else "more ")


async def test_a_session_that_the_agent_refuses_to_one_process_stays_with_the_editor_of_another(tmp_path: Path) -> None:
    refuses, asked = asyncio.Event(), asyncio.Event()

    async def load(context: Any, _: Raw) -> Any:
        asked.set()
        await refuses.wait()
        raise RpcError(-32603, "not now")

    def retells(context: Any, _: Raw) -> dict[str, Any]:
        say(context, "kept ")
        return {"modes": MODES}

    here, there = keeping(), keeping()
    here[1].answers["session/load"], there[1].answers["session/load"] = load, retells
    async with rig(here, file=tmp_path / "s.db") as one, rig(there, file=tmp_path / "s.db") as two:
        early, late = await one.connect(), await two.connect()
        refused = await early.begin("session/load", {"sessionId": "theirs", **LOAD})
        await asked.wait()
        await late.request("session/load", {"sessionId": "theirs", **LOAD})
        assert late.text() == "kept "
        refuses.set()
        with pytest.raises(Refused, match="not now"):
            await refused
        assert await late.prompt("theirs", "hello") == {"stopReason": "end_turn"}
        late.updates.clear()
        await late.request("session/load", {"sessionId": "theirs", **LOAD})
        assert late.text() == "kept hello "


@pytest.mark.parametrize("begins", ["session/load", "session/prompt"])
async def test_a_session_that_another_process_records_while_it_is_looked_for_is_taken_up_from_there(
    begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = keeping(), keeping()
    here[1].answers["session/resume"] = RpcError(-32603, "it is open elsewhere")
    async with rig(here, file=tmp_path / "s.db") as one, rig(there, file=tmp_path / "s.db") as two:
        editor, other = await one.connect(), await two.connect()
        get = one.engine.threads.get
        looked = 0

        async def late(session: str) -> Any:
            nonlocal looked
            looked += 1
            try:
                return await get(session)
            except NotFound:
                if looked == 1:
                    await other.request("session/load", {"sessionId": "theirs", **LOAD})
                    await other.prompt("theirs", "hello")
                raise

        monkeypatch.setattr(one.engine.threads, "get", late)
        if begins == "session/load":
            await editor.request("session/load", {"sessionId": "theirs", **LOAD})
            assert editor.text() == "kept hello "
        assert await editor.prompt("theirs", "more") == {"stopReason": "end_turn"}


async def test_a_session_that_the_agent_has_loaded_stays_though_the_editor_leaves_before_it_is_told() -> None:
    route, agent = keeping()

    def load(context: Any, _: Raw) -> None:
        for _ in range(3):  # more than what is held for a client that does not read
            say(context, "x" * 2_000_000)

    agent.answers["session/load"] = load
    async with rig((route, agent)) as gateway:
        one, two = await gateway.connect(limit=2000), await gateway.connect()
        one.reads.clear()
        asked = await one.begin("session/load", {"sessionId": "theirs", **LOAD})
        await until(lambda: len(agent.relayed) == 1)
        await two.load("theirs", "session/resume")
        assert not asked.done()
        await one.pipe.aclose()
        await until(lambda: len(gateway.connections("theirs")) == 1)
        assert await two.prompt("theirs", "hello") == {"stopReason": "end_turn"}


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_an_agent_that_takes_up_no_sessions_is_asked_for_none(method: str) -> None:
    """The gateway says to editors that sessions can be loaded: that the method is unknown would be no answer."""
    route, agent = native(echo)
    agent.agent = replace(agent.agent, extra={"agent_client": {"protocolVersion": 1}})
    agent.answers |= {name: RpcError(-32601, "Method not found") for name in ("session/load", "session/resume")}
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        error = await editor.refused(method, {"sessionId": "nope", **LOAD})
        assert (error.code, error.message) == (-32002, "no session nope")
        assert not agent.relayed


async def test_a_prompt_in_a_session_that_only_the_agent_has_takes_it_up() -> None:
    route, agent = keeping()
    agent.answers["session/resume"] = {}
    async with rig((route, agent)) as gateway:
        editor = await gateway.connect()
        assert await editor.prompt("listed", "hello") == {"stopReason": "end_turn"}
        assert agent.relayed == [("session/resume", b'{"sessionId":"listed","mcpServers":[]}', "listed")]
        agent.answers["session/resume"] = RpcError(-32602, "unknown session", {"id": "x"})
        for method, more in (
            ("session/prompt", {"prompt": [{"type": "text", "text": "hi"}]}),
            ("session/set_mode", {"modeId": "code"}),
            ("session/set_config_option", {"configId": "m", "value": "a"}),
        ):
            error = await editor.refused(method, {"sessionId": "x", **more})
            assert (error.code, error.message, error.data) == (-32602, "unknown session", {"id": "x"})
        assert [each["sessionId"] for each in (await editor.request("session/list", {}))["sessions"]] == ["listed"]
