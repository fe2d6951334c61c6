"""Budgets of several gateways on one store, and of one whose store does not say what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import Unavailable
from gateway.core.types import RunStatus
from gateway.governance.audit import logs, verify
from gateway.governance.enforcing import journal as journals
from gateway.store import Allowance
from gateway.store.opening import open_store
from gateway.store.sqlite import SqliteStore
from tests.governance.enforcing.support import YES, House, calling, documents, house, told, verified
from tests.support.aio import run
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that several gateways have open."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


class Clock:
    """The time of the rules."""

    def __init__(self) -> None:
        self.later = 0.0

    def time(self) -> float:
        return TIME() + self.later


TIME = journals.time.time


async def outcomes(houses: Sequence[House], calls: int) -> tuple[int, int]:
    """How many runs with a call each, begun at these gateways at once, were allowed it, and how many have to ask."""
    runs = [(at, await at.start()) for at in (houses * calls)[:calls]]
    found = await asyncio.gather(*(at.until(one, RunStatus.SUCCESS, RunStatus.INTERRUPTED) for at, one in runs))
    return sum(one.status is RunStatus.SUCCESS for one in found), sum(bool(one.interrupts) for one in found)


def test_gateways_on_one_store_allow_together_what_the_budget_says_also_after_a_restart_and_the_next_day(
    tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(journals, "time", clock)
    bound = documents(tmp_path, writes=5)

    async def scene() -> None:
        async with contextlib.AsyncExitStack() as stack:

            async def opened() -> House:
                store = open_store(shared)
                return await stack.enter_async_context(house(tmp_path, calling("write"), binding=bound, store=store))

            both = [await opened(), await opened()]
            assert await outcomes(both, 9) == (5, 4)
            assert await outcomes([*both, await opened()], 3) == (0, 3)
            clock.later = 86_400.0
            assert await outcomes(both, 9) == (5, 4)

    run(scene())
    reports = [verify(files) for files in logs([tmp_path]).values()]
    assert len(reports) == 3 and not [mistake for report in reports for mistake in report.mistakes]


class Counting(SqliteStore):
    """A store of which the test says when, and whether, it counts."""

    fails = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def spend(self, allowances: Sequence[Allowance]) -> list[int]:
        self.asked.set()
        await self.go.wait()
        if self.fails:
            raise Unavailable("the store cannot be reached")
        return await super().spend(allowances)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def test_where_the_store_does_not_say_what_is_left_a_call_with_a_budget_is_asked(tmp_path: Path, path: Path) -> None:
    async def scene() -> None:
        store = Counting(path)
        store.fails = True
        store.go.set()
        async with house(tmp_path, calling("read", "write"), store=store) as at:
            one = await at.asked(await at.start())
            assert (await at.shown(one)).count("call read") == 1 and "call write" not in await at.shown(one)
            assert one.interrupts[0].payload["why"] == (
                "writes asks: it has a budget, and nobody knows what is left of it"
            )
            await at.answer(one, YES)
            await at.ended(one)
            store.fails = False
            await at.ended(await at.start())

    run(scene())
    verified(tmp_path)


def test_a_call_that_changes_while_it_is_counted_is_decided_again(tmp_path: Path, path: Path) -> None:
    async def script(context: RunContext) -> None:
        assert context.governed is not None
        context.governed.describe("c1", tool="write", risk=1)
        context.emit(e.ToolCallStarted(call="c1", name="write"))
        await store.asked.wait()
        context.governed.describe("c1", tool="drop")
        store.go.set()
        context.emit(e.ToolCallEnded(call="c1", output="ok"), e.RunFinished())
        await context.drain()

    store = Counting(path)

    async def scene() -> None:
        async with house(tmp_path, script, store=store) as at:
            one = await at.start()
            await at.ended(one, RunStatus.ERROR)
            assert not [text for text in await at.shown(one) if text.startswith("call")]

    run(scene())
    acts = [line for line in told(tmp_path) if line.startswith("tool.")]
    assert acts == ["tool.refused drop"]


def test_a_call_whose_run_ends_while_it_is_counted_is_not_made(tmp_path: Path, path: Path) -> None:
    acting: list[asyncio.Future[str]] = []

    async def script(context: RunContext) -> None:
        assert context.governed is not None
        acting.append(asyncio.ensure_future(context.governed.act("write", {}, risk=1)))
        await store.asked.wait()
        context.emit(e.RunFinished())
        await context.drain()

    store = Counting(path)

    async def scene() -> None:
        async with house(tmp_path, script, store=store) as at:
            await at.ended(await at.until(await at.start()))
            store.go.set()
            with pytest.raises(Exception, match="the run is over"):
                await acting[0]

    run(scene())
    assert not [line for line in told(tmp_path) if line.startswith("tool.")]
