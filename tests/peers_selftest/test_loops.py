"""A test that is a coroutine is run, on a loop of each kind that its mark names."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.support.aio import Still, on


@on(Still, uvloop.new_event_loop)
async def test_a_coroutine_runs_on_the_loop_that_is_named(request: pytest.FixtureRequest) -> None:
    named = request.node.callspec.params["loop_factory"]()
    named.close()
    assert type(asyncio.get_running_loop()) is type(named)
