"""Whole conversations with editors of both versions, message for message (`transcripts/`).

A transcript is what one client said (`>`) and was told (`<`), in order and as it went over the wire; ids that are made
at random are numbered. `python -m tests.adapters.agent_client.test_inbound_transcripts` writes them anew.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import Interrupt, ThreadUpdate
from gateway.wire import jsonrpc
from tests.adapters.agent_client import v2_editor
from tests.adapters.agent_client.editor import Editor, Refused, said
from tests.adapters.agent_client.inbound_rig import YES_NO, Rig, native, rig, scripted
from tests.support.aio import run

FOLDER = Path(__file__).parent / "transcripts"
ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
WORK = {"cwd": "/work", "mcpServers": []}


class Transcript:
    """What was said between the gateway and its clients."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._lines: dict[str, list[str]] = {}

    async def connect(self, gateway: Rig, name: str, agent: str | None = "scripted") -> Any:
        """A client that has shaken hands, and is written down under this name."""
        if self.version == 2:
            editor: Editor = await v2_editor.raw(gateway, agent, capabilities=v2_editor.FORMS)
        else:
            editor = await gateway.raw(agent)
        lines = self._lines.setdefault(name, [])
        take, say = editor._take, editor._say

        def taken(message: Any) -> None:
            lines.append(f"{name} < {jsonrpc.encoded(message).decode()}")
            take(message)

        async def told(message: dict[str, Any]) -> None:
            lines.append(f"{name} > {jsonrpc.encoded(message).decode()}")
            await say(message)

        await editor.initialize()
        editor._take, editor._say = taken, told  # type: ignore[method-assign]
        return editor

    def text(self) -> str:
        names: dict[str, str] = {}
        all = "".join(f"{line}\n" for lines in self._lines.values() for line in lines)
        return ID.sub(lambda found: names.setdefault(found[0].replace("-", ""), f"ID{len(names) + 1}"), all)


Scenario = Callable[[Transcript], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def choice(session: str, option: str, value: str, version: int) -> dict[str, Any]:
    """Params that set an option."""
    typed = {"type": "id"} if version == 2 else {}
    return {"sessionId": session, "configId": option, **typed, "value": value}


def again(session: str, version: int) -> tuple[str, dict[str, Any]]:
    """The request that opens a session and tells what was."""
    if version == 1:
        return "session/load", {"sessionId": session, **WORK}
    return "session/resume", {"sessionId": session, "cwd": "/work", "replayFrom": {"type": "start"}}


async def over(editor: Any, answer: Any, version: int, seen: int) -> None:
    """Wait until the prompt is answered, and what it began is over."""
    async with asyncio.timeout(30):
        await answer
    if version == 2:
        await editor.over(seen)


async def turn(editor: Any, session: str, version: int, text: str = "hello there") -> None:
    seen = len(editor.updates)
    await over(editor, await editor.start(session, text), version, seen)


async def says_it_again(context: RunContext) -> None:
    """An agent that says the input again, at once."""
    context.emit(e.PartDelta(part="text", delta=f"{context.run.request.input['message']} "))
    context.emit(e.RunFinished())
    await context.drain()


def two_steps(go: asyncio.Event) -> Callable[[RunContext], Awaitable[None]]:
    """An agent that says one thing and calls a tool, waits, and says another."""

    async def script(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="before "))
        context.emit(e.ToolCallStarted(call="c", name="look"))
        await context.drain()
        await go.wait()
        context.emit(e.ToolCallEnded(call="c"))
        context.emit(e.PartDelta(part="text", delta="after"))
        context.emit(e.RunFinished())
        await context.drain()

    return script


# --- the scenarios ------------------------------------------------------------------------------------------------


@scenario
async def a_turn_and_a_prompt_too_many(told: Transcript) -> None:
    go = asyncio.Event()
    async with rig(scripted(two_steps(go)), v2=True) as gateway:
        editor = await told.connect(gateway, "a")
        session = await editor.new()
        answer = await editor.start(session)
        await editor.heard("before")
        await editor.refused("session/prompt", said(session, "another"))
        go.set()
        await over(editor, answer, told.version, 0)
        await turn(editor, session, told.version)


@scenario
async def a_load_while_a_run_goes_on(told: Transcript) -> None:
    go = asyncio.Event()
    go.set()
    async with rig(scripted(two_steps(go)), v2=True) as gateway:
        editor = await told.connect(gateway, "a")
        session = await editor.new()
        await turn(editor, session, told.version, "one")
        go.clear()
        answer = await editor.start(session, "two")
        await editor.until(lambda: str(editor.updates).count("before") == 2)
        other = await told.connect(gateway, "b")
        await other.request(*again(session, told.version))
        go.set()
        await over(editor, answer, told.version, len(editor.updates))
        await other.until(lambda: str(other.updates).count("after") == 2)
        if told.version == 2:
            await other.over(len(other.updates) - 1)


@scenario
async def a_cancel(told: Transcript) -> None:
    go = asyncio.Event()
    route, agent = scripted(two_steps(go))
    agent.on_cancel = go.set
    async with rig((route, agent), v2=True) as gateway:
        editor = await told.connect(gateway, "a")
        session = await editor.new()
        answer = await editor.start(session)
        await editor.heard("before")
        await editor.notify("session/cancel", {"sessionId": session})
        await over(editor, answer, told.version, 0)


@scenario
async def questions_of_all_kinds(told: Transcript) -> None:
    async def script(context: RunContext) -> None:
        for number, schema in enumerate((YES_NO, {"type": "integer"})):
            context.emit(e.PartDelta(part="text", delta=f"Question {number}. "))
            answer = await context.ask(
                Interrupt(id=f"q{number}", kind="input", message="Which one?", answer_schema=schema)
            )
            context.emit(e.PartDelta(part="text", delta=f"{answer.outcome.value} {answer.value}. "))
        context.emit(e.RunFinished())
        await context.drain()

    async with rig(scripted(script), v2=True) as gateway:
        editor = await told.connect(gateway, "a")
        session = await editor.new()
        answer = await editor.start(session)
        asked = await editor.next_asked()
        options = asked["params"].get("options", [])
        await editor.choose(asked, options[0]["optionId"])
        if told.version == 2:
            await editor.answer(await editor.next_asked(2), {"action": "accept", "content": {"value": 7}})
            await over(editor, answer, told.version, len(editor.updates))
        else:
            async with asyncio.timeout(30):
                await answer
            await turn(editor, session, told.version, "no number")
            await turn(editor, session, told.version, "7")


@scenario
async def a_close_in_mid_turn(told: Transcript) -> None:
    go = asyncio.Event()
    route, agent = scripted(two_steps(go))
    agent.on_cancel = go.set
    async with rig((route, agent), v2=True) as gateway:
        editor = await told.connect(gateway, "a")
        session = await editor.new()
        answer = await editor.start(session)
        await editor.heard("before")
        await editor.request("session/close", {"sessionId": session})
        await over(editor, answer, told.version, 0)
        await editor.request(*again(session, told.version))


@scenario
async def a_client_that_drops_in_mid_turn(told: Transcript) -> None:
    go = asyncio.Event()
    async with rig(scripted(two_steps(go)), v2=True) as gateway:
        editor = await told.connect(gateway, "a")
        session = await editor.new()
        await editor.start(session)
        await editor.heard("before")
        await editor.pipe.aclose()
        other = await told.connect(gateway, "b")
        await other.request(*again(session, told.version))
        go.set()
        await other.until(lambda: "after" in str(other.updates))
        if told.version == 2:
            await other.over()
        await turn(other, session, told.version)


@scenario
async def an_agent_that_is_chosen(told: Transcript) -> None:
    route, agent = native(says_it_again, "two")
    config = {"type": "object", "properties": {"tone": {"enum": ["warm", "cold"], "default": "warm"}}}
    async with rig(scripted(says_it_again, "one", config_schema=config), (route, agent), v2=True) as gateway:
        editor = await told.connect(gateway, "a", None)
        session = await editor.new()
        other = await told.connect(gateway, "b", None)
        await other.request(*again(session, told.version))
        await editor.request("session/set_config_option", choice(session, "tone", "cold", told.version))
        agent.answers["session/new"] = Unavailable("it is not there")
        chosen = choice(session, "agent", "two", told.version)
        with pytest.raises(Refused):
            await editor.request("session/set_config_option", chosen)
        await turn(editor, session, told.version, "to one")
        del agent.answers["session/new"]
        await editor.request("session/set_config_option", chosen)
        await turn(editor, session, told.version, "to two")
        await other.until(lambda: "two " in str(other.updates))
        if told.version == 2:
            await other.over(len(other.updates) - 1)


@scenario
async def modes_and_what_an_agent_says_between_turns(told: Transcript) -> None:
    modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]}
    route, agent = native(says_it_again)

    def new(context: Any, _: Raw) -> dict[str, Any]:
        context.note(ThreadUpdate(protocol="agent_client", kind="modes", data=modes))
        return {"sessionId": context.thread.id, "modes": modes}

    agent.answers["session/new"] = new
    async with rig((route, agent), v2=True) as gateway:
        editor = await told.connect(gateway, "a")
        session = await editor.new()
        other = await told.connect(gateway, "b")
        await other.request(*again(session, told.version))
        if told.version == 1:
            await editor.request("session/set_mode", {"sessionId": session, "modeId": "code"})
        else:
            await editor.request("session/set_config_option", choice(session, "mode", "code", 2))
        await other.until(lambda: "code" in str(other.updates))
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "by the way"}}
        agent.beside[0].note(ThreadUpdate(protocol="agent_client", kind="output", data=chunk, kept=True))
        for each in (editor, other):
            await each.until(lambda each=each: "by the way" in str(each.updates))
        await turn(editor, session, told.version)


@scenario
async def a_session_that_only_the_agent_knows(told: Transcript) -> None:
    route, agent = native(says_it_again)

    def replays(context: Any, _: Raw) -> dict[str, Any]:
        for number in range(3):
            for kind in ("user_message_chunk", "agent_message_chunk"):
                data = {"sessionUpdate": kind, "content": {"type": "text", "text": f"{number}"}}
                context.note(ThreadUpdate(protocol="agent_client", kind="output", data=data, kept=True))
        return {}

    agent.answers["session/load"] = replays
    async with rig((route, agent), v2=True) as gateway:
        editor = await told.connect(gateway, "a")
        await editor.request(*again("theirs", told.version))
        await turn(editor, "theirs", told.version)


# --- the tests ----------------------------------------------------------------------------------------------------


def transcript(name: str, version: int) -> str:
    async def main() -> str:
        told = Transcript(version)
        async with asyncio.timeout(60):
            await SCENARIOS[name](told)
        return told.text()

    return run(main())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_conversation_goes_message_for_message_as_it_did(name: str, version: int) -> None:
    assert transcript(name, version) == (FOLDER / f"{name}.v{version}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:] or SCENARIOS:
        for number in (1, 2):
            (FOLDER / f"{each}.v{number}.txt").write_text(transcript(each, number), encoding="utf-8")
