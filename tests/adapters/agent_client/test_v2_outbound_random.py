"""A correct agent of version 2 that does all kinds of things between, before and during prompts: no word goes astray.

It works on its own, says again that it is idle, says things in the background, takes prompts at once, into what runs or
when that is over, acknowledges them early or late, with or without `messageId`. Whatever the order, each run has the
words that were said for it, all of them, and nothing else; and every other word is noted on the conversation.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gateway.core import events as e
from gateway.core.types import JsonObject
from tests.adapters.agent_client.outbound_agent import Rig, settled
from tests.adapters.agent_client.v2_agent import Agent, rig, spare
from tests.support.context import FakeContext


class Someone(Agent):
    """An agent that does as chance has it."""

    def __init__(self, it: Rig, chance: random.Random) -> None:
        super().__init__(it.wire)
        self.chance = chance
        self.last: str | None = None
        self.working = False
        self.aside: list[str] = []
        self.words = 0

    def word(self, *, aside: bool) -> str:
        self.words += 1
        said = f"{'aside' if aside else 'word'}{self.words} "
        if aside:
            self.aside.append(said)
        self.say(said, f"m{self.words}")
        return said

    def work(self) -> None:
        self.state("running")
        self.working = True

    def rest(self) -> None:
        self.last = self.chance.choice(["end_turn", "max_tokens", "refusal"])
        self.idle(self.last)
        self.working = False

    def take(self, prompt: JsonObject, **named: str) -> None:
        self.accept(prompt, **named)
        if not self.working and self.chance.random() < 0.3:
            self.idle(self.last)  # as it was, once more

    async def between(self) -> None:
        """What nobody asked for."""
        for _ in range(self.chance.randrange(3)):
            what = self.chance.randrange(4)
            if what == 0 and not self.working:
                self.idle(self.last)  # once more
            elif what == 1:
                self.word(aside=True)
            elif what == 2 and not self.working:
                self.work()
                self.word(aside=True)
            elif self.working:
                self.word(aside=True)
                self.rest()
            if self.chance.random() < 0.5:
                await settled()

    async def prompted(self, name: str) -> list[str]:
        """All of a prompt; the words that were said for it."""
        prompt = await self.wire.prompt()
        begun = not self.working and self.chance.random() < 0.3
        if begun:  # before it had read the prompt
            self.work()
            self.word(aside=True)
        taken_in = self.working and self.chance.random() < 0.5
        named = {"messageId": name} if begun or self.chance.random() < 0.7 else {}
        if self.working and not taken_in:
            self.word(aside=True)
            self.rest()
        steps: list[Callable[[], None]] = [lambda: self.take(prompt, **named), lambda: self.user(name)]
        if self.chance.random() < 0.5:
            steps.reverse()
        late = self.chance.random() < 0.3
        said: list[str] = []
        if late:  # all of it before the acknowledgement
            self.user(name)
        else:
            for step in steps:
                step()
                if self.chance.random() < 0.3:
                    await settled()
        if not self.working:
            self.work()
        for _ in range(self.chance.randrange(1, 4)):
            said.append(self.word(aside=False))
            if self.chance.random() < 0.3:
                self.state(self.chance.choice(["running", "requires_action"]))
            if self.chance.random() < 0.3:
                await settled()
        self.rest()
        if late:
            self.accept(prompt, **named)
        return said


@pytest.mark.parametrize("seed", range(25))
async def test_every_run_has_its_own_words_and_no_others(seed: int) -> None:
    async with rig() as it:
        contexts: list[FakeContext] = []
        agent: Someone | None = None
        for number in range(12):
            context = it.context(run=f"r{number}", thread="t1")
            contexts.append(context)
            if agent is not None:
                await agent.between()
            [task] = await it.started(context)
            agent = agent or Someone(it, random.Random(seed))
            said = await agent.prompted(f"u{number}")
            await task
            output = context.output["message"]
            assert output.split() == "".join(said).split(), f"run {number}"
            assert isinstance(context.end, e.RunFinished) and context.end.stop_reason.value == agent.last
        await settled()
        told = [said["content"]["text"] for context in contexts for said in spare(context)]
        assert agent is not None and told == agent.aside
