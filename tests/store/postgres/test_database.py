"""The database: its versions, its plans, what a URL may say, and what stands in front of the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from gateway.core.errors import Conflict, NotFound, Unavailable, Unsupported
from gateway.core.types import OWNER, UNFINISHED, IfBusy, RunQuery, RunStatus, ThreadChange, ThreadQuery, ThreadStatus
from gateway.store import Delivery, Message, RunChange
from gateway.store.opening import open_store, probe_store
from gateway.store.postgres import PostgresStore, changes, connections, schema, writer
from gateway.store.records import encode
from tests.store.place import (
    NOW,
    content,
    entry,
    make_artifact,
    make_checkpoint,
    make_run,
    make_thread,
    numbers,
    tokens,
    whole,
)
from tests.store.postgres.between import Wire
from tests.store.postgres.pooler import Pooler
from tests.support.aio import run
from tests.support.certificates import authority
from tests.support.postgres import PostgresServer

ENDED = 50_000
"""Ended runs where plans are looked at: so many that a plan which reads them all would show."""
SECRET = "p:a/s?s#w@o%rd"
ENCODED = "p%3Aa%2Fs%3Fs%23w%40o%25rd"


@contextlib.asynccontextmanager
async def opened(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# --- what a power cut may undo


@pytest.fixture(scope="module")
def forgetful() -> Iterator[PostgresServer]:
    """A server that syncs nothing by itself, and forgets in a crash what nobody has synced."""
    with PostgresServer(wal_writer_delay="10s") as server:
        yield server


@pytest.mark.parametrize("at", [NOW, 1.0])
async def test_a_run_that_another_process_has_ended_without_a_sync_is_on_the_disk_when_it_is_read(
    forgetful: PostgresServer, at: float
) -> None:
    """`at`: by the clock of the process that ended it, which is not ours."""
    url = forgetful.database()
    async with opened(PostgresStore(url, host="here")) as one, opened(PostgresStore(url, host="there")) as other:
        run = make_run(at=at)
        await one.create_run(run, [entry(1)], reserved=99, soon=True)
        ended = replace(run, status=RunStatus.SUCCESS)
        await one.commit(run.id, RunChange(run=ended, release=True), soon=True)
        ((written,),) = forgetful.sql("SELECT pg_current_wal_insert_lsn()")
        assert await other.run(run.id) == ended
        ((synced,),) = forgetful.sql("SELECT pg_current_wal_flush_lsn()")
        assert synced >= written


@pytest.mark.parametrize("back", [True, False])
async def test_what_a_server_has_forgotten_in_a_crash_is_not_told_by_who_read_it_before(
    forgetful: PostgresServer, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0 if back else 0.5)

    class Crashing(PostgresStore):
        """Its server crashes between what it reads and what it writes then."""

        async def _write(self, work: Any, **how: Any) -> Any:
            await asyncio.to_thread(forgetful.stop, signal.SIGQUIT)
            if back:
                await asyncio.to_thread(forgetful.start)
            return await super()._write(work, **how)

    url = forgetful.database()
    async with opened(PostgresStore(url, host="here")) as one, opened(Crashing(url, host="there")) as other:
        run = make_run()
        await one.create_run(run, [entry(1)], reserved=99)
        await one.commit(run.id, RunChange(run=replace(run, status=RunStatus.SUCCESS), release=True), soon=True)
        if back:
            assert await other.run(run.id) == run
        else:
            with pytest.raises(Unavailable):
                await other.run(run.id)
            await asyncio.to_thread(forgetful.start)


# --- versions


async def test_several_stores_may_migrate_an_empty_database_at_once(server: PostgresServer) -> None:
    server.sql("CREATE DATABASE empty")

    stores = [PostgresStore(server.url("empty")) for _ in range(5)]
    await asyncio.gather(*(store.open() for store in stores))
    await asyncio.gather(*(store.create_run(make_run(), [], reserved=1) for store in stores))
    assert await stores[0].count_runs(RunQuery()) == 5
    await asyncio.gather(*(store.close() for store in stores))


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is(server: PostgresServer, url: str) -> None:
    database = url.rpartition("/")[2]
    newer = len(schema.MIGRATIONS) + 1
    server.sql(f"UPDATE interlingua.version SET number = {newer}", database)

    async def main() -> None:
        for opening in (PostgresStore(url).open, lambda: probe_store(url)):
            with pytest.raises(Unavailable, match=rf"newer version of this program \(schema {newer}"):
                await opening()

    run(main())
    assert server.sql("SELECT number FROM interlingua.version", database)[0][0] == newer


def test_a_database_of_each_earlier_version_is_brought_to_this_one_with_what_is_in_it(server: PostgresServer) -> None:
    async def main(url: str, older: tuple[tuple[str, ...], ...]) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE SCHEMA interlingua; CREATE TABLE interlingua.version (number integer)")
        for script in older:
            for statement in script:
                await connection.execute(statement)
        await connection.execute(f"INSERT INTO interlingua.version VALUES ({len(older)})")
        kept = make_run("kept")
        await connection.execute(
            "INSERT INTO interlingua.runs (id, owner, place, status, agent, protocol, created_at, updated_at, "
            "reserved, bytes, record) VALUES ('kept', 'nobody', 1, 'running', 'mail', 'plain', 1, 1, 99, 1, $1)",
            bytes(encode(kept)),
        )
        store = PostgresStore(url)
        await store.open()
        await connection.execute(
            "INSERT INTO interlingua.leases (owner, host, pid, started, expires_at, expires_tick) "
            "VALUES ('older', 'another host', 1, '', now() + interval '1 day', 0)"
        )
        with pytest.raises(Unsupported, match="cannot be told anything"):
            await store.mailbox.send("older", Message(id="m", sender=store.owner, body=b""), seconds=60)
        assert await connection.fetch("SELECT * FROM interlingua.mail") == []
        (found,) = await store.claim()
        assert (found.run, found.reserved) == (kept, 99)
        await connection.close()
        await store.close()

    for version in range(1, len(schema.MIGRATIONS)):
        server.sql(f"CREATE DATABASE older{version}")
        run(main(server.url(f"older{version}"), schema.MIGRATIONS[:version]))


def test_a_probe_changes_nothing(server: PostgresServer) -> None:
    server.sql("CREATE DATABASE untouched")
    run(probe_store(server.url("untouched")))
    assert server.sql("SELECT to_regnamespace('interlingua')::text", "untouched")[0][0] is None


def test_a_version_or_an_encoding_that_will_not_do_is_named(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.sql("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(Unavailable, match="encoding is UTF8, this one's is SQL_ASCII"):
        run(probe_store(server.url("ascii")))
    monkeypatch.setattr(connections, "OLDEST", 99)
    with pytest.raises(Unavailable, match="needs PostgreSQL 99 or newer, this server is 18"):
        run(probe_store(url))


# --- what a URL leads to


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("postgresql://guarded:{secret}@127.0.0.1:{port}/postgres", "password authentication failed"),
        ("postgresql://nobody:{secret}@127.0.0.1:{port}/nowhere", 'database "nowhere" does not exist|role "nobody"'),
        ("postgresql://postgres:{secret}@127.0.0.1:{port}/nowhere", 'database "nowhere" does not exist'),
        ("postgresql://postgres:{secret}@127.0.0.1:1/postgres", "refused"),
        ("postgresql://postgres:{secret}@nowhere.invalid/postgres", "cannot open the store"),
        ("postgresql://postgres:{secret}@127.0.0.1:{port}/postgres?sslmode=require", "SSL|TLS"),
    ],
)
def test_a_url_that_leads_nowhere_is_one_line_without_its_password(
    server: PostgresServer, wrong: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = wrong.format(secret=ENCODED, port=server.port)
    for opening in (lambda: open_store(url).open(), lambda: probe_store(url)):
        with pytest.raises(Unavailable, match=why) as failed:
            run(opening())
        told = f"{failed.value} {failed.value.detail} {caplog.text}"
        assert "\n" not in str(failed.value) and "cannot open the store postgresql://" in told
        assert SECRET not in told and ENCODED not in told


def test_a_password_with_special_characters_opens(server: PostgresServer) -> None:
    server.sql(f"ALTER ROLE guarded PASSWORD '{SECRET}' SUPERUSER")
    run(probe_store(f"postgresql://guarded:{ENCODED}@127.0.0.1:{server.port}/postgres"))
    run(probe_store(f"postgresql://127.0.0.1:{server.port}/postgres?user=guarded&password={ENCODED}"))


async def test_a_server_is_spoken_to_by_tls_and_only_if_it_is_vouched_for(url: str, tmp_path: Path) -> None:
    (known, chain), (other, _) = authority(tmp_path, "database"), authority(tmp_path, "other")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)

    async with Wire(url, tls=context).laid() as wire:
        store = PostgresStore(f"{wire.url}?sslmode=verify-full&sslrootcert={known}")
        await store.open()
        assert (await store.create_run(make_run(), [], reserved=1)).active
        assert wire.encrypted > 0
        await store.close()
        with pytest.raises(Unavailable, match="certificate"):
            await PostgresStore(f"{wire.url}?sslmode=verify-full&sslrootcert={other}").open()


# --- what stands in front of the server


async def test_behind_a_pooler_of_transactions_nothing_depends_on_the_session(url: str) -> None:
    async with Pooler(url).serving() as pooler:
        store, other = PostgresStore(pooler.url), PostgresStore(pooler.url, host="elsewhere")
        await store.open()
        await other.open()
        await store.create_thread(make_thread("t", at=NOW + 9, attributes={OWNER: "ana"}))

        async def one(number: int) -> None:
            record = make_run(f"r{number}", metadata={"n": number})
            await store.create_run(record, [entry(1)], reserved=99, soon=bool(number % 2))
            store.append(record.id, tokens(2, 20))
            store.save(make_run(record.id, status=RunStatus.RUNNING, metadata={"n": number}))
            ended = make_run(record.id, status=RunStatus.SUCCESS, metadata={"n": number})
            await store.commit(record.id, RunChange(run=ended, events=(entry(22),), release=True))
            assert numbers(await other.events(record.id)) == list(range(1, 23))

        for _ in range(3):
            await asyncio.gather(*(one(number) for number in range(30)))
            assert await other.count_runs(RunQuery(metadata={"n": 7})) == 1
            assert await other.prune(older_than=NOW + 1) == 30
        await store.put_artifact(make_artifact("a", thread="t"), content(b"x" * 600_000), max_bytes=1 << 20)
        assert len(await whole(other.open_artifact("a"))) == 600_000
        await other.update_thread("t", ThreadChange(metadata={"k": 1}), at=NOW)
        assert await store.count_threads(ThreadQuery(attributes={OWNER: "ana"})) == 1
        assert await other.claim() == []
        assert pooler.transactions > 100
        await store.mailbox.send(other.owner, Message(id="m", sender=store.owner, body=b"hi"), seconds=60)
        assert [each.body for each in await other.mailbox.receive()] == [b"hi"]
        assert not other.mailbox.has_bell, "nothing is heard through such a pooler: it looks by itself"
        await store.close()
        await other.close()


# --- values that PostgreSQL's text cannot hold


async def test_names_with_signs_that_the_server_does_not_know_are_kept_apart(url: str) -> None:
    odd = ["a", "a\0", "a\x01", "a\x010", "a\x01\x01", "é\0"]

    store = PostgresStore(url)
    await store.open()
    for name in odd:
        await store.create_thread(make_thread(f"t{name}", attributes={OWNER: name}))
        one = make_run(f"r{name}", thread=f"t{name}", agent=name, principal=name)
        assert (await store.create_run(one, [entry(1)], reserved=9)).active is True
        assert await store.run(one.id) == one
        with pytest.raises(Conflict):
            again = make_run(thread=f"t{name}", if_busy=IfBusy.REJECT)
            await store.create_run(again, [], reserved=1)
        store.append(one.id, tokens(2, 2))
        ended = make_run(one.id, thread=f"t{name}", agent=name, principal=name, status=RunStatus.SUCCESS)
        await store.commit(one.id, RunChange(run=ended, events=(entry(4, '"\\u0000"'),), release=True))
        assert numbers(await store.events(one.id)) == [1, 2, 3, 4]
    for name in odd:
        assert [found.id for found in await store.runs(RunQuery(principal=name))] == [f"r{name}"]
        assert [found.id for found in await store.threads(ThreadQuery(attributes={OWNER: name}))] == [f"t{name}"]
    for nothing in ("b\0", "\ud800", "r\ud800"):
        with pytest.raises(NotFound):
            await store.run(nothing)
        assert await store.runs(RunQuery(principal=nothing)) == []
    await store.close()


# --- plans


def have_ended(server: PostgresServer, database: str) -> None:
    """Add many ended runs."""
    server.sql(
        "INSERT INTO interlingua.runs (id, owner, place, status, agent, thread, protocol, principal, created_at, "
        "updated_at, reserved, bytes, record) SELECT 'old' || n, 'gone', 2, 'success', 'mail', "
        "CASE WHEN n % 2 = 0 THEN 't' || n % 1000 END, 'plain', 'p' || n % 1000, n, n, 100, 200, "
        f"repeat('x', 200)::bytea FROM generate_series(1, {ENDED}) n",
        database,
    )
    server.sql(
        "INSERT INTO interlingua.log (run, first, last, delta, data) "
        f"SELECT n, 1, 9, false, 'x' FROM generate_series(1, {ENDED}) n",
        database,
    )


@pytest.fixture(scope="module")
def explained() -> Iterator[tuple[PostgresServer, str]]:
    """A server that logs the plan of every statement, and a database with many ended runs."""
    with PostgresServer() as server:
        url = server.database()
        database = url.rpartition("/")[2]
        have_ended(server, database)
        server.sql(
            "INSERT INTO interlingua.threads (id, status, protocol, created_at, updated_at, bytes, record) "
            "SELECT 't' || n, 'idle', 'plain', 1e9 + n, 1e9 + n, 100, "
            'convert_to(\'{"id":"t\' || n || \'","created_at":1,"updated_at":1}\', \'UTF8\') '
            "FROM generate_series(0, 20000) n",
            database,
        )
        server.sql("ANALYZE", database)
        server.settings |= {
            "session_preload_libraries": "auto_explain",
            "auto_explain.log_min_duration": "0",
            "auto_explain.log_level": "log",
            "auto_explain.log_analyze": "on",
            "auto_explain.log_timing": "off",
        }
        server.restart()
        yield server, url


async def live(store: PostgresStore, other: PostgresStore, thread: str, number: int) -> None:
    """Have the stores do all that runs need."""
    one, two, alone = make_run(thread=thread), make_run(thread=thread), make_run()
    await store.create_run(one, [entry(1)], reserved=99)
    assert (await store.create_run(two, [entry(1, "x" * 5000)], reserved=99)).active is False
    await other.create_run(alone, [entry(1)], reserved=99, soon=True)
    store.append(one.id, tokens(2, 200))
    store.save(make_run(one.id, thread=thread, status=RunStatus.RUNNING))
    await store.flush()
    await store.put_artifact(make_artifact(run=one.id), content(b"x"), max_bytes=9)
    ended = make_run(one.id, thread=thread, status=RunStatus.SUCCESS)
    owed = Delivery(id=one.id, run=ended, due_at=NOW)
    point = make_checkpoint(thread, values={"v": 1})
    change = RunChange(run=ended, events=(entry(202),), checkpoint=point, delivery=owed, release=True)
    await store.commit(one.id, change)
    assert await store.activate(two.id) is True
    await store.run(two.id)
    await store.events(one.id, 100)
    await store.thread(thread)
    await store.history(thread)
    await store.artifacts(thread=thread)
    await store.deliveries(NOW)
    await store.delivered(one.id)
    await store.update_thread(thread, ThreadChange(metadata={"k": 1}), at=NOW)
    await store.registrations(NOW)
    await other.claim()
    statuses = (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.INTERRUPTED)
    for query in (RunQuery(statuses=statuses, limit=1000), RunQuery(thread=thread, statuses=statuses)):
        assert two.id in [found.id for found in await store.runs(query)]
    await store.count_runs(RunQuery(statuses=statuses))
    await store.prune(older_than=0.5)
    await store.prune(older_than=1.5 + number * 10)
    await store.delete_run(two.id)
    with pytest.raises(Conflict):
        await other.create_run(alone, [], reserved=1)


def read_by_index(said: str, *, at_least: int) -> None:
    """Fail if a plan that the server has told of reads all rows, or if there are fewer plans."""
    plans = re.split(r"duration: [\d.]+ ms  plan:", said)
    assert len(plans) > at_least
    everything = re.compile(r"Seq Scan on (runs|log|threads)\b")
    assert [plan for plan in plans if everything.search(plan)] == []
    assert [plan for plan in plans if most_read(plan) > MANY] == []


def test_nothing_that_a_run_needs_reads_all_that_have_ended(explained: tuple[PostgresServer, str]) -> None:
    server, url = explained

    async def main() -> None:
        store, other = PostgresStore(url), PostgresStore(url, host="elsewhere")
        await store.open()
        await other.open()
        for number in range(8):  # after five the server may plan for all values at once
            await live(store, other, f"t{number}", number)
        await store.close()
        await other.close()

    run(main())
    read_by_index(server.process.stderr(), at_least=300)


@pytest.mark.parametrize("analyzed", [False, True])
def test_plans_that_were_made_for_an_empty_database_do_when_it_has_grown(
    explained: tuple[PostgresServer, str], analyzed: bool
) -> None:
    server, _ = explained
    url = server.database()
    database = url.rpartition("/")[2]

    async def main() -> int:
        store, other = PostgresStore(url), PostgresStore(url, host="elsewhere")
        await store.open()
        await other.open()
        for number in range(8):
            await store.create_thread(make_thread(f"t{number}"))
        if analyzed:
            await asyncio.to_thread(server.sql, "VACUUM ANALYZE", database)
        for number in range(6):
            await live(store, other, f"t{number}", number)
        have_ended(server, database)
        before = len(server.process.stderr())
        for number in (6, 7):
            await live(store, other, f"t{number}", number)
        await store.close()
        await other.close()
        return before

    before = run(main())
    read_by_index(server.process.stderr()[before:], at_least=70)


SOME = (None, "nobody")
STATUSES = ((), *((one,) for one in RunStatus), (RunStatus.ERROR, RunStatus.TIMEOUT))


def test_a_page_of_runs_or_threads_is_read_by_an_index(explained: tuple[PostgresServer, str]) -> None:
    server, url = explained
    before = len(server.process.stderr())
    queries = [
        RunQuery(agent=agent, protocol=protocol, statuses=statuses, principal=principal)
        for agent, protocol, statuses, principal in product(SOME, SOME, STATUSES, SOME)
        if agent is not None or principal is not None or (statuses and RunStatus.SUCCESS not in statuses)
    ]
    unread = [RunQuery(), RunQuery(principal="p7"), RunQuery(thread="t8"), RunQuery(agent="mail")]
    threads = [
        ThreadQuery(agent=agent, protocol=protocol, status=status)
        for agent, protocol, status in product(SOME, SOME, (None, *ThreadStatus))
    ]

    async def main() -> None:
        store = PostgresStore(url)
        await store.open()
        for query in queries:
            found = await store.runs(query)
            assert len(found) == await store.count_runs(query)
            assert all(one.status in UNFINISHED for one in found), "those of another test"
        for query in unread:
            with pytest.raises(ValueError, match="JSON"):  # the records of these runs are none
                await store.runs(replace(query, limit=50))
        for one in threads:
            await store.threads(one)
        await store.close()

    run(main())
    plans = [
        plan for plan in server.process.stderr()[before:].split("plan:") if re.search("(runs|threads) WHERE", plan)
    ]
    assert len(plans) > 100
    assert [plan for plan in plans if re.search(r"Seq Scan on (runs|threads)\b", plan)] == []
    assert [plan for plan in plans if most_read(plan) > MANY] == []


MANY = 1000
"""More rows than any of these statements has to read, of 50,000."""


def most_read(plan: str) -> int:
    """The most rows that one step of a plan read, also those that it did not want."""
    read = [
        float(rows)
        for rows in re.findall(r"actual rows=([\d.]+)|Rows Removed by Filter: ([\d.]+)", plan)
        for rows in rows
        if rows
    ]
    return int(max(read, default=0))


async def test_a_process_that_extends_its_lease_while_another_claims_keeps_its_runs(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = PostgresStore(url, host="there"), PostgresStore(url)
    await store.open()
    await other.open()
    one = make_run()
    await store.create_run(one, [], reserved=1)

    async def found(leases: changes.Leases, connection: object) -> list[str]:
        return [store.owner]  # its lease had run out a moment ago

    monkeypatch.setattr(changes.Leases, "dead_owners", found)
    assert await other.claim() == []
    assert await other.lives(store.owner) and await other.owner_of(one.id) == store.owner
    await store.close()
    await other.close()
