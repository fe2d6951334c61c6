"""Allowances that all processes on a store share."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from gateway.store import Allowance, Store
from tests.store.place import Place


def allowance(name: str, limit: int = 2**53, *, lasts: float = 3600.0, **fields: Any) -> Allowance:
    return Allowance(name=name, limit=limit, until=time.time() + lasts, **fields)


async def spent(store: Store, name: str) -> int:
    """How much of it is used."""
    (used,) = await store.spend([allowance(name, amount=0)])
    return used


class AllowancesContract:
    async def test_an_allowance_is_spent_until_it_is_used_up(self, place: Place) -> None:
        async with place.opened() as store:
            assert [await store.spend([allowance("a", 2)]) for _ in range(4)] == [[0], [1], [2], [2]]
            assert await store.spend([allowance("a", 3)]) == [2], "the limit is the caller's"
            assert await store.spend([allowance("a", 7, amount=5)]) == [3], "five are not there any more"
            assert await store.spend([allowance("a", 7, amount=4)]) == [3]
            assert await store.spend([allowance("a"), allowance("b")]) == [7, 0]
            assert (await spent(store, "a"), await spent(store, "b"), await spent(store, "c")) == (8, 1, 0)

    async def test_where_one_does_not_suffice_none_is_spent(self, place: Place) -> None:
        async with place.opened() as store:
            await store.spend([allowance("full", 1)])
            for _ in range(2):
                assert await store.spend([allowance("free", 9), allowance("full", 1), allowance("new", 9)]) == [0, 1, 0]
            assert (await spent(store, "free"), await spent(store, "new")) == (0, 0)

    async def test_what_is_known_to_have_been_used_counts_and_what_the_store_knows_counts_for_more(
        self, place: Place
    ) -> None:
        async with place.opened() as store:
            assert await store.spend([allowance("a", 5, used=5)]) == [5]
            assert await store.spend([allowance("a", 6, used=5)]) == [5]
            assert await store.spend([allowance("a", 9, used=2)]) == [6]
            assert await store.spend([allowance("a", 20, used=12)]) == [12]
            assert await spent(store, "a") == 13

    async def test_what_is_over_is_forgotten_when_something_new_is_spent_and_nothing_else_is(
        self, place: Place
    ) -> None:
        async with place.opened() as store:
            await store.spend([allowance("lasts")])
            await store.spend([allowance("over", lasts=-1.0)])
            await store.spend([allowance("lasts")])
            assert await store.spend([allowance("over", 9, lasts=-1.0)]) == [1], "nothing new has come"
            await store.spend([allowance("new")])
            assert (await spent(store, "over"), await spent(store, "lasts"), await spent(store, "new")) == (0, 2, 1)


class SharedAllowancesContract:
    async def test_processes_together_spend_exactly_what_there_is_also_if_they_are_killed(self, place: Place) -> None:
        """Each takes of two at once, in another order than its neighbour: of one there are 100, of the other more."""
        async with contextlib.AsyncExitStack() as stack:
            others = [await stack.enter_async_context(place.process("spend", limit=100)) for _ in range(3)]
            for each in others:
                assert await each.said() == "ready"
            for each in others:
                await each.go()
            async with asyncio.timeout(60):
                found = [await each.said() for each in others]
            for each in others:
                await each.kill()
        assert sorted(before for each in found for before in each) == [*range(100)]
        async with place.opened() as store:
            assert (await spent(store, "few"), await spent(store, "many")) == (100, 100)
