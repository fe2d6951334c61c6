"""Runs in the engine: how they start, end, are refused, watched, timed out and told."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace

import msgspec
import pytest

from gateway.contract import RunContext, next_batch
from gateway.core import events as e
from gateway.core.errors import AgentFailed, AgentGone, Conflict, Invalid, NotFound, Unsupported
from gateway.core.types import IfBusy, Run, RunQuery, RunStatus
from gateway.runs import Engine, starting
from tests.support.aio import Clock, later, on, run
from tests.support.scripted import Scripted, echo, engine, request, route, until


async def ended(gateway: Engine, run_id: str) -> Run:
    done = await gateway.runs.wait(run_id, timeout=30)
    assert done is not None and done.status.ended
    return done


async def watched(gateway: Engine, run_id: str, after: int = 0) -> list[tuple[int, e.Event]]:
    seen: list[tuple[int, e.Event]] = []
    async with gateway.runs.watch(run_id, after) as watch:
        while (batch := await next_batch(watch, timeout=30)) is not None:
            seen += batch.events
    return seen


async def test_a_run_is_created_started_and_ends_with_its_output() -> None:
    async with engine((route(), Scripted(echo))) as gateway:
        created = await gateway.runs.start(request())
        assert created.status in (RunStatus.PENDING, RunStatus.RUNNING)
        done = await ended(gateway, created.id)
        assert done.status is RunStatus.SUCCESS
        assert json.loads(bytes(done.output)) == {"message": "hello there "}
        assert await gateway.runs.get(created.id) == done


async def test_the_log_is_numbered_from_one_without_gaps_and_is_the_same_for_every_watcher() -> None:
    go = asyncio.Event()

    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="a"))
        await go.wait()
        await echo(context)

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        early = asyncio.create_task(watched(gateway, created.id))
        middle = asyncio.create_task(watched(gateway, created.id, after=3))
        await asyncio.sleep(0)
        go.set()
        whole = await early
        await ended(gateway, created.id)
        late = await watched(gateway, created.id)
        assert [n for n, _ in whole] == list(range(1, len(whole) + 1))
        assert isinstance(whole[0][1], e.RunStarted) and isinstance(whole[-1][1], e.RunFinished)
        assert late == whole
        assert await middle == whole[3:]
        assert list(await gateway.runs.events(created.id)) == whole


async def test_input_that_does_not_fit_the_schema_is_refused_with_its_path_and_starts_nothing() -> None:
    agent = Scripted(echo)
    async with engine((route(), agent)) as gateway:
        with pytest.raises(Invalid, match="5 is not of type 'string'") as refused:
            await gateway.runs.start(request(5))
        assert refused.value.path == "/input/message"
        assert await gateway.runs.list(RunQuery()) == [] and not agent.contexts


async def test_an_unknown_agent_is_refused_with_the_names_there_are() -> None:
    async with engine((route(), Scripted(echo))) as gateway:
        with pytest.raises(NotFound, match="scripted"):
            await gateway.runs.start(request(agent="other"))


def raising(error: Exception) -> Scripted:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="so far"))
        raise error

    return Scripted(agent)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (AgentFailed("boom"), "agent_failed", "boom"),
        (AgentGone("connection lost"), "agent_gone", "connection lost"),
        (ExceptionGroup("tasks", [ValueError("x"), AgentFailed("inside")]), "agent_failed", "inside"),
        (ValueError("secret detail"), "internal", "internal error"),
    ],
)
async def test_an_adapter_that_raises_ends_the_run_with_its_reason_and_keeps_what_was_said(
    error: Exception, code: str, message: str
) -> None:
    async with engine((route(), raising(error))) as gateway:
        done = await ended(gateway, (await gateway.runs.start(request())).id)
        assert done.status is RunStatus.ERROR and done.failure is not None
        assert (done.failure.code, done.failure.message) == (code, message)
        assert json.loads(bytes(done.output)) == {"message": "so far"}


async def test_an_adapter_that_returns_without_a_result_has_failed() -> None:
    async def silent(context: RunContext) -> None:
        return

    async with engine((route(), Scripted(silent))) as gateway:
        done = await ended(gateway, (await gateway.runs.start(request())).id)
        assert done.failure is not None and done.failure.code == "agent_broken"


async def test_what_comes_after_the_end_is_dropped_and_counted() -> None:
    async def chatty(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="a"), e.RunFinished(), e.PartDelta(part="text", delta="b"))
        context.emit(e.PartDelta(part="text", delta="c"))

    async with engine((route(), Scripted(chatty))) as gateway:
        done = await ended(gateway, (await gateway.runs.start(request())).id)
        assert json.loads(bytes(done.output)) == {"message": "a"}
        assert done.losses == {"late_event": 2}


async def test_what_only_the_clients_own_protocol_has_is_lost_on_agents_of_others() -> None:
    async with engine((route(), Scripted(echo))) as gateway:
        for protocol, losses in (("test", {"tags": 1}), ("scripted", {})):
            started = await gateway.runs.start(request(protocol=protocol, native=("tags",)))
            assert (await ended(gateway, started.id)).losses == losses


async def test_a_run_is_over_when_its_end_is_drained_even_if_the_adapter_lingers() -> None:
    async def lingering(context: RunContext) -> None:
        context.emit(e.RunFinished())
        await context.drain()
        await asyncio.Event().wait()

    async with engine((route(), Scripted(lingering))) as gateway:
        assert (await ended(gateway, (await gateway.runs.start(request())).id)).status is RunStatus.SUCCESS


async def test_the_final_result_wins_and_a_difference_is_told_as_a_replacement() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(e.PartDelta(part="output", delta={"message": "draft"}))
        context.emit(e.RunFinished(output=msgspec.Raw(b'{"message":"final"}')))

    async with engine((route(), Scripted(agent))) as gateway:
        created = await gateway.runs.start(request())
        events = [event for _, event in await watched(gateway, created.id)]
        assert e.PartReplaced(part="output", value={"message": "final"}) in events
        assert json.loads(bytes((await gateway.runs.get(created.id)).output)) == {"message": "final"}


async def test_a_run_that_takes_too_long_ends_timeout_and_its_agent_is_told() -> None:
    async def forever(context: RunContext) -> None:
        await asyncio.Event().wait()

    agent = Scripted(forever)
    async with engine((route(timeout=0.05), agent)) as gateway:
        done = await ended(gateway, (await gateway.runs.start(request())).id)
        assert done.status is RunStatus.TIMEOUT
        assert done.failure is not None and "0.05 s" in done.failure.message
        await until(lambda: agent.cancels == 1)


async def test_ten_thousand_events_in_one_burst_keep_their_numbers_and_their_order() -> None:
    count = 10_000

    async def flood(context: RunContext) -> None:
        context.emit(*(e.PartDelta(part="text", delta=f"{n},") for n in range(count)))
        context.emit(e.Custom(name="after"))
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(flood))) as gateway:
        created = await gateway.runs.start(request())
        done = await ended(gateway, created.id)
        events = await gateway.runs.events(created.id)
        assert [n for n, _ in events] == list(range(1, len(events) + 1))
        text = "".join(event.delta for _, event in events if isinstance(event, e.PartDelta))
        assert text == "".join(f"{n}," for n in range(count))
        assert json.loads(bytes(done.output))["message"] == text


async def test_a_slow_watcher_gets_every_event_though_memory_is_bounded() -> None:
    chunk, count = "x" * 1000, 3000

    async def flood(context: RunContext) -> None:
        for n in range(count):
            context.emit(e.PartDelta(part="text", delta=chunk))
            if n % 500 == 0:
                context.emit(e.Custom(name=f"mark{n}"))
                await context.drain()
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(flood))) as gateway:
        created = await gateway.runs.start(request())
        async with gateway.runs.watch(created.id) as slow, gateway.runs.watch(created.id, deltas=False) as skipping:
            first = await next_batch(slow, timeout=30)
            assert first is not None
            log = gateway.live[created.id].log
            await ended(gateway, created.id)
            tail = log.newer(log.tail_first - 1)
            assert tail is not None
            assert 0 < sum(len(event.delta) for _, event in tail.events if isinstance(event, e.PartDelta)) < 600_000
            seen = [*first.events]
            while (batch := await next_batch(slow, timeout=30)) is not None:
                assert sum(len(event.delta) for _, event in batch.events if isinstance(event, e.PartDelta)) < 2**20
                seen += batch.events
            assert [n for n, _ in seen] == list(range(1, log.last + 1))
            few: list[e.Event] = []
            skipped = False
            while (batch := await next_batch(skipping, timeout=30)) is not None:
                few += [event for _, event in batch.events]
                skipped |= batch.skipped
                final = batch
            assert skipped and len(few) < count
            marks = [event.name for event in few if isinstance(event, e.Custom)]
            assert marks == [f"mark{n}" for n in range(0, count, 500)]
            assert len(json.loads(final.snapshot.encoded)["message"]) == len(chunk) * count


async def test_a_slow_watcher_that_skips_deltas_gets_all_else_however_long_it_is() -> None:
    async def great(context: RunContext) -> None:
        for n in range(8):
            context.emit(e.PartDelta(part="text", delta="x"), e.Custom(name=f"mark{n}", data="x" * 200_000))
            await context.drain()
        context.emit(e.RunFinished())

    async with engine((route(), Scripted(great))) as gateway:
        created = await gateway.runs.start(request())
        async with gateway.runs.watch(created.id, deltas=False) as skipping:
            await ended(gateway, created.id)
            seen: list[tuple[int, e.Event]] = []
            while (batch := await next_batch(skipping, timeout=30)) is not None:
                seen += batch.events
        every = await gateway.runs.events(created.id)
        assert [event.name for _, event in seen if isinstance(event, e.Custom)] == [f"mark{n}" for n in range(8)]
        assert [number for number, _ in seen] == sorted({number for number, _ in seen} & {n for n, _ in every})


def test_backpressure_slows_the_agent_only_where_the_route_asks_for_it() -> None:
    async def scene(backpressure: bool) -> bool:
        async def flood(context: RunContext) -> None:
            for _ in range(1000):
                context.emit(e.PartDelta(part="text", delta="x" * 1000))
                await context.drain()
            context.emit(e.RunFinished())

        async with engine((route(backpressure=backpressure), Scripted(flood))) as gateway:
            created = await gateway.runs.start(request())
            async with gateway.runs.watch(created.id) as reader:
                finished = (await gateway.runs.wait(created.id, timeout=0.5 if backpressure else 30)) is not None
                while await next_batch(reader, timeout=30) is not None:
                    pass
            await ended(gateway, created.id)
            return finished

    assert run(scene(False)) is True
    assert run(scene(True)) is False


@on(Clock)
async def test_a_run_can_be_put_off_and_cancelled_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [now := time.time()]
    monkeypatch.setattr(starting, "time", SimpleNamespace(time=lambda: clock[0]))

    agent = Scripted(echo)
    async with engine((route(), agent)) as gateway:
        soon = await gateway.runs.start(request(start_at=now + 1000))
        never = await gateway.runs.start(request(start_at=now + 3600))
        assert soon.status is never.status is RunStatus.PENDING
        cancelled = await gateway.runs.cancel(never.id, wait=True)
        assert cancelled.status is RunStatus.CANCELLED
        await later(500)
        assert not agent.contexts
        clock[0] += 1000  # the machine slept, or its clock was set
        await later(starting.LOOK_SECONDS)
        assert (await ended(gateway, soon.id)).status is RunStatus.SUCCESS
        assert len(agent.contexts) == 1


@pytest.mark.parametrize("strategy", list(IfBusy))
async def test_a_busy_thread_does_as_the_request_says(strategy: IfBusy) -> None:
    go = asyncio.Event()

    async def agent(context: RunContext) -> None:
        if context.run.request.input["message"] == "first":
            await go.wait()
        await echo(context)

    from gateway.core.types import Thread

    async with engine((route(), Scripted(agent)), cancel_grace=0.05) as gateway:
        await gateway.threads.create(Thread(id="t", created_at=0, updated_at=0))
        first = await gateway.runs.start(request("first", thread="t"))
        second = request("second", thread="t", if_busy=strategy)
        if strategy is IfBusy.REJECT:
            with pytest.raises(Conflict):
                await gateway.runs.start(second)
            go.set()
        elif strategy is IfBusy.ROLLBACK:
            with pytest.raises(Unsupported):
                await gateway.runs.start(second)
            go.set()
        elif strategy is IfBusy.ENQUEUE:
            queued = await gateway.runs.start(second)
            assert queued.status is RunStatus.PENDING
            go.set()
            done = await ended(gateway, queued.id)
            assert done.status is RunStatus.SUCCESS
            assert (await gateway.runs.get(first.id)).updated_at <= done.updated_at
        else:
            done = await ended(gateway, (await gateway.runs.start(second)).id)
            assert done.status is RunStatus.SUCCESS
            assert (await gateway.runs.get(first.id)).status is RunStatus.CANCELLED
            return
        assert (await ended(gateway, first.id)).status is RunStatus.SUCCESS
