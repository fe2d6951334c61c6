"""Whole conversations with agents of both versions, in the order in which all happened (`transcripts/outbound/`).

A transcript has every message of the gateway's (`gateway`) and of the agent's (`agent`), every event of a run, note and
record of the conversation, and what a connected client was asked and told.
`python -m tests.adapters.agent_client.test_outbound_transcripts` writes them anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.types import Answer, Interrupt, JsonObject, Thread, ThreadUpdate
from gateway.transport.pipe import Unreadable
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client import v2_agent
from tests.adapters.agent_client.outbound_agent import AGENT, MANUAL, OPTIONS, Client, Rig, Wire, relay, settled
from tests.support.aio import run
from tests.support.context import FakeContext, context
from tests.support.scripted import until

FOLDER = Path(__file__).parent / "transcripts" / "outbound"
TEXT = {"type": "text", "text": "hello"}
SETUP: JsonObject = {"cwd": "/work", "mcpServers": []}


class Story:
    """One conversation: a rig, and what happens in order. Version 2's agents are idle where version 1's answer."""

    def __init__(self, rig: Rig, version: int) -> None:
        self.rig = rig
        self.version = version
        self.lines: list[str] = []
        self.threads: dict[str, Thread] = {}

    def log(self, who: str, what: Any) -> None:
        self.lines.append(f"{who} {msgspec.json.encode(what).decode()}")

    # --- the gateway's side -------------------------------------------------------------------------------------

    def context(self, name: str, *, thread: str | None = "t1", client: Client | None = None, **fields: Any) -> Recorded:
        made = context(AGENT, "hello", thread=thread, **fields)
        made.run = msgspec.structs.replace(made.run, id=name)
        return self._recorded(name, made, client)

    def beside(self, name: str, client: Client | None = None, thread: str | None = "t1") -> Recorded:
        return self._recorded(name, context(AGENT, "", thread=thread), client)

    def _recorded(self, name: str, made: FakeContext, client: Client | None) -> Recorded:
        told = Recorded(made.agent, made.run, made.thread, made.answers)
        told.story, told.name, told.caller, told.traceparent = self, name, client, None
        if made.thread is not None:
            told.thread = self.threads.get(made.thread.id, made.thread)
        return told

    def client(self, name: str = "client", **answers: Any) -> Client:
        """A client of this protocol that can do everything."""
        made = Client(fs={"readTextFile": True}, elicitation={"form": {}})
        made.answers = {method.replace("__", "/"): answer for method, answer in answers.items()}
        ask, tell = made.ask, made.tell

        async def asked(method: str, params: Any) -> Any:
            self.log(f"{name} is asked", [method, json.loads(bytes(params))])
            return await ask(method, params)

        def told(method: str, params: Any) -> None:
            self.log(f"{name} is told", [method, json.loads(bytes(params))])
            tell(method, params)

        made.ask, made.tell = asked, told  # type: ignore[method-assign]
        return made

    async def begin(self, made: Recorded) -> asyncio.Task[None]:
        """A run up to its prompt."""
        [task] = await self.rig.started(made)
        return task

    async def ended(self, task: asyncio.Task[None]) -> None:
        try:
            await task
        except (InterlinguaError, asyncio.CancelledError) as error:
            self.log("the run raised", [type(error).__name__, str(error)])

    async def relay(self, made: Recorded, method: str, **params: Any) -> Any:
        try:
            answer = await relay(self.rig, made, method, **params)
            self.log(f"{method} answered", answer)
        except InterlinguaError as error:
            said = error.error if isinstance(error, RpcError) else str(error)
            self.log(f"{method} refused", [type(error).__name__, said])

    async def cancel(self, made: Recorded) -> None:
        self.log("cancel", made.name)
        made.cancel_now()
        await self.rig.outbound.cancel(made)

    # --- the agent's side ---------------------------------------------------------------------------------------

    @property
    def wire(self) -> Wire:
        return self.rig.wire

    def agent(self, session: str = "s1") -> v2_agent.Agent:
        return v2_agent.Agent(self.wire, session)

    def take(self, prompt: JsonObject) -> None:
        """The agent begins to work on the prompt."""
        if self.version == 2:
            agent = self.agent(prompt["params"]["sessionId"])
            agent.accept(prompt, messageId=f"u{prompt['id']}")
            agent.state("running")

    def end(self, prompt: JsonObject, reason: str = "end_turn") -> None:
        """It has done."""
        if self.version == 2:
            self.agent(prompt["params"]["sessionId"]).idle(reason)
        else:
            self.wire.end(prompt, reason)

    def say(self, text: str, session: str = "s1") -> None:
        if self.version == 2:
            self.agent(session).say(text)
        else:
            self.wire.chunk(session, text)

    def call(self, name: str, status: str, **fields: Any) -> None:
        kind = "tool_call_update" if self.version == 2 or status != "pending" else "tool_call"
        self.wire.update("s1", kind, toolCallId=name, status=status, **fields)

    def asks_permission(self, id: int, call: str) -> None:
        said: JsonObject = {"sessionId": "s1", "options": OPTIONS}
        if self.version == 2:
            said |= {"title": "may it?", "subject": {"type": "tool_call", "toolCall": {"toolCallId": call}}}
        else:
            said |= {"toolCall": {"toolCallId": call, "title": "may it?"}}
        self.wire.say({"id": id, "method": "session/request_permission", "params": said})


class Recorded(FakeContext):
    """A context that tells the story."""

    story: Story
    name: str

    def emit(self, *events: e.Event) -> None:
        for event in events:
            self.story.log(f"{self.name} event", {"type": type(event).__name__, **msgspec.to_builtins(event)})
        super().emit(*events)

    def note(self, update: ThreadUpdate) -> None:
        self.story.log(f"{self.name} note", update)
        super().note(update)

    def lost(self, what: str, count: int = 1) -> None:
        self.story.log(f"{self.name} lost", what)
        super().lost(what, count)

    async def set_thread(self, upstream: JsonObject) -> None:
        self.story.log(f"{self.name} record", upstream)
        await super().set_thread(upstream)
        if self.thread is not None:
            self.story.threads[self.thread.id] = self.thread

    async def ask(self, interrupt: Interrupt) -> Answer:
        self.story.log(f"{self.name} question", interrupt)
        answer = await super().ask(interrupt)
        self.story.log(f"{self.name} answered", answer)
        return answer


Scenario = Callable[[Story], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


@contextlib.asynccontextmanager
async def told(version: int, **target: Any) -> AsyncIterator[Story]:
    """A story whose rig is closed in the end."""
    rig = Rig(v2=True, **target) if version == 2 else Rig(**target)
    story = Story(rig, version)
    if version == 2:
        session = {"prompt": {}, "delete": {}, "close": {}}
        rig.initialized = {**v2_agent.INITIALIZED, "capabilities": {"session": session}}
    else:
        rig.can(loadSession=True, sessionCapabilities={"close": {}})
        rig.handlers["session/load"] = lambda _: {}
    rig.handlers["session/resume"] = lambda _: {}
    rig.handlers["session/close"] = lambda _: {}
    pipe = rig._pipe

    async def recorded() -> Wire:
        wire = await pipe()
        number = "" if len(rig.wires) == 1 else str(len(rig.wires))
        take, raw = wire._take, wire.raw

        def sent(message: JsonObject) -> None:
            if message.get("method") == "initialize":
                message = {"method": "initialize"}
            story.log(f"gateway{number} >", message)
            take(message if "id" in message or message.get("method") != "initialize" else wire.got[-1])

        def said(*lines: bytes | Unreadable) -> None:
            for line in lines:
                message = json.loads(line) if isinstance(line, bytes) else str(line)
                if isinstance(message, dict) and "protocolVersion" in (message.get("result") or {}):
                    message = {"id": message["id"], "result": "initialized"}
                story.log(f"agent{number} >", message)
            raw(*lines)

        wire._take, wire.raw = sent, said  # type: ignore[method-assign]
        return wire

    rig.outbound._connections._pipe = recorded  # type: ignore[method-assign]
    try:
        yield story
    finally:
        async with asyncio.timeout(30):
            await rig.outbound.aclose()


# --- the scenarios --------------------------------------------------------------------------------------------------


@scenario
async def a_turn_of_text_and_tools_and_what_comes_behind_its_end(it: Story) -> None:
    """All in one go: each update has its place, and what is behind the end is the conversation's."""
    run = it.context("run")
    task = await it.begin(run)
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.say("one ")
    it.say("two ")
    it.call("c1", "pending", title="look", kind="read")
    it.say("three")
    it.call("c1", "completed")
    it.wire.update("s1", "available_commands_update", availableCommands=[])
    it.say("four")
    it.end(prompt)
    it.say("late")
    it.wire.update("s1", "session_info_update", title="what it was about")
    await it.ended(task)
    await settled()
    it.say("still")
    await settled()


@scenario
async def an_agent_asks_in_its_turn(it: Story) -> None:
    """Questions and requests come behind what was said before them."""
    client = it.client(_x__ask={"told": True}, fs__read_text_file={"content": "text"})
    run = it.context("run", client=client)
    run.answers = [{"optionId": "ok"}]
    task = await it.begin(run)
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.say("before ")
    it.call("c1", "pending", title="edit", kind="edit")
    it.asks_permission(1, "c1")
    await it.wire.answer(1)
    it.say("between ")
    it.wire.say({"id": 2, "method": "_x/ask", "params": {"sessionId": "s1"}})
    await it.wire.answer(2)
    it.say("more ")
    it.wire.say({"method": "_x/note", "params": {"sessionId": "s1"}})
    it.say("after ")
    it.wire.say({"id": 3, "method": "fs/read_text_file", "params": {"sessionId": "s1", "path": "/a"}})
    await it.wire.answer(3)
    it.wire.say({"id": 4, "method": "_x/other", "params": {"sessionId": "nobody's"}})
    await it.wire.answer(4)
    it.call("c1", "completed")
    it.end(prompt)
    await it.ended(task)


@scenario
async def an_agent_asks_between_turns(it: Story) -> None:
    client = it.client(_x__ask={"told": True})
    run = it.context("run", client=client)
    task = await it.begin(run)
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.end(prompt)
    it.say("behind")
    it.wire.say({"id": 1, "method": "_x/ask", "params": {"sessionId": "s1"}})
    it.wire.say({"method": "_x/note", "params": {"sessionId": "s1"}})
    await it.ended(task)
    await it.wire.answer(1)
    it.asks_permission(2, "c9")
    await it.wire.answer(2)
    await settled()


@scenario
async def a_cancel_while_a_permission_is_asked(it: Story) -> None:
    run = it.context("run")
    task = await it.begin(run)
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.say("before ")
    it.call("c1", "pending", title="edit", kind="edit")
    it.asks_permission(1, "c1")
    await run.until(lambda run: bool(run.asked))
    await it.cancel(run)
    await it.wire.answer(1)
    it.say("stopping")
    it.call("c1", "failed")
    it.end(prompt, "cancelled")
    it.say("late")
    await it.ended(task)
    await settled()


@scenario
async def a_prompt_that_is_given_up(it: Story) -> None:
    """The session owes its end: what comes until then is nobody's, and the next prompt waits."""
    run = it.context("first")
    task = await it.begin(run)
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.say("heard")
    await settled()
    task.cancel()
    await it.ended(task)
    it.say("of the old turn")
    it.asks_permission(1, "c1")
    await it.wire.answer(1)
    second = it.context("second")
    waiting = asyncio.create_task(it.rig.outbound.run(second))
    await settled()
    it.say("still of the old turn")
    it.end(prompt, "cancelled")
    again = await it.wire.prompt()
    it.take(again)
    it.say("new")
    it.end(again)
    await it.ended(waiting)


@scenario
async def a_prompt_that_is_never_ended(it: Story) -> None:
    """The agent is ended itself, and the session found again by the next process."""
    it.rig.handlers["session/load"] = it.rig.handlers["session/resume"] = lambda _: (it.say("as it was"), {})[1]
    run = it.context("first")
    task = await it.begin(run)
    it.take(await it.wire.prompt())
    task.cancel()
    await it.ended(task)
    second = asyncio.create_task(it.rig.outbound.run(it.context("second")))
    await it.rig.connected(2)
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.say("new")
    it.end(prompt)
    await it.ended(second)


@scenario
async def an_agent_that_dies_in_mid_turn(it: Story) -> None:
    client = it.client()
    run = it.context("first", client=client)
    task = await it.begin(run)
    it.take(await it.wire.prompt())
    it.say("half")
    it.wire.say({"id": 1, "method": "_x/ask", "params": {"sessionId": "s1"}})
    client.answers["_x/ask"] = MANUAL
    await until(lambda: bool(client.asked))
    it.wire.die("wire exited with 3: out of luck")
    await it.ended(task)
    second = asyncio.create_task(it.rig.outbound.run(it.context("second", client=client)))
    await it.rig.connected(2)
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.say("whole")
    it.end(prompt)
    await it.ended(second)


@scenario
async def a_second_prompt_while_one_is_worked_on(it: Story) -> None:
    run = it.context("first")
    task = await it.begin(run)
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.say("one ")
    await settled()
    await it.ended(asyncio.create_task(it.rig.outbound.run(it.context("second"))))
    it.say("two")
    it.end(prompt)
    it.say("behind the end of the first")
    await it.ended(task)
    await settled()


@scenario
async def a_client_makes_loads_and_closes_a_session(it: Story) -> None:
    client = it.client()
    made = it.beside("made", client)
    await it.relay(made, "session/new", **SETUP)
    it.say("between")
    await settled()
    again = it.beside("again", client)

    def replay(params: Any) -> Any:
        it.say("what was said")
        it.wire.update("s1", "session_info_update", title="as before")
        return {"modes": {"currentModeId": "a", "availableModes": [{"id": "a", "name": "A"}]}}

    method = "session/load" if it.version == 1 else "session/resume"
    it.rig.handlers[method] = replay
    more = {} if it.version == 1 else {"replayFrom": {"type": "start"}}
    await it.relay(again, method, sessionId="t1", **SETUP, **more)
    run = it.context("run", client=client)
    task = await it.begin(run)
    prompt = await it.wire.prompt()
    it.take(prompt)
    await it.relay(again, "session/load", sessionId="t1", **SETUP)
    it.say("at work")
    it.end(prompt)
    await it.ended(task)
    await it.relay(again, "session/close", sessionId="t1")
    it.say("nobody hears it")
    await settled()


@scenario
async def what_an_agent_says_before_its_session_has_a_name(it: Story) -> None:
    it.rig.handlers["session/new"] = lambda _: MANUAL
    run = it.context("run", client=it.client())
    task = asyncio.create_task(it.rig.outbound.run(run))
    wire = await it.rig.connected()
    new = await wire.find("session/new")
    it.say("early", "s7")
    it.say("of another", "s8")
    wire.say({"id": new["id"], "result": {"sessionId": "s7"}})
    prompt = await wire.prompt()
    it.take(prompt)
    it.say("in time", "s7")
    it.end(prompt)
    await it.ended(task)


@scenario
async def options_are_set_before_a_prompt(it: Story) -> None:
    def option(value: str) -> JsonObject:
        choices = [{"value": each, "name": each} for each in ("small", "large")]
        of: JsonObject = {"name": "Model", "type": "select", "currentValue": value, "options": choices}
        return {**of, "configId": "model"} if it.version == 2 else {**of, "id": "model"}

    it.rig.handlers["session/new"] = lambda _: {"sessionId": "s1", "configOptions": [option("small")]}
    it.rig.handlers["session/set_config_option"] = lambda _: {"configOptions": [option("large")]}
    task = await it.begin(it.context("run", config={"model": "large"}))
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.wire.update("s1", "config_option_update", configOptions=[option("small")])
    it.end(prompt)
    await it.ended(task)
    it.wire.update("s1", "config_option_update", configOptions=[option("large")])
    await settled()
    second = await it.begin(it.context("second", config={"model": "large"}))
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.end(prompt)
    await it.ended(second)


@scenario
async def a_cancel_before_the_prompt_is_sent(it: Story) -> None:
    it.rig.handlers["session/new"] = lambda _: MANUAL
    run = it.context("first")
    task = asyncio.create_task(it.rig.outbound.run(run))
    wire = await it.rig.connected()
    new = await wire.find("session/new")
    await it.cancel(run)
    await it.ended(task)
    wire.say({"id": new["id"], "result": {"sessionId": "s1"}})
    await settled()
    second = await it.begin(it.context("second"))
    prompt = await wire.prompt()
    it.take(prompt)
    it.end(prompt)
    await it.ended(second)


@scenario
async def a_run_without_a_thread(it: Story) -> None:
    task = await it.begin(it.context("run", thread=None))
    prompt = await it.wire.prompt()
    it.take(prompt)
    it.say("once")
    it.end(prompt)
    await it.ended(task)
    await settled()


# --- the tests ------------------------------------------------------------------------------------------------------


SCENARIO_TARGETS: dict[str, JsonObject] = {"a_prompt_that_is_never_ended": {"stop_timeout": 0.05}}


def transcript(name: str, version: int) -> str:
    async def main() -> str:
        async with asyncio.timeout(60), told(version, **SCENARIO_TARGETS.get(name, {})) as story:
            await SCENARIOS[name](story)
            lines = list(story.lines)
        return "".join(f"{line}\n" for line in lines).replace(json.dumps(os.getcwd()), '"/here"')

    return run(main())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_conversation_goes_as_it_did(name: str, version: int) -> None:
    assert transcript(name, version) == (FOLDER / f"{name}.v{version}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in sys.argv[1:] or SCENARIOS:
        for number in (1, 2):
            (FOLDER / f"{each}.v{number}.txt").write_text(transcript(each, number), encoding="utf-8")
