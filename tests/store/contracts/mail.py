"""Messages between processes on one store, and the bells that announce them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import pytest

from gateway.core.errors import NotFound
from gateway.store import Message, Store, Undelivered
from tests.store.child import RESERVED
from tests.store.place import Place, eventually, make_run, new_id, numbers, tokens


def letter(sender: str, body: bytes = b"hello", answers: str = "") -> Message:
    return Message(id=new_id(), sender=sender, body=body, answers=answers)


class Ears:
    """Hears a store's bell."""

    def __init__(self, store: Store) -> None:
        self.heard: list[str | None] = []
        self._woken = asyncio.Event()
        store.mailbox.listen(self._hears)

    def _hears(self, name: str | None) -> None:
        self.heard.append(name)
        self._woken.set()

    async def hear(self, name: str) -> None:
        async with asyncio.timeout(30):
            while name not in self.heard:
                self._woken.clear()
                await self._woken.wait()
        self.heard.clear()


@contextlib.asynccontextmanager
async def listening(place: Place) -> AsyncIterator[tuple[Store, Ears]]:
    """A store, open, whose bell works."""
    store = place.store()
    ears = Ears(store)
    await store.open()

    async def rings() -> bool:
        return store.mailbox.has_bell

    try:
        await eventually(rings)
        yield store, ears
    finally:
        await store.close()


class MailContract:
    async def test_what_is_sent_is_received_once_and_in_order_by_whom_it_was_sent_to(self, place: Place) -> None:
        async with place.opened(host="here") as one, place.opened(host="there") as two:
            sent = [letter(one.owner, b"%d" % n + bytes(range(256)), answers="earlier" * n) for n in range(20)]
            for each in sent:
                await one.mailbox.send(two.owner, each, seconds=60)
            assert await one.mailbox.receive() == []
            found = await asyncio.gather(*(two.mailbox.receive() for _ in range(5)))
            assert sorted(found, key=len) == [[], [], [], [], sent]
            assert await two.mailbox.receive() == []

    async def test_what_has_expired_is_not_received(self, place: Place) -> None:
        async with place.opened(host="here") as one, place.opened(host="there") as two:
            await one.mailbox.send(two.owner, letter(one.owner, b"late"), seconds=-1)
            await one.mailbox.send(two.owner, letter(one.owner, b"in time"), seconds=60)
            assert [each.body for each in await two.mailbox.receive()] == [b"in time"]

    async def test_another_process_hears_of_what_is_sent_and_its_answer_is_heard_here(self, place: Place) -> None:
        async with listening(place) as (store, ears), place.process("correspond", bell=True) as other:
            owner = await other.said()
            for _ in range(10):
                asked = letter(store.owner)
                await store.mailbox.send(owner, asked, seconds=60)
                await ears.hear("")
                (answer,) = await store.mailbox.receive()
                assert (answer.answers, answer.sender, answer.body) == (asked.id, owner, asked.body)

    async def test_a_bell_rings_for_every_run_even_at_a_process_that_stands_still(self, place: Place) -> None:
        async with listening(place) as (store, ears), place.process("correspond", bell=True) as other:
            owner = await other.said()
            names = sorted(f"run-{n:04}" for n in range(1000))
            await store.mailbox.send(owner, letter(store.owner, b"1000"), seconds=60)
            await ears.hear("")
            os.kill(other.pid, signal.SIGSTOP)
            for name in names[:-1]:
                store.mailbox.ring(owner, name)
                await asyncio.sleep(0)
            os.kill(other.pid, signal.SIGCONT)
            store.mailbox.ring(owner, names[-1])
            store.mailbox.ring(owner, names[0])

            async def rung() -> None:
                while True:  # the last one has the other say what it has heard
                    store.mailbox.ring(owner, names[-1])
                    await asyncio.sleep(0.1)

            ringing = asyncio.ensure_future(rung())
            assert await other.said() == names
            ringing.cancel()

    async def test_what_is_sent_to_a_dead_process_is_refused_and_lost_with_it(self, place: Place) -> None:
        async with place.opened() as store:
            with pytest.raises(Undelivered, match="has ended; try again"):
                await store.mailbox.send("nobody-1-0123456789ab", letter(store.owner), seconds=60)
            async with place.process("correspond", bell=True) as other:
                owner = await other.said()
                os.kill(other.pid, signal.SIGSTOP)
                await store.mailbox.send(owner, letter(store.owner), seconds=60)
                await other.kill()
                assert not await store.lives(owner)
                with pytest.raises(Undelivered, match="has ended; try again"):
                    await store.mailbox.send(owner, letter(store.owner), seconds=60)
            assert await store.is_orphaned(), "its lease"
            await store.claim()
            assert not await store.is_orphaned()
            assert await store.mailbox.receive() == []

    async def test_whose_a_run_is_and_whether_that_process_lives_is_known_to_all(self, place: Place) -> None:
        async with place.opened() as store:
            with pytest.raises(NotFound):
                await store.owner_of("run")
            async with place.process("stream", run="run") as other:
                await other.said()
                owner = await store.owner_of("run")
                assert owner != store.owner and await store.lives(owner) and await store.lives(store.owner)
                assert not await store.is_orphaned() and await store.mailbox.others() == [owner]
                await other.kill()
                assert not await store.lives(owner) and await store.is_orphaned()
                assert await store.mailbox.others() == []
            (found,) = await store.claim()
            assert (found.run.id, found.reserved) == ("run", RESERVED)
            assert await store.owner_of("run") == store.owner

    async def test_a_flush_of_one_run_makes_it_readable_elsewhere(self, place: Place) -> None:
        async with place.opened(host="here") as one, place.opened(host="there") as two:
            await one.create_run(make_run("a"), [], reserved=1000)
            one.append("a", tokens(1, 5))
            await one.flush("a")
            assert numbers(await two.events("a")) == [1, 2, 3, 4, 5]
