"""A session that stays open to hear of changes of a target's list, and what counts as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.core.errors import Unavailable
from gateway.mcp.client import target as target_server
from gateway.mcp.options import McpTarget
from tests.support.scripted import until


async def test_each_session_but_the_first_counts_as_a_change_and_one_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target_server, "RETRY_SECONDS", 0.0)
    sessions: list[Any] = []
    told: list[int] = []
    fails = [False, True, False]

    @asynccontextmanager
    async def lease() -> AsyncIterator[Any]:
        if fails and fails.pop(0):
            raise Unavailable("not now")
        sessions.append(SimpleNamespace(closed=asyncio.get_running_loop().create_future()))
        yield sessions[-1]

    target = McpTarget(protocol="mcp", command=["server"])
    task = asyncio.create_task(target_server.listen(target, lease, lambda: told.append(len(sessions))))
    await until(lambda: len(sessions) == 1)
    assert told == []
    sessions[0].closed.set_result(None)
    await until(lambda: told == [2])
    sessions[1].closed.set_result(None)
    await until(lambda: told == [2, 3])
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
