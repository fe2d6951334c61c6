"""Agents beside the route table's own: found at a target that stands for many, and created of a template."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.agents import roster
from gateway.agents.entry import Entry
from gateway.contract import Outbound, RunContext
from gateway.core import events as e
from gateway.core.errors import AgentGone, Invalid, NotFound, Unsupported
from gateway.core.types import JsonObject, RunStatus
from gateway.runs import Engine
from tests.support import scripted
from tests.support.scripted import AGENT, Scripted, echo, request, until

CONFIG: JsonObject = {"type": "object", "properties": {"tone": {"type": "string"}}, "required": ["tone"]}


class Many(Scripted):
    """A target where agents come and go."""

    discovers = True

    def __init__(self, *names: str) -> None:
        super().__init__(echo)
        self.names = list(names)
        self.halves: dict[str, Outbound] = {}
        self.down = False
        self.asked = 0
        self._changed: Callable[[], None] = lambda: None

    async def discover(self) -> Mapping[str, Outbound]:
        self.asked += 1
        if self.down:
            raise AgentGone("nobody is there")
        return {name: self.halves.setdefault(name, Scripted(echo)) for name in self.names}

    def on_change(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def now(self, *names: str) -> None:
        """Other agents are there from now on, and it says so."""
        self.names = list(names)
        self._changed()


async def said_config(context: RunContext) -> None:
    """An agent that answers with its configuration."""
    context.emit(e.PartDelta(part="text", delta=repr(sorted(context.run.request.config.items()))), e.RunFinished())


def template() -> Scripted:
    return Scripted(said_config, agent=replace(AGENT, config_schema=CONFIG))


async def spoken(engine: Engine, agent: str, **fields: object) -> str:
    run = await engine.runs.start(request(agent=agent, **fields))
    done = await engine.runs.wait(run.id, 30)
    assert done is not None and done.status is RunStatus.SUCCESS, done
    return bytes(done.output).decode()


async def test_each_agent_found_at_a_target_is_a_route_at_the_targets_place() -> None:
    many = Many("echo", "two words", "last")
    async with scripted.engine(
        (scripted.route("first"), Scripted(echo)), (scripted.route("bee"), many), (scripted.route("last"), template())
    ) as engine:
        assert list(engine.agents.names("test")) == ["first", "echo", "two_words", "bee-last", "last"]
        assert (await engine.agents.get("two_words", "test")).name == "two_words"
        assert "hello" in await spoken(engine, "echo", input={"message": "hello"})
        with pytest.raises(NotFound, match="bee-last"):
            await engine.runs.start(request(agent="bee"))


async def test_a_target_that_says_its_agents_have_changed_is_asked_again() -> None:
    many, changes = Many("a", "b"), []
    async with scripted.engine((scripted.route("bee"), many)) as engine:
        kept = engine.agents.entry("b", "test")
        engine.agents.on_change(lambda: changes.append(list(engine.agents.names("test"))))
        many.now("b", "c")
        await until(lambda: list(engine.agents.names("test")) == ["b", "c"])
        assert changes[-1] == ["b", "c"]
        assert engine.agents.entry("b", "test") is kept
        with pytest.raises(NotFound):
            await engine.agents.get("a", "test")


async def test_a_target_that_is_down_at_the_start_is_asked_again_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster, "RETRY_SECONDS", 0.01)

    many = Many("a")
    many.down = True
    async with scripted.engine((scripted.route("bee"), many), (scripted.route("own"), Scripted(echo))) as engine:
        assert list(engine.agents.names("test")) == ["own"]
        await until(lambda: many.asked > 2)
        many.down = False
        await until(lambda: list(engine.agents.names("test")) == ["a", "own"])


async def test_a_target_that_never_answers_does_not_hold_up_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "DISCOVER_SECONDS", 0.05)

    class Mute(Many):
        async def discover(self) -> Mapping[str, Outbound]:
            await asyncio.Event().wait()
            raise AssertionError

    async with scripted.engine((scripted.route("bee"), Mute()), (scripted.route("own"), Scripted(echo))) as engine:
        assert list(engine.agents.names("test")) == ["own"]


async def test_a_route_that_goes_takes_its_agents_along_but_not_their_runs() -> None:
    gate = asyncio.Event()

    async def held(context: RunContext) -> None:
        await gate.wait()
        await echo(context)

    many = Many("slow")
    many.halves["slow"] = Scripted(held)
    async with scripted.engine((scripted.route("bee"), many)) as engine:
        (host,) = engine.agents.configured
        run = await engine.runs.start(request(agent="slow"))
        engine.use([])
        host.retired = True
        assert list(engine.agents.names("test")) == [] and host.users == 1
        assert not many.closed
        gate.set()
        done = await engine.runs.wait(run.id, 30)
        assert done is not None and done.status is RunStatus.SUCCESS
        await until(lambda: many.closed)


async def test_a_created_agent_runs_with_its_configuration_whatever_the_client_says() -> None:
    async with scripted.engine((scripted.route("poet"), template())) as engine:
        made = await engine.agents.create("poet", "test", {"tone": "grave"})
        assert made.name.startswith("poet-") and made.config_schema == {}
        assert made.name in engine.agents.names("another")
        assert "('tone', 'grave')" in await spoken(engine, made.name)
        assert "('tone', 'grave')" in await spoken(engine, made.name, config={"tone": "merry"})
        assert "('tone', 'merry')" in await spoken(engine, "poet", config={"tone": "merry"})


async def test_what_cannot_be_created_is_refused_with_the_reason() -> None:
    async with scripted.engine(
        (scripted.route("poet"), template()), (scripted.route("plain"), Scripted(echo))
    ) as engine:
        with pytest.raises(Invalid) as wrong:
            await engine.agents.create("poet", "test", {"tone": 3})
        assert wrong.value.path == "/config/tone"
        with pytest.raises(Unsupported, match="no template"):
            await engine.agents.create("plain", "test", {})
        with pytest.raises(NotFound):
            await engine.agents.create("nobody", "test", {})
        made = await engine.agents.create("poet", "test", {"tone": "grave"})
        with pytest.raises(Unsupported, match="no template"):
            await engine.agents.create(made.name, "test", {"tone": "grave"})
        with pytest.raises(Unsupported, match="route table"):
            await engine.agents.destroy("poet", "test")
        await engine.agents.destroy(made.name, "test")
        with pytest.raises(NotFound):
            await engine.agents.destroy(made.name, "test")
        assert list(engine.agents.names("test")) == ["poet", "plain"]


async def test_created_agents_outlive_the_gateway_and_are_seen_by_others_on_the_store(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    async with (
        scripted.engine((scripted.route("poet"), template()), file=file) as first,
        scripted.engine((scripted.route("poet"), template()), file=file) as second,
    ):
        made = await first.agents.create("poet", "test", {"tone": "grave"})
        assert "grave" in await spoken(second, made.name)
    async with scripted.engine((scripted.route("poet"), template()), file=file) as third:
        assert made.name in third.agents.names("test")
        await third.agents.destroy(made.name, "test")
    async with scripted.engine((scripted.route("poet"), template()), file=file) as fourth:
        assert list(fourth.agents.names("test")) == ["poet"]


async def test_a_created_agent_is_away_while_its_template_is() -> None:
    async with scripted.engine((scripted.route("poet"), template())) as engine:
        made = await engine.agents.create("poet", "test", {"tone": "grave"})
        before = engine.agents.configured
        engine.use([])
        assert list(engine.agents.names("test")) == []
        engine.use(before)
        assert list(engine.agents.names("test")) == ["poet", made.name]


async def test_there_is_a_bound_to_what_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "MAX_CREATED", 2)

    async with scripted.engine((scripted.route("poet"), template())) as engine:
        for tone in ("a", "b"):
            await engine.agents.create("poet", "test", {"tone": tone})
        with pytest.raises(Exception, match="destroy some first"):
            await engine.agents.create("poet", "test", {"tone": "c"})


async def test_names_of_the_route_table_are_never_taken_by_what_is_found() -> None:
    many = Many("poet")
    async with scripted.engine((scripted.route("bee"), many)) as engine:
        assert list(engine.agents.names("test")) == ["poet"]
        (host,) = engine.agents.configured
        engine.use([host, Entry(scripted.route("poet"), template())])
        assert list(engine.agents.names("test")) == ["bee-poet", "poet"]
        assert (await engine.agents.get("bee-poet", "test")).name == "bee-poet"
