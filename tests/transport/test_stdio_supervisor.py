"""Supervisor: one start for all, kept warm, ended when it is not needed."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from gateway.core.errors import AgentGone, Unavailable
from gateway.transport.stdio import Supervisor
from gateway.transport.stdio.supervisor import Backoff
from tests.support.rpc import settled
from tests.transport.stdio_support import until_async
from tests.transport.supervisor_support import BROKEN, Line, Opener, run, supervisor


def test_nothing_is_started_before_somebody_needs_it() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener)
        assert keeper.reachable is None
        async with keeper.use() as line:
            assert line is opener.opened[0]
            assert keeper.reachable is True
        await keeper.aclose()
        assert line.ended.is_set()
        assert keeper.reachable is None

    run(scene)


def test_users_who_come_first_together_share_one_start() -> None:
    async def scene() -> None:
        opener = Opener()
        opener.gate.clear()
        keeper = supervisor(opener)
        users = [asyncio.create_task(keeper.use().__aenter__()) for _ in range(5)]
        await until_async(lambda: opener.calls == 1, 30)
        opener.gate.set()
        assert set(await asyncio.gather(*users)) == set(opener.opened)
        assert opener.calls == 1
        await keeper.aclose()

    run(scene)


def test_a_user_who_gives_up_does_not_end_the_start_for_the_others() -> None:
    async def scene() -> None:
        opener = Opener()
        opener.gate.clear()
        keeper = supervisor(opener)
        first, second = (asyncio.create_task(keeper.use().__aenter__()) for _ in range(2))
        await until_async(lambda: opener.calls == 1, 30)
        first.cancel()
        await asyncio.wait([first])
        opener.gate.set()
        assert await second is opener.opened[0]
        assert opener.cancelled == 0
        await keeper.aclose()

    run(scene)


def test_a_start_that_all_have_given_up_is_finished_and_kept_warm_for_a_while() -> None:
    async def scene() -> None:
        opener = Opener()
        opener.gate.clear()
        keeper = supervisor(opener, idle=0.05)
        user = asyncio.create_task(keeper.use().__aenter__())
        await until_async(lambda: opener.calls == 1, 30)
        user.cancel()
        await asyncio.wait([user])
        opener.gate.set()
        await until_async(lambda: bool(opener.opened), 30)
        async with asyncio.timeout(30):
            await opener.opened[0].ended.wait()
        await keeper.aclose()

    run(scene)


def test_a_connection_is_kept_while_there_are_users_and_ended_when_it_was_unused_for_long() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener, idle=0.05)
        async with keeper.use() as first, asyncio.timeout(30):
            async with keeper.use() as second:
                assert second is first
            assert not (await asyncio.wait([asyncio.create_task(first.ended.wait())], timeout=0.15))[0]
        async with asyncio.timeout(30):
            await first.ended.wait()
        assert keeper.reachable is None
        async with keeper.use() as third:
            assert third is not first
        async with keeper.use() as fourth:
            assert fourth is third
        await keeper.aclose()

    run(scene)


def test_a_use_in_time_keeps_a_connection_from_being_ended() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener, idle=0.05)
        async with keeper.use():
            pass
        async with keeper.use() as line:
            assert not (await asyncio.wait([line.closed], timeout=0.15))[0]
        await keeper.aclose()

    run(scene)


def test_a_new_one_is_not_started_before_the_old_one_has_ended() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener, idle=0)
        async with keeper.use() as old:
            old.hold.clear()
        await until_async(old.closed.done, 30)
        user = asyncio.create_task(keeper.use().__aenter__())
        await asyncio.wait([user], timeout=0.05)
        assert opener.calls == 1
        old.hold.set()
        assert await user is opener.opened[1]
        await keeper.aclose()

    run(scene)


def test_a_connection_does_not_belong_to_the_request_that_asked_first() -> None:
    async def scene() -> None:
        request = contextvars.ContextVar("request", default="")
        seen: list[str] = []
        opener = Opener()

        async def opened() -> Line:
            seen.append(request.get())
            return await opener()

        keeper = Supervisor(opened, name="agent")
        request.set("first")
        async with keeper.use():
            assert seen == [""]
        await keeper.aclose()

    run(scene)


def test_closing_ends_a_start_and_refuses_who_waits_for_it() -> None:
    async def scene() -> None:
        opener = Opener()
        opener.gate.clear()
        keeper = supervisor(opener)
        user = asyncio.create_task(keeper.use().__aenter__())
        await until_async(lambda: opener.calls == 1, 30)
        opener.cleaned.clear()
        closes = []
        for _ in range(2):  # the second while the start cleans up
            closes.append(asyncio.create_task(keeper.aclose()))
            await settled()
        opener.cleaned.set()
        await asyncio.gather(*closes)
        with pytest.raises(Unavailable):
            await user
        with pytest.raises(Unavailable):
            async with keeper.use():
                pass
        assert opener.cancelled == 1

    run(scene)


def test_closing_ends_a_wait_for_the_next_try() -> None:
    async def scene() -> None:
        opener = Opener(BROKEN)
        keeper = supervisor(opener, backoff=Backoff(10, 10))
        with pytest.raises(AgentGone):
            async with keeper.use():
                pass
        user = asyncio.create_task(keeper.use().__aenter__())
        await asyncio.wait([user], timeout=0.01)
        await keeper.aclose()
        with pytest.raises(Unavailable):
            await user
        assert opener.calls == 1

    run(scene)
