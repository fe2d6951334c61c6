"""Clients of both versions that do what they like in one session: whatever comes of it is told soundly to each."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentFailed, Conflict
from gateway.core.types import Answer, Interrupt, Outcome, RunRequest
from tests.adapters.agent_client.editor import Editor, Refused
from tests.adapters.agent_client.inbound_rig import Rig, rig, scripted
from tests.adapters.agent_client.v2_editor import FORMS, START, EditorV2, connect

STEPS = 40
CHOICE = {"enum": ["red", "blue"]}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def agent(dice: random.Random) -> Any:
    """Says some things, asks some, and ends somehow."""
    numbers = itertools.count(1)

    async def script(context: RunContext) -> None:
        for _ in range(dice.randrange(1, 4)):
            context.emit(e.PartDelta(part="text", delta=f"w{next(numbers)} "))
            if dice.random() < 0.5:
                await context.drain()
            what = dice.random()
            if what < 0.25:
                schema = dice.choice((CHOICE, FORM, {"type": "string"}))
                question = Interrupt(id=f"q{next(numbers)}", kind="input", message="?", answer_schema=schema)
                answer = await context.ask(question)
                context.emit(e.PartDelta(part="text", delta=f"{answer.outcome.value} "))
                if answer.outcome is Outcome.CANCELLED and dice.random() < 0.5:
                    break
            elif what < 0.5:
                call = f"c{next(numbers)}"
                context.emit(e.ToolCallStarted(call=call, name="look"))
                context.emit(e.ToolCallEnded(call=call))
        if dice.random() < 0.15:
            raise AgentFailed("no luck")
        context.emit(e.RunFinished())
        await context.drain()

    return scripted(script)


class Player:
    """One client. `accepted`: ids of the messages that its prompts became."""

    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.accepted: list[str] = []
        self.answered = 0


class Game:
    """One session, and those who have it open."""

    def __init__(self, gateway: Rig, dice: random.Random) -> None:
        self.gateway, self.dice = gateway, dice
        self.session = ""
        self.players: list[Player] = []
        self.waiting: list[asyncio.Future[Any]] = []

    async def join(self, version: int) -> None:
        forms = self.dice.choice(({}, FORMS))
        editor = await connect(self.gateway, capabilities=forms) if version == 2 else await self.gateway.connect()
        self.session = self.session or await editor.new()
        if self.players:
            start = {"replayFrom": START} if version == 2 and self.dice.random() < 0.5 else {}
            params = {"sessionId": self.session, "cwd": "/work", "mcpServers": [], **start}
            await editor.request("session/resume", params)
        self.players.append(Player(editor))

    async def step(self) -> None:
        player = self.dice.choice(self.players)
        editor, session = player.editor, {"sessionId": self.session}
        what = self.dice.random()
        if what < 0.4:
            prompt = await editor.start(self.session, self.dice.choice(("hello", "red", "2", '{"name": "x"}')))
            if isinstance(editor, EditorV2):
                try:
                    player.accepted.append((await asyncio.wait_for(prompt, 30))["messageId"])
                except Refused as error:
                    assert error.code == -32600, error
            else:
                self.waiting.append(prompt)
        elif what < 0.5:
            await editor.notify("session/cancel", session)
        elif what < 0.6 and len(self.players) > 1:
            start = {"replayFrom": START} if isinstance(editor, EditorV2) and self.dice.random() < 0.5 else {}
            try:
                await editor.request("session/resume", {**session, "cwd": "/work", "mcpServers": [], **start})
            except Refused as error:
                assert error.code == -32600, error
        elif what < 0.65:
            request = RunRequest(agent="scripted", protocol="test", thread=self.session, input={"message": "elsewhere"})
            with contextlib.suppress(Conflict):
                await self.gateway.engine.runs.start(request)
        elif what < 0.9:
            await self.answer(player)
        for _ in range(self.dice.randrange(4)):
            await asyncio.sleep(0)

    async def answer(self, player: Player) -> None:
        editor = player.editor
        for asked in editor.asked[player.answered :]:
            form = asked["method"] == "elicitation/create"
            good: Any = {"action": "accept", "content": {"name": "x"}} if form else _choosing(asked)
            bad: Any = {"action": "decline"} if form else {"outcome": {"outcome": "cancelled"}}
            await editor.answer(asked, good if self.dice.random() < 0.7 else bad)
        player.answered = len(editor.asked)

    async def settle(self) -> None:
        """Whatever goes on comes to its end: open questions are answered elsewhere."""
        async with asyncio.timeout(30):
            while True:
                active = [each for each in await self.gateway.runs(self.session) if not each.status.ended]
                if not active and all(prompt.done() for prompt in self.waiting):
                    break
                for each in active:
                    for question in each.interrupts:
                        with contextlib.suppress(Conflict):  # somebody else was first
                            await self.gateway.engine.runs.answer(
                                each.id, Answer(outcome=Outcome.DECLINED), question.id
                            )
                await asyncio.sleep(0.002)
        await asyncio.gather(*self.waiting, return_exceptions=True)
        for player in self.players:
            await player.editor.request("session/resume", {"sessionId": self.session, "cwd": "/work", "mcpServers": []})


def _choosing(asked: dict[str, Any]) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": asked["params"]["options"][0]["optionId"]}}


def _sound(player: Player) -> None:
    """Work is told between running and idle, and every prompt that was taken has its message.

    But an agent that has asked in words, which leaves the session idle, may say more meanwhile.
    """
    editor = player.editor
    assert isinstance(editor, EditorV2)
    state, asks, known = "idle", False, set()
    for update in editor.updates:
        kind = update["sessionUpdate"]
        if kind == "state_update":
            state = update["state"]
            asks = asks and state == "idle"
        elif kind == "agent_message" and "-question-" in update["messageId"]:
            asks = True
        elif kind == "user_message":
            known.add(update["messageId"])
        elif kind.endswith("_chunk"):
            assert state != "idle" or asks, (editor.updates.index(update), editor.updates)
    assert state == "idle" and set(player.accepted) <= known


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_clients_do_each_is_told_a_sound_story_and_history_is_the_same_for_all(seed: int) -> None:
    dice = random.Random(seed)
    async with rig(agent(dice), v2=True) as gateway:
        game = Game(gateway, dice)
        for version in (2, 2, 1):
            await game.join(version)
        for _ in range(STEPS):
            await game.step()
        await game.settle()
        for player in game.players[:2]:
            _sound(player)
        told = []
        for _ in range(2):
            editor = await connect(gateway)
            await editor.load(game.session)
            told.append(editor.updates)
        assert told[0] == told[1]
        mine = {name for player in game.players for name in player.accepted}
        assert mine <= {update.get("messageId") for update in told[0]}
