"""A gateway that stops takes nothing with it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.adapter import RunContext
from gateway.core.errors import Unavailable
from tests.support.aio import run
from tests.support.scripted import Scripted, engine, request, route


def test_once_quiet_it_refuses_new_runs_and_cancels_but_finishes_what_runs() -> None:
    async def scene() -> None:
        go = asyncio.Event()

        async def agent(context: RunContext) -> None:
            from gateway.core import events as e

            await go.wait()
            context.emit(e.RunFinished())

        async with engine((route(), Scripted(agent))) as gateway:
            started = await gateway.start(request())
            gateway.quiet()
            with pytest.raises(Unavailable):
                await gateway.start(request())
            with pytest.raises(Unavailable):
                await gateway.cancel(started.id)
            go.set()
            done = await gateway.wait(started.id, timeout=30)
            assert done is not None and done.status == "success"

    run(scene())
