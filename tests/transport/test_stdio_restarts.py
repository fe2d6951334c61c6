"""Supervisor: what becomes of its users when a start fails or a connection dies; with futures, and with a process."""

from __future__ import annotations

import asyncio
import math
import os
import signal

import pytest

from gateway.core.errors import AgentGone, AgentTimeout, InterlinguaError
from gateway.transport.stdio import StdioPipe, Supervisor
from gateway.transport.stdio import pipe as stdio_pipe
from gateway.transport.stdio.supervisor import Backoff
from tests.transport.stdio_support import QUICK, marked, receive, start, until_async
from tests.transport.supervisor_support import BROKEN, NEVER, SOON, Line, Opener, run, supervisor


def test_after_a_death_the_next_user_gets_a_new_connection() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener, backoff=Backoff(0.05, 0.05))
        async with keeper.use() as line:
            line.die(BROKEN)
            await line.ended.wait()
            assert (keeper.reachable, keeper.reason) == (False, "agent exited with 1: no key")
        async with keeper.use() as other:
            assert other is opener.opened[1]
            assert (keeper.reachable, keeper.reason) == (True, "")
        await keeper.aclose()

    run(scene)


def test_a_connection_that_has_just_died_is_not_given_to_anybody() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener)
        async with keeper.use() as line:
            line.die()
            async with keeper.use() as other:
                assert other is not line
        await keeper.aclose()

    run(scene)


def test_one_that_is_dying_is_waited_out_and_lets_nobody_down() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener, backoff=NEVER)
        async with keeper.use() as line:
            pass
        line.alive = False
        user = asyncio.create_task(keeper.use().__aenter__())
        await asyncio.wait([user], timeout=0.05)
        assert not user.done() and opener.calls == 1
        line.die()
        assert await user is opener.opened[1]
        await keeper.aclose()

    run(scene)


def test_one_that_is_dying_as_soon_as_it_is_there_is_a_failure() -> None:
    async def scene() -> None:
        opener = Opener()

        async def opened() -> Line:
            line = await opener()
            line.alive = False
            return line

        keeper = Supervisor(opened, name="agent", backoff=NEVER)
        user = asyncio.create_task(keeper.use().__aenter__())
        await until_async(lambda: bool(opener.opened), 30)
        opener.opened[0].die(BROKEN)
        with pytest.raises(AgentGone, match="the next try is in"):
            await user
        assert opener.calls == 1
        await keeper.aclose()

    run(scene)


def test_a_connection_that_ends_while_nobody_uses_it_is_no_failure() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener, backoff=NEVER)
        async with keeper.use() as line:
            pass
        line.die()
        await line.ended.wait()
        assert keeper.reachable is None
        async with keeper.use():
            assert opener.calls == 2
        await keeper.aclose()

    run(scene)


def test_one_that_is_kept_for_ever_is_started_again_when_it_ends_while_nobody_uses_it() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener, idle=math.inf)
        async with keeper.use() as line:
            pass
        line.die()
        await until_async(lambda: keeper.reachable is True, 30)
        assert opener.calls == 2
        await keeper.aclose()

    run(scene)


def test_all_who_waited_for_a_start_get_its_failure() -> None:
    async def scene() -> None:
        opener = Opener(BROKEN)
        keeper = supervisor(opener, backoff=NEVER)
        users = [asyncio.create_task(keeper.use().__aenter__()) for _ in range(3)]
        assert await asyncio.gather(*users, return_exceptions=True) == [BROKEN] * 3
        assert opener.calls == 1
        assert (keeper.reachable, keeper.reason) == (False, str(BROKEN))
        await keeper.aclose()

    run(scene)


def test_while_the_next_try_is_far_away_users_are_refused_at_once_with_the_reason() -> None:
    async def scene() -> None:
        opener = Opener(BROKEN)
        keeper = supervisor(opener, backoff=NEVER)
        for expected in ("^agent exited with 1: no key$", r"^agent is down \(.* \d+ s\): agent exited with 1: no key$"):
            with pytest.raises(AgentGone, match=expected) as caught:
                async with keeper.use():
                    pass
            assert caught.value.detail == "much more"
        assert opener.calls == 1
        await keeper.aclose()

    run(scene)


def test_what_it_died_of_while_others_used_it_is_not_told_to_the_next_user() -> None:
    async def scene() -> None:
        keeper = supervisor(Opener(), backoff=NEVER)
        async with keeper.use() as line:
            line.die(AgentGone("agent exited with 1: no such word: 'the secret of ana'"))
            with pytest.raises(AgentGone, match=r"^agent is down \(the next try is in \d+ s\)$"):
                await keeper.join()
        await keeper.aclose()

    run(scene)


def test_while_the_next_try_is_near_users_wait_for_it() -> None:
    async def scene() -> None:
        opener = Opener(BROKEN)
        keeper = supervisor(opener, backoff=Backoff(0.1, 0.1))
        with pytest.raises(AgentGone):
            async with keeper.use():
                pass
        async with keeper.use() as line:
            assert line is opener.opened[0]
        assert opener.calls == 2
        await keeper.aclose()

    run(scene)


def test_what_is_wanted_is_tried_again_without_being_asked() -> None:
    async def scene() -> None:
        opener = Opener(BROKEN, BROKEN, BROKEN)
        keeper = supervisor(opener)
        with pytest.raises(AgentGone):
            async with keeper.use():
                pass
        await until_async(lambda: keeper.reachable is True, 30)
        assert opener.calls == 4
        await keeper.aclose()

    run(scene)


def test_a_failure_is_forgotten_once_the_agent_is_back() -> None:
    async def scene() -> None:
        opener = Opener(BROKEN)
        keeper = supervisor(opener, idle=0.05)
        with pytest.raises(AgentGone):
            async with keeper.use():
                pass
        await until_async(lambda: bool(opener.opened), 30)
        async with asyncio.timeout(30):
            await opener.opened[0].ended.wait()
        assert (keeper.reachable, keeper.reason) == (None, "")
        await keeper.aclose()

    run(scene)


def test_what_came_up_in_place_of_what_died_in_use_is_ended_when_it_was_unused_for_long() -> None:
    async def scene() -> None:
        opener = Opener()
        keeper = supervisor(opener, idle=0.05)
        async with keeper.use() as line:
            line.die(BROKEN)
            await until_async(lambda: len(opener.opened) == 2, 30)
        async with asyncio.timeout(30):
            await opener.opened[1].ended.wait()
        assert (keeper.reachable, keeper.reason) == (None, "")
        await keeper.aclose()

    run(scene)


def test_what_nobody_wants_any_more_is_not_tried_again() -> None:
    async def scene() -> None:
        opener = Opener(*[BROKEN] * 1000)
        keeper = supervisor(opener, idle=0)
        with pytest.raises(AgentGone):
            async with keeper.use():
                pass
        await until_async(lambda: opener.calls >= 2 and len(asyncio.all_tasks()) == 1, 30)
        assert keeper.reachable is False
        await keeper.aclose()

    run(scene)


def test_tries_are_further_apart_with_each_failure_and_near_again_after_a_success() -> None:
    async def scene() -> None:
        asked: list[int] = []

        class Noted(Backoff):
            def delay(self, failures: int) -> float:
                asked.append(failures)
                return 0.0

        opener = Opener(BROKEN, BROKEN)
        keeper = supervisor(opener, backoff=Noted())
        with pytest.raises(AgentGone):
            async with keeper.use():
                pass
        await until_async(lambda: keeper.reachable is True, 30)
        async with keeper.use() as line:  # dies at its first use: a sequel
            line.die()
            await line.ended.wait()
        async with keeper.use():  # serves somebody to the end
            pass
        async with keeper.use() as line:
            line.die()
            await line.ended.wait()
        assert asked == [1, 2, 3, 1]
        await keeper.aclose()

    run(scene)


def test_the_delay_doubles_up_to_its_most_and_varies() -> None:
    backoff = Backoff(first=1.0, most=8.0)
    assert backoff.delay(0) == 0
    for failures, most in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (5000, 8)):
        delays = {backoff.delay(failures) for _ in range(100)}
        assert most / 2 <= min(delays) < max(delays) <= most


def test_a_start_that_takes_too_long_is_cancelled() -> None:
    async def scene() -> None:
        opener = Opener()
        opener.gate.clear()
        keeper = supervisor(opener, start_timeout=0.02, backoff=NEVER)
        with pytest.raises(AgentTimeout, match="agent was not ready within"):
            async with keeper.use():
                pass
        assert opener.cancelled == 1
        assert keeper.reachable is False
        await keeper.aclose()

    run(scene)


@pytest.mark.parametrize("surprise", [KeyError("x"), TimeoutError(), asyncio.CancelledError()], ids=repr)
def test_a_start_that_fails_in_a_way_of_its_own_is_an_agent_that_is_gone(surprise: BaseException) -> None:
    async def scene() -> None:
        keeper = supervisor(Opener(surprise))
        with pytest.raises(AgentGone, match="agent could not be started"):
            async with keeper.use():
                pass
        async with keeper.use():
            pass
        await keeper.aclose()

    run(scene)


class Session:
    """A process as a connection, the way a protocol would make it: it is ready once it has answered."""

    def __init__(self, pipe: StdioPipe) -> None:
        self.pipe = pipe
        self.closed: asyncio.Future[InterlinguaError | None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @property
    def alive(self) -> bool:
        return not self.closed.done()

    async def _read(self) -> None:
        why = None
        try:
            while await self.pipe.receive():
                pass
        except InterlinguaError as error:
            why = error
        self.closed.set_result(why)

    async def aclose(self) -> None:
        await self.pipe.aclose()
        await self._reading


def test_an_agent_that_was_killed_is_started_again_for_the_next_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_pipe, "SETTLE", 30.0)  # however slow the machine is, its end is noticed

    async def scene() -> None:
        with marked() as mark:

            async def handshake() -> Session:
                pipe = await start(["cat"], env=mark.env, grace=QUICK)
                await pipe.send([b"hello"])
                await receive(pipe, 1)
                return Session(pipe)

            keeper = Supervisor(handshake, name="agent", backoff=SOON)
            async with keeper.use() as first:
                os.kill(first.pipe.pid, signal.SIGKILL)
                await first.closed
            await until_async(lambda: keeper.reason != "", 30)
            assert keeper.reason == "agent was ended by SIGKILL"
            async with keeper.use() as second:
                assert second.pipe.pid != first.pipe.pid
            await keeper.aclose()
            assert mark.pids() == []

    run(scene)
