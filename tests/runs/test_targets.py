"""Several targets of one route: which one takes a run, and what becomes of one that is not there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway import tracing
from gateway.agents import targets
from gateway.agents.breaker import BreakerState
from gateway.agents.entry import Entry
from gateway.agents.targets import TargetGroup, difference, targets_of
from gateway.config import BreakerOptions, Route
from gateway.contract import Discovering, Outbound, RunContext, TargetOptions
from gateway.core import events as e
from gateway.core.errors import AgentBusy, AgentError, AgentFailed, AgentForgot, AgentGone, AgentTimeout, Unavailable
from gateway.core.types import Agent, JsonObject, Run, RunStatus, Thread
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.support import scripted
from tests.support.scripted import AGENT, Script, Scripted, until

SECOND = replace(AGENT, version="2")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(targets, "FIRST_PAUSE", 0.001)
    tracing.metrics.clear()
    yield
    tracing.metrics.clear()


class Place(TargetOptions):
    url: str = ""


class Program(Scripted):
    """A target: what happens to its next runs is in `fate`, an error or None for one that it does well."""

    def __init__(self, name: str, agent: Agent = AGENT) -> None:
        super().__init__(self._do, agent=agent)
        self.name = name
        self.fate: list[Exception | None] = []
        self.down: Exception | None = None
        self.described = 0
        self.ran: list[str] = []
        self.threads: list[JsonObject | None] = []
        self.fresh: list[str] = []

    async def describe(self) -> Agent:
        self.described += 1
        if self.down is not None:
            raise self.down
        return self.agent

    async def run(self, context: RunContext) -> None:
        self.threads.append(context.upstream_thread)
        fate = self.fate.pop(0) if self.fate else self.down
        if fate is not None:
            raise fate
        self.ran.append(context.run.id)
        told = await context.recall(fresh=context.upstream_thread is None)
        self.fresh.append(told.input["message"])
        await context.set_upstream({"id": context.run.id}, thread={"session": self.name})
        await self._do(context)

    async def _do(self, context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta=self.name), e.RunFinished())


class Directory(Program):
    """One that could stand for many agents."""

    discovers = True

    async def discover(self) -> Mapping[str, Outbound]:
        raise AssertionError("a target beside others stands for one agent")

    def on_change(self, changed: Callable[[], None]) -> None:
        raise AssertionError("a target beside others stands for one agent")


def away(**more: float) -> AgentGone:
    return AgentGone("no connection could be made", untaken=True, **more)


@pytest.fixture(autouse=True)
def _chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance is even."""
    monkeypatch.setattr(random, "random", lambda: 0.5)


def grouped(
    programs: Sequence[Program], weights: Sequence[float] = (), breaker: BreakerOptions | None = None, **options: object
) -> TargetGroup:
    """A route whose targets are these."""
    places = [
        Place(protocol="scripted", url=f"http://{one.name}", weight=weights[at] if weights else 1.0)
        for at, one in enumerate(programs)
    ]
    route = Route(
        name="scripted", target=places[0], targets=tuple(places), breaker=breaker or BreakerOptions(), **options
    )
    by_url = {f"http://{one.name}": one for one in programs}
    return targets_of(route, lambda place: by_url[getattr(place, "url", "")])


def test_a_route_of_several_targets_stands_for_one_agent_whatever_one_of_them_could_do() -> None:
    for programs in ([Program("one"), Directory("two")], [Directory("one"), Program("two")]):
        group = grouped(programs)
        assert (
            isinstance(group, Discovering) and not group.discovers
        )  # Python 3.11 asks for the attribute, 3.12 does not
        assert Entry(group.route, group, group).many is None


@asynccontextmanager
async def engine(group: TargetGroup, file: Path | None = None) -> AsyncIterator[Engine]:
    made = Engine(open_store(f"sqlite:///{file}" if file else "sqlite://"), public_url="")
    made.use([Entry(group.route, group, group)])
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def ran(made: Engine, message: str = "hello", thread: Thread | None = None) -> Run:
    run = await made.runs.start(scripted.request(message, thread=thread.id if thread else None))
    return await ended(made, run.id)


async def ended(made: Engine, run_id: str) -> Run:
    run = await made.runs.wait(run_id)
    assert run is not None
    return run


async def new_thread(made: Engine) -> Thread:
    return await made.threads.create(Thread(id="", created_at=0, updated_at=0, protocol="test"))


def test_runs_are_shared_out_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", random.Random(1).random)
    one, two, spare = (Program(name) for name in ("one", "two", "spare"))
    group = grouped([one, two, spare], weights=(3.0, 1.0, 0.0))

    async def main() -> None:
        async with engine(group) as made:
            for _ in range(100):
                await ran(made)

    asyncio.run(main())
    assert not spare.ran and len(one.ran) + len(two.ran) == 100
    assert 60 < len(one.ran) < 90


def test_a_run_that_nobody_took_goes_to_the_next_target_at_once() -> None:
    one, two = Program("one"), Program("two")
    one.fate = [away()]

    async def main() -> Run:
        async with engine(grouped([one, two], weights=(1.0, 0.0))) as made:
            return await ran(made)

    run = asyncio.run(main())
    assert run.status is RunStatus.SUCCESS and one.ran == [] and two.ran == [run.id]
    assert tracing.metrics.failovers.value("scripted") == 1 and tracing.metrics.retries.value("scripted") == 0


class Taking(Program):
    """A target that goes away once it has taken a run, by an error that says that it took none."""

    def __init__(self, name: str, how: Script) -> None:
        super().__init__(name)
        self._how = how

    async def _do(self, context: RunContext) -> None:
        await self._how(context)
        raise away()

    async def run(self, context: RunContext) -> None:
        self.ran.append(context.run.id)
        await self._do(context)


async def _says(context: RunContext) -> None:
    context.emit(e.PartDelta(part="text", delta="so far"))


async def _names(context: RunContext) -> None:
    await context.set_upstream({"id": "there"})


async def _makes(context: RunContext) -> None:
    await context.add_artifact("a.txt", b"a")


@pytest.mark.parametrize("how", [_says, _names, _makes], ids=["said", "named", "made"])
def test_a_run_of_which_anything_was_heard_is_never_sent_again(how: Script) -> None:
    one, two = Taking("one", how), Program("two")

    async def main() -> Run:
        async with engine(grouped([one, two], weights=(1.0, 0.0))) as made:
            return await ran(made)

    run = asyncio.run(main())
    assert run.status is RunStatus.ERROR and one.ran == [run.id] and two.ran == []


@pytest.mark.parametrize("error", [AgentGone("lost"), AgentTimeout("late"), AgentFailed("no")])
def test_a_run_that_may_have_been_sent_is_never_sent_again(error: AgentError) -> None:
    one, two = Program("one"), Program("two")
    one.fate = [error]

    async def main() -> Run:
        async with engine(grouped([one, two], weights=(1.0, 0.0))) as made:
            return await ran(made)

    run = asyncio.run(main())
    assert run.failure is not None and run.failure.code == error.code and two.threads == []


def test_a_run_that_no_target_took_is_sent_again_some_times_and_no_more() -> None:
    one = Program("one")
    one.fate = [away(), away(retry_after=0.01), None]

    async def main() -> tuple[Run, Run]:
        async with engine(grouped([one])) as made:
            first = await ran(made)
            one.fate = [away(), away(), away(), None]
            return first, await ran(made)

    first, second = asyncio.run(main())
    assert first.status is RunStatus.SUCCESS and second.failure is not None and second.failure.code == "agent_gone"
    assert one.fate == [None] and tracing.metrics.retries.value("scripted") == 4


def test_a_target_that_says_to_come_much_later_is_not_waited_for() -> None:
    one = Program("one")
    one.fate = [away(retry_after=3600.0), None]

    async def main() -> Run:
        async with engine(grouped([one])) as made:
            return await ran(made)

    assert asyncio.run(main()).status is RunStatus.ERROR


def test_a_thread_stays_at_its_target_over_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Program("one"), Program("two")
    draws = iter([0.9, 0.1, *[0.1, 0.9] * 8])
    monkeypatch.setattr(random, "random", lambda: next(draws))

    async def first() -> Thread:
        async with engine(grouped([one, two]), tmp_path / "db") as made:
            thread = await new_thread(made)
            await ran(made, "first", thread)
            await ran(made, "second", thread)
            return thread

    async def after(thread: Thread) -> None:
        async with engine(grouped([two, one]), tmp_path / "db") as made:
            await ran(made, "third", thread)

    asyncio.run(after(asyncio.run(first())))
    assert len(one.ran) == 3 and two.ran == []
    assert one.threads == [None, {"session": "one"}, {"session": "one"}], "a target sees nothing of the mark"


def test_a_thread_whose_target_is_away_goes_on_at_another_that_is_told_of_it_and_stays_there() -> None:
    one, two = Program("one"), Program("two")

    async def main() -> None:
        async with engine(grouped([one, two], weights=(1.0, 0.0))) as made:
            thread = await new_thread(made)
            await ran(made, "my name is Ada", thread)
            one.fate = [away()]
            await ran(made, "who am I?", thread)
            await ran(made, "and now?", thread)
            two.down = away()
            await ran(made, "and back?", thread)

    asyncio.run(main())
    assert two.threads[0] is None and "my name is Ada" in two.fresh[0] and two.fresh[0].endswith("who am I?")
    assert two.threads[1] == {"session": "two"} and two.fresh[1] == "and now?"
    assert one.threads[-1] is None and "who am I?" in one.fresh[-1], "what it knew is not all there is by now"


def test_a_thread_that_cannot_be_told_elsewhere_fails_and_says_so() -> None:
    one, two = Program("one"), Program("two")
    options = BreakerOptions(failures=1, first=60.0, longest=60.0)

    async def main() -> tuple[Run, Run]:
        group = grouped([one, two], weights=(1.0, 0.0), breaker=options, memory={"mode": "none"}, retries=0)
        async with engine(group) as made:
            thread = await new_thread(made)
            await ran(made, "first", thread)
            one.fate = [away()]
            failed = await ran(made, "second", thread)
            return failed, await ran(made, "third", thread)

    failed, third = asyncio.run(main())
    assert failed.failure is not None and failed.failure.code == "agent_gone"
    assert third.failure is not None and "the conversation is at target http://one" in third.failure.message
    assert two.threads == []


def test_a_run_is_attached_and_cancelled_where_it_was_sent(tmp_path: Path) -> None:
    one, two = Program("one"), Program("two")
    attached: list[str] = []

    async def hang(context: RunContext) -> None:
        await context.set_upstream({"id": "x"})
        await asyncio.sleep(60)

    def attach(name: str) -> Script:
        async def script(context: RunContext) -> None:
            attached.append(f"{name} {context.run.upstream and context.run.upstream['id']}")
            stopped = asyncio.get_running_loop().create_future()
            two.on_cancel = lambda: stopped.set_result(None)
            await stopped
            context.emit(e.RunCancelled(reason=""))

        return script

    one.attached, two.attached = attach("one"), attach("two")

    async def before() -> str:
        two.run = hang  # type: ignore[method-assign]
        async with engine(grouped([one, two], weights=(0.0, 1.0)), tmp_path / "db") as made:
            run = await made.runs.start(scripted.request())
            await until(lambda: made.live[run.id].run.upstream is not None)
            return run.id

    async def after(run_id: str) -> Run:
        async with engine(grouped([one, two]), tmp_path / "db") as made:
            await until(lambda: bool(attached))
            await made.runs.cancel(run_id)
            await until(lambda: two.cancels == 1)
            return await ended(made, run_id)

    run = asyncio.run(after(asyncio.run(before())))
    assert attached == ["two x"] and (one.cancels, two.cancels) == (0, 1) and run.status is RunStatus.CANCELLED


async def test_a_target_that_cannot_be_reached_is_ejected_and_its_route_refuses_at_once_until_it_is_back() -> None:
    one = Program("one")
    options = BreakerOptions(failures=3, first=0.3, longest=1.0)

    group = grouped([one], breaker=options, retries=0)
    (target,) = group.members
    async with engine(group) as made:
        await ran(made)
        one.fate = [AgentGone("lost"), AgentFailed("no"), *[AgentGone("lost")] * 3]
        for _ in range(4):
            await ran(made)
        assert target.breaker.closed, "what the agent says itself is an answer"
        await ran(made)
        assert target.breaker.state is BreakerState.OPEN
        one.down = away()
        with pytest.raises(Unavailable) as refused:
            await ran(made)
        assert refused.value.retry_after >= 1.0 and "scripted" in str(refused.value)
        entry = made.agents.configured[0]
        assert not entry.ready and tracing.metrics.target_state.value("scripted", "http://one") == 2
        await until(lambda: tracing.metrics.target_ejections.value("scripted", "http://one") == 2)
        one.down = None
        await until(lambda: target.breaker.closed)
        await until(lambda: entry.ready)
        assert (await ran(made)).status is RunStatus.SUCCESS


def test_an_ejected_target_is_left_out_until_it_is_back() -> None:
    one, two = Program("one"), Program("two")

    async def main() -> None:
        group = grouped([one, two], weights=(1.0, 0.0), breaker=BreakerOptions(failures=1, first=30.0))
        async with engine(group) as made:
            one.fate = [away()]
            await ran(made)
            await ran(made)

    asyncio.run(main())
    assert len(one.threads) == 1 and len(two.ran) == 2


def test_the_first_run_after_an_ejection_decides_and_the_wait_grows_until_one_comes_through() -> None:
    one = Program("one")
    waits: list[float] = []

    async def main() -> None:
        group = grouped([one], breaker=BreakerOptions(failures=2, first=0.1, longest=0.3), retries=0)
        breaker = group.members[0].breaker
        loop = asyncio.get_running_loop()
        breaker.on_change(lambda: waits.append(loop.time()) if breaker.state is not BreakerState.TRIED else None)
        async with engine(group) as made:
            one.fate = [AgentGone("lost")] * 4
            await ran(made)
            for _ in range(3):
                await ran(made)
                assert not breaker.closed
                await until(lambda: breaker.closed)
            await ran(made)
            one.fate = [AgentGone("lost")]
            await ran(made)
            assert breaker.closed, "a run has come through: it begins anew"

    asyncio.run(main())
    opened, closed = waits[::2], waits[1::2]
    told = [end - begin for begin, end in zip(opened, closed, strict=True)]
    assert told[0] >= 0.075 and told[1] >= 0.15 and told[2] >= 0.225


@pytest.mark.parametrize("describes", [True, False])
@pytest.mark.parametrize("others", [0, 1])
def test_the_last_target_that_is_silent_on_runs_stays_while_it_says_what_it_is(others: int, describes: bool) -> None:
    one = Program("one")

    async def silent(context: RunContext) -> None:
        if not describes:
            one.down = away()
        await asyncio.sleep(60)

    one.run = silent  # type: ignore[method-assign]

    async def main() -> bool:
        programs, breaker = [one, *[Program("two")] * others], BreakerOptions(failures=1, first=30.0)
        group = grouped(programs, weights=(1.0, *[0.0] * others), breaker=breaker, timeout=0.1)
        async with engine(group) as made:
            asked = one.described
            run = await ran(made)
            assert run.status is RunStatus.TIMEOUT
            await until(lambda: others or one.described > asked)
            await until(lambda: others or describes or not group.members[0].breaker.closed)
            return group.members[0].breaker.closed

    assert asyncio.run(main()) is (describes and not others)


def test_a_target_that_is_another_agent_gets_no_runs() -> None:
    one = Program("one")
    two = Program("two", replace(AGENT, input_schema={"type": "object", "properties": {"city": {"type": "string"}}}))

    async def main() -> None:
        group = grouped([one, two], weights=(0.0, 1.0))
        async with engine(group) as made:
            await ran(made)
        assert group.members[1].unlike and not group.members[0].unlike

    asyncio.run(main())
    assert len(one.ran) == 1 and two.threads == []


def test_the_agent_is_what_the_first_target_that_answers_says() -> None:
    one, two = Program("one"), Program("two", SECOND)

    async def main() -> tuple[Agent, Agent]:
        group = grouped([one, two])
        both = await group.describe()
        one.down = away()
        return both, await group.describe()

    both, left = asyncio.run(main())
    assert (both.version, left.version) == (AGENT.version, "2")


def test_an_agent_without_schemas_is_the_same_where_its_text_has_the_same_place() -> None:
    published = replace(AGENT, input_schema={**AGENT.input_schema, "title": "Mail", "additionalProperties": False})
    assert difference(published, AGENT) and not difference(published, replace(AGENT, input_assumed=True))
    elsewhere = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    assert difference(replace(AGENT, input_schema=elsewhere), replace(AGENT, input_assumed=True))


class Caching(Program):
    """A target whose half keeps sessions by the gateway's thread, whatever is recorded of it."""

    async def run(self, context: RunContext) -> None:
        if self.fate and (fate := self.fate.pop(0)) is not None:
            raise fate
        told = await context.recall(fresh=not self.ran)
        self.ran.append(context.run.id)
        self.fresh.append(told.input["message"])
        await context.set_upstream({"id": "x"}, thread={"session": self.name})
        await self._do(context)


def test_a_target_that_still_has_a_session_is_told_what_was_said_elsewhere_meanwhile() -> None:
    one, two = Caching("one"), Program("two")

    async def main() -> None:
        async with engine(grouped([one, two], weights=(1.0, 0.0))) as made:
            thread = await new_thread(made)
            await ran(made, "first", thread)
            one.fate = [away()]
            await ran(made, "meanwhile", thread)
            two.fate = [away()]
            await ran(made, "last", thread)

    asyncio.run(main())
    assert len(one.ran) == 2 and "meanwhile" in one.fresh[-1]


class Leaving(Program):
    """A target whose connection is lost with every run that is cancelled."""

    async def _do(self, context: RunContext) -> None:
        await until(lambda: context.cancelled)
        raise AgentGone("lost")


@pytest.mark.parametrize(
    "said", [AgentForgot("the agent does not know the run any more"), AgentBusy("429", untaken=True)]
)
def test_a_target_that_says_why_not_or_lost_a_cancelled_run_is_there(said: AgentGone) -> None:
    """What was ejected here once: an agent whose runs were all cancelled by their clients, and a busy one."""
    forgetful, left = Program("one"), Leaving("two")
    forgetful.fate = [said] * 3

    async def main() -> list[BreakerState]:
        groups = [grouped([one], breaker=BreakerOptions(failures=2)) for one in (forgetful, left)]
        async with engine(groups[0]) as made:
            for _ in range(3):
                await ran(made)
        async with engine(groups[1]) as made:
            for _ in range(3):
                run = await made.runs.start(scripted.request("hello"))
                await until(lambda: left.ran[-1:] == [run.id])  # noqa: B023
                await made.runs.cancel(run.id, wait=True)
            return [group.members[0].breaker.state for group in groups]

    assert asyncio.run(main()) == [BreakerState.CLOSED] * 2
