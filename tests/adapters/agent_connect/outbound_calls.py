"""Runs of the Agent Connect outbound half against a server, for the tests of this folder."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from adapters.agent_connect.options import AgentConnectTarget
from adapters.agent_connect.outbound import AgentConnectOutbound
from gateway.core import events as e
from tests.support.aio import run
from tests.support.context import FakeContext, context
from tests.support.processes import Process

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@asynccontextmanager
async def calling(url: str, agent: str | None, **options: Any) -> AsyncIterator[AgentConnectOutbound]:
    """An outbound half that looks often and gives nothing up, unless a test says so; closed at the end."""
    patient = {"idle_timeout": 60.0, "poll_interval": 0.1, "reconnect_timeout": 60.0, "request_timeout": 60.0}
    target = AgentConnectTarget(protocol="agent_connect", url=url, agent=agent, **{**patient, **options})
    outbound = AgentConnectOutbound(target)
    try:
        yield outbound
    finally:
        await outbound.aclose()


async def play(
    url: str,
    agent: str | None,
    message: Any,
    *,
    answers: list[Any] | None = None,
    thread: str | None = None,
    upstream_thread: dict[str, Any] | None = None,
    request: dict[str, Any] | None = None,
    **options: Any,
) -> FakeContext:
    """One run, from description to end. `options` are the target's, `request` is more of the RunRequest."""
    async with calling(url, agent, **options) as outbound:
        ctx = context(
            await outbound.describe(),
            message,
            answers=answers or [],
            thread=thread,
            upstream_thread=upstream_thread,
            **(request or {}),
        )
        await outbound.run(ctx)
        return ctx


def done(coro: Coroutine[Any, Any, FakeContext], within: float = 120) -> FakeContext:
    """The context of a run that has ended."""
    ctx = run(coro, within)
    assert isinstance(ctx.end, e.TERMINAL)
    return ctx


def seen(server: Process) -> list[dict[str, Any]]:
    """The requests that a server remembers."""
    with urllib.request.urlopen(f"{server.url}/_seen") as response:
        found: list[dict[str, Any]] = json.load(response)
    return found


def forget(server: Process) -> None:
    """Have it remember only what comes from now on."""
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/_seen", method="DELETE")).close()
