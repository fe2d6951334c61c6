"""Runs that a restarted gateway takes up count for their client, and make room when they have ended."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.access import UsageLimits
from gateway.contract import RunContext
from gateway.contract.options import ClientLimits
from gateway.core import events as e
from gateway.core.errors import Limited
from gateway.core.types import RunRequest
from gateway.runs import Engine
from gateway.store.opening import open_store
from tests.support.scripted import Scripted, route, until, use


@pytest.mark.parametrize("part_of", [None, "another run"])
async def test_a_run_that_is_taken_up_again_counts_for_its_client_until_it_has_ended(
    tmp_path: Path, part_of: str | None
) -> None:
    request = RunRequest(agent="scripted", input={"message": "x"}, protocol="example", principal="ana")

    gate = asyncio.Event()

    async def held(context: RunContext) -> None:
        await gate.wait()
        context.emit(e.RunFinished())

    def engine() -> Engine:
        store = open_store(f"sqlite:///{tmp_path / 's.db'}")
        made = Engine(store, limits=UsageLimits(client=ClientLimits(runs=1)))
        use(made, (route(), Scripted(held, attach=held)))
        return made

    first = engine()
    await first.open()
    await first.runs.start(replace(request, part_of=part_of))
    await first.close()
    second = engine()
    await second.open()
    try:
        await until(lambda: len(second.live) == 1)
        with pytest.raises(Limited) if part_of is None else nullcontext():
            await second.runs.start(request)
        gate.set()
        await until(lambda: not second.live)
        await second.runs.start(request)
    finally:
        await second.close()
