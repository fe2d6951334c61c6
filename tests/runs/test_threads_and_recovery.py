"""What a thread remembers, and what becomes of runs when the gateway stops and starts again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import Raw

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import AgentGone, Unavailable, Unsupported
from gateway.core.types import (
    Agent,
    AgentCapabilities,
    Answer,
    Artifact,
    Interrupt,
    RunStatus,
    Thread,
    ThreadChange,
    ThreadStatus,
)
from gateway.runs import Engine, starting
from gateway.runs.log import RunLog
from gateway.store.sqlite import SqliteStore
from tests.support.scripted import AGENT, Scripted, echo, engine, request, route, until, use


def thread(**fields: object) -> Thread:
    return Thread(id="t", created_at=1.0, updated_at=1.0, **fields)  # type: ignore[arg-type]


async def test_a_thread_keeps_its_state_its_messages_and_the_agents_own_id() -> None:
    async def agent(context: RunContext) -> None:
        turns = (context.upstream_thread or {}).get("turns", 0) + 1
        await context.set_upstream({"run": turns}, thread={"turns": turns})
        context.emit(e.PartDelta(part="text", delta=f"answer {turns}"), e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        await gateway.threads.create(thread(metadata={"k": 1}))
        for question in ("one", "two"):
            started = await gateway.runs.start(request(question, thread="t"))
            await gateway.runs.wait(started.id, timeout=30)
        now = await gateway.threads.get("t")
        assert now.values is None and now.status is ThreadStatus.IDLE
        assert now.upstream == {"scripted": {"turns": 2}} and now.metadata == {"k": 1}
        newest, oldest = await gateway.threads.history("t")
        assert now.checkpoint == newest.id
        assert [m.content for m in (*oldest.messages, *newest.messages)] == ["one", "answer 1", "two", "answer 2"]
        assert [c.id for c in await gateway.threads.history("t", before=newest.id)] == [oldest.id]


class Overtaken(SqliteStore):
    """Another gateway changes a thread whenever it has been read."""

    async def thread(self, thread_id: str) -> Thread:
        found = await super().thread(thread_id)
        await self.update_thread(thread_id, ThreadChange(upstream={"scripted": {"session": "newer"}}), at=2.0)
        return found


async def test_a_run_finds_its_thread_as_it_was_when_the_run_was_created(tmp_path: Path) -> None:
    found = []

    async def agent(context: RunContext) -> None:
        found.append(context.upstream_thread)
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(agent)), store=Overtaken(tmp_path / "store.db")) as gateway:
        await gateway.threads.create(thread())
        await gateway.runs.wait((await gateway.runs.start(request(thread="t"))).id, timeout=30)
    assert found == [{"session": "newer"}]


async def test_a_failed_run_leaves_the_state_as_it_was_and_says_so() -> None:
    async def agent(context: RunContext) -> None:
        raise AgentGone("gone")

    async with engine((route(), Scripted(agent))) as gateway:
        await gateway.threads.create(thread())
        await gateway.runs.wait((await gateway.runs.start(request(thread="t"))).id, timeout=30)
        assert (await gateway.threads.get("t")).status is ThreadStatus.ERROR
        assert await gateway.threads.history("t") == []


async def test_a_busy_thread_says_busy_and_an_asking_one_interrupted() -> None:
    async def agent(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="input"))
        await echo(context)

    go = asyncio.Event()

    async def slow(context: RunContext) -> None:
        await go.wait()
        await agent(context)

    async with engine((route(), Scripted(slow))) as gateway:
        await gateway.threads.create(thread())
        started = await gateway.runs.start(request(thread="t"))
        assert (await gateway.threads.get("t")).status is ThreadStatus.BUSY
        go.set()
        await gateway.runs.wait(started.id, timeout=30)
        assert (await gateway.threads.get("t")).status is ThreadStatus.INTERRUPTED
        await gateway.runs.answer(started.id, Answer(value="x"))
        await gateway.runs.wait(started.id, timeout=30)
        assert (await gateway.threads.get("t")).status is ThreadStatus.IDLE


async def test_a_copy_has_the_same_history_and_its_own_life() -> None:
    async with engine((route(), Scripted(echo))) as gateway:
        await gateway.threads.create(thread(metadata={"a": 1}))
        await gateway.runs.wait((await gateway.runs.start(request("hi", thread="t"))).id, timeout=30)
        copy = await gateway.threads.copy("t")
        assert copy.id != "t" and copy.metadata == {"a": 1}
        await gateway.threads.patch(copy.id, values={"colour": "blue"})
        assert (await gateway.threads.get("t")).values is None
        now, before = await gateway.threads.states(copy.id)
        said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi "}]
        assert [{**m, "id": ""} for m in now.values.pop("messages")] == [{**m, "id": ""} for m in said]
        assert now.values == {"colour": "blue"} and "colour" not in before.values


async def test_uploads_are_refused_for_an_agent_that_takes_no_files() -> None:
    capabilities = AgentCapabilities(threads=True)
    no_files = Agent(name="x", input_schema={}, output_schema={}, capabilities=capabilities)

    async def content():  # type: ignore[no-untyped-def]
        yield b"abc"

    async with engine((route(), Scripted(echo, agent=no_files))) as gateway:
        await gateway.threads.create(thread())
        upload = Artifact(id="", name="a.txt", thread="t", agent_created=False)
        stored = await gateway.files.add(upload, content())
        assert stored.size == 3
        with pytest.raises(Unsupported, match="takes no files; with `lossy: allow`"):
            await gateway.runs.start(request(thread="t"))

        bound = Thread(id="bound", created_at=1.0, updated_at=1.0, agent="scripted", protocol="test")
        await gateway.threads.create(bound)
        with pytest.raises(Unsupported, match="takes no files; with `lossy: allow`"):
            await gateway.files.add(Artifact(id="", name="a.txt", thread="bound"), content())
        assert not await gateway.files.list(thread="bound")
        await gateway.runs.start(request(thread="bound"))


async def test_files_that_an_agent_makes_are_stored_told_and_listed() -> None:
    async def agent(context: RunContext) -> None:
        await context.add_artifact("out.txt", b"content", media_type="text/plain", relative_path="sub")
        context.emit(e.PartDelta(part="text", delta="done"), e.RunFinished())

    async with engine((route(), Scripted(agent))) as gateway:
        started = await gateway.runs.start(request())
        done = await gateway.runs.wait(started.id, timeout=30)
        assert done is not None
        (file,) = await gateway.files.list(run=started.id)
        assert (file.name, file.size, file.relative_path) == ("out.txt", 7, "sub")
        assert b"".join([chunk async for chunk in gateway.files.open(file.id)]) == b"content"
        document = json.loads(bytes(done.output))
        assert document == {"message": "done", "artifacts": [{"name": "out.txt", "url": file.url}]}


# --- restarts: the engine lets go of its runs and another takes them up from the file


@asynccontextmanager
async def restarted(file: Path, agent: Scripted, *, first: Scripted, ready: str) -> AsyncIterator[tuple[Engine, str]]:
    """A run brought to where `ready` has been said by one engine, then a second engine on the same file."""
    async with engine((route(), first), file=file) as gateway:
        started = await gateway.runs.start(request())
        live = gateway.live[started.id]
        await until(lambda: ready in live.log.output.encoded.decode() or ready in [i.id for i in live.run.interrupts])
    async with engine((route(), agent), file=file) as gateway:
        yield gateway, started.id


async def talk_then_hang(context: RunContext) -> None:
    await context.set_upstream({"id": "u1"})
    context.emit(e.PartDelta(part="output", delta={"message": "half"}))
    await context.drain()
    await asyncio.Event().wait()


async def test_a_run_whose_agent_can_be_found_again_goes_on_above_all_numbers_ever_used(tmp_path: Path) -> None:
    async def attach(context: RunContext) -> None:
        assert context.run.upstream == {"id": "u1"}
        context.emit(e.PartReplaced(part="output", value={"message": "half and more"}))
        context.emit(e.PartDelta(part="output", delta={"message": "!"}), e.RunFinished())

    agent = Scripted(echo, attach=attach)
    async with restarted(tmp_path / "s.db", agent, first=Scripted(talk_then_hang), ready="half") as (gateway, run_id):
        done = await gateway.runs.wait(run_id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": "half and more!"}
        events = await gateway.runs.events(run_id)
        numbers = [n for n, _ in events]
        assert numbers == sorted(set(numbers))
        replaced = next(n for n, event in events if isinstance(event, e.PartReplaced))
        assert replaced > 4096  # above what the first engine had reserved
        assert not agent.contexts[1:]


@pytest.mark.parametrize(
    ("first", "code"),
    [(talk_then_hang, "unsupported"), (None, "outcome_unknown")],
    ids=["agent that cannot be found", "no id was learnt"],
)
async def test_a_run_that_cannot_go_on_ends_with_a_reason_and_is_never_sent_twice(
    tmp_path: Path, first: object, code: str
) -> None:
    async def nameless(context: RunContext) -> None:
        context.emit(e.PartDelta(part="output", delta={"message": "half"}))
        await asyncio.Event().wait()

    agent = Scripted(echo)
    script = talk_then_hang if first else nameless
    async with restarted(tmp_path / "s.db", agent, first=Scripted(script), ready="half") as (gateway, run_id):
        done = await gateway.runs.wait(run_id, timeout=30)
        assert done is not None and done.status is RunStatus.ERROR
        assert done.failure is not None and done.failure.code == code
        assert json.loads(bytes(done.output)) == {"message": "half"} and not agent.contexts


async def ask_then_say(context: RunContext) -> None:
    await context.set_upstream({"id": "u1"})
    answer = await context.ask(Interrupt(id="q", kind="input", message="which?"))
    context.emit(e.PartDelta(part="text", delta=f"got {answer.value}"), e.RunFinished())


async def test_an_open_question_survives_a_restart_and_is_asked_once(tmp_path: Path) -> None:
    agent = Scripted(echo, attach=ask_then_say)
    async with restarted(tmp_path / "s.db", agent, first=Scripted(ask_then_say), ready="q") as (gateway, run_id):
        waiting = await gateway.runs.wait(run_id, timeout=30)
        assert waiting is not None and [i.message for i in waiting.interrupts] == ["which?"]
        await gateway.runs.answer(run_id, Answer(value="this"))
        done = await gateway.runs.wait(run_id, timeout=30)
        assert done is not None and json.loads(bytes(done.output)) == {"message": "got this"}
        asked = [event for _, event in await gateway.runs.events(run_id) if isinstance(event, e.Interrupted)]
        assert len(asked) == 1


async def test_an_answer_of_before_a_restart_is_not_given_to_a_later_question_of_the_same_name(tmp_path: Path) -> None:
    async def twice(context: RunContext) -> None:
        await context.set_upstream({"id": "u1"})
        await context.ask(Interrupt(id="q", kind="input"))
        await once(context)

    async def once(context: RunContext) -> None:
        answer = await context.ask(Interrupt(id="q", kind="input"))
        context.emit(e.PartDelta(part="text", delta=f"got {answer.value}"), e.RunFinished())

    async with engine((route(), Scripted(twice)), file=tmp_path / "s.db") as gateway:
        live = gateway.live[(await gateway.runs.start(request())).id]
        await until(lambda: [i.id for i in live.run.interrupts] == ["q"])
        await gateway.runs.answer(live.run.id, Answer(value="the first"))
        await until(lambda: [i.id for i in live.run.interrupts] == ["q#2"])
    async with engine((route(), Scripted(echo, attach=once)), file=tmp_path / "s.db") as gateway:
        live = gateway.live[live.run.id]
        await until(lambda: bool(live.ended or live.questions.waiting))
        assert [i.id for i in live.run.interrupts] == ["q#2"]
        await gateway.runs.answer(live.run.id, Answer(value="the second"))
        await until(lambda: live.ended)
        assert json.loads(bytes(live.run.output)) == {"message": "got the second"}


async def test_a_run_that_cannot_be_taken_up_fails_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(context: RunContext) -> None:
        context.emit(e.RunFinished())

    reserve = RunLog.reserve

    async with engine((route(), Scripted(talk_then_hang)), file=tmp_path / "s.db") as gateway:
        runs = [(await gateway.runs.start(request())).id for _ in range(2)]
        await until(lambda: all(live.run.upstream for live in gateway.live.values()))

    async def strange(log: RunLog) -> None:
        if log.run_id == runs[0]:
            raise RuntimeError("nobody has foreseen this")
        await reserve(log)

    monkeypatch.setattr(RunLog, "reserve", strange)
    async with engine((route(), Scripted(echo, attach=ends)), file=tmp_path / "s.db") as gateway:
        failed, other = [await gateway.runs.wait(each, timeout=30) for each in runs]
        assert failed is not None and failed.failure is not None and failed.failure.code == "internal"
        assert other is not None and other.status is RunStatus.SUCCESS
    async with engine((route(), Scripted(echo)), file=tmp_path / "s.db") as gateway:
        assert (await gateway.runs.get(runs[0])).status is RunStatus.ERROR


async def test_runs_are_taken_up_several_at_a_time_and_none_is_lost_that_the_store_cannot_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve, together, refused = RunLog.reserve, asyncio.Barrier(5), set[str]()

    async def ends(context: RunContext) -> None:
        context.emit(e.RunFinished())

    async def slowly(log: RunLog) -> None:
        async with asyncio.timeout(30):
            await together.wait()
        if log.run_id not in refused:
            refused.add(log.run_id)
            raise Unavailable("not now")
        await reserve(log)

    async with engine((route(), Scripted(talk_then_hang)), file=tmp_path / "s.db") as gateway:
        runs = [(await gateway.runs.start(request())).id for _ in range(5)]
        await until(lambda: all(live.run.upstream for live in gateway.live.values()))
    again = Engine(SqliteStore(tmp_path / "s.db"))
    use(again, (route(), Scripted(echo, attach=ends)))
    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "reserve", slowly)
        with pytest.raises(Unavailable, match="not now"):
            await again.open()
        await again.adopt()
    found = [await again.runs.wait(each, timeout=30) for each in runs]
    assert [one.status for one in found if one is not None] == [RunStatus.SUCCESS] * 5
    await again.close()


async def test_a_run_put_off_before_the_restart_is_sent_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr(starting, "time", SimpleNamespace(time=lambda: now[0]))

    async with engine((route(), Scripted(echo)), file=tmp_path / "s.db") as gateway:
        run_id = (await gateway.runs.start(request(start_at=now[0] + 1000))).id
    now[0] += 1000
    async with engine((route(), Scripted(echo)), file=tmp_path / "s.db") as gateway:
        done = await gateway.runs.wait(run_id, timeout=30)
        assert done is not None and done.status is RunStatus.SUCCESS


async def test_a_run_whose_route_has_gone_ends_with_a_reason(tmp_path: Path) -> None:
    async with engine((route(), Scripted(talk_then_hang)), file=tmp_path / "s.db") as gateway:
        run_id = (await gateway.runs.start(request())).id
        await until(lambda: gateway.live[run_id].run.upstream is not None)
    async with engine((route("other"), Scripted(echo)), file=tmp_path / "s.db") as gateway:
        done = await gateway.runs.wait(run_id, timeout=30)
        assert done is not None and done.failure is not None
        assert "no agent 'scripted'" in done.failure.message


@pytest.mark.parametrize("begins", ["anew", "again", "beside runs", "to describe itself"])
async def test_a_target_whose_route_goes_while_work_is_about_to_begin_is_closed_after_that(
    begins: str, tmp_path: Path
) -> None:
    asked, told = asyncio.Event(), asyncio.Event()

    class Slow(Scripted):
        async def describe(self) -> Agent:
            asked.set()
            await told.wait()
            assert not self.closed
            return await super().describe()

        async def relay(self, _: object, method: str, params: Raw) -> Raw:
            assert not agent.closed
            return params

        async def forward(self, _: object, method: str, params: Raw) -> None:
            raise AssertionError

    async def works(context: RunContext) -> None:
        assert not agent.closed
        await echo(context)

    agent = Slow(works, attach=works)
    if begins == "again":
        async with engine((route(), Scripted(talk_then_hang)), file=tmp_path / "s.db") as gateway:
            started = await gateway.runs.start(request())
            await until(lambda: gateway.live[started.id].run.upstream is not None)
    gateway = Engine(SqliteStore(tmp_path / "s.db"))
    use(gateway, (route(), agent))
    opening = asyncio.ensure_future(gateway.open())
    if begins != "again":
        await opening
    relay = gateway.backchannel.relay("scripted", "scripted", "m", Raw(b"1"))
    relayed = asyncio.ensure_future(relay) if begins == "beside runs" else relay.close()
    described = asyncio.ensure_future(gateway.agents.get("scripted", "test")) if "itself" in begins else None
    starting = asyncio.ensure_future(gateway.runs.start(request())) if begins == "anew" else None
    await asked.wait()
    (gone,) = gateway.agents.configured
    gateway.use(())
    gateway.agents.retire(gone)
    await asyncio.sleep(0)
    told.set()
    await opening
    if relayed is not None:
        assert bytes(await relayed) == b"1"
    elif described is not None:
        assert (await described).capabilities.threads
    else:
        run_id = started.id if starting is None else (await starting).id
        done = await gateway.runs.wait(run_id, timeout=30)
        assert done is not None and done.status is RunStatus.SUCCESS, done.failure
    await until(lambda: agent.closed)
    await gateway.close()


async def test_a_stored_cancel_is_told_again_and_ends_the_run(tmp_path: Path) -> None:
    first = Scripted(talk_then_hang)
    async with engine((route(), first), file=tmp_path / "s.db") as gateway:
        run_id = (await gateway.runs.start(request())).id
        await until(lambda: gateway.live[run_id].run.upstream is not None)
        await gateway.runs.cancel(run_id, reason="enough")
    second = Scripted(echo)
    async with engine((route(), second), file=tmp_path / "s.db") as gateway:
        done = await gateway.runs.wait(run_id, timeout=30)
        assert done is not None and done.status is RunStatus.CANCELLED
        await until(lambda: second.cancels == 1)


async def test_agents_are_published_with_where_their_text_is() -> None:
    async with engine((route(description="mine", version="2.0.0"), Scripted(echo))) as gateway:
        (agent,) = await gateway.agents.list("test")
        assert (agent.name, agent.description, agent.version) == ("scripted", "mine", "2.0.0")
        assert agent.text_input == agent.text_output == "/message"
        assert (await gateway.agents.get(agent.id, "test")) == agent
        assert agent.capabilities == AGENT.capabilities


def test_ids_are_uuids_of_version_7_and_never_the_same() -> None:
    import uuid

    from gateway.store.records import new_id

    made = [new_id() for _ in range(3000)]
    assert len(set(made)) == len(made)
    assert all(str(uuid.UUID(one)) == one and uuid.UUID(one).version == 7 for one in made)
    assert all(uuid.UUID(one).variant == uuid.RFC_4122 for one in made)
    assert made[0][:13] <= made[-1][:13]
