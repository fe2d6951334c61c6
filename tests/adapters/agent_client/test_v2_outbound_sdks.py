"""The official SDKs' agents of version 2 behind an engine, one process of each for all; and agents of version 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.core import events as e
from gateway.core.types import Answer, Run, RunStatus, StopReason
from tests.adapters.agent_client.outbound_house import House, house, text
from tests.support.agent_client import SDKS, Sdk, agent_client_agent_command
from tests.support.agent_client_v2 import SDKS_V2, agent_command_v2
from tests.support.aio import run
from tests.support.processes import free_port, start
from tests.support.scripted import request as request_of
from tests.support.scripted import until

SAID = "think plan usage option whole rewrite clear picture link tool display plans strange where"
ENDS = ("refuse", "max", "turns", "reject", "fail", "quiet", "early hi", "fs", "wait")


class Told(dict[str, Run]):
    """Runs by their prompts, all with one process; `events` of each."""

    def __init__(self) -> None:
        self.events: dict[str, list[e.Event]] = {}


async def answered(it: House, word: str, answer: Answer) -> Run:
    asking = await it.ask(word)
    [interrupt] = asking.interrupts
    await it.engine.runs.answer(asking.id, answer, interrupt.id)
    ended = await it.engine.runs.wait(asking.id, timeout=30)
    assert ended is not None
    return ended


@pytest.fixture(scope="module", params=SDKS_V2)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    async def body() -> Told:
        folder = tmp_path_factory.mktemp("v2")
        found = Told()
        async with house(
            command=agent_command_v2(request.param, "--early", "--state", str(folder / "state")), v2=True, cwd=folder
        ) as it:
            assert (await it.outbound.describe()).extra["agent_client.v2"]["protocolVersion"] == 2
            await it.thread("t1")
            for word in (SAID, *ENDS):
                found[word] = await it.ask(word, "t1" if word in (SAID, "early hi", "quiet") else None)
                found.events[word] = [event for _, event in await it.engine.runs.events(found[word].id)]
            for option in ("ok", "no"):
                for word in ("perm", "command", "bare"):
                    found[f"{word} {option}"] = await answered(it, word, Answer(value={"optionId": option}))
            found["elicit"] = await answered(it, "elicit", Answer(value={"name": "Ada"}))
            for word in ("slow", "linger"):
                slow = await it.engine.runs.start(request_of(word, agent="prog"))
                await it.sent(slow)
                found[word] = await it.engine.runs.cancel(slow.id, wait=True)
            found["config"] = await it.ask("hello", config={"loud": True, "model": "large", "mode": "code"})
            found["no model"] = await it.ask("hello", config={"model": "none"})
            session = it.outbound._sessions._by_thread["t1"]
            before = session._strays
            found["later"] = await it.ask("later", "t1")
            await until(lambda: session._strays >= before + 2)
            for word in ("one", "work", "two", "busy", "three", "again", "four", "five"):
                found[word] = await it.ask(word, "t1")
            found["exit"] = await it.ask("exit", "t1")
            found["back"] = await it.ask("back", "t1")
            return found

    return run(body())


def test_everything_that_an_agent_can_say_arrives(told: Told) -> None:
    said = told[SAID]
    assert said.status is RunStatus.SUCCESS, said.failure
    assert "rewritten and more" in text(said) and "a draft" not in text(said) and "a slip" not in text(said)
    assert "said at once" in text(said) and "where /" in text(said)
    kinds = {type(event).__name__ for event in told.events[SAID]}
    assert kinds >= {"PlanUpdated", "ToolCallStarted", "ToolCallEnded", "UsageReported", "Custom", "ArtifactAdded"}
    custom = [event.data for event in told.events[SAID] if isinstance(event, e.Custom)]
    assert {"sessionUpdate": "_rig_thing", "thing": {"n": [1, None]}} in custom


def test_a_tool_calls_content_is_what_its_pieces_are(told: Told) -> None:
    ended = [event for event in told.events[SAID] if isinstance(event, e.ToolCallEnded)]
    assert [event.call for event in ended] == ["call_1", "call_t"]
    assert "file " in json.dumps([str(event) for event in told.events[SAID]])


def test_prompts_end_as_the_agent_says(told: Told) -> None:
    reasons = {"refuse": StopReason.REFUSAL, "max": StopReason.MAX_TOKENS, "turns": StopReason.MAX_TURN_REQUESTS}
    assert {word: told[word].stop_reason for word in reasons} == reasons
    assert told["reject"].status is RunStatus.ERROR
    assert told["reject"].failure is not None and "nvalid params" in told["reject"].failure.message
    assert told["fail"].status is RunStatus.ERROR and told["fail"].failure is not None
    assert text(told["quiet"]).split() == ["quiet"] and text(told["early hi"]).split() == ["early", "hi"]
    assert text(told["wait"]).split() == ["wait"]


def test_questions_are_asked_and_answered(told: Told) -> None:
    for word in ("perm", "command", "bare"):
        assert '"ok"' in text(told[f"{word} ok"]) and '"no"' in text(told[f"{word} no"])
    assert "Ada" in text(told["elicit"])


def test_files_are_not_served(told: Told) -> None:
    assert "fs failed -32601" in text(told["fs"])


def test_cancelled_prompts_are_cancelled_however_long_that_takes(told: Told) -> None:
    for word in ("slow", "linger"):
        assert told[word].status is RunStatus.CANCELLED and not told[word].losses


def test_options_are_set_and_one_that_is_not_offered_fails(told: Told) -> None:
    assert "HELLO" in text(told["config"])
    failed = told["no model"].failure
    assert failed is not None and failed.code == "invalid"


def test_what_an_agent_does_of_its_own_is_in_no_run(told: Told) -> None:
    for word in ("later", "one", "work", "two", "busy", "three", "again", "four", "five"):
        assert text(told[word]).split() == [word]


def test_an_agent_that_dies_after_the_acknowledgement_fails_the_run(told: Told) -> None:
    gone = told["exit"].failure
    assert gone is not None and "exited with 3" in gone.message


def test_the_conversation_goes_on_with_its_next_process(told: Told) -> None:
    assert text(told["back"]).split() == ["back"] and not told["back"].losses


async def test_an_agent_that_wants_a_login_fails_and_says_which() -> None:
    async with house(command=agent_command_v2("ts", "--auth"), v2=True) as it:
        refused = await it.ask("hello")
        assert refused.failure is not None and refused.failure.code == "agent_error"
        assert "key" in refused.failure.message


@pytest.mark.parametrize("sdk", SDKS)
async def test_an_agent_of_version_1_is_called_as_ever(sdk: Sdk) -> None:
    async with house(command=agent_client_agent_command(sdk), v2=True) as it:
        assert "agent_client.v2" not in (await it.outbound.describe()).extra
        ended = await it.ask("tool hello")
        assert text(ended).split() == ["tool", "hello"]


@pytest.mark.parametrize("v2", [True, False])
async def test_an_agent_of_both_versions_is_spoken_to_in_the_one_that_the_route_allows(v2: bool) -> None:
    async with house(command=agent_command_v2("ts", "--both"), v2=v2) as it:
        assert (await it.outbound.describe()).name == ("rig-v2-ts" if v2 else "rig-v1-ts")
        assert text(await it.ask("hello")).strip() == "hello"


def test_an_agent_that_is_a_server_is_called(tmp_path: Path) -> None:
    async def body(address: str) -> None:
        for scheme in ("ws", "http"):
            async with house(url=f"{scheme}{address}/agent", v2=True, file=tmp_path / scheme) as it:
                assert (await it.outbound.describe()).name == "rig-v2-ts"
                thread = await it.thread("t1")
                assert "rewritten and more" in text(await it.ask("tool rewrite hello", thread))
                asking = await it.ask("perm", thread)
                await it.engine.runs.answer(asking.id, Answer(value={"optionId": "ok"}), asking.interrupts[0].id)
                ended = await it.engine.runs.wait(asking.id, timeout=30)
                assert ended is not None and "ok" in text(ended)
                for word in ("early hi", "busy", "three"):
                    assert text(await it.ask(word, thread)).split() == word.split()
                slow = await it.engine.runs.start(request_of("slow", agent="prog", thread=thread))
                await it.sent(slow)
                assert (await it.engine.runs.cancel(slow.id, wait=True)).status is RunStatus.CANCELLED
            async with house(url=f"{scheme}{address}/agent", v2=True, file=tmp_path / scheme) as it:
                ended = await it.ask("four", "t1")
                assert text(ended).split() == ["four"] and not ended.losses, "it is resumed"

    port = free_port()
    with start(agent_command_v2("ts", "--http", str(port)), port=port) as server:
        run(body(server.url.removeprefix("http")))


async def test_a_conversation_goes_on_after_the_gateway_was_started_again(tmp_path: Path) -> None:
    command = agent_command_v2("ts", "--state", str(tmp_path / "state"))
    for number, word in enumerate(("one", "two")):
        async with house(command=command, v2=True, file=tmp_path / "store.db") as it:
            if not number:
                await it.thread("t1")
            ended = await it.ask(word, "t1")
            assert text(ended).split() == [word] and not ended.losses
    assert len(json.loads((tmp_path / "state").read_text())) == 1, "it is the same session"
