"""PostgreSQL that is restarted, cut off, full, slow, read-only or has no connection left: told, and made good."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from gateway.core.errors import Conflict, NotFound, Unavailable
from gateway.core.types import RunQuery, RunStatus
from gateway.store import CreatedRun, Delivery, Message, RunChange
from gateway.store.postgres import PostgresStore, connections, mail, writer
from tests.store.place import NOW, entry, eventually, make_run, make_thread, numbers, tokens
from tests.store.postgres.between import Wire
from tests.support.aio import run
from tests.support.postgres import PostgresServer, standby_of

SHORT = 0.3


@pytest.fixture(scope="module")
def mine() -> Iterator[PostgresServer]:
    """A server that the tests of this file stop and start."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a server that is away."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", SHORT)
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(writer, "LOOK_SECONDS", 0.02)


async def written(store: PostgresStore) -> None:
    """Wait until nothing waits to be written."""

    async def done() -> bool:
        return not store.trouble and store.backlog == 0

    await eventually(done)


async def test_while_the_server_is_down_commits_are_refused_and_text_waits_and_is_written_in_order_when_it_is_back(
    mine: PostgresServer, impatient: None
) -> None:
    store = PostgresStore(mine.database())
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    await asyncio.to_thread(mine.stop)
    store.append(one.id, tokens(2, 5))
    refused = [store.create_run(make_run(), [], reserved=1), store.commit(one.id, RunChange(events=(entry(7),)))]
    results = await asyncio.gather(*refused, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 2
    assert store.trouble and store.backlog > 0
    with pytest.raises(Unavailable):
        await store.create_run(make_run(), [], reserved=1)
    with pytest.raises(Unavailable):
        await store.run(one.id)
    store.append(one.id, tokens(7, 5))
    store.append(one.id, [entry(12)])
    await asyncio.to_thread(mine.start)
    await written(store)
    assert await store.events(one.id) == [entry(1), *tokens(2, 10), entry(12)]
    assert await store.count_runs(RunQuery()) == 1, "what was refused did not happen"
    await store.commit(one.id, RunChange(events=(entry(13),)))
    assert numbers(await store.events(one.id)) == list(range(1, 14))
    await store.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
async def test_who_commits_while_the_server_is_restarted_hears_nothing_of_it(
    mine: PostgresServer, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)

    store = PostgresStore(mine.database())
    await store.open()
    restarting = asyncio.ensure_future(asyncio.to_thread(mine.restart, number))
    made = 0
    while not restarting.done():
        one = make_run()
        await store.create_run(one, [entry(1)], reserved=9)
        store.append(one.id, tokens(2, 3))
        ended = make_run(one.id, status=RunStatus.SUCCESS)
        await store.commit(one.id, RunChange(run=ended, events=(entry(5),), release=True))
        made += 1
    await restarting
    for one in await store.runs(RunQuery(limit=1_000_000)):
        assert one.status is RunStatus.SUCCESS
        assert numbers(await store.events(one.id)) == [1, 2, 3, 4, 5]
    assert await store.count_runs(RunQuery()) == made
    await store.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_that_is_cut_in_mid_commit_loses_and_repeats_nothing(url: str, when: str) -> None:
    async with Wire(url).laid() as wire:
        store = PostgresStore(wire.url)
        await store.open()
        one = make_run()
        wire.cut_at_commit = when
        assert (await store.create_run(one, [entry(1)], reserved=99)).active is True
        store.append(one.id, tokens(2, 3))
        ended = make_run(one.id, status=RunStatus.SUCCESS)
        owed = Delivery(id="d", run=ended, due_at=NOW)
        wire.cut_at_commit = when
        await store.commit(one.id, RunChange(run=ended, events=(entry(5),), delivery=owed, release=True))
        wire.cut_at_commit = when
        await store.create_thread(make_thread("t"))
        assert wire.cuts == 3
        assert await store.run(one.id) == ended
        assert numbers(await store.events(one.id)) == [1, 2, 3, 4, 5]
        assert await store.deliveries(NOW) == [owed]
        with pytest.raises(Conflict):
            await store.commit(one.id, RunChange(run=ended, release=True))
        await store.close()


async def test_what_was_refused_in_doubt_has_not_happened_although_the_server_has_committed_it(
    url: str, impatient: None
) -> None:
    async with Wire(url).laid() as wire:
        store = PostgresStore(wire.url)
        await store.open()
        one, other = make_run(), make_run()
        await store.create_run(one, [entry(1)], reserved=99)

        async def cut(call: object) -> None:
            wire.cut_at_commit, wire.refuses = "after", True
            with pytest.raises(Unavailable):
                await call  # type: ignore[misc]
            wire.refuses = False
            await written(store)

        await cut(store.create_run(other, [entry(1)], reserved=9))
        with pytest.raises(NotFound):
            await store.run(other.id)
        assert (await store.create_run(other, [entry(1)], reserved=9)).active is True
        success = make_run(one.id, status=RunStatus.SUCCESS)
        await cut(store.commit(one.id, RunChange(run=success, events=(entry(2, '"well"'),), release=True)))
        failed = make_run(one.id, status=RunStatus.ERROR)
        await store.commit(one.id, RunChange(run=failed, events=(entry(2, '"not well"'),), release=True))
        assert await store.run(one.id) == failed
        assert [each.data for each in await store.events(one.id)][1:] == [b'"not well"']
        await store.close()


async def test_what_the_server_reads_after_it_was_written_again_or_refused_is_not_done(
    url: str, impatient: None
) -> None:
    async with Wire(url).laid() as again, Wire(url).laid() as refused:
        one, other = make_run(), make_run()
        asks = make_run(one.id, status=RunStatus.INTERRUPTED)
        goes_on = make_run(one.id, status=RunStatus.RUNNING)
        store = PostgresStore(again.url)
        await store.open()
        await store.create_run(one, [entry(1)], reserved=99)
        again.cut_at_commit = "late"
        await store.commit(one.id, RunChange(run=asks, events=(entry(2),)))
        await store.commit(one.id, RunChange(run=goes_on, events=(entry(3),)))
        await again.deliver()
        assert await store.run(one.id) == goes_on
        assert numbers(await store.events(one.id)) == [1, 2, 3]
        await store.close()
        store = PostgresStore(refused.url)
        await store.open()
        refused.cut_at_commit, refused.refuses = "late", True
        with pytest.raises(Unavailable):
            await store.create_run(other, [entry(1)], reserved=9)
        refused.refuses = False
        await written(store)
        await refused.deliver()
        with pytest.raises(NotFound):
            await store.run(other.id)
        assert refused.cuts == again.cuts == 1
        await store.close()


async def test_a_full_disk_ends_commits_unavailable_and_they_never_overtake_the_text_before_them(
    server: PostgresServer, url: str
) -> None:
    database = url.rpartition("/")[2]
    server.sql(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END$$",
        database,
    )

    store = PostgresStore(url, lease_seconds=1.0)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=9999)
    full = "CREATE TRIGGER full_disk BEFORE INSERT ON interlingua.log EXECUTE FUNCTION full_disk()"
    await asyncio.to_thread(server.sql, full, database)
    store.append(one.id, tokens(2, 100))
    for _ in range(3):
        with pytest.raises(Unavailable, match="no space is left on its disk") as failed:
            await store.commit(one.id, RunChange(events=(entry(102),)))
        assert "extend" not in str(failed.value) and "extend" in failed.value.detail
    with pytest.raises(Unavailable):
        await store.flush()
    assert store.backlog > 0 and "no space" in store.trouble
    await asyncio.to_thread(server.sql, "DROP TRIGGER full_disk ON interlingua.log", database)
    await store.commit(one.id, RunChange(events=(entry(102),)))
    assert numbers(await store.events(one.id)) == list(range(1, 103))
    await written(store)
    await asyncio.to_thread(server.sql, full, database)
    store.append(one.id, tokens(103, 5))
    with pytest.raises(Unavailable, match="could not be written"):
        await store.close()


async def test_a_lease_that_cannot_be_refreshed_in_the_moment_of_the_stop_is_no_failure_of_that(url: str) -> None:
    store = PostgresStore(url, lease_seconds=0.3)
    await store.open()
    beating, go = asyncio.Event(), asyncio.Event()

    async def refused(connection: connections.Connection) -> None:
        beating.set()
        await go.wait()
        await connection.execute("SELECT 1/0")

    store._writer._beat = refused
    await asyncio.wait_for(beating.wait(), 30)
    closing = asyncio.ensure_future(store.close())
    await eventually(stopping(store))
    go.set()
    await closing


def stopping(store: PostgresStore) -> Callable[[], Awaitable[bool]]:
    async def so() -> bool:
        return not store._writer.queue.usable

    return so


def test_a_standby_is_refused_by_name_and_once_it_is_promoted_another_host_of_the_url_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    with PostgresServer() as primary:
        url = primary.database()
        with standby_of(primary) as standby:
            database = url.rpartition("/")[2]

            async def main() -> None:
                with pytest.raises(Unavailable, match="takes writes"):
                    await PostgresStore(standby.url(database)).open()
                hosts = f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
                store = PostgresStore(f"postgresql://postgres@{hosts}/{database}")
                await store.open()
                one = make_run()
                await store.create_run(one, [entry(1)], reserved=99)

                async def copied() -> bool:
                    there = "SELECT count(*) FROM interlingua.runs"
                    return (await asyncio.to_thread(standby.sql, there, database))[0][0] == 1

                await eventually(copied)
                await asyncio.to_thread(primary.stop, signal.SIGQUIT)
                store.append(one.id, tokens(2, 3))
                ends = asyncio.ensure_future(store.commit(one.id, RunChange(events=(entry(5),))))
                await asyncio.to_thread(standby.sql, "SELECT pg_promote()")
                await ends
                assert numbers(await store.events(one.id)) == [1, 2, 3, 4, 5]
                await store.close()

            run(main())


async def test_a_read_that_gets_no_connection_in_time_is_unavailable_and_writing_goes_on(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(url)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=9)
    monkeypatch.setattr(connections, "READ_SECONDS", SHORT)
    other = await connections.Server(url).connect()
    async with other.transaction():
        await other.execute("LOCK TABLE interlingua.checkpoints IN ACCESS EXCLUSIVE MODE")
        await store.create_thread(make_thread("t"))
        asked = [store.history("t") for _ in range(connections.READERS + 1)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable] * len(asked)
        await store.commit(one.id, RunChange(events=(entry(2),)))
    await other.close()
    monkeypatch.setattr(connections, "READ_SECONDS", 60.0)
    assert numbers(await store.events(one.id)) == [1, 2]
    assert await store.history("t") == []
    await store.close()


def test_where_the_server_has_no_connection_left_a_store_does_not_open_and_an_open_one_goes_on() -> None:
    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        one = make_run()
        await store.create_run(one, [entry(1)], reserved=9)
        taken = []
        with pytest.raises(Unavailable, match=r"too many|remaining connection"):
            while True:
                other = PostgresStore(url)
                await other.open()
                taken.append(other)
        await store.commit(one.id, RunChange(events=(entry(2),)))
        for other in taken:
            await other.close()
        assert numbers(await store.events(one.id)) == [1, 2]
        await store.close()

    with PostgresServer(max_connections="12") as server:
        url = server.database()
        run(main())


async def test_a_slow_server_is_waited_for(url: str) -> None:
    async with Wire(url).laid() as wire:
        store = PostgresStore(wire.url)
        await store.open()
        wire.delay = 0.1
        runs = [make_run() for _ in range(20)]
        made = await asyncio.gather(*(store.create_run(one, [entry(1)], reserved=9) for one in runs))
        assert made == [CreatedRun(True)] * 20
        for one in runs:
            store.append(one.id, tokens(2, 3))
        await asyncio.gather(*(store.commit(one.id, RunChange(events=(entry(5),))) for one in runs))
        wire.delay = 0.0
        assert numbers(await store.events(runs[7].id)) == [1, 2, 3, 4, 5]
        await store.close()


async def test_a_server_that_says_nothing_is_given_up_and_what_it_was_told_is_written_once(
    url: str, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Wire(url).laid() as wire:
        store = PostgresStore(wire.url)
        await store.open()
        one = make_run()
        await store.create_run(one, [entry(1)], reserved=99)
        wire.stop()
        monkeypatch.setattr(writer, "BATCH_SECONDS", SHORT)
        monkeypatch.setattr(connections, "CONNECT_SECONDS", SHORT)
        store.append(one.id, tokens(2, 3))
        with pytest.raises(Unavailable):
            await store.commit(one.id, RunChange(events=(entry(5),)))
        assert store.trouble
        monkeypatch.setattr(writer, "BATCH_SECONDS", 60.0)
        monkeypatch.setattr(connections, "CONNECT_SECONDS", 60.0)
        wire.go()
        await written(store)
        await store.commit(one.id, RunChange(events=(entry(5),)))
        assert numbers(await store.events(one.id)) == [1, 2, 3, 4, 5]
        await store.close()


def test_the_time_in_which_a_process_is_stopped_is_nobodys_patience(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP, or a machine that sleeps: its clocks are ahead at once, and the connection may have gone meanwhile."""
    monotonic, stopped = time.monotonic, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + sum(stopped))

    async def main() -> None:
        async with Wire(url).laid() as wire:
            store = PostgresStore(wire.url)
            await store.open()
            one, other = make_run(), make_run()
            await store.create_run(one, [entry(1)], reserved=99)
            wire.stop()
            reading = asyncio.ensure_future(store.run(one.id))
            await wire.holds.wait()
            wire.holds.clear()
            writing = asyncio.ensure_future(store.commit(one.id, RunChange(events=(entry(2),))))
            await wire.holds.wait()
            stopped.append(60.0)
            wire.go()
            await writing
            assert await reading == one
            creating = asyncio.ensure_future(store.create_run(other, [entry(1)], reserved=9))
            await asyncio.sleep(0)
            stopped.append(60.0)
            wire.cut()
            assert await creating == CreatedRun(True)
            assert numbers(await store.events(one.id)) == [1, 2]
            await store.close()

    run(main(), timeout=600)


async def test_what_another_transaction_holds_is_waited_for_and_then_unavailable(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "LOCK_SECONDS", SHORT)

    store = PostgresStore(url)
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=9)
    other = await connections.Server(url).connect()
    async with other.transaction():
        await other.fetch("SELECT 1 FROM interlingua.runs FOR UPDATE")
        calls = [store.commit(one.id, RunChange(events=(entry(2),))), store.create_run(make_run(), [], reserved=1)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable, CreatedRun], "the others do not suffer"
        with pytest.raises(Unavailable):
            await store.commit(one.id, RunChange(events=(entry(2),)))
        assert not store.trouble, "what is in the way of one job is not the store's"
    await other.close()
    await store.commit(one.id, RunChange(events=(entry(2),)))
    assert numbers(await store.events(one.id)) == [1, 2]
    await store.close()


async def test_closing_while_the_server_is_down_says_what_is_lost_and_does_not_hang(
    mine: PostgresServer, impatient: None
) -> None:
    store = PostgresStore(mine.database())
    await store.open()
    one = make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    await asyncio.to_thread(mine.stop)
    store.append(one.id, tokens(2, 5))
    with pytest.raises(Unavailable, match="could not be written"):
        await store.close()
    await asyncio.to_thread(mine.start)


async def test_a_bell_whose_connection_breaks_or_says_nothing_more_is_no_bell_until_there_is_another(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(mail, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(mail, "PATIENCE_SECONDS", 1.0)

    async with Wire(url).laid() as wire:
        store, other = PostgresStore(wire.url), PostgresStore(url, host="elsewhere")
        heard: list[str | None] = []
        store.mailbox.listen(heard.append)
        await other.open()
        await store.open()

        async def rings() -> bool:
            return store.mailbox.has_bell

        async def silent() -> bool:
            return not store.mailbox.has_bell

        async def told() -> bool:
            other.mailbox.ring(store.owner, "run")
            return "run" in heard

        for trouble in (wire.cut, wire.stop):
            await eventually(rings)
            await eventually(told)
            await eventually(rings)
            heard.clear()
            wire.refuses = True
            trouble()
            await eventually(silent)
            assert None in heard, "whoever listens has to look"
            heard.clear()
            await other.mailbox.send(store.owner, Message(id="m", sender=other.owner, body=b"hi"), seconds=60)
            wire.refuses = False
            wire.go()
            await eventually(rings)
            await written(store)
            assert None in heard, "and once more"
            assert [one.body for one in await store.mailbox.receive()] == [b"hi"]
        await store.close()
        await other.close()
