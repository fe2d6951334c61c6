"""Targets that stand for many and behave badly, and agents that cannot be described."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gateway.agents import roster
from gateway.contract import Outbound
from gateway.core.errors import Denied, Invalid
from gateway.core.types import Agent, JsonObject
from tests.runs.test_roster import Many, template
from tests.support import scripted
from tests.support.rpc import settled
from tests.support.scripted import AGENT, Scripted, echo, request, until

STRICT: JsonObject = {"type": "object", "properties": {"message": {"type": "string", "maxLength": 1}}}


async def test_a_list_that_is_the_same_again_is_told_to_nobody_and_another_description_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster, "CALM_SECONDS", 0)

    many, told = Many("a", "b"), []
    async with scripted.engine((scripted.route("bee"), many)) as engine:
        assert (await engine.agents.get("a", "test")).description == "The agent a, through Interlingua."
        engine.agents.on_change(lambda: told.append(list(engine.agents.names("test"))))
        many.now("a", "b")
        await until(lambda: many.asked > 1)
        await settled()
        assert told == []
        half = many.halves["a"]
        assert isinstance(half, Scripted)
        half.agent = replace(AGENT, description="another", input_schema=STRICT)
        many.now("a", "b")
        await until(lambda: bool(told))
        assert (await engine.agents.get("a", "test")).description == "another"
        with pytest.raises(Invalid):
            await engine.runs.start(request(agent="a", input={"message": "long"}))


async def test_a_target_whose_agents_change_all_the_time_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "CALM_SECONDS", 3600)

    many = Many("a")
    async with scripted.engine((scripted.route("bee"), many)):
        for _ in range(50):
            many.now("b")
            await settled(2)
        assert many.asked == 1


async def test_a_target_that_fails_in_ways_that_nobody_foresaw_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "RETRY_SECONDS", 0.01)

    class Odd(Many):
        async def discover(self) -> Mapping[str, Outbound]:
            if not self.asked:
                self.asked += 1
                raise RuntimeError("odd")
            return await super().discover()

    async with scripted.engine((scripted.route("bee"), Odd("a"))) as engine:
        await until(lambda: list(engine.agents.names("test")) == ["a"])


@pytest.mark.parametrize("error", [Denied("401"), RuntimeError("odd")])
async def test_an_agent_that_cannot_be_described_hides_no_other(error: Exception) -> None:
    class Locked(Scripted):
        async def describe(self) -> Agent:
            raise error

    async with scripted.engine(
        (scripted.route("locked"), Locked(echo)), (scripted.route("open"), Scripted(echo))
    ) as engine:
        assert [agent.name for agent in await engine.agents.list("test")] == ["locked", "open"]
        with pytest.raises(Denied if isinstance(error, Denied) else Exception, match=r"401|cannot be described"):
            await engine.runs.start(request(agent="locked"))


async def test_a_created_agent_takes_what_its_template_takes_now() -> None:
    half = template()
    async with scripted.engine((scripted.route("poet"), half)) as engine:
        made = await engine.agents.create("poet", "test", {"tone": "grave"})
        await engine.runs.start(request(agent=made.name, input={"message": "long"}))
        half.agent = replace(half.agent, input_schema=STRICT)
        await engine.agents.configured[0].ask()
        with pytest.raises(Invalid):
            await engine.runs.start(request(agent=made.name, input={"message": "long"}))
