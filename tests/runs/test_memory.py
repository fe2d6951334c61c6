"""What an agent is told of the conversation before a run: all that it does not know, and nothing twice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core import projection
from gateway.core.errors import AgentFailed, AgentGone
from gateway.core.types import Agent, AgentCapabilities, Json, JsonObject, RunStatus, Thread
from gateway.runs import Engine
from tests.support.aio import run
from tests.support.scripted import Scripted, engine, request, route

BEFORE = "This conversation so far:\n\nuser: one\n\nassistant: answer to one\n\nThe next message:\n\n"
CHAT: JsonObject = {
    "type": "object",
    "properties": {
        "messages": {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/You"}, {"$ref": "#/$defs/Me"}, {"$ref": "#/$defs/Rules"}]},
        }
    },
    "required": ["messages"],
    "$defs": {
        "You": {"type": "object", "properties": {"role": {"const": "user"}, "content": {"type": "string"}}},
        "Rules": {"type": "object", "properties": {"role": {"const": "system"}, "content": {"type": "string"}}},
        "Me": {"type": "object", "properties": {"role": {"const": "assistant"}, "content": {"type": "string"}}},
    },
}


def agent(schema: JsonObject | None = None, **can: bool) -> Agent:
    schema = schema or projection.MESSAGE_SCHEMA
    return Agent(
        name="x",
        input_schema=schema,
        output_schema=projection.MESSAGE_OUTPUT_SCHEMA,
        capabilities=AgentCapabilities(**can),
        text_input=projection.text_pointer(schema),
        text_output="/message",
    )


class Listening(Scripted):
    """Answers every prompt, and keeps the inputs it was sent. `fresh`: whether its own conversation is new, by run."""

    asks = False

    def __init__(self, described: Agent, *, fresh: Sequence[bool] = (), fails: Sequence[Exception | None] = ()) -> None:
        super().__init__(self.answer, agent=described)
        self.inputs: list[Json] = []
        self._fresh = list(fresh)
        self._fails = list(fails)

    async def answer(self, context: RunContext) -> None:
        keeps = self.agent.capabilities.threads
        fresh = self._fresh.pop(0) if self._fresh else not keeps or context.upstream_thread is None
        self.inputs.append((await context.recall(fresh=fresh)).input)
        if error := self._fails.pop(0) if self._fails else None:
            raise error
        if keeps:
            await context.set_upstream({"run": len(self.inputs)}, thread={"id": self.agent.name})
        asked = projection.text_of(context.run.request.input, self.agent.text_input)
        context.emit(e.PartDelta(part="text", delta=f"answer to {asked}"), e.RunFinished())


def answers_in(given: Json) -> list[str]:
    return [word for word in ("one", "two", "three", "four", "five") if f"answer to {word}" in given["message"]]


async def said(gateway: Engine, text: Json, name: str = "scripted", thread: str = "t") -> Any:
    given = text if isinstance(text, dict) else {"message": text}
    return await gateway.runs.wait(
        (await gateway.runs.start(request(agent=name, input=given, thread=thread))).id, timeout=60
    )


def thread() -> Thread:
    return Thread(id="t", created_at=1.0, updated_at=time.time())


def test_an_agent_that_keeps_no_threads_gets_earlier_turns_before_its_prompt() -> None:
    forgetful = Listening(agent())

    async def scene() -> None:
        async with engine((route(), forgetful)) as gateway:
            await gateway.threads.create(thread())
            for text in ("one", "two"):
                ended = await said(gateway, text)
            assert ended.status is RunStatus.SUCCESS and not ended.losses
            assert [m.content for m in (await gateway.threads.history("t"))[0].messages] == ["two", "answer to two"]

    run(scene())
    assert forgetful.inputs == [{"message": "one"}, {"message": BEFORE + "two"}]


def test_an_input_with_a_place_for_messages_gets_them_there_in_its_own_words() -> None:
    forgetful = Listening(agent(CHAT))
    first = {"messages": [{"role": "user", "content": "one"}]}
    second = {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "two"}]}
    own = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}

    async def scene() -> None:
        async with engine((route(), forgetful)) as gateway:
            await gateway.threads.create(thread())
            for given in (first, second, own):
                assert (await said(gateway, given)).status is RunStatus.SUCCESS

    run(scene())
    told = {"role": "assistant", "content": "answer to one"}
    assert forgetful.inputs == [
        first,
        {"messages": [second["messages"][0], *first["messages"], told, second["messages"][1]]},
        own,  # a client that sends the history itself is not helped
    ]


def test_a_route_may_name_the_place_and_say_it_in_its_own_words() -> None:
    place = {"type": "object", "properties": {"prompt": {"type": "string"}, "past": {"type": "array"}}}
    named, worded = Listening(agent(place)), Listening(agent())
    routes = (
        (route("named", memory={"messages": "/past"}), named),
        (route("worded", memory={"template": "Was: <$history> for $$5."}), worded),
    )

    async def scene() -> None:
        async with engine(*routes) as gateway:
            for name, key in (("named", "prompt"), ("worded", "message")):
                await gateway.threads.create(Thread(id=name, created_at=1.0, updated_at=1.0))
                for text in ("one", "two"):
                    assert (await said(gateway, {key: text}, name, name)).status is RunStatus.SUCCESS

    run(scene())
    past = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "answer to one"}]
    assert named.inputs[1] == {"prompt": "two", "past": past}
    assert worded.inputs[1] == {"message": "Was: <user: one\n\nassistant: answer to one> for $5.\n\ntwo"}


@pytest.mark.parametrize(("limit", "kept"), [({"turns": 1}, ["two"]), ({"bytes": 20}, ["two"]), ({"bytes": 1}, [])])
def test_the_oldest_turns_are_left_out_and_counted(limit: JsonObject, kept: list[str]) -> None:
    forgetful = Listening(agent())

    async def scene() -> None:
        async with engine((route(memory=limit), forgetful)) as gateway:
            await gateway.threads.create(thread())
            losses = [(await said(gateway, text)).losses for text in ("one", "two", "three")]
            assert losses[0] == {} and losses[-1] == {"earlier_turns": 1}

    run(scene())
    assert answers_in(forgetful.inputs[-1]) == kept


@pytest.mark.parametrize(
    ("described", "options"),
    [
        (agent(tool=True), {}),
        (agent(), {"mode": "none"}),
        (agent({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}), {}),
    ],
)
def test_a_tool_gets_no_transcript_and_its_client_hears_so_once(described: Agent, options: JsonObject) -> None:
    tool = Listening(described)
    key = (described.text_input or "")[1:]

    async def scene() -> None:
        async with engine((route(memory=options), tool)) as gateway:
            await gateway.threads.create(thread())
            ended = [await said(gateway, {key: text}) for text in ("one", "two", "three")]
            assert [one.losses for one in ended] == [{}, {"earlier_turns": 1}, {}]

    run(scene())
    assert tool.inputs == [{key: "one"}, {key: "two"}, {key: "three"}]


def test_turns_that_do_not_fit_an_agents_input_are_left_out_and_counted() -> None:
    short: JsonObject = {"type": "object", "properties": {"message": {"type": "string", "maxLength": 40}}}
    brief = Listening(agent({**short, "required": ["message"]}))

    async def scene() -> None:
        async with engine((route(), brief)) as gateway:
            await gateway.threads.create(thread())
            ended = [await said(gateway, text) for text in ("one", "two")]
            assert [(one.status, one.losses) for one in ended] == [
                (RunStatus.SUCCESS, {}),
                (RunStatus.SUCCESS, {"earlier_turns": 1}),
            ]

    run(scene())
    assert brief.inputs == [{"message": "one"}, {"message": "two"}]


def test_an_agent_with_threads_is_told_what_others_said_meanwhile_once_and_also_after_a_restart(tmp_path: Path) -> None:
    ada, bob = Listening(agent(threads=True)), Listening(agent(threads=True))
    file = tmp_path / "store.db"

    async def talk(*turns: tuple[str, str]) -> None:
        async with engine((route("ada"), ada), (route("bob"), bob), file=file) as gateway:
            await gateway.threads.create(thread(), or_get=True)
            for name, text in turns:
                assert (await said(gateway, text, name)).status is RunStatus.SUCCESS

    run(talk(("ada", "one"), ("ada", "two"), ("bob", "three")))
    run(talk(("ada", "four")))
    run(talk(("ada", "five"), ("bob", "six")))
    assert [one["message"].split("\n")[-1] for one in ada.inputs] == ["one", "two", "four", "five"]
    known = [answers_in(text) for text in ada.inputs]
    assert known == [[], [], ["three"], []]
    known = [answers_in(text) for text in bob.inputs]
    assert known == [["one", "two"], ["four", "five"]]


@pytest.mark.parametrize(("error", "again"), [(AgentGone("not there"), True), (AgentFailed("it was told"), False)])
def test_what_an_agent_may_have_been_told_before_it_failed_is_not_told_again(error: Exception, again: bool) -> None:
    ada = Listening(agent(threads=True), fails=[None, error])
    bob = Listening(agent(threads=True))

    async def scene() -> None:
        async with engine((route("ada"), ada), (route("bob"), bob)) as gateway:
            await gateway.threads.create(thread())
            for name, text in (("ada", "one"), ("bob", "two"), ("ada", "three"), ("ada", "four")):
                await said(gateway, text, name)

    run(scene())
    assert [answers_in(given) for given in ada.inputs] == [[], ["two"], ["two"] if again else []]


def test_an_agent_that_lost_its_conversation_and_a_copied_thread_start_with_all_of_it() -> None:
    ada = Listening(agent(threads=True), fresh=[True, False, True])

    async def scene() -> None:
        async with engine((route(), ada)) as gateway:
            await gateway.threads.create(thread())
            for text in ("one", "two", "three"):
                await said(gateway, text)
            copy = await gateway.threads.copy("t")
            await said(gateway, "four", thread=copy.id)

    run(scene())
    known = [answers_in(text) for text in ada.inputs]
    assert known == [[], [], ["one", "two"], ["one", "two", "three"]]


def test_a_long_conversation_is_told_in_order_across_pages() -> None:
    forgetful = Listening(agent())

    async def scene() -> None:
        async with engine((route(), forgetful)) as gateway:
            await gateway.threads.create(thread())
            for number in range(46):
                await said(gateway, f"n{number}")

    run(scene())
    last = forgetful.inputs[-1]["message"]
    at = [last.index(f"user: n{number}\n") for number in range(45)]
    assert at == sorted(at)
