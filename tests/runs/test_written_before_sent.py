"""A run's creation is written before the agent hears of it, and its end before anybody is told: on the disk, where
somebody besides its waiting client may know of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from gateway.contract import RunContext
from gateway.contract.interception import InterceptedRun
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import Answer, Interrupt, Outcome, Run, RunQuery, RunStatus, Thread, ThreadQuery
from gateway.runs import Engine
from gateway.store.sqlite import SqliteStore, disk_thread
from tests.support import scripted
from tests.support.scripted import Scripted, request, until

LONG = 30.0


class Stuck:
    """A disk on which no sync ends until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.go.wait(LONG)
        os.fsync(descriptor)
        self.syncs += 1


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stuck]:
    stuck = Stuck()
    monkeypatch.setattr(disk_thread, "sync", stuck.sync)
    yield stuck
    stuck.go.set()


class Agent(Scripted):
    """Notes what another process would find of the run while the agent has it, and ends when it is let go."""

    def __init__(self, file: Path, *, asks: bool = False) -> None:
        super().__init__(self.works)
        self.file = file
        self.asks = asks
        self.found: list[str] = []
        self.go = asyncio.Event()

    def look(self, run: Run) -> str:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            found = connection.execute("SELECT status FROM runs WHERE id = ?", (run.id,)).fetchall()
        if not found:
            files = self.file.parent.glob(f"{self.file.name}-begun-*")
            assert any(run.id.encode() in file.read_bytes() for file in files), "nobody would find it"
            return "begun"
        return str(found[0][0])

    async def works(self, context: RunContext) -> None:
        self.found.append(self.look(context.run))
        if self.asks:
            await context.ask(Interrupt(id="sure", kind="sure?", message="Sure?"))
        await self.go.wait()
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"message": "done"}')))
        await context.drain()


async def test_a_run_that_nobody_is_told_of_goes_out_and_is_answered_when_it_is_written_and_the_disk_follows(
    tmp_path: Path, disk: Stuck
) -> None:
    file = tmp_path / "store.db"
    agent = Agent(file)
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        agent.go.set()
        disk.go.clear()
        before = disk.syncs
        run = await asyncio.wait_for(engine.runs.start(request(), told=False), LONG)
        done = await asyncio.wait_for(engine.runs.wait(run.id), LONG)
        assert done is not None and done.status is RunStatus.SUCCESS
        assert disk.syncs == before
        assert agent.found == ["begun"] and agent.look(run) == "success", "another process finds both"
        disk.go.set()
        await until(lambda: disk.syncs > before)


@contextlib.asynccontextmanager
async def known(how: str, engine: Engine) -> AsyncIterator[Run]:
    """A run of which somebody besides its waiting client may know."""
    if how == "told":
        yield await engine.runs.start(request())
    elif how == "on a thread":
        thread = await engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
        yield await engine.runs.start(request(thread=thread.id), told=False)
    elif how == "with a webhook":
        yield await engine.runs.start(request(webhook="http://127.0.0.1:9/"), told=False)
    elif how == "asked":
        run = await engine.runs.start(request(), told=False)
        await engine.runs.wait(run.id)
        yield await engine.runs.answer(run.id, Answer(outcome=Outcome.ANSWERED, value=True))
    else:
        run = await engine.runs.start(request(), told=False)
        async with engine.runs.watch(run.id):
            yield run


@pytest.mark.parametrize("how", ["told", "on a thread", "with a webhook", "asked", "watched"])
async def test_the_end_of_a_run_that_somebody_knows_of_is_told_when_it_is_on_the_disk(
    tmp_path: Path, disk: Stuck, how: str
) -> None:
    file = tmp_path / "store.db"
    agent = Agent(file, asks=how == "asked")
    async with scripted.engine((scripted.route(), agent), file=file) as engine, known(how, engine) as run:
        disk.go.clear()
        agent.go.set()
        await until(lambda: agent.look(run) == "success")
        waiting = asyncio.ensure_future(engine.runs.wait(run.id))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        disk.go.set()
        done = await asyncio.wait_for(waiting, LONG)
        assert done is not None and done.status is RunStatus.SUCCESS


async def test_who_watches_a_run_that_nobody_was_told_of_is_told_of_it_when_it_is_on_the_disk(
    tmp_path: Path, disk: Stuck
) -> None:
    file = tmp_path / "store.db"
    agent = Agent(file)
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        disk.go.clear()
        run = await engine.runs.start(request(), told=False)
        numbers: list[int] = []

        async def watching() -> None:
            async with engine.runs.watch(run.id) as watch:
                await watch.follow(lambda batch: numbers.append(batch.last))

        watchers = [asyncio.ensure_future(watching()) for _ in range(2)]
        await until(lambda: bool(agent.found))
        await asyncio.wait(watchers, timeout=0.05)
        assert numbers == []
        disk.go.set()
        await until(lambda: numbers == [1, 1])
        agent.go.set()
        await asyncio.wait_for(asyncio.gather(*watchers), LONG)


async def test_the_end_of_a_run_that_another_process_watches_is_told_when_it_is_on_the_disk(
    tmp_path: Path, disk: Stuck
) -> None:
    go = asyncio.Event()

    async def works(context: RunContext) -> None:
        await go.wait()
        context.emit(e.RunFinished())

    file = tmp_path / "store.db"
    async with (
        scripted.engine((scripted.route(), Scripted(works)), store=SqliteStore(file, host="here")) as one,
        scripted.engine((scripted.route(), Scripted(works)), store=SqliteStore(file, host="there")) as two,
    ):
        run = await one.runs.start(request(), told=False)
        await one.store.flush()
        async with two.runs.watch(run.id) as watch:
            watching = asyncio.ensure_future(watch.follow(lambda _: None))
            await until(lambda: not one.live[run.id].record.unseen)
            await one.store.flush()
            disk.go.clear()
            go.set()
            await asyncio.wait([waiting := asyncio.ensure_future(one.runs.wait(run.id))], timeout=0.05)
            assert not waiting.done()
            disk.go.set()
            await asyncio.wait_for(asyncio.gather(waiting, watching), LONG)


@pytest.mark.parametrize("transition", ["question", "end"])
@pytest.mark.parametrize("asks", ["watch", "wait", "get"])
async def test_who_asks_another_process_hears_of_a_transition_when_it_is_on_the_disk(
    tmp_path: Path, disk: Stuck, transition: str, asks: str
) -> None:
    go = asyncio.Event()

    async def works(context: RunContext) -> None:
        await go.wait()
        context.emit(e.PartDelta(part="text", delta="so"))
        if transition == "question":
            await context.ask(Interrupt(id="sure", kind="sure?", message="Sure?"))
        context.emit(e.RunFinished())

    file = tmp_path / "store.db"
    there = SqliteStore(file, host="there")
    async with (
        scripted.engine((scripted.route(), Scripted(works)), store=SqliteStore(file, host="here")) as one,
        scripted.engine((scripted.route(), Scripted(works)), store=there) as two,
    ):
        run = await one.runs.start(request())
        heard: list[object] = []

        async def watching() -> None:
            async with two.runs.watch(run.id) as watch:
                await watch.follow(lambda batch: heard.extend(type(event) for _, event in batch.events))

        async def getting() -> None:
            while RunStatus.SUCCESS not in heard and RunStatus.INTERRUPTED not in heard:
                heard.append((await two.runs.get(run.id)).status)

        async def waiting() -> None:
            stopped = await two.runs.wait(run.id)
            assert stopped is not None
            heard.append(stopped.status)

        def written() -> bool:
            with contextlib.closing(sqlite3.connect(file)) as connection:
                ((status,),) = connection.execute("SELECT status FROM runs WHERE id = ?", (run.id,)).fetchall()
            return bool(status == ("interrupted" if transition == "question" else "success"))

        asking = asyncio.ensure_future({"watch": watching, "wait": waiting, "get": getting}[asks]())
        await until(lambda: asks != "watch" or heard == [e.RunStarted])
        disk.go.clear()
        go.set()
        await until(written)
        await asyncio.wait([asking], timeout=0.3)  # it looks five times a second
        stops = {e.Interrupted, e.RunFinished, RunStatus.INTERRUPTED, RunStatus.SUCCESS}
        early = stops.intersection(heard)
        disk.go.set()
        assert not early
        await until(lambda: not stops.isdisjoint(heard))
        await one.runs.cancel(run.id)
        await asyncio.wait_for(asking, LONG)


@pytest.mark.parametrize("finds", [True, False])
async def test_what_no_run_is_found_by_is_written_with_its_next_transition(tmp_path: Path, finds: bool) -> None:
    file = tmp_path / "store.db"

    async def works(context: RunContext) -> None:
        await context.set_upstream({"session": "s1"}, finds=finds)
        await engine.store.flush()
        found.append((await stored(context.run.id)).upstream)
        await context.ask(Interrupt(id="sure", kind="sure?", message="Sure?"))
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"message": "done"}')))

    async def stored(run: str) -> Run:
        return await engine.store.run(run)

    found: list[Any] = []
    async with scripted.engine((scripted.route(), Scripted(works)), file=file) as engine:
        run = await engine.runs.start(request())
        await engine.runs.wait(run.id)
        found.append((await stored(run.id)).upstream)
    assert found == [{"session": "s1"} if finds else None, {"session": "s1"}]


@pytest.mark.parametrize("what", ["creation", "end", "question"])
async def test_a_search_tells_what_is_on_the_disk(tmp_path: Path, disk: Stuck, what: str) -> None:
    def written(file: Path) -> str:
        with contextlib.closing(sqlite3.connect(file)) as connection:
            return "".join(str(status) for (status,) in connection.execute("SELECT status FROM runs").fetchall())

    file = tmp_path / "store.db"
    agent = Agent(file, asks=what == "question")
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        runs, threads = engine.runs, engine.threads
        await threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
        starting = asyncio.ensure_future(runs.start(request(thread="t")))
        if what == "end":
            await starting
            agent.go.set()
        disk.go.clear()
        await until(lambda: written(file) == {"end": "success", "question": "interrupted"}.get(what, "running"))
        searches = (
            runs.list(RunQuery(thread="t")),
            runs.count(RunQuery(thread="t")),
            threads.list(ThreadQuery()),
            threads.count(ThreadQuery()),
            threads.state("t"),
            threads.states("t"),
            threads.history("t"),
        )
        asked = [asyncio.ensure_future(search) for search in searches]
        done, _ = await asyncio.wait(asked, timeout=0.1)
        disk.go.set()
        assert not done
        agent.go.set()
        await asyncio.wait_for(asyncio.gather(starting, *asked), LONG)


class Client:
    """A `Caller` that notes what reaches it."""

    protocol = "test"
    tools = None
    capabilities: ClassVar[dict[str, Any]] = {"sampling": {}}

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def ask(self, method: str, params: msgspec.Raw) -> msgspec.Raw:
        self.heard.append(method)
        return msgspec.Raw(b"{}")

    def tell(self, method: str, params: msgspec.Raw) -> None:
        self.heard.append(method)


@pytest.mark.parametrize(("told", "thread"), [(True, None), (False, None), (True, "t")])
async def test_the_client_of_a_run_that_nobody_was_told_of_is_asked_and_told_when_it_is_on_the_disk(
    tmp_path: Path, disk: Stuck, told: bool, thread: str | None
) -> None:
    async def works(context: RunContext) -> None:
        caller = context.caller
        assert caller is not None and (caller.protocol, caller.capabilities) == ("test", {"sampling": {}})
        for method in ("one", "two"):
            caller.tell(method, msgspec.Raw(b"{}"))
        await caller.ask("three", msgspec.Raw(b"{}"))
        context.emit(e.RunFinished())

    agent, client = Scripted(works), Client()
    async with scripted.engine((scripted.route(), agent), file=tmp_path / "store.db") as engine:
        if thread is not None:
            await engine.threads.create(Thread(id=thread, created_at=1.0, updated_at=1.0))
        disk.go.clear()
        starting = asyncio.ensure_future(engine.runs.start(request(thread=thread), caller=client, told=told))
        await until(lambda: bool(agent.contexts))
        run = agent.contexts[0].run
        await asyncio.wait([waiting := asyncio.ensure_future(engine.runs.wait(run.id))], timeout=0.05)
        assert not waiting.done() and client.heard == []
        disk.go.set()
        done = await asyncio.wait_for(waiting, LONG)
        assert done is not None and done.status is RunStatus.SUCCESS
        assert client.heard == ["one", "two", "three"]
        await starting


async def test_the_client_is_told_what_its_agent_says_last_before_the_end(tmp_path: Path) -> None:
    async def works(context: RunContext) -> None:
        assert context.caller is not None
        context.caller.tell("last", msgspec.Raw(b"{}"))
        context.emit(e.RunFinished())

    client = Client()
    async with scripted.engine((scripted.route(), Scripted(works)), file=tmp_path / "store.db") as engine:
        run = await engine.runs.start(request(), caller=client, told=False)
        await engine.runs.wait(run.id, LONG)
        assert client.heard == ["last"]


FILE, OWN = e.ArtifactAdded, e.Custom


@pytest.mark.parametrize(
    ("said", "beside", "told"),
    [
        ("", {FILE, OWN}, True),
        ("own", {FILE}, True),
        ("own", {FILE, OWN}, False),
        ("file", {FILE}, False),
        ("question", {FILE, OWN}, False),
    ],
)
async def test_who_only_tells_of_the_end_hears_at_once_of_more(
    said: str, beside: set[type[e.Event]], told: bool
) -> None:
    go = asyncio.Event()

    async def works(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="so"))
        if said == "own":
            context.emit(e.Custom(name="acme", data={}))
        elif said == "file":
            await context.add_artifact("a.txt", b"made")
        elif said == "question":
            await context.ask(Interrupt(id="sure", kind="sure?", message="Sure?"))
        await go.wait()
        context.emit(e.RunFinished())

    agent = Scripted(works)
    async with scripted.engine((scripted.route(), agent)) as engine:
        run = await engine.runs.start(request(), told=False)
        ending = asyncio.ensure_future(engine.runs.ended(run.id, beside))
        if told:
            await until(lambda: bool(agent.contexts))
            go.set()
            ended = await asyncio.wait_for(ending, LONG)
            assert ended is not None and ended.status is RunStatus.SUCCESS
            assert await engine.runs.ended(run.id, beside) is None, "it is not in memory any more"
        else:
            assert await asyncio.wait_for(ending, LONG) is None
            assert await engine.runs.ended(run.id, beside) is None
            assert not (await engine.runs.get(run.id)).status.ended
            await engine.runs.cancel(run.id)
        go.set()


@pytest.mark.parametrize("on_a_thread", [True, False])
async def test_a_run_that_somebody_is_told_of_goes_out_when_it_is_written_and_is_told_of_when_it_is_on_the_disk(
    tmp_path: Path, disk: Stuck, on_a_thread: bool
) -> None:
    file = tmp_path / "store.db"
    agent = Agent(file)
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        thread = await engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
        async with engine.backchannel.join("t", None) as news:
            agent.go.set()
            disk.go.clear()
            asked = request(thread=thread.id) if on_a_thread else request()
            starting = asyncio.ensure_future(engine.runs.start(asked))
            await until(lambda: bool(agent.found) and agent.look(agent.contexts[0].run) == "success")
            assert agent.found == ["running"]
            found = agent.contexts[0].run.id
            numbers: list[int] = []

            async def watching() -> None:
                async with engine.runs.watch(found) as watch:
                    await watch.follow(lambda batch: numbers.append(batch.last))

            async def searching() -> None:
                assert [run.id for run in await engine.runs.list(RunQuery())] == [found]

            asking = [engine.runs.wait(found), engine.runs.get(found), searching(), watching()]
            waiting = [starting, *map(asyncio.ensure_future, asking)]
            done, _ = await asyncio.wait(waiting, timeout=0.05)
            assert not done and not numbers and not news.behind
            disk.go.set()
            await asyncio.wait_for(asyncio.gather(*waiting), LONG)
            assert starting.result().id == found and numbers[-1] == 2
            ended = await engine.runs.get(found)
            assert ended.status is RunStatus.SUCCESS and news.behind == on_a_thread


async def test_a_run_whose_client_goes_before_it_is_on_the_disk_is_cancelled_and_its_agent_is_told(
    tmp_path: Path, disk: Stuck
) -> None:
    file = tmp_path / "store.db"
    agent = Agent(file)
    agent.on_cancel = agent.go.set
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        await engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
        async with engine.backchannel.join("t", None) as news:
            disk.go.clear()
            starting = asyncio.ensure_future(engine.runs.start(request(thread="t")))
            await until(lambda: bool(agent.found))
            starting.cancel()
            await asyncio.wait([starting])
            early = news.behind
            disk.go.set()
            await until(lambda: not engine.live)
            assert agent.cancels == 1 and agent.look(agent.contexts[0].run) == "cancelled"
            assert (early, news.behind) == (0, 1), "who is there besides hears of what the agent was sent"


class Intercepted(Agent):
    """One whose runs an interceptor stands before: itself, which lets all pass."""

    holds = False

    def intercept(self, run: InterceptedRun) -> Any:
        return self

    async def ready(self) -> None:
        """At once."""

    async def changing(self, events: Sequence[e.Event], run: Run) -> None:
        """As it is."""

    def starting(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    def concluding(self, end: e.Event) -> contextlib.AbstractAsyncContextManager[e.Event]:
        return contextlib.nullcontext(end)

    def close(self) -> None:
        """Nothing is open."""


async def test_a_run_with_an_interceptor_goes_out_when_it_is_on_the_disk(tmp_path: Path, disk: Stuck) -> None:
    file = tmp_path / "store.db"
    agent = Intercepted(file)
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        agent.go.set()
        disk.go.clear()
        starting = asyncio.ensure_future(engine.runs.start(request()))
        await asyncio.wait([starting], timeout=0.05)
        assert not starting.done() and not agent.found
        disk.go.set()
        run = await asyncio.wait_for(starting, LONG)
        done = await engine.runs.wait(run.id, LONG)
        assert done is not None and done.status is RunStatus.SUCCESS


class Preparing(Agent):
    """Notes whether a run is stored when its work is prepared, and what becomes of that."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.noted: list[str] = []
        self.go.set()

    def prepare(self, context: RunContext) -> None:
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            ((count,),) = connection.execute("SELECT count(*) FROM runs WHERE id = ?", (context.run.id,)).fetchall()
        self.noted.append(f"prepared, {count} stored")

    def unprepare(self, context: RunContext) -> None:
        self.noted.append(f"over, {len(self.found)} sent")


async def test_what_needs_nothing_of_a_run_is_done_before_it_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    agent = Preparing(file)
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        for told in (True, False):
            agent.noted.clear()
            agent.found.clear()
            run = await engine.runs.start(request(), told=told)
            await engine.runs.wait(run.id, LONG)
            await until(lambda: len(agent.noted) == 2)
            assert agent.noted == ["prepared, 0 stored", "over, 1 sent"]


async def test_what_was_prepared_for_a_run_that_is_not_stored_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise Unavailable("the store failed")

    file = tmp_path / "store.db"
    agent = Preparing(file)
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        monkeypatch.setattr(engine.store, "create_run", full)
        with pytest.raises(Unavailable):
            await engine.runs.start(request())
        assert agent.noted == ["prepared, 0 stored", "over, 0 sent"]


async def test_nothing_is_prepared_for_a_run_on_a_thread_or_for_later(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    agent = Preparing(file)
    async with scripted.engine((scripted.route(), agent), file=file) as engine:
        thread = await engine.threads.create(Thread(id="t", created_at=1.0, updated_at=1.0))
        await engine.runs.start(request(start_at=time.time() + 3600.0))
        run = await engine.runs.start(request(thread=thread.id))
        await until(lambda: bool(agent.noted))
        assert agent.noted == ["over, 1 sent"] and agent.look(run) == "success"
