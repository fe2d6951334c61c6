"""What inbound halves keep in the store, for themselves and for the gateway's other processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.core.errors import Conflict
from gateway.store.sqlite import SqliteStore
from tests.runs.test_roster import template
from tests.support.scripted import engine, route


async def test_what_is_kept_is_there_after_a_restart_and_at_every_gateway(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with engine(file=file) as first, engine(file=file) as second:
        assert list(await second.records.kept("p")) == []
        before = time.time()
        await first.records.keep("p", "agent/a b/ü", {"deep": [None, 1]}, owner="ann", expires_at=before + 99)
        await first.records.keep("p", "b", {}, owner="bob")
        await first.records.keep("q", "b", {"another": "protocol"}, owner="cid")
        for gateway in (first, second):
            one, two = await gateway.records.kept("p")
            assert (one.name, one.owner, one.data) == ("agent/a b/ü", "ann", {"deep": [None, 1]})
            assert one.expires_at == before + 99 and one.number < two.number
            assert (two.name, two.expires_at) == ("b", None)
            assert [kept.owner for kept in await gateway.records.kept("q")] == ["cid"]
        assert first.process != second.process
    async with engine(file=file) as third:
        assert [kept.name for kept in await third.records.kept("p")] == ["agent/a b/ü", "b"]
        await third.records.forget("p", "b")
        await third.records.forget("p", "b")
        assert [kept.name for kept in await third.records.kept("p")] == ["agent/a b/ü"]
        assert [kept.name for kept in await third.records.kept("q")] == ["b"]


async def test_a_name_is_its_owners_until_it_expires_or_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with engine(file=file) as first, engine(file=file) as second:
        await first.records.keep("p", "a", {"n": 1}, owner="ann")
        (before,) = await second.records.kept("p")
        with pytest.raises(Conflict, match=r"^a belongs to somebody else$"):
            await second.records.keep("p", "a", {"n": 2}, owner="bob")
        await second.records.keep("p", "a", {"n": 3}, owner="ann", expires_at=time.time() - 1)
        assert list(await first.records.kept("p")) == []
        await second.records.keep("p", "a", {"n": 4}, owner="bob")
        (now,) = await first.records.kept("p")
        assert (now.data, now.owner) == ({"n": 4}, "bob") and now.number > before.number
        await first.records.forget("p", "a")
        await first.records.keep("p", "a", {"n": 5}, owner="ann")
        await first.records.keep("p", "a", {"n": 6}, owner="ann")
        assert [kept.data for kept in await second.records.kept("p")] == [{"n": 6}]


async def test_what_is_replaced_keeps_its_number() -> None:
    async with engine() as gateway:
        await gateway.records.keep("p", "a", {"n": 1}, owner="ann")
        (first,) = await gateway.records.kept("p")
        await gateway.records.keep("p", "a", {"n": 2}, owner="ann")
        (second,) = await gateway.records.kept("p")
        assert second.data == {"n": 2} and second.number == first.number


async def test_what_a_process_owns_is_free_when_it_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with engine(file=file) as survivor:
        async with engine(store=SqliteStore(file, host="elsewhere")) as owner:
            await owner.records.keep("p", "a", {}, owner=owner.process)
            with pytest.raises(Conflict):
                await survivor.records.keep("p", "a", {}, owner=survivor.process)
        await survivor.records.keep("p", "a", {}, owner=survivor.process)


async def test_what_is_kept_is_no_agent_and_no_agent_is_among_it() -> None:
    async with engine((route("poet"), template())) as gateway:
        await gateway.records.keep("p", "poet-1", {"template": "poet", "config": {"tone": "grave"}}, owner="ann")
        await gateway.adopt()
        assert list(gateway.agents.names("test")) == ["poet"]
        await gateway.agents.create("poet", "p", {"tone": "grave"})
        assert [kept.name for kept in await gateway.records.kept("p")] == ["poet-1"]
        assert list(await gateway.records.kept("poet")) == [] == list(await gateway.records.kept(""))


async def test_what_is_the_same_is_the_same_object_however_often_it_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with engine(file=file) as gateway, engine(file=file) as other:
        for name in ("a", "b"):
            await gateway.records.keep("p", name, {}, owner="ann")
        before = await gateway.records.kept("p")
        assert await gateway.records.kept("p") is before
        await other.records.keep("p", "b", {"n": 1}, owner="ann")
        now = await gateway.records.kept("p")
        assert now[0] is before[0] and now[1] is not before[1]
