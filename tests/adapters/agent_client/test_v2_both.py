"""An agent of version 2 on the wire, the gateway, and clients of both versions: in which order each is told what."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from adapters.agent_client.options import AgentClientTarget
from gateway.config import Route
from tests.adapters.agent_client import inbound_rig, outbound_agent
from tests.adapters.agent_client.editor import Editor, said
from tests.adapters.agent_client.v2_agent import Agent, rig
from tests.adapters.agent_client.v2_editor import RUNNING, EditorV2, connect, idle, opened

TARGET: dict[str, Any] = {"protocol": "agent_client", "command": ("wire",), "v2": True, "cwd": "/tmp"}


@contextlib.asynccontextmanager
async def both() -> AsyncIterator[tuple[inbound_rig.Rig, outbound_agent.Rig]]:
    """The gateway with that agent, which knows an extension and resumes no session: those are told from the record."""

    def refuse(_: Any) -> None:
        raise outbound_agent.Refusal(-32002, "unknown session")

    async with rig(cwd="/tmp") as out:
        out.handlers["_acme/look"] = lambda _: {"seen": True}
        out.handlers["session/resume"] = refuse
        route = Route(name="scripted", target=AgentClientTarget.model_validate(TARGET))
        async with inbound_rig.rig((route, out.outbound), v2=True) as gateway:  # type: ignore[arg-type]
            yield gateway, out


async def turn(editor: EditorV2, out: outbound_agent.Rig, session: str, number: int) -> Agent:
    """One prompt and its answer."""
    await editor.begin("session/prompt", said(session, f"prompt {number}"))
    prompt = await out.wire.prompt()
    agent = Agent(out.wire)
    answered(agent, prompt, number)
    await editor.until(lambda: editor.updates[-1:] == [idle()])
    return agent


def answered(agent: Agent, prompt: Any, number: int) -> None:
    agent.accept(prompt, messageId=f"u{number}")
    agent.user(f"u{number}")
    agent.state("running")
    agent.say(f"answer {number} ", f"m{number}")
    agent.idle()


def story(editor: Editor) -> list[str]:
    """What was said, message by message, and the states."""
    out: list[tuple[str, str]] = []
    for update in editor.updates:
        content = update.get("content")
        content = content if isinstance(content, list) else [content] if content else []
        text = "".join(block["text"] for block in content) or f"={update.get('state')}"
        name = update.get("messageId") or ("prompt" if "user" in update["sessionUpdate"] else text)
        if out and out[-1][0] == name and text != name:
            out[-1] = (name, out[-1][1] + text)
        else:
            out.append((name, text))
    return [text.strip() for _, text in out]


async def test_work_of_the_agents_own_stands_where_it_was_though_a_prompt_waits_and_others_ask() -> None:
    async with both() as (gateway, out):
        old, editor, other = await gateway.connect(), await connect(gateway), await connect(gateway)
        session = await editor.new()
        await other.resume(session)
        await old.load(session, "session/resume")
        agent = await turn(editor, out, session, 1)
        agent.state("running")
        agent.say("own 1 ", "o1")
        await other.request("_acme/look", {"sessionId": session})
        agent.say("own 2 ", "o1")
        await editor.until(lambda: "own 2" in editor.heard_all())
        prompted = await editor.begin("session/prompt", said(session, "prompt 2"))
        prompt = await out.wire.prompt()
        agent.say("own 3 ", "o1")
        await other.request("_acme/look", {"sessionId": session})
        agent.say("own 4 ", "o1")
        await editor.until(lambda: "own 4" in editor.heard_all())
        assert not prompted.done(), "it has not taken the prompt"
        agent.idle(None)
        answered(agent, prompt, 2)
        agent.state("running")  # in one go: the run is not over when that comes
        agent.say("own 5 ", "o2")
        agent.idle(None)
        assert await prompted == {"messageId": "u2"}
        await editor.until(lambda: editor.updates[-1:] == [idle(None)] and "own 5" in editor.heard_all())
        mine = ["hello", "answer 1", "own 1 own 2 own 3 own 4", "hello", "answer 2", "own 5"]
        assert [each for each in story(editor) if each[0] != "="] == mine
        states = [update["state"] for update in editor.of("state_update")]
        assert states == ["running", "idle", "running", "idle", "running", "idle"]
        await old.until(lambda: "own 5" in str(old.updates))
        assert [each for each in story(old) if each[0] != "="][-2:] == ["answer 2", "own 5"]
        again = await connect(gateway)
        await again.load(session)
        assert story(again) == [*mine, "=idle"]
        assert again.messages() == editor.messages(), "a message that is told in parts has them all"


async def test_a_message_that_goes_on_in_the_next_run_is_replayed_with_all_of_it() -> None:
    async with both() as (gateway, out):
        editor, session = await opened(gateway)
        for number in (1, 2):
            await editor.begin("session/prompt", said(session, "go on"))
            prompt = await out.wire.prompt()
            agent = Agent(out.wire)
            agent.accept(prompt, messageId=f"u{number}")
            agent.user(f"u{number}")
            agent.say(f"part {number} ", "m")
            agent.idle()
            await editor.until(lambda: editor.updates[-1:] == [idle()] and editor.updates.count(RUNNING) == number)  # noqa: B023
        again = await connect(gateway)
        await again.load(session)
        assert again.messages() == editor.messages() == {"m": "part 1 part 2 "}


async def test_what_it_asks_for_work_of_its_own_comes_after_what_it_said_though_the_run_is_not_over() -> None:
    async with both() as (gateway, out):
        editor, session = await opened(gateway)
        await editor.begin("session/prompt", said(session, "go"))
        prompt = await out.wire.prompt()
        agent = Agent(out.wire)
        answered(agent, prompt, 1)
        agent.state("running")
        agent.say("may I? ", "o1")
        params = {"sessionId": "s1", "title": "May I?", "options": outbound_agent.OPTIONS}
        out.wire.say({"id": 7, "method": "session/request_permission", "params": params})
        asked = await editor.next_asked()
        assert editor.heard_all() == "answer 1 may I? ", "it was told before it was asked"
        await editor.choose(asked, "ok")
        assert (await out.wire.answer(7))["result"]["outcome"] == {"outcome": "selected", "optionId": "ok"}


@pytest.mark.parametrize("seed", range(6))
async def test_whenever_it_works_of_its_own_everybody_is_told_in_the_order_in_which_it_was_said(seed: int) -> None:
    dice = random.Random(seed)
    words: list[str] = []

    def own(agent: Agent) -> None:
        words.append(f"w{len(words)} ")
        agent.say(words[-1], f"m{len(words) - dice.randrange(2)}")

    async with both() as (gateway, out):
        old, editor, other = await gateway.connect(), await connect(gateway), await connect(gateway)
        session = await editor.new()
        await other.resume(session)
        await old.load(session, "session/resume")
        agent: Agent | None = None
        for number in range(6):
            prompted = await editor.begin("session/prompt", said(session, "go"))
            if agent is not None and dice.random() < 0.5:
                own(agent)
            prompt = await out.wire.prompt()
            if agent is not None and dice.random() < 0.5:
                agent.state("running")
                own(agent)
                if dice.random() < 0.5:
                    await other.request("_acme/look", {"sessionId": session})
                own(agent)
                agent.idle(None)
            agent = Agent(out.wire)
            agent.accept(prompt, messageId=f"u{number}")
            agent.user(f"u{number}")
            agent.state("running")
            own(agent)
            agent.idle()
            if dice.random() < 0.6:
                agent.state("running")
                own(agent)
                agent.idle(None)
            assert await prompted == {"messageId": f"u{number}"}
            await editor.until(lambda: words[-1] in _heard(editor) and editor.updates[-1].get("state") == "idle")
        for each in (other, old):
            await each.until(lambda: words[-1] in _heard(each))  # noqa: B023
        assert _heard(editor) == _heard(other) == _heard(old) == "".join(words)
        again = await connect(gateway)
        await again.load(session)
        assert again.messages() == editor.messages()


def _heard(editor: Editor) -> str:
    return "".join(each["content"]["text"] for each in editor.of("agent_message_chunk"))
