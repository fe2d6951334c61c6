"""Owed webhook calls and registrations."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from gateway.core.errors import Conflict, NotFound
from gateway.core.types import RunStatus
from gateway.store import Delivery, Registration, RunChange, Store
from tests.store.place import NOW, Place, make_run


async def listed(store: Store, now: float) -> list[Registration]:
    """As they were put: their numbers are the store's."""
    return [replace(one, number=0) for one in await store.registrations(now)]


def registered(name: str, owner: str, **fields: object) -> Registration:
    return Registration(**{"name": name, "protocol": "plain", "owner": owner, "data": {}, "created_at": NOW, **fields})  # type: ignore[arg-type]


class DutiesContract:
    async def test_owed_calls_come_when_they_are_due_oldest_first(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1)
            for name, due in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
                await store.commit(one.id, RunChange(delivery=Delivery(id=name, run=one, due_at=NOW + due)))
            assert await store.deliveries(NOW) == []
            assert [d.id for d in await store.deliveries(NOW + 2)] == ["a", "b"]
            assert [d.id for d in await store.deliveries(NOW + 9)] == ["a", "b", "c"]
            assert [d.id for d in await store.deliveries(NOW + 9, limit=1)] == ["a"]

    async def test_an_owed_call_carries_the_run_as_it_was_then(self, place: Place) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1)
            then = make_run(one.id, status=RunStatus.INTERRUPTED)
            owed = Delivery(id="d", run=then, due_at=NOW)
            await store.commit(one.id, RunChange(run=then, delivery=owed))
            await store.commit(one.id, RunChange(run=make_run(one.id, status=RunStatus.SUCCESS), release=True))
            assert await store.deliveries(NOW) == [owed]

    async def test_a_postponed_call_comes_later_with_one_more_attempt_and_a_delivered_one_never(
        self, place: Place
    ) -> None:
        async with place.opened() as store:
            one = make_run()
            await store.create_run(one, [], reserved=1)
            await store.commit(one.id, RunChange(delivery=Delivery(id="d", run=one, due_at=NOW)))
            await store.postpone("d", NOW + 10)
            assert await store.deliveries(NOW + 9) == []
            await store.postpone("d", NOW + 20)
            (owed,) = await store.deliveries(NOW + 20)
            assert (owed.attempts, owed.due_at) == (2, NOW + 20)
            await store.delivered("d")
            assert await store.deliveries(NOW + 99) == []
            for call in (store.delivered("d"), store.postpone("d", NOW)):
                with pytest.raises(NotFound):
                    await call

    async def test_registrations_are_listed_until_they_expire_or_are_removed(self, place: Place) -> None:
        async with place.opened() as store:
            lasting = registered("b", store.owner, data={"url": "http://x", "deep": [None]})
            short = registered("a", store.owner, expires_at=NOW + 10)
            await store.put_registration(lasting)
            await store.put_registration(short)
            assert await listed(store, NOW) == [short, lasting]
            assert await listed(store, NOW + 10) == [lasting]
            await store.delete_registration("b")
            assert await listed(store, NOW) == [short]
            with pytest.raises(NotFound):
                await store.delete_registration("b")

    async def test_of_two_registrations_the_one_that_came_later_has_the_higher_number(self, place: Place) -> None:
        async with place.opened() as store:

            async def number(name: str, owner: str, **fields: object) -> int:
                await store.put_registration(registered(name, owner, **fields))
                (found,) = [one for one in await store.registrations(0.0) if one.name == name]
                return found.number

            first, second = await number("b", "x", created_at=NOW + 1), await number("a", "y")
            assert first < second
            assert await number("b", "x", data={"n": 1}, expires_at=1.0) == first, "it is the same, however it changes"
            late = await number("c", "w")
            assert await number("b", "x") > late, "it had expired: whoever came meanwhile could not read it"
            await number("b", "x", expires_at=1.0)
            assert await number("b", "z") > late, "it is another's"

    async def test_registrations_that_are_the_same_are_the_same_list_and_never_an_old_one(self, place: Place) -> None:
        async with place.opened() as store:
            for name in ("a", "b", "c"):
                await store.put_registration(registered(name, "x"))
            before = await store.registrations(NOW)
            assert await store.registrations(NOW + 1) is before
            await store.delete_registration("c")
            await store.put_registration(registered("d", "x", expires_at=NOW + 10))
            now = await store.registrations(NOW)
            assert [one.name for one in now] == ["a", "b", "d"] and now[0] is before[0]
            assert [one.name for one in before] == ["a", "b", "c"], "what was given out is not changed"
            assert await store.registrations(NOW + 9) is now
            later = await store.registrations(NOW + 10)
            assert [one.name for one in later] == ["a", "b"] and await store.registrations(NOW + 99) is later
            assert [one.name for one in await store.registrations(NOW)] == ["a", "b", "d"]
            await store.put_registration(registered("d", "x", data={"n": 1}))
            assert (await store.registrations(NOW + 99))[2].data == {"n": 1}

    async def test_a_name_belongs_to_its_owner_while_the_registration_lives(self, place: Place) -> None:
        async with place.opened() as store:
            first = registered("a", "someone", expires_at=time.time() + 1000)
            await store.put_registration(first)
            with pytest.raises(Conflict):
                await store.put_registration(registered("a", "another"))
            assert await listed(store, NOW - 1e9) == [first]
            renewed = registered("a", "someone", data={"v": 2})
            await store.put_registration(renewed)
            assert await listed(store, NOW) == [renewed]
            with pytest.raises(Conflict):
                await store.put_registration(registered("a", "another"))
            await store.put_registration(registered("a", "someone", expires_at=time.time() - 1))
            taken = registered("a", "another")
            await store.put_registration(taken)
            assert await listed(store, NOW) == [taken]
