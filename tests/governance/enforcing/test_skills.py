"""What an operator's skills say is told to its agent in the first turn of a session, and audited before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.contract import RunContext
from gateway.contract.governing import governor_named
from gateway.core import events as e
from gateway.core.delta import ABSENT
from gateway.core.errors import Unavailable
from gateway.core.memory import Recalled
from gateway.core.projection import preceded
from gateway.core.types import RunStatus, Thread
from gateway.governance.binding import Binding, bind
from gateway.governance.enforcing import GovernedOutbound, journal
from gateway.governance.enforcing.judge import Judge
from tests.governance.enforcing.support import House, audited, documents, house, told, verified
from tests.governance.support import OPERATOR, with_, write
from tests.governance.test_skills import skill
from tests.support.aio import run
from tests.support.scripted import AGENT

VOICE = '<skill name="voice">\nBe plain.\n</skill>'
MAIL = '<skill name="mail">\nWrite mails.\n</skill>'


def skilled(folder: Path, *skills: str, **keys: Any) -> Binding:
    """The documents, with an operator that has the skills `voice` and `mail`."""
    found = documents(folder, **keys)
    skill(folder / "skills", "voice", "Be plain.\n", aip3={"version": "1.0.0"})
    skill(folder / "skills", "mail", "Write mails.\n")
    assert found.operator is not None
    own = {**found.operator.raw, "skills": list(skills or ("voice", "mail"))}
    write(found.operator.path, with_(OPERATOR, **own))
    return bind(found.manifest.path, folder)


async def session(at: House, name: str) -> Thread:
    return await at.engine.threads.create(Thread(id=name, created_at=0, updated_at=0))


class Hearer:
    """An agent that notes what it is asked, and by what turn it fails."""

    def __init__(self, *failing: int) -> None:
        self.heard: list[Any] = []
        self.failing = failing

    async def __call__(self, context: RunContext) -> None:
        self.heard.append((await context.recall(fresh=False)).input)
        if len(self.heard) in self.failing:
            raise RuntimeError("broken")
        context.emit(e.PartDelta(part="text", delta="ok"), e.RunFinished())
        await context.drain()


def test_the_first_turn_of_a_session_begins_with_the_skills_and_no_other(tmp_path: Path) -> None:
    agent = Hearer()

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path)) as at:
            for thread in (await session(at, "s1"), await session(at, "s2")):
                for words in ("one", "two"):
                    started = await at.start(thread=thread.id, input={"message": words})
                    ended = await at.ended(started)
                    assert ended.request.input == {"message": words}, "the record is what the client asked"

    run(story())
    first = {"message": f"{VOICE}\n\n{MAIL}\n\none"}
    assert agent.heard == [first, {"message": "two"}] * 2
    began = ["operator.invoked", "operator.running", "skill.activated", "skill.activated", "operator.completed"]
    assert told(tmp_path) == [*began, "operator.running", "operator.completed"] * 2
    entry = audited(tmp_path)[2]
    assert entry["subject"] == {"kind": "skill", "ref": "voice"}
    assert (entry["input"]["skill"], entry["input"]["version"], entry["input"]["bytes"]) == ("voice", "1.0.0", 9)
    assert entry["metadata"]["aip44"]["audit"]["audit-event-kind"] == "skill"
    verified(tmp_path)


def test_a_turn_of_no_session_is_a_first_turn(tmp_path: Path) -> None:
    agent = Hearer()

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path, "mail")) as at:
            for _ in range(2):
                await at.ended(await at.start(input={"message": "hi"}))

    run(story())
    assert agent.heard == [{"message": f"{MAIL}\n\nhi"}] * 2


def test_an_agent_that_remembers_nothing_is_told_in_every_turn_and_before_the_conversation(tmp_path: Path) -> None:
    heard: list[Recalled] = []

    async def agent(context: RunContext) -> None:
        heard.append(await context.recall(fresh=True))
        context.emit(e.PartDelta(part="text", delta="ok"), e.RunFinished())

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path, "mail")) as at:
            at.outbound.agent = replace(AGENT, capabilities=replace(AGENT.capabilities, threads=False))
            thread = await session(at, "s1")
            for words in ("one", "two"):
                await at.ended(await at.start(thread=thread.id, input={"message": words}))

    run(story())
    before = f"{MAIL}\n\nThis conversation so far:\n\nuser: one\n\nassistant: ok\n\nThe next message:"
    assert [each.before for each in heard] == [MAIL, before]
    assert [each.input for each in heard] == [{"message": f"{MAIL}\n\none"}, {"message": f"{before}\n\ntwo"}]
    assert told(tmp_path).count("skill.activated") == 2


def test_of_too_many_sessions_the_one_that_was_used_longest_ago_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Hearer()
    monkeypatch.setattr(journal, "MOST_STATES", 2)

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path, "mail")) as at:
            for name in "abc":
                await session(at, name)
            for name in "ababcba":
                await at.ended(await at.start(thread=name, input={"message": name}))

    run(story())
    first = ["operator.invoked", "operator.running", "skill.activated", "operator.completed"]
    again = ["operator.running", "operator.completed"]
    assert told(tmp_path) == [*first, *first, *again, *again, *first, *again, *first]
    assert [given["message"] for given in agent.heard[-2:]] == ["b", f"{MAIL}\n\na"]


def test_a_session_that_was_closed_is_told_again(tmp_path: Path) -> None:
    agent = Hearer()

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path, "mail")) as at:
            thread = await session(at, "s1")
            governor = governor_named(at.engine.agents, "scripted", "test")
            assert governor is not None
            for _ in range(2):
                await at.ended(await at.start(thread=thread.id, input={"message": "hi"}))
                await governor.closed("s1")

    run(story())
    assert agent.heard == [{"message": f"{MAIL}\n\nhi"}] * 2


def test_an_agent_that_failed_is_told_again(tmp_path: Path) -> None:
    agent = Hearer(1)

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path, "mail")) as at:
            thread = await session(at, "s1")
            for status in (RunStatus.ERROR, RunStatus.SUCCESS, RunStatus.SUCCESS):
                await at.ended(await at.start(thread=thread.id, input={"message": "hi"}), status)

    run(story())
    assert agent.heard == [{"message": f"{MAIL}\n\nhi"}] * 2 + [{"message": "hi"}]


def test_an_agent_whose_turn_could_not_be_audited_to_its_end_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Hearer()

    async def full(self: Judge) -> None:
        raise Unavailable("the disk is full")

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path, "mail")) as at:
            thread = await session(at, "s1")
            with monkeypatch.context() as patch:
                patch.setattr(Judge, "over", full)
                await at.ended(await at.start(thread=thread.id, input={"message": "hi"}), RunStatus.ERROR)
            await at.ended(await at.start(thread=thread.id, input={"message": "hi"}))

    run(story())
    assert agent.heard == [{"message": f"{MAIL}\n\nhi"}] * 2


def test_skills_that_are_changed_are_told_again(tmp_path: Path) -> None:
    agent = Hearer()
    binding = skilled(tmp_path, "mail")

    async def story() -> None:
        async with house(tmp_path, agent, binding=binding) as at:
            thread = await session(at, "s1")
            await at.ended(await at.start(thread=thread.id, input={"message": "hi"}))
            skill(tmp_path / "skills", "mail", "Write letters.\n")
            entry = at.engine.agents.configured[0]
            assert isinstance(entry.outbound, GovernedOutbound)
            entry.outbound.governor.binding = bind(binding.manifest.path, tmp_path)
            await at.ended(await at.start(thread=thread.id, input={"message": "hi"}))

    run(story())
    assert agent.heard[1] == {"message": '<skill name="mail">\nWrite letters.\n</skill>\n\nhi'}


def test_an_outbound_half_that_tells_them_itself_has_the_input_as_it_was(tmp_path: Path) -> None:
    heard: list[Any] = []

    async def agent(context: RunContext) -> None:
        assert context.governed is not None
        given = await context.recall(fresh=False)
        heard.append((given.input, [(one.name, one.uri, one.text) for one in context.governed.preface]))
        context.emit(e.RunFinished())
        await context.drain()

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path, "mail")) as at:
            at.outbound.prefaces = True  # type: ignore[attr-defined]
            thread = await session(at, "s1")
            for _ in range(2):
                await at.ended(await at.start(thread=thread.id, input={"message": "hi"}))

    run(story())
    assert heard == [({"message": "hi"}, [("mail", "ws://skills/mail", "Write mails.")]), ({"message": "hi"}, [])]
    assert told(tmp_path).count("skill.activated") == 1


def test_an_outbound_half_whose_agent_has_forgotten_the_session_has_them_again(tmp_path: Path) -> None:
    heard: list[list[str]] = []

    async def agent(context: RunContext) -> None:
        assert context.governed is not None
        await context.governed.forgotten()
        heard.append([one.name for one in context.governed.preface])
        context.emit(e.RunFinished())
        await context.drain()

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path, "mail")) as at:
            at.outbound.prefaces = True  # type: ignore[attr-defined]
            thread = await session(at, "s1")
            for _ in range(2):
                await at.ended(await at.start(thread=thread.id, input={"message": "hi"}))

    run(story())
    assert heard == [["mail"]] * 2 and told(tmp_path).count("skill.activated") == 2


def test_an_agent_that_can_be_told_nothing_is_run_and_that_is_counted(tmp_path: Path) -> None:
    agent = Hearer()

    async def story() -> None:
        async with house(tmp_path, agent, binding=skilled(tmp_path)) as at:
            at.outbound.agent = replace(AGENT, input_schema={"type": "object"})
            ended = await at.ended(await at.start(input={"tasks": ["no text"]}))
            assert ended.losses == {"skills": 2}

    run(story())
    assert agent.heard == [{"tasks": ["no text"]}] and "skill.activated" not in told(tmp_path)


@pytest.mark.parametrize(
    ("document", "pointer", "found"),
    [
        ("hi", "", "X\n\nhi"),
        ({"a": {"b": "hi", "c": 1}}, "/a/b", {"a": {"b": "X\n\nhi", "c": 1}}),
        ({"a": ""}, "/a", {"a": "X"}),
        ({"m": [{"t": "1"}, {"t": "2"}]}, "/m/-/t", {"m": [{"t": "1"}, {"t": "X\n\n2"}]}),
        (
            {"m": [{"type": "text", "text": "hi"}]},
            "/m",
            {"m": [{"type": "text", "text": "X"}, {"type": "text", "text": "hi"}]},
        ),
        ({"m": []}, "/m/-/t", ABSENT),
        ({"m": ["a"]}, "/m", ABSENT),
        ({"m": 1}, "/m", ABSENT),
        ({}, "/m", ABSENT),
        ("hi", None, ABSENT),
    ],
)
def test_a_text_goes_before_the_one_that_is_there(document: Any, pointer: str | None, found: Any) -> None:
    assert preceded(document, pointer, "X") == found
