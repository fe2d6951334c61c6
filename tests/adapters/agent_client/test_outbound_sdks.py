"""The official SDKs' agents behind an engine: on stdio, over a WebSocket, over Streamable HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.core import events as e
from gateway.core.types import Answer, Outcome, Run, RunStatus, StopReason
from tests.adapters.agent_client.outbound_house import House, house, text
from tests.support.agent_client import SDKS, Sdk, agent_client_agent_command, agent_client_agent_server
from tests.support.aio import run
from tests.support.processes import Process
from tests.support.scripted import request as request_of

EVERYTHING = "think plan commands usage title mode option mirror tool blocks picture link embed meta noise where"


async def kinds(it: House, ended: Run) -> set[str]:
    return {type(event).__name__ for _, event in await it.engine.runs.events(ended.id)}


@pytest.mark.parametrize("sdk", SDKS)
async def test_everything_that_an_agent_can_say_arrives(sdk: Sdk, tmp_path: Path) -> None:
    command = agent_client_agent_command(sdk, "--early", "--banner")
    async with house(command=command, cwd=tmp_path) as it:
        agent = await it.outbound.describe()
        assert agent.extra["agent_client"]["agentCapabilities"]["loadSession"] is True
        ended = await it.ask(EVERYTHING, await it.thread("t1"))
        assert ended.status is RunStatus.SUCCESS, ended.failure
        assert f"where {tmp_path}" in text(ended)
        assert "blocks text" in text(ended)
        found = await kinds(it, ended)
        wanted = ("PlanUpdated", "ToolCallStarted", "ToolCallEnded", "UsageReported", "Custom", "ArtifactAdded")
        assert found >= set(wanted)
        assert not ended.losses
        later = await it.ask("again", "t1")
        assert text(later).strip().endswith("again")


@pytest.fixture(scope="module", params=SDKS)
def talked(request: pytest.FixtureRequest) -> dict[str, Run]:
    """How runs with one process of each SDK's agent ended; each in a session of its own."""

    async def body() -> dict[str, Run]:
        async with house(command=agent_client_agent_command(request.param)) as it:

            async def answered(answer: Answer) -> Run:
                asking = await it.ask("perm")
                [interrupt] = asking.interrupts
                await it.engine.runs.answer(asking.id, answer, interrupt.id)
                ended = await it.engine.runs.wait(asking.id, timeout=30)
                assert ended is not None
                return ended

            ended = {option: await answered(Answer(value={"optionId": option})) for option in ("ok", "no")}
            ended["cancelled"] = await answered(Answer(outcome=Outcome.CANCELLED))
            ended |= {word: await it.ask(word) for word in ("refuse", "max", "fail", "fs")}
            slow = await it.engine.runs.start(request_of("slow", agent="prog"))
            await it.sent(slow)
            ended["slow"] = await it.engine.runs.cancel(slow.id, wait=True)
            ended["loud"] = await it.ask("hello", config={"loud": True, "model": "large"})
            ended["no model"] = await it.ask("hello", config={"model": "none"})
            return ended

    return run(body())


def test_questions_are_asked_and_answered(talked: dict[str, Run]) -> None:
    assert '"ok"' in text(talked["ok"]) and '"no"' in text(talked["no"])
    assert "cancelled" in text(talked["cancelled"])


def test_turns_end_as_the_agent_says(talked: dict[str, Run]) -> None:
    assert talked["refuse"].stop_reason is StopReason.REFUSAL
    assert talked["max"].stop_reason is StopReason.MAX_TOKENS
    assert talked["fail"].status is RunStatus.ERROR and talked["fail"].failure is not None
    assert talked["slow"].status is RunStatus.CANCELLED and not talked["slow"].losses


def test_options_are_set_and_one_that_is_not_offered_fails(talked: dict[str, Run]) -> None:
    assert "HELLO" in text(talked["loud"])
    failed = talked["no model"].failure
    assert failed is not None and failed.code == "invalid"


def test_files_are_not_served_without_a_workspace(talked: dict[str, Run]) -> None:
    assert "fs failed -32601" in text(talked["fs"])


@pytest.mark.parametrize("sdk", SDKS)
async def test_files_and_terminals_of_a_workspace_are_used(sdk: Sdk, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("FILE BODY")

    workspace = {"root": tmp_path, "write": True, "terminals": True}
    async with house(command=agent_client_agent_command(sdk), workspace=workspace) as it:
        ended = await it.ask("fs term termkill")
        assert "read FILE BODY" in text(ended)
        assert (tmp_path / "y").exists()
        assert "term 0 hi" in text(ended)
        assert "failed" not in text(ended)


@pytest.mark.parametrize("sdk", SDKS)
async def test_an_agent_that_wants_a_login_fails_and_says_which(sdk: Sdk) -> None:
    async with house(command=agent_client_agent_command(sdk, "--auth")) as it:
        refused = await it.ask("hello")
        assert refused.failure is not None and refused.failure.code == "agent_error"
        assert "key" in refused.failure.message


@pytest.mark.parametrize(("sdk", "without"), [("py", ""), ("ts-2", "resume"), ("ts-2", "resume,load")])
async def test_a_conversation_goes_on_with_a_new_process(sdk: Sdk, without: str, tmp_path: Path) -> None:
    command = agent_client_agent_command(sdk, "--state", str(tmp_path / "state"), "--without", without)
    async with house(command=command) as it:
        thread = await it.thread("t1")
        assert "one" in text(await it.ask("one", thread))
        gone = await it.ask("exit", thread)
        assert gone.failure is not None and "exited with 3" in gone.failure.message
        ended = await it.ask("two", thread)
        forgot = without == "resume,load"
        assert text(ended).split()[-1] == "two"
        assert ("one" in text(ended)) is forgot, "what it has forgotten it is told again"
        assert ended.losses == ({"session_forgotten": 1} if forgot else {})


@pytest.fixture(scope="module", params=SDKS)
def server(request: pytest.FixtureRequest) -> Iterator[Process]:
    """Each SDK's agent as a server."""
    with agent_client_agent_server(request.param) as process:
        yield process


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_an_agent_that_is_a_server_is_called(server: Process, scheme: str) -> None:
    async def body(url: str) -> None:
        async with house(url=url) as it:
            assert (await it.outbound.describe()).name
            said: Any = await it.ask("hello there", await it.thread("t1"))
            assert text(said).split() == ["hello", "there"]
            asking = await it.ask("perm", "t1")
            await it.engine.runs.answer(asking.id, Answer(value={"optionId": "ok"}), asking.interrupts[0].id)
            ended = await it.engine.runs.wait(asking.id, timeout=30)
            assert ended is not None and "ok" in text(ended)
            slow = await it.engine.runs.start(request_of("slow", agent="prog", thread="t1"))
            await it.sent(slow)
            assert (await it.engine.runs.cancel(slow.id, wait=True)).status is RunStatus.CANCELLED
            assert it.outbound.reachable is True

    run(body(f"{scheme}{server.url.removeprefix('http')}/agent"))


async def test_a_tool_call_is_whole_in_the_log() -> None:
    async with house(command=agent_client_agent_command("ts-2")) as it:
        ended = await it.ask("tool tool")
        started = [event for _, event in await it.engine.runs.events(ended.id) if isinstance(event, e.ToolCallStarted)]
        assert [event.call for event in started] == ["call_1", "call_1#2"]
        assert json.loads(bytes(ended.output))
