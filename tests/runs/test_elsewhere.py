"""What is asked of a gateway about a run that another process drives is done there, once, and refused as there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import (
    AgentGone,
    Conflict,
    InterlinguaError,
    Invalid,
    Limited,
    NotFound,
    Unavailable,
)
from gateway.core.files import Attachment
from gateway.core.types import Answer, Identity, IfBusy, Interrupt, Outcome, Run, RunQuery, RunStatus, Thread
from gateway.runs import Engine, elsewhere
from gateway.runs.post import CarriedError, Unanswered
from gateway.store import Message, Undelivered
from gateway.store.sqlite import SqliteStore
from gateway.wire.jsonrpc import RpcError
from tests.support.aio import run
from tests.support.scripted import Script, Scripted, echo, engine, request, route, until

SCHEMA = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}
ANN = Identity(id="ann", roles=("editor",))


async def asks(context: RunContext) -> None:
    answer = await context.ask(Interrupt(id="q", kind="input", answer_schema=SCHEMA))
    context.emit(e.PartDelta(part="text", delta=f"{answer.outcome} {answer.value} by {answer.by and answer.by.id}"))
    context.emit(e.RunFinished())


async def hangs(context: RunContext) -> None:
    await context.set_upstream({"id": "u"})
    await asyncio.Event().wait()


@asynccontextmanager
async def two(
    file: Path, script: Script = asks, *, again: Script | None = None
) -> AsyncIterator[tuple[Engine, Engine]]:
    """An engine and another one, of another host, on one file. `again`: how the other goes on with the first's runs."""
    there = SqliteStore(file, host="there")
    async with (
        engine((route(), Scripted(script)), store=SqliteStore(file, host="here")) as one,
        engine((route(), Scripted(echo, attach=again)), store=there, cancel_grace=0.05) as other,
    ):
        yield one, other


async def asked(gateway: Engine, **fields: object) -> Run:
    started = await gateway.runs.start(request("hi", **fields))
    stopped = await gateway.runs.wait(started.id, 30)
    assert stopped is not None and stopped.status is RunStatus.INTERRUPTED
    return stopped


async def test_an_answer_is_judged_and_committed_where_the_run_is_with_whoever_gave_it(tmp_path: Path) -> None:
    async with two(tmp_path / "s.db") as (one, other):
        started = await asked(one)
        with pytest.raises(Invalid) as wrong:
            await other.runs.answer(started.id, Answer(value={"yes": "perhaps"}), "q")
        assert wrong.value.path == "/yes"
        with pytest.raises(Conflict):
            await other.runs.answer(started.id, Answer(value={"yes": True}), "another question")
        answers = [other.runs.answer(started.id, Answer(value={"yes": True}, by=ANN)) for _ in range(3)]
        results = await asyncio.gather(*answers, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["Conflict", "Conflict", "Run"]
        done = await one.runs.wait(started.id, 30)
        assert done is not None and msgspec.json.decode(done.output) == {"message": "answered {'yes': True} by ann"}
        resumed = [event for _, event in await other.runs.events(started.id) if isinstance(event, e.Resumed)]
        assert [event.answer.by for event in resumed] == [ANN]
        with pytest.raises(Conflict, match="has ended"):
            await other.runs.answer(started.id, Answer())
        with pytest.raises(NotFound):
            await other.runs.answer("no such run", Answer())


async def test_a_cancel_ends_the_run_where_it_is_and_its_question_with_it(tmp_path: Path) -> None:
    async with two(tmp_path / "s.db") as (one, other):
        started = await asked(one)
        ended = await other.runs.cancel(started.id, reason="enough", wait=True)
        assert (ended.status, ended.cancel_reason) == (RunStatus.CANCELLED, "enough")
        assert started.id not in one.live
        (resumed,) = [event for _, event in await one.runs.events(started.id) if isinstance(event, e.Resumed)]
        assert resumed.answer.outcome is Outcome.CANCELLED
        assert await other.runs.cancel(started.id) == ended, "what has ended is not cancelled again"


async def test_a_delete_ends_the_run_where_it_is_first(tmp_path: Path) -> None:
    async with two(tmp_path / "s.db") as (one, other):
        started = await asked(one)
        await other.runs.delete(started.id)
        for each in (one, other):
            with pytest.raises(NotFound):
                await each.runs.get(started.id)
        assert not one.live


async def test_a_newer_run_interrupts_all_that_runs_or_waits_on_its_thread_in_any_process(tmp_path: Path) -> None:
    async with two(tmp_path / "s.db") as (one, other):
        thread = await one.threads.create(Thread(id="t", created_at=0, updated_at=0))
        running = await asked(one, thread=thread.id)
        waiting = [
            (await each.runs.start(request("later", thread=thread.id, if_busy=IfBusy.ENQUEUE))).id
            for each in (one, other, one)
        ]
        newer = await other.runs.start(request("now", thread=thread.id, if_busy=IfBusy.INTERRUPT))
        done = await other.runs.wait(newer.id, 30)
        assert done is not None and done.status is RunStatus.SUCCESS
        for before in (running.id, *waiting):
            assert (await other.store.run(before)).status is RunStatus.CANCELLED


async def test_what_is_asked_of_a_process_that_has_gone_is_done_by_whoever_takes_the_run_over(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with engine((route(), Scripted(echo, attach=asks)), store=SqliteStore(file, host="there")) as other:
        async with engine((route(), Scripted(hangs)), store=SqliteStore(file, host="here")) as one:
            run_id = (await one.runs.start(request("hi"))).id
            await until(lambda: one.live[run_id].run.upstream is not None)
            await one.store.flush()
        await other.runs.cancel(run_id, reason="after all", wait=True)
        assert (await other.runs.get(run_id)).status is RunStatus.CANCELLED


async def test_what_is_asked_of_a_process_that_stops_waits_for_whoever_takes_the_run_over(tmp_path: Path) -> None:
    async with two(tmp_path / "s.db", hangs, again=hangs) as (one, other):
        run_id = (await one.runs.start(request("hi"))).id
        await until(lambda: one.live[run_id].run.upstream is not None)
        one.quiet()
        cancelling = asyncio.create_task(other.runs.cancel(run_id, wait=True))
        await asyncio.sleep(3 * elsewhere.MOMENT)
        assert not cancelling.done(), "clients of a process that stops lose their connections: that is no wish"
        await one.close()
        assert (await cancelling).status is RunStatus.CANCELLED


async def test_an_answer_that_is_not_acknowledged_in_time_is_unavailable_and_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path / "s.db") as (one, other):
        started = await asked(one)
        await one.post.close()  # it stands still: it lives, and reads nothing
        with pytest.raises(Unanswered) as told:
            await other.post.ask(one.process, elsewhere.AnswerRun(started.id, Answer()), Run, within=0.2)
        assert isinstance(told.value, Unavailable) and "try again" in str(told.value)
        later = time.time() + 1  # than it was written, which may have taken its time
        monkeypatch.setattr(time, "time", lambda: later)
        assert await one.store.mailbox.receive() == [], "it is too late for it by now"
        assert (await one.runs.get(started.id)).status is RunStatus.INTERRUPTED


@pytest.mark.parametrize(
    "error",
    [
        Invalid("no", path="/a/b", detail="secret"),
        Conflict("busy"),
        NotFound("what?"),
        AgentGone("gone"),
        Undelivered("away"),
        Limited("enough", retry_after=7.5),
        AgentGone("gone", retry_after=3.0),
        InterlinguaError("internal error"),
    ],
)
def test_an_error_is_the_same_one_on_the_other_side(error: InterlinguaError) -> None:
    again = msgspec.json.decode(msgspec.json.encode(CarriedError.of(error)), type=CarriedError).error()
    assert (type(again), str(again), again.detail) == (type(error), str(error), error.detail)
    assert getattr(again, "retry_after", None) == getattr(error, "retry_after", None)
    assert getattr(again, "path", None) == getattr(error, "path", None)


def test_an_error_of_json_rpc_keeps_its_code_and_data() -> None:
    for error in (RpcError(-32001, "no", {"a": [1]}), RpcError(-32001, "no")):
        again = msgspec.json.decode(msgspec.json.encode(CarriedError.of(error)), type=CarriedError).error()
        assert isinstance(again, RpcError) and again.error == error.error


async def test_what_nobody_waits_for_any_more_is_given_up_there(tmp_path: Path) -> None:
    begun, given_up = asyncio.Event(), asyncio.Event()

    async def lasts(_: str, call: Strange) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    async with two(tmp_path / "s.db") as (one, other):
        one.post.serve(Strange, lasts)
        asking = asyncio.create_task(other.post.ask(one.process, Strange("?"), Run, within=None))
        await begun.wait()
        asking.cancel()
        await given_up.wait()


def test_an_error_that_only_an_adapter_knows_is_the_nearest_that_all_know() -> None:
    class Odd(Conflict):
        """Of one adapter."""

    assert type(CarriedError.of(Odd("so")).error()) is Conflict
    assert type(CarriedError("Newer", "so").error()) is InterlinguaError


class Strange(msgspec.Struct, frozen=True):
    """A call of a later version."""

    what: str


def test_what_another_version_asks_is_refused_and_what_is_no_call_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with two(tmp_path / "s.db") as (one, other):
            rubbish = Message(id="r", sender=other.process, body=b"\xff{", answers="")
            await other.store.mailbox.send(one.process, rubbish, seconds=60)
            stray = Message(id="s", sender=other.process, body=b"{}", answers="nobody asked")
            await other.store.mailbox.send(one.process, stray, seconds=60)
            with pytest.raises(Unavailable, match="a version that does not take this Strange"):
                await other.post.ask(one.process, Strange("?"), Run)

            async def fails(sender: str, call: Strange) -> None:
                raise RuntimeError(f"{sender}: {call.what}")

            one.post.serve(Strange, fails)
            with pytest.raises(InterlinguaError, match="internal error") as told:
                await other.post.ask(one.process, Strange("?"), Run)
            assert type(told.value) is InterlinguaError

    run(main())
    assert "could not be done" in caplog.text


async def test_calls_are_heard_without_a_bell(tmp_path: Path) -> None:
    folder = tmp_path / ("n" * 90)
    folder.mkdir()
    async with two(folder / f"{'n' * 90}.db") as (one, other):
        assert not one.store.mailbox.has_bell and not other.store.mailbox.has_bell
        started = await asked(one)
        await other.runs.cancel(started.id, wait=True)


class Connected(Scripted):
    """An agent that is connected to one process: see `gateway.contract.Placed`."""

    process: str | None = None

    async def known(self) -> None:
        """From the start."""

    def doubt(self) -> None:
        """Nobody looks."""


@asynccontextmanager
async def connected(file: Path, script: Script = echo) -> AsyncIterator[tuple[Engine, Engine, Connected]]:
    """The engine that the agent is connected to, another one, and the agent as that one sees it."""
    there = Connected(script)
    async with (
        engine((route(), Connected(script)), store=SqliteStore(file, host="here")) as one,
        engine((route(), there), store=SqliteStore(file, host="there")) as other,
    ):
        there.process = one.process
        yield one, other, there


async def test_a_run_of_an_agent_of_another_process_is_driven_there_with_its_files_and_losses(tmp_path: Path) -> None:
    got: list[bytes] = []
    go_on = asyncio.Event()

    async def reads(context: RunContext) -> None:
        for file in await context.uploads():
            got.append(b"".join([chunk async for chunk in context.open_artifact(file.id)]))
        await go_on.wait()
        await echo(context)

    async with connected(tmp_path / "s.db", reads) as (one, other, _):
        thread = await other.threads.create(Thread(id="t", created_at=0, updated_at=0))
        file = Attachment(name="a", media_type="text/plain", content=b"\xff\x00")
        async with other.backchannel.join(thread.id) as news:
            started = await other.runs.start(request("hi", thread="t", principal="ann"), files=[file], told=False)
            assert await news.next() == started, "who watches the thread hears of it"
        assert started.id in one.live and started.id not in other.live
        assert (started.request.principal, started.request.protocol) == ("ann", "test")
        other.runs.lost(started.id, "something", 2)
        await until(lambda: one.live[started.id].record.losses == {"something": 2})
        with pytest.raises(Conflict):
            await other.runs.start(request("again", thread="t"))
        go_on.set()
        done = await other.runs.wait(started.id, 30)
        assert done is not None and msgspec.json.decode(done.output) == {"message": "hi "}
        assert done.losses == {"something": 2} and got == [file.content]
        with pytest.raises(Invalid) as wrong:
            await other.runs.start(request(input={"message": 7}))
        assert wrong.value.path == "/input/message"


async def test_a_run_that_nobody_waits_for_while_it_is_started_elsewhere_is_not_sent(tmp_path: Path) -> None:
    async with connected(tmp_path / "s.db") as (one, other, _):
        waits = asyncio.Event()
        creating, create = asyncio.Event(), one.store.create_run

        async def slow(*args: Any, **more: Any) -> bool:
            created = await create(*args, **{**more, "written": None})
            creating.set()
            await waits.wait()
            return created

        one.store.create_run = slow  # type: ignore[method-assign]
        starting = asyncio.create_task(other.runs.start(request("hi")))
        await creating.wait()
        starting.cancel()
        (found,) = await other.runs.list(RunQuery())
        done = await other.runs.wait(found.id, 30)
        assert done is not None and (done.status, done.dispatched) == (RunStatus.CANCELLED, True)


async def test_an_agent_whose_process_has_died_or_that_has_moved_on_is_unavailable(tmp_path: Path) -> None:
    async with connected(tmp_path / "s.db") as (one, other, agent):
        agent.process = "nobody"
        with pytest.raises(Unavailable, match="cannot be reached now") as told:
            await other.runs.start(request("hi"))
        assert told.value.retry_after > 0
        agent.process = one.process
        (entry,) = one.agents.configured
        assert isinstance(entry.outbound, Connected)
        entry.outbound.process = "a third one"
        with pytest.raises(Unavailable, match="cannot be reached now"):
            await other.runs.start(request("hi"))
        assert await other.runs.list(RunQuery()) == []


@pytest.mark.parametrize("written", [True, False])
async def test_who_asks_a_process_that_dies_over_a_start_has_the_run_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    async with connected(tmp_path / "s.db", hangs) as (one, other, _):

        async def dies(sender: str, call: elsewhere.StartRun) -> Run:
            if written:
                await one._starter.start_for(sender, call)
            await asyncio.Event().wait()
            raise AssertionError

        one.post.serve(elsewhere.StartRun, dies)
        starting = asyncio.create_task(other.runs.start(request("hi")))
        await until(lambda: bool(one.live) or (not written and bool(one.post._answering)))

        async def dead(_: str) -> bool:
            return False

        monkeypatch.setattr(other.store, "lives", dead)
        if written:
            assert (await starting).id in one.live
        else:
            with pytest.raises(Unavailable, match="has died"):
                await starting
