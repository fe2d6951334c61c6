"""Runs that are cancelled, given up, or left behind by a gateway that died."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core import events as e
from gateway.core.errors import OutcomeUnknown
from gateway.core.types import JsonObject
from tests.adapters.agent_communication.outbound_rig import Asked, FakeServer, echo, outbound, running


async def forever(asked: Asked) -> JsonObject:
    await asked.progress({"text": "on "})
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_cancelled_run_ends_at_once_and_the_server_is_told() -> None:
    server = FakeServer({"forever": forever})
    half = outbound(server)
    ctx = running("forever")
    going = asyncio.create_task(half.run(ctx))
    await ctx.until(lambda it: bool(it.said(e.PartDelta)))
    ctx.cancel_now("enough")
    await half.cancel(ctx)
    await going
    assert ctx.end == e.RunCancelled(reason="enough")
    assert server.cancelled == 1
    assert ctx.output == {"text": "on "}
    await half.cancel(ctx)  # of a run that has ended: nothing


async def test_a_cancel_before_anything_was_sent_sends_nothing() -> None:
    server = FakeServer({"forever": forever})
    half = outbound(server)
    ctx = running("forever")
    going = asyncio.create_task(half.run(ctx))
    ctx.cancel_now()
    await half.cancel(ctx)
    await going
    assert isinstance(ctx.end, e.RunCancelled)
    assert not server.named("agents/run")


async def test_a_result_that_comes_after_the_cancel_is_none() -> None:
    go = asyncio.Event()

    async def waits(asked: Asked) -> JsonObject:
        await go.wait()
        return {"output": {"text": "too late"}}

    half = outbound(FakeServer({"waits": waits}))
    ctx = running("waits")
    going = asyncio.create_task(half.run(ctx))
    while not half._one._turns:  # noqa: ASYNC110
        await asyncio.sleep(0)
    go.set()
    ctx.cancel_now()
    cancelling = asyncio.create_task(half.cancel(ctx))
    await asyncio.gather(going, cancelling)
    assert isinstance(ctx.end, e.RunCancelled)


async def test_a_run_that_is_given_up_is_cancelled_at_the_server() -> None:
    server = FakeServer({"forever": forever})
    ctx = running("forever")
    going = asyncio.create_task(outbound(server).run(ctx))
    await ctx.until(lambda it: bool(it.said(e.PartDelta)))
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert server.cancelled == 1
    assert ctx.output == {"text": "on "}


async def test_a_run_cannot_be_found_again_and_is_not_made_twice() -> None:
    server = FakeServer({"echo": echo})
    half = outbound(server)
    ctx = running()
    await half.run(ctx)
    assert not ctx.upstreams
    with pytest.raises(OutcomeUnknown):
        await half.attach(ctx)
    assert len(server.named("agents/run")) == 1
