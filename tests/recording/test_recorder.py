"""Which runs are recorded, what is kept of them, and where in it their losses stand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config import loads
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Interrupt, Run
from gateway.recording import AllRecordings, Recorder, RunRecording, TurnRecording
from gateway.recording import recorder as recorder_module
from gateway.recording import recording as recording_module
from gateway.recording.recording import BEGINNING, MESSAGE_BYTES
from gateway.runs import Engine
from gateway.store.sqlite import SqliteStore
from gateway.transport.tap import TAP, NotedWork, Said, about, current
from tests.support.scripted import Scripted, echo, engine, request, route, until

WIRE = 'routes: [{name: scripted, record: wire, target: {protocol: agent_protocol, url: "http://a.example"}}]\n'
PLAIN = WIRE.replace("record: wire, ", "")
SAID = Said(at=1.0, sent=True, form="message", title="said", data=b"{}", size=2, media="application/json")


class Scene:
    """An engine whose runs are recorded."""

    def __init__(self, table: str) -> None:
        self.recorder = Recorder()
        self.recorder.follow(loads(table))
        self.engine: Engine

    async def ran(self, **fields: Any) -> Run:
        one = await self.engine.runs.start(request(**fields))
        await self.engine.runs.wait(one.id, timeout=30)
        return one

    def entries(self, run_id: str) -> list[dict[str, Any]]:
        found = self.recorder.of(run_id)
        assert found is not None
        return read(found)


def read(recording: RunRecording) -> list[dict[str, Any]]:
    return [json.loads(data) for _, data in recording.page(0, 2**40)]


@asynccontextmanager
async def scene(
    script: Callable[[RunContext], Awaitable[None]] = echo, *, table: str = WIRE, **options: Any
) -> AsyncIterator[Scene]:
    made = Scene(table)
    agent = (route(record=loads(table).routes[0].record), Scripted(script))
    try:
        async with engine(agent, recorder=made.recorder, **options) as made.engine:
            yield made
    finally:
        made.recorder.close()
        assert not TAP.on


async def test_only_runs_of_routes_that_say_so_are_recorded() -> None:
    async with scene(table=PLAIN) as at:
        assert not at.recorder.on and not TAP.on
        assert at.recorder.of((await at.ran()).id) is None
        at.recorder.follow(loads(WIRE))
        assert TAP.on
        one = await at.ran()
        assert [entry["last"] for entry in at.entries(one.id) if entry["kind"] == "events"][-1] >= 4
        at.recorder.follow(loads(PLAIN))
        assert not TAP.on and at.recorder.of(one.id) is not None, "what is kept stays"


async def test_an_operators_wish_goes_before_the_file_until_its_time_is_over() -> None:
    async with scene() as at:
        at.recorder.turn(TurnRecording("scripted", False, 60))
        assert at.recorder.of((await at.ran()).id) is None
        at.recorder.turn(TurnRecording("other", True, 60))
        at.recorder.turn(TurnRecording(None, True, 60))
        assert at.recorder.of((await at.ran()).id) is None, "what was said of it by its name counts"
        at.recorder.turn(TurnRecording("scripted", True, 60))
        assert at.recorder.of((await at.ran()).id) is not None
        at.recorder.turn(TurnRecording("scripted", False, 60, at=time.time() - 1))
        assert at.recorder.of((await at.ran()).id) is not None, "an older wish that is heard of later"
    async with scene(table=PLAIN) as at:
        at.recorder.turn(TurnRecording(None, True, 0))
        await until(lambda: not at.recorder.on)
        assert at.recorder.of((await at.ran()).id) is None and not at.recorder.wishes


async def test_of_two_wishes_the_one_that_was_made_later_counts_though_its_process_has_a_clock_that_is_behind(
    tmp_path: Path,
) -> None:
    file = tmp_path / "store.db"
    elsewhere = SqliteStore(file, host="elsewhere")
    async with engine(file=file) as first, engine(store=elsewhere) as second:
        recorders = [Recorder(), Recorder()]
        ahead, behind = (
            AllRecordings(recorder, gateway.store, gateway.records, gateway.post)
            for recorder, gateway in zip(recorders, (first, second), strict=True)
        )
        try:
            assert await ahead.turn(TurnRecording(None, True, 60, at=time.time() + 5)) == 0
            assert [recorder.on for recorder in recorders] == [True, True]
            assert await behind.turn(TurnRecording(None, False, 60)) == 0
            assert [recorder.on for recorder in recorders] == [False, False]
        finally:
            for recorder in recorders:
                recorder.close()


async def test_who_starts_later_does_what_the_newer_of_two_wishes_says_though_the_older_was_stored_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "store.db"
    elsewhere = SqliteStore(file, host="elsewhere")
    async with engine(file=file) as first, engine(store=elsewhere) as second:
        recorders = [Recorder(), Recorder(), Recorder()]
        slow, quick, later = (
            AllRecordings(recorder, gateway.store, gateway.records, gateway.post)
            for recorder, gateway in zip(recorders, (first, second, second), strict=True)
        )
        keep, stored = first.records.keep, asyncio.Event()

        async def kept_late(*what: Any, **how: Any) -> None:
            await stored.wait()
            await keep(*what, **how)

        monkeypatch.setattr(first.records, "keep", kept_late)
        try:
            turning = asyncio.ensure_future(slow.turn(TurnRecording(None, True, 60, at=time.time() - 1)))
            await asyncio.sleep(0)
            await quick.turn(TurnRecording(None, False, 60))
            stored.set()
            await turning
            await later.learn()
            assert [recorder.wishes[None].record for recorder in recorders] == [False, False, False]
        finally:
            for recorder in recorders:
                recorder.close()


async def test_off_is_off_for_runs_that_go_on_as_well() -> None:
    async def asks(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="question"))
        context.emit(e.RunFinished())

    async with scene(asks) as at:
        one = await at.ran()
        kept = at.recorder.of(one.id)
        assert kept is not None and kept.open
        noted = kept.last
        at.recorder.turn(TurnRecording(None, False, 60))
        assert kept.over and not kept.open
        kept.note(SAID, "client")
        await at.engine.runs.cancel(one.id, wait=True)
        assert kept.last == noted


async def test_a_loss_stands_where_it_happened() -> None:
    async def loses(context: RunContext) -> None:
        context.lost("first")
        context.emit(e.PartDelta(part="a", delta="one"))
        context.lost("between", 2)
        context.lost("between")
        context.emit(e.PartDelta(part="a", delta="two"))
        context.emit(e.RunFinished())

    async with scene(loses) as at:
        one = await at.ran()
        at.engine.runs.lost(one.id, "of nobody")
        found = [
            (entry["what"], entry["count"]) if entry["kind"] == "lost" else entry["last"]
            for entry in at.entries(one.id)
        ]
        assert found[0] == 1 and found[1] == ("first", 1)
        at_ = found.index(("between", 3))
        assert found[at_ - 1] < found[at_ + 1] and isinstance(found[-1], int)
        assert (await at.engine.runs.get(one.id)).losses == {"first": 1, "between": 3}


async def test_a_loss_stands_before_the_message_that_came_after_it() -> None:
    async def loses(context: RunContext) -> None:
        work = current()
        assert work is not None
        context.lost("word")
        work.note(SAID)
        await context.ask(Interrupt(id="q", kind="question"))

    async with scene(loses) as at:
        one = await at.ran()
        assert [entry.get("what", entry.get("title")) for entry in at.entries(one.id)][1:3] == ["word", "said"]


async def test_the_work_of_a_run_is_about_it_and_that_of_another_is_not() -> None:
    found: list[Any] = []

    async def looks(context: RunContext) -> None:
        found.append((context.run.id, current()))
        await context.ask(Interrupt(id="q", kind="question"))

    cancelled: list[Any] = []
    async with scene(looks) as at:
        outbound = at.engine.agents.entries[0].outbound
        assert isinstance(outbound, Scripted)
        outbound.on_cancel = lambda: cancelled.append(current())
        with about(client := NotedWork()):
            client.note(SAID)
            one = await at.ran()
            await at.engine.runs.cancel(one.id)
        kept = at.recorder.of(one.id)
        assert kept is not None and found[0] == (one.id, kept.said)
        await until(lambda: bool(cancelled))
        assert cancelled == [kept.said], "the cancel is said to the agent, whoever asked for it"
        at.recorder.turn(TurnRecording(None, True, 60))
        at.recorder.turn(TurnRecording("scripted", False, 60))
        with about(client):
            await at.ran()
        assert found[1][1] is None, "nor to the run that began in its work"
        assert [entry["title"] for entry in at.entries(one.id) if entry["kind"] == "message"] == ["said"]


async def test_a_message_is_noted_for_every_run_that_it_names_and_for_none_if_there_is_none() -> None:
    async def asks(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="question"))

    async with scene(asks) as at:
        one, two = await at.ran(), await at.ran()
        with about(subject := NotedWork()):
            subject.note(SAID)
            for asked in (one, two, one):
                await at.engine.runs.get(asked.id)
            subject.note(replace_title("later"))
        for asked in (one, two):
            titles = [entry["title"] for entry in at.entries(asked.id) if entry["kind"] == "message"]
            assert titles == ["said", "later"]


def replace_title(title: str) -> Said:
    return SAID._replace(title=title)


async def test_a_flood_leaves_the_beginning_and_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "RUN_BYTES", 400_000)

    async with scene() as at:
        kept = at.recorder.of((await at.ran()).id)
        assert kept is not None
        for number in range(20_000):
            kept.note(replace_title(f"message {number}"), "agent")
        numbers = [entry["n"] for entry in read(kept)]
        assert kept.bytes <= 400_000 and at.recorder.bytes == kept.bytes
        assert numbers[0] == 1 and numbers[-1] == kept.last > 20_000 and len(numbers) < 3000
        assert numbers[:BEGINNING] == [*range(1, BEGINNING + 1)] and numbers == sorted(numbers)


async def test_of_a_large_message_the_beginning_is_kept_and_its_size_said() -> None:
    async with scene() as at:
        kept = at.recorder.of((await at.ran()).id)
        assert kept is not None
        data = json.dumps({"text": "x" * MESSAGE_BYTES}).encode()
        kept.note(SAID._replace(data=data, size=len(data), title="t" * 9999), "client")
        last = read(kept)[-1]
        assert (len(last["text"]), last["cut"], last["bytes"]) == (MESSAGE_BYTES, True, len(data))
        assert len(last["title"]) == 500
        kept.note(SAID._replace(data=b"", size=10**9), "client")
        assert "text" not in read(kept)[-1] and read(kept)[-1]["bytes"] == 10**9


@pytest.mark.parametrize(("limit", "value"), [("RUNS", 3), ("TOTAL_BYTES", 20_000)])
async def test_of_many_runs_the_newest_are_kept(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, limit, value)

    async with scene() as at:
        ids = []
        for _ in range(6):
            one = await at.ran()
            ids.append(one.id)
            kept = at.recorder.of(one.id)
            assert kept is not None
            for _ in range(20):
                kept.note(SAID, "client")
        assert at.recorder.of(ids[0]) is None and at.recorder.of(ids[-1]) is not None
        held = [found for id in ids if (found := at.recorder.of(id)) is not None]
        assert at.recorder.runs == len(held) <= 4 and at.recorder.bytes == sum(one.bytes for one in held)


async def test_who_follows_is_woken_and_told_when_nothing_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "LINGER_SECONDS", 0.01)

    async def asks(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="question"))

    async with scene(asks) as at:
        one = await at.ran()
        kept = at.recorder.of(one.id)
        assert kept is not None and not await kept.news(kept.last, 0.01)
        waiting = asyncio.ensure_future(kept.news(kept.last, 30))
        await asyncio.sleep(0)
        await at.engine.runs.cancel(one.id, wait=True)
        assert await waiting
        while not kept.over:
            assert await kept.news(kept.last, 30)
        assert await kept.news(kept.last, 0) and not kept.page(kept.last, 10)
        kept.note(SAID, "client")
        assert read(kept)[-1]["title"] == "said", "its client may come back"


async def test_a_run_that_goes_on_after_a_restart_is_recorded_from_there(tmp_path: Any) -> None:
    async def asks(context: RunContext) -> None:
        await context.ask(Interrupt(id="q", kind="question"))
        context.emit(e.RunFinished())

    async with scene(asks, file=tmp_path / "runs.db") as at:
        one = await at.ran()
    async with scene(asks, file=tmp_path / "runs.db") as at:
        assert at.recorder.of(one.id) is not None
        await at.engine.runs.cancel(one.id, wait=True)
        assert at.entries(one.id)[-1]["kind"] == "events"
