"""Numbers of events are reserved in the store before they are used: after a crash none is given to another event."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import Answer, Interrupt, Run, RunStatus
from gateway.store import CreatedRun, LogEntry, RunChange
from gateway.store.sqlite import SqliteStore
from tests.support import scripted
from tests.support.scripted import Scripted, request


class Ledger(SqliteStore):
    """Notes the numbers of events that it is given before it has reserved them. Refuses `failing` reservations."""

    def __init__(self, path: Path | None = None, failing: int = 0) -> None:
        super().__init__(path)
        self.reserved = 0
        self.early: list[int] = []
        self.failing = failing

    def _look(self, entries: Sequence[LogEntry]) -> None:
        self.early += [entry.number for entry in entries if entry.number > self.reserved]

    async def create_run(self, run: Run, events: Sequence[LogEntry], *, reserved: int, **more: Any) -> CreatedRun:
        self.reserved = reserved
        return await super().create_run(run, events, reserved=reserved, **more)

    async def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> None:
        if change.reserved and not change.events and self.failing:
            self.failing -= 1
            raise Unavailable("the disk is full")
        await super().commit(run_id, change, soon=soon)
        self.reserved = max(self.reserved, change.reserved or 0)
        self._look(change.events)

    def append(self, run_id: str, entries: Sequence[LogEntry]) -> int:
        self._look(entries)
        return super().append(run_id, entries)


@pytest.mark.parametrize("burst", [1, 12_000])
async def test_no_event_has_a_number_before_it_is_reserved(burst: int) -> None:
    async def agent(context: RunContext) -> None:
        for _ in range(12_000 // burst):
            context.emit(*[e.PartDelta(part="text", delta="x")] * burst)
            await asyncio.sleep(0)
        await context.ask(Interrupt(id="q", kind="input", message="On?"))
        for _ in range(12_000 // burst):
            context.emit(*[e.PartDelta(part="text", delta="x")] * burst)
        context.emit(e.RunFinished())

    ledger = Ledger()
    async with scripted.engine((scripted.route(), Scripted(agent)), store=ledger) as gateway:
        made = await gateway.runs.start(request())
        await gateway.runs.wait(made.id, 60)
        await gateway.runs.answer(made.id, Answer(value={}))
        done = await gateway.runs.wait(made.id, 60)
        assert done is not None and done.status is RunStatus.SUCCESS
        assert ledger.early == [] and ledger.reserved > 20_000


async def test_a_reservation_that_fails_comes_again_before_the_numbers_are_used_up() -> None:
    async def agent(context: RunContext) -> None:
        for _ in range(6000):
            context.emit(e.PartDelta(part="text", delta="x"))
            await context.drain()
        context.emit(e.RunFinished())

    ledger = Ledger(failing=3)
    async with scripted.engine((scripted.route(), Scripted(agent)), store=ledger) as gateway:
        done = await gateway.runs.wait((await gateway.runs.start(request())).id, 60)
        assert done is not None and done.status is RunStatus.SUCCESS
        assert (ledger.early, ledger.failing) == ([], 0)


@pytest.mark.parametrize("said", range(2040, 2052))
async def test_a_question_that_comes_when_numbers_run_low_reserves_more_with_itself(said: int) -> None:
    async def agent(context: RunContext) -> None:
        for _ in range(said):
            context.emit(e.PartDelta(part="text", delta="x"))
        await context.ask(Interrupt(id="q", kind="input"))
        context.emit(e.RunFinished())

    ledger = Ledger()
    async with scripted.engine((scripted.route(), Scripted(agent)), store=ledger) as gateway:
        made = await gateway.runs.start(request())
        await gateway.runs.wait(made.id, 60)
        await gateway.runs.answer(made.id, Answer(value={}))
        done = await gateway.runs.wait(made.id, 60)
        assert done is not None and done.status is RunStatus.SUCCESS and ledger.early == []


async def test_what_is_said_while_numbers_are_reserved_stands_before_a_question_that_follows() -> None:
    async def agent(context: RunContext) -> None:
        context.emit(*[e.PartDelta(part="text", delta="x")] * 12_000)
        await context.ask(Interrupt(id="q", kind="input"))

    async with scripted.engine((scripted.route(), Scripted(agent)), store=Ledger()) as gateway:
        made = await gateway.runs.start(request())
        await gateway.runs.wait(made.id, 60)
        events = [event for _, event in await gateway.runs.events(made.id)]
        assert isinstance(events[-1], e.Interrupted)
        assert sum(len(event.delta) for event in events if isinstance(event, e.PartDelta)) == 12_000


async def test_a_run_that_goes_on_after_a_restart_reserves_before_it_says_more(tmp_path: Path) -> None:
    async def agent(context: RunContext) -> None:
        await context.set_upstream({"id": 1})
        await asyncio.Event().wait()

    async def attached(context: RunContext) -> None:
        context.emit(e.PartDelta(part="text", delta="x"))
        await context.drain()
        context.emit(e.RunFinished())

    async with scripted.engine((scripted.route(), Scripted(agent)), store=Ledger(tmp_path / "s.db")) as gateway:
        made = await gateway.runs.start(request())
        await scripted.until(lambda: gateway.live[made.id].run.upstream is not None)
    ledger = Ledger(tmp_path / "s.db")
    async with scripted.engine((scripted.route(), Scripted(agent, attach=attached)), store=ledger) as gateway:
        done = await gateway.runs.wait(made.id, 60)
        assert done is not None and done.status is RunStatus.SUCCESS and ledger.early == []
