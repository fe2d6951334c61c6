"""A prompt of version 2 is acknowledged, and ends with an idle state: which one, and what is its own until then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adapters.agent_client.outbound import prompts
from gateway.core import events as e
from gateway.core.errors import AgentGone
from gateway.core.types import StopReason
from tests.adapters.agent_client.outbound_agent import Rig, settled
from tests.adapters.agent_client.v2_agent import Agent, rig, spare
from tests.support.context import FakeContext


async def talk(it: Rig, script: Callable[[Agent, Any], Any], *, ends: bool = True, **fields: Any) -> FakeContext:
    """A run in which the agent does what the script says; whether it has ended then."""
    context = it.context(**{"thread": "t1", **fields})
    [task] = await it.started(context)
    script(Agent(it.wire), await it.wire.prompt())
    await settled()
    assert task.done() is ends
    if not ends:
        Agent(it.wire).say("the end")
        Agent(it.wire).idle()
    await task
    return context


async def test_a_prompt_ends_when_the_agent_is_idle_and_not_when_it_is_acknowledged() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        prompt, agent = await it.wire.prompt(), Agent(it.wire)
        agent.accept(prompt)
        agent.user()
        agent.state("running")
        agent.say("one ")
        await settled()
        assert not task.done() and context.output == {"message": "one "}
        agent.say("two")
        agent.idle("max_tokens")
        await task
        assert context.output == {"message": "one two"}
        assert isinstance(context.end, e.RunFinished) and context.end.stop_reason is StopReason.MAX_TOKENS


async def test_what_comes_before_the_acknowledgement_counts_and_so_does_the_end() -> None:
    async with rig() as it:
        context = it.context()
        [task] = await it.started(context)
        prompt, agent = await it.wire.prompt(), Agent(it.wire)
        agent.user()
        agent.state("running")
        agent.say("fast")
        agent.idle()
        await settled()
        assert not task.done()
        agent.accept(prompt, messageId="u1")
        await task
        assert context.output == {"message": "fast"} and isinstance(context.end, e.RunFinished)


async def test_a_refused_prompt_fails_with_the_agents_own_words_even_after_updates() -> None:
    async with rig() as it:

        def script(agent: Agent, prompt: Any) -> None:
            agent.user()
            agent.say("hm")
            agent.idle()
            agent.refuse(prompt)

        context = await talk(it, script)
        assert isinstance(context.end, e.RunFailed) and context.end.failure.message == "not this one"
        assert context.end.origin == {"agent_client": {"error": {"code": -32602, "message": "not this one"}}}
        context = await talk(it, lambda agent, prompt: agent.refuse(prompt, -32800, "cancelled"), run="r2")
        assert isinstance(context.end, e.RunCancelled)


async def test_an_agent_that_tells_neither_the_users_message_nor_that_it_runs_is_understood() -> None:
    async with rig() as it:

        def script(agent: Agent, prompt: Any) -> None:
            agent.accept(prompt)
            agent.say("quiet")
            agent.idle()

        def only_idle(agent: Agent, prompt: Any) -> None:
            agent.accept(prompt)
            agent.idle("refusal")

        def before(agent: Agent, prompt: Any) -> None:
            if prompt["id"] % 2:
                agent.state("running")
            agent.say("early")
            agent.idle()
            agent.accept(prompt)

        assert (await talk(it, script)).output == {"message": "quiet"}
        refused = await talk(it, only_idle, run="r2")
        assert isinstance(refused.end, e.RunFinished) and refused.end.stop_reason is StopReason.REFUSAL
        for name in ("r3", "r4"):
            assert (await talk(it, before, run=name)).output == {"message": "early"}


async def test_an_idle_that_is_told_once_more_ends_nothing() -> None:
    async with rig() as it:
        await first(it)

        def script(agent: Agent, prompt: Any) -> None:
            agent.accept(prompt)
            agent.idle()
            agent.idle(None)

        context = await talk(it, script, ends=False, run="r2")
        assert context.output == {"message": "the end"}


async def test_an_idle_that_is_told_once_more_is_the_end_after_all_when_nothing_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as it:
        await first(it)

        def script(agent: Agent, prompt: Any) -> None:
            agent.accept(prompt)
            agent.user("u2")
            agent.idle()

        monkeypatch.setattr(prompts, "CERTAIN_AFTER", 60)
        assert (await talk(it, script, ends=False, run="r2")).output == {"message": "the end"}
        monkeypatch.setattr(prompts, "CERTAIN_AFTER", 0)
        nothing = await talk(it, script, run="r3")
        assert nothing.output == {"message": ""} and isinstance(nothing.end, e.RunFinished)


async def test_an_idle_without_a_stop_reason_ends_what_ran() -> None:
    async with rig() as it:

        def script(agent: Agent, prompt: Any) -> None:
            agent.accept(prompt)
            agent.state("running")
            agent.idle(None)

        context = await talk(it, script)
        assert isinstance(context.end, e.RunFinished) and context.end.stop_reason is StopReason.END_TURN


def at_work(it: Rig) -> Agent:
    """The agent, which begins something of its own between two prompts."""
    agent = Agent(it.wire)
    agent.state("running")
    agent.say("my own ", "own")
    return agent


async def first(it: Rig) -> FakeContext:
    """A run that has ended, so that there is a session."""
    return await whole(it, it.context(thread="t1"), "first")


async def whole(it: Rig, context: FakeContext, *texts: str) -> FakeContext:
    """A run in which the agent says that."""
    [task] = await it.started(context)
    await Agent(it.wire).turn(*texts)
    await task
    return context


async def test_work_of_the_agents_own_is_noted_and_is_nobodys_run() -> None:
    async with rig() as it:
        context = await first(it)
        at_work(it).idle()
        await settled()
        assert context.output == {"message": "first"}
        assert [said["content"]["text"] for said in spare(context)] == ["my own "]
        assert all(note.kept for note in context.notes if note.kind == "output")


async def test_a_prompt_that_comes_while_the_agent_works_begins_when_that_is_over() -> None:
    async with rig() as it:
        await first(it)
        agent = at_work(it)
        await settled()

        def script(agent: Agent, prompt: Any) -> None:
            agent.accept(prompt)
            agent.say("goes on ", "own")
            agent.idle()

        context = await talk(it, script, ends=False, run="r2")
        assert context.output == {"message": "the end"}
        noted = [said["content"]["text"] for said in spare(context)]
        assert noted == ["goes on "]
        assert agent.session == "s1"


@pytest.mark.parametrize("by", ["message", "acknowledgement"])
async def test_a_prompt_that_is_taken_into_what_runs_ends_with_it(by: str) -> None:
    async with rig() as it:
        await first(it)
        at_work(it)
        await settled()

        def script(agent: Agent, prompt: Any) -> None:
            agent.accept(prompt, **({"messageId": "u2"} if by == "acknowledgement" else {}))
            if by == "message":
                agent.user("u2")
            agent.say("for you")
            agent.idle()

        assert (await talk(it, script, run="r2")).output == {"message": "for you"}


async def test_work_that_begins_while_the_prompt_is_on_its_way_does_not_end_it() -> None:
    async with rig() as it:
        await first(it)

        def script(agent: Agent, prompt: Any) -> None:
            at_work(it).idle()  # begun before the agent had read the prompt, which it takes only now
            agent.accept(prompt, messageId="u2")
            agent.user("u2")

        context = await talk(it, script, ends=False, run="r2")
        assert context.output == {"message": "the end"}
        assert [said["content"]["text"] for said in spare(context)] == ["my own "]


async def test_work_that_may_be_the_prompts_is_held_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_HELD", 2)

    async with rig() as it:
        await first(it)

        def script(agent: Agent, prompt: Any) -> None:
            at_work(it).say("and more ", "own")
            agent.user("u2")
            agent.accept(prompt)

        context = await talk(it, script, ends=False, run="r2")
        assert context.output == {"message": "the end"}
        texts = [said["content"]["text"] for said in spare(context)]
        assert texts[:2] == ["my own ", "and more "]


async def test_more_of_a_text_is_held_like_its_beginning() -> None:
    async with rig() as it:
        await first(it)

        def script(agent: Agent, prompt: Any) -> None:
            agent.say("said before ", "own")
            agent.state("running")
            agent.say("my own ", "own")
            agent.user("u2")
            agent.accept(prompt)

        context = await talk(it, script, ends=False, run="r2")
        assert "my own" not in str(context.output)
        assert [said["content"]["text"] for said in spare(context)] == ["my own "]


async def test_what_was_held_of_a_prompt_that_is_refused_was_somebody_elses() -> None:
    async with rig() as it:
        await first(it)

        def script(agent: Agent, prompt: Any) -> None:
            at_work(it)
            agent.refuse(prompt)

        context = await talk(it, script, run="r2")
        assert isinstance(context.end, e.RunFailed)
        assert [said["content"]["text"] for said in spare(context)] == ["my own "]


async def test_what_was_held_when_the_agent_died_is_not_lost() -> None:
    async with rig() as it:
        await first(it)
        context = it.context(run="r2", thread="t1")
        [task] = await it.started(context)
        at_work(it)
        await settled()
        it.wire.die()
        with pytest.raises(AgentGone):
            await task
        assert [said["content"]["text"] for said in spare(context)] == ["my own "]


async def test_what_comes_after_the_end_is_not_the_prompts() -> None:
    async with rig() as it:

        def script(agent: Agent, prompt: Any) -> None:
            agent.accept(prompt)
            agent.user()
            agent.state("running")
            agent.idle()
            agent.say("by the way", "other")
            agent.update("tool_call_update", toolCallId="c", title="In the background", status="completed")

        context = await talk(it, script)
        assert context.output == {"message": ""} and len(spare(context)) == 2


async def test_an_agent_that_dies_after_the_acknowledgement_fails_the_run_and_the_next_resumes() -> None:
    async with rig() as it:
        it.handlers["session/resume"] = lambda _: {}
        context = it.context(thread="t1")
        [task] = await it.started(context)
        prompt, agent = await it.wire.prompt(), Agent(it.wire)
        agent.accept(prompt)
        agent.user()
        agent.say("half")
        it.wire.die("wire exited with 3: out of luck")
        with pytest.raises(AgentGone, match="exited with 3: out of luck"):
            await task
        assert context.output == {"message": "half"}
        again = it.context(run="r2", thread="t1")
        again.thread = context.thread
        await whole(it, again, "whole")
        assert again.output == {"message": "whole"} and not again.losses
        there = it.wires[0].sent("session/new")[0]["cwd"]
        assert it.wire.sent("session/resume") == [{"sessionId": "s1", "cwd": there, "mcpServers": []}]


async def test_an_agent_that_never_acknowledges_what_it_has_ended_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompts, "ACKNOWLEDGED_WITHIN", 0.01)

    async with rig() as it:
        context = it.context(thread="t1")
        [task] = await it.started(context)
        prompt, agent = await it.wire.prompt(), Agent(it.wire)
        agent.user()
        agent.say("done")
        agent.idle()
        await task
        assert context.output == {"message": "done"} and isinstance(context.end, e.RunFinished)
        assert (await it.wire.find("$/cancel_request"))["params"] == {"requestId": prompt["id"]}
        peer = (await it.outbound._connections.any().join())._peer
        assert peer.pending == 0
        agent.accept(prompt)
        await settled()
        assert (peer.counts.late, peer.counts.unknown) == (1, 0)
