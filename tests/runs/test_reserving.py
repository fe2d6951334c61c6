"""Numbers of events are reserved in the store before they are used: after a crash none is given to another event."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.types import Answer, Interrupt, Run, RunStatus
from gateway.store import LogEntry, RunChange
from gateway.store.sqlite import SqliteStore
from tests.support import scripted
from tests.support.aio import run
from tests.support.scripted import Scripted, request


class Ledger(SqliteStore):
    """Notes the numbers of events that it is given before it has reserved them."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved = 0
        self.early: list[int] = []

    def _look(self, entries: Sequence[LogEntry]) -> None:
        self.early += [entry.number for entry in entries if entry.number > self.reserved]

    async def create_run(self, run: Run, events: Sequence[LogEntry], *, reserved: int, soon: bool = False) -> bool:
        self.reserved = reserved
        return await super().create_run(run, events, reserved=reserved, soon=soon)

    async def commit(self, run_id: str, change: RunChange, *, soon: bool = False) -> None:
        await super().commit(run_id, change, soon=soon)
        self.reserved = max(self.reserved, change.reserved or 0)
        self._look(change.events)

    def append(self, run_id: str, entries: Sequence[LogEntry]) -> None:
        self._look(entries)
        super().append(run_id, entries)


@pytest.mark.parametrize("burst", [1, 12_000])
def test_no_event_has_a_number_before_it_is_reserved(burst: int) -> None:
    async def agent(context: RunContext) -> None:
        for _ in range(12_000 // burst):
            context.emit(*[e.PartDelta(part="text", delta="x")] * burst)
            await asyncio.sleep(0)
        await context.ask(Interrupt(id="q", kind="input", message="On?"))
        for _ in range(12_000 // burst):
            context.emit(*[e.PartDelta(part="text", delta="x")] * burst)
        context.emit(e.RunFinished())

    async def main() -> None:
        ledger = Ledger()
        async with scripted.engine((scripted.route(), Scripted(agent)), store=ledger) as gateway:
            made = await gateway.runs.start(request())
            await gateway.runs.wait(made.id, 60)
            await gateway.runs.answer(made.id, Answer(value={}))
            done = await gateway.runs.wait(made.id, 60)
            assert done is not None and done.status is RunStatus.SUCCESS
            assert ledger.early == [] and ledger.reserved > 20_000

    run(main())
