"""Terminals of agents of version 2 on a governed route are seen where the call that shows them is, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adapters.agent_client.codec.event_forms import beyond
from adapters.agent_client.wire import ORIGIN_V2
from gateway.agents.entry import Entry
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Run, RunStatus
from gateway.governance.enforcing import Enforcement
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.adapters.agent_client.governed_rules import Rules as Told
from tests.adapters.agent_client.outbound_agent import OPTIONS, Rig, settled
from tests.adapters.agent_client.v2_agent import Agent, rig
from tests.governance.enforcing.support import Ruled, documents
from tests.support.scripted import AGENT, request, route

SHOWS = [{"type": "terminal", "terminalId": "t1"}]


@asynccontextmanager
async def governed(folder: Path, it: Rig) -> AsyncIterator[Callable[[], Any]]:
    """The real rules over the agent on the wire: `read` is allowed, `drop` never is. Gives what starts a run."""

    async def script(context: RunContext) -> None:
        await it.outbound.run(context)

    scripted = Ruled(script, agent=AGENT)
    scripted.cancel = it.outbound.cancel  # type: ignore[method-assign]
    engine = Engine(open_store(f"sqlite:///{folder}/runs.db"), cancel_grace=0.2)
    enforcement = Enforcement(engine.records, engine.store.spend)
    engine.on_opened(enforcement.open)
    engine.accompany(closing=enforcement.aclose)
    engine.use([Entry(route(), enforcement.wrap(scripted, documents(folder)))])
    await engine.open()
    try:

        async def ended(of: Run) -> tuple[Run, list[str]]:
            found = await engine.runs.wait(of.id, timeout=30)
            assert found is not None
            told = [event for _, event in await engine.runs.events(of.id)]
            return found, [line for event in told for line in _lines(event)]

        async def start() -> tuple[Agent, Any]:
            made = await engine.runs.start(request())
            wire = await it.connected()
            agent = Agent(wire)
            agent.accept(await wire.prompt())
            agent.user()
            agent.state("running")
            return agent, lambda: ended(made)

        yield start
    finally:
        await engine.close()


def _lines(event: e.Event) -> list[str]:
    """What the log has of it: updates by kind, and what is said in calls."""
    if isinstance(event, e.ToolCallUpdated):
        return [f"{event.call}: {item['content']['text']}" for item in event.content or ()]
    return (
        [_short(event.data)]
        if isinstance(event, e.Custom) and not (beyond(event, ORIGIN_V2) or {}).get("silent")
        else []
    )


def _short(said: Any) -> str:
    return f"{said['sessionUpdate']} {said.get('terminalId') or said.get('toolCallId')}"


def call(agent: Agent, id: str, tool: str, **said: Any) -> None:
    agent.update("tool_call_update", toolCallId=id, title=tool, name=tool, kind="read", **said)


async def test_a_terminal_is_seen_with_its_call_whichever_comes_first(tmp_path: Path) -> None:
    async with rig(cwd=str(tmp_path)) as it, governed(tmp_path, it) as start:
        agent, ended = await start()
        agent.update("terminal_update", terminalId="t1", command="ls")
        call(agent, "c1", "read", status="in_progress")
        agent.update("tool_call_content_chunk", toolCallId="c1", content=SHOWS[0])
        agent.update("terminal_output_chunk", terminalId="t1", data="aGk=")
        agent.update("terminal_update", terminalId="t9", command="rm -rf /")
        agent.update("terminal_output_chunk", terminalId="t9", data="aGk=")
        agent.idle()
        found, told = await ended()
        assert found.status is RunStatus.SUCCESS
        shown = "c1: ```console\n$ ls\n"
        assert told == [f"{shown}```", "terminal_update t1", "terminal_output_chunk t1", f"{shown}hi\n```"]
        assert found.losses["tool_refused"] == 2, "a command that no call shows was judged by nobody"


async def test_nothing_is_seen_of_the_terminal_of_a_refused_call(tmp_path: Path) -> None:
    async with rig(cwd=str(tmp_path)) as it, governed(tmp_path, it) as start:
        agent, ended = await start()
        agent.update("terminal_update", terminalId="t1", command="ls /secret")
        call(agent, "c1", "drop", status="pending", content=SHOWS)
        agent.update("terminal_output_chunk", terminalId="t1", data="aGk=")
        subject = {"type": "tool_call", "toolCall": {"toolCallId": "c1"}}
        asked = {"sessionId": "s1", "title": "May I?", "options": OPTIONS, "subject": subject}
        answer = await it.wire.ask(1, "session/request_permission", **asked)
        assert answer["result"]["outcome"]["optionId"] == "no"
        agent.update("terminal_update", terminalId="t1", exitStatus={"exitCode": 0})
        agent.update("tool_call_content_chunk", toolCallId="c1", content={"type": "_secret", "x": 1})
        call(agent, "c2", "read", status="in_progress", content=SHOWS)  # it stays the first one's
        agent.update("terminal_output_chunk", terminalId="t1", data="aGk=")
        agent.update("tool_call_update", toolCallId="c1", status="failed")
        agent.idle()
        found, told = await ended()
        assert found.status is RunStatus.SUCCESS
        assert told == ["c2: (Its terminal is shown with an earlier tool call.)"]
        assert found.losses["tool_refused"] >= 5


async def test_more_of_a_call_whose_name_comes_again_is_judged_with_the_newest(tmp_path: Path) -> None:
    async with rig(cwd=str(tmp_path)) as it, governed(tmp_path, it) as start:
        agent, ended = await start()
        call(agent, "c1", "read", status="in_progress")
        agent.update("tool_call_content_chunk", toolCallId="c1", content={"type": "_fine", "x": 1})
        call(agent, "c1", "read", status="completed")
        call(agent, "c1", "drop", status="pending")
        agent.update("tool_call_content_chunk", toolCallId="c1", content={"type": "_secret", "x": 1})
        agent.update("tool_call_update", toolCallId="c1", status="failed")
        agent.idle()
        found, told = await ended()
        assert found.status is RunStatus.SUCCESS
        assert told == ["tool_call_content_chunk c1"], "and not that of the refused one"


async def test_terminals_between_runs_are_told_nobody(tmp_path: Path) -> None:
    async with rig(cwd=str(tmp_path)) as it:
        context = it.context(thread="t1")
        context.governor = context.governed = Told(tmp_path)
        [task] = await it.started(context)
        agent = Agent(it.wire)
        agent.accept(await it.wire.prompt())
        agent.user()
        agent.idle()
        await task
        agent.state("running")
        agent.update("terminal_update", terminalId="t1", command="rm -rf /")
        agent.update("terminal_output_chunk", terminalId="t1", data="aGk=")
        agent.say("words are told")
        await settled()
        assert [note.data["sessionUpdate"] for note in context.notes] == ["state_update", "agent_message_chunk"]
