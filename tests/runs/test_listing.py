"""The list of agents while the routes change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from gateway.agents import entry, roster
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentGone, AgentTimeout
from gateway.core.types import Agent, RunStatus
from gateway.runs import Engine
from gateway.runs.recovery import DESCRIBED_SECONDS
from gateway.store.sqlite import SqliteStore
from tests.support.aio import Still, later, on
from tests.support.scripted import Script, Scripted, echo, engine, request, route, use


async def test_an_agent_whose_route_goes_while_all_are_described_is_left_out() -> None:
    stays, goes = (route("stays"), Scripted(echo)), (route("goes"), Scripted(echo))
    async with engine(stays, goes) as it:
        listing = asyncio.ensure_future(it.agents.list("test"))
        await asyncio.sleep(0)
        use(it, stays)
        assert [agent.name for agent in await listing] == ["stays"]


async def test_a_target_that_does_not_answer_holds_no_list_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "LIST_SECONDS", 0.01)

    answers = asyncio.Event()

    class Hanging(Scripted):
        async def describe(self) -> Agent:
            await answers.wait()
            return replace(await super().describe(), version="1.2.3")

    async with engine((route("hangs"), Hanging(echo)), (route("quick"), Scripted(echo))) as it:
        listed = await it.agents.list("test")
        assert [agent.name for agent in listed] == ["hangs", "quick"] and listed[0].version == "0.0.0"
        assert (await it.agents.list("test"))[0].version == "0.0.0"
        answers.set()
        assert (await it.agents.get("hangs", "test")).version == "1.2.3"
        assert (await it.agents.list("test"))[0].version == "1.2.3"


async def test_a_list_of_some_asks_no_other_and_none_that_is_known_takes_a_task() -> None:
    agents = {name: Hanging(echo) for name in ("one", "two", "three")}
    for agent in agents.values():
        agent.answers.set()
    async with engine(*((route(name), agent) for name, agent in agents.items())) as it:
        assert [one.name for one in await it.agents.list("test", ["three", "one", "gone"])] == ["three", "one"]
        assert [agent.times for agent in agents.values()] == [1, 0, 1]
        listing = it.agents.list("test", ["three", "one"])
        with pytest.raises(StopIteration) as ended:  # nothing is waited for
            listing.send(None)
        assert [one.name for one in ended.value.value] == ["three", "one"]


async def test_many_runs_ask_a_target_that_fails_slowly_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [1000.0], []
    monkeypatch.setattr(entry, "time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Scripted):
        async def describe(self) -> Agent:
            asked.append(now[0])
            await asyncio.sleep(0)
            now[0] += 30.0
            raise AgentGone("it is not there")

    async with engine((route("slow"), Slow(echo))) as it:
        found = await asyncio.gather(*(it.runs.start(request(agent="slow")) for _ in range(5)), return_exceptions=True)
        assert [str(error) for error in found] == ["it is not there"] * 5 and len(asked) == 1


class Hanging(Scripted):
    """Takes the question what it is, and answers it when it is let."""

    def __init__(self, script: Script, attach: Script | None = None) -> None:
        super().__init__(script, attach=attach)
        self.asked, self.times, self.answers = asyncio.Event(), 0, asyncio.Event()

    async def describe(self) -> Agent:
        self.times += 1
        self.asked.set()
        await self.answers.wait()
        return self.agent


@on(Still)
async def test_a_request_waits_for_a_description_no_longer_than_its_run_may_take_and_the_next_one_has_it() -> None:
    agent = Hanging(echo)
    async with engine((route(timeout=5), agent)) as it:
        first = asyncio.ensure_future(it.runs.start(request()))
        await agent.asked.wait()
        await later(4)
        assert not first.done()
        await later(1)
        with pytest.raises(AgentTimeout, match="has not said within 5 s what it is"):
            await first
        agent.answers.set()
        done = await it.runs.wait((await it.runs.start(request())).id)
        assert done is not None and done.status is RunStatus.SUCCESS and agent.times == 1


@on(Still)
async def test_an_agent_that_has_another_name_now_and_does_not_say_what_it_is_fails_the_request_in_time() -> None:
    async with engine((route(timeout=5), Scripted(echo))) as it:
        (entry,) = it.agents.entries
        await entry.need()
        entry.agent, entry.outbound = None, (hangs := Hanging(echo))  # see `Roster._with_found`
        starting = asyncio.ensure_future(it.runs.start(request()))
        await hangs.asked.wait()
        await later(5)
        with pytest.raises(AgentTimeout):
            await starting


async def test_who_waits_for_a_description_that_is_given_up_before_it_began_goes_on() -> None:
    async with engine((route(), Scripted(echo))) as it:
        (entry,) = it.agents.entries
        waiting = asyncio.ensure_future(entry.describe())
        while entry._asking is None:  # noqa: ASYNC110 - not a turn later
            await asyncio.sleep(0)
        entry.hush()  # in the turn of the loop in which it was about to begin
        assert (await asyncio.wait_for(waiting, 30)).name == "scripted"


@on(Still)
async def test_a_start_asks_all_agents_at_once_whose_runs_are_to_go_on_and_waits_a_moment_for_those_that_hang(
    tmp_path: Path,
) -> None:
    at_work: asyncio.Queue[str] = asyncio.Queue()

    async def works(context: RunContext) -> None:
        await context.set_upstream({"id": context.run.id})
        at_work.put_nowait(context.run.id)
        await asyncio.Event().wait()

    async def ends(context: RunContext) -> None:
        context.emit(e.RunFinished())

    names, file = ("one", "two", "three"), tmp_path / "store.db"
    async with engine(*((route(name), Scripted(works)) for name in names), file=file) as it:
        runs = [(await it.runs.start(request(agent=name))).id for name in names]
        for _ in runs:
            await at_work.get()
    hang = [Hanging(echo, attach=ends) for _ in names]
    again = Engine(SqliteStore(file))
    use(again, *zip((route(name) for name in names), hang, strict=True))
    opening = asyncio.ensure_future(again.open())
    for one in hang:
        await one.asked.wait()
    await later(DESCRIBED_SECONDS)
    await opening
    found = [await again.runs.wait(each) for each in runs]
    assert [one.status for one in found if one is not None] == [RunStatus.SUCCESS] * 3
    await again.close()
