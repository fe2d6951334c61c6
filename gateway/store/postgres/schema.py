"""The database: its tables, in a schema of their own, and their migrations.

Records are JSON in `record`; the other columns are what queries, the queue on a thread and recovery need. `seq` is the
order of creation. `bytes` is about what a row and all that belongs to it take, which retention adds up. A statement
that ever ran in somebody's database is never edited: the next version is a new tuple.
"""

from __future__ import annotations

import logging

from gateway.core.errors import Unavailable
from gateway.store.postgres.connections import Connection
from gateway.store.records import ACTIVE, QUEUED

logger = logging.getLogger(__name__)

LOCK = 0x1A7E
"""The class of the store's advisory locks. Each is held for one transaction, so that a pooler does not matter."""
MIGRATING, CLAIMING = 1, 2

UNFINISHED = "(status IN ('pending', 'running', 'interrupted'))"
"""Queries use these words, so that the server sees that a partial index will do."""

FAILED = "(status IN ('error', 'cancelled', 'timeout'))"

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE interlingua.leases (
            owner text COLLATE "C" PRIMARY KEY, host text NOT NULL, pid integer NOT NULL, started text NOT NULL,
            expires_at timestamptz NOT NULL, expires_tick double precision NOT NULL, batch bigint NOT NULL DEFAULT 0
        ) WITH (fillfactor = 50)""",
        """CREATE TABLE interlingua.runs (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
            owner text COLLATE "C" NOT NULL, place smallint NOT NULL, status text COLLATE "C" NOT NULL,
            agent text COLLATE "C" NOT NULL, thread text COLLATE "C", protocol text COLLATE "C" NOT NULL,
            principal text COLLATE "C", created_at double precision NOT NULL, updated_at double precision NOT NULL,
            reserved bigint NOT NULL, bytes bigint NOT NULL, record bytea NOT NULL, head bytea, tail bytea
        )""",
        "CREATE INDEX runs_created ON interlingua.runs (created_at, seq) INCLUDE (bytes)",
        "CREATE INDEX runs_thread ON interlingua.runs (thread, created_at, seq) WHERE thread IS NOT NULL",
        "CREATE INDEX runs_principal ON interlingua.runs (principal, created_at, seq) WHERE principal IS NOT NULL",
        f"CREATE INDEX runs_unfinished ON interlingua.runs (owner) WHERE {UNFINISHED}",
        f"CREATE UNIQUE INDEX runs_active ON interlingua.runs (thread) WHERE place = {ACTIVE} AND thread IS NOT NULL",
        f"CREATE INDEX runs_queued ON interlingua.runs (thread, seq) WHERE place = {QUEUED}",
        """CREATE TABLE interlingua.log (
            run bigint NOT NULL, first bigint NOT NULL, last bigint NOT NULL, delta boolean NOT NULL,
            data bytea NOT NULL, PRIMARY KEY (run, first)
        )""",
        """CREATE TABLE interlingua.threads (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
            status text COLLATE "C" NOT NULL, agent text COLLATE "C", protocol text COLLATE "C" NOT NULL,
            whose text COLLATE "C", created_at double precision NOT NULL, updated_at double precision NOT NULL,
            bytes bigint NOT NULL, record bytea NOT NULL
        )""",
        "CREATE INDEX threads_created ON interlingua.threads (created_at, seq) INCLUDE (bytes)",
        "CREATE INDEX threads_whose ON interlingua.threads (whose, created_at, seq) WHERE whose IS NOT NULL",
        """CREATE TABLE interlingua.checkpoints (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thread text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL, created_at double precision NOT NULL, record bytea NOT NULL,
            UNIQUE (thread, id)
        )""",
        "CREATE INDEX checkpoints_created ON interlingua.checkpoints (thread, created_at, seq)",
        """CREATE TABLE interlingua.artifacts (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
            run text COLLATE "C", thread text COLLATE "C", uploader text COLLATE "C",
            created_at double precision NOT NULL, bytes bigint NOT NULL, record bytea NOT NULL
        )""",
        "CREATE INDEX artifacts_run ON interlingua.artifacts (run) WHERE run IS NOT NULL",
        "CREATE INDEX artifacts_thread ON interlingua.artifacts (thread) WHERE thread IS NOT NULL",
        "CREATE INDEX artifacts_unfinished ON interlingua.artifacts (uploader) WHERE uploader IS NOT NULL",
        "CREATE INDEX artifacts_stray ON interlingua.artifacts (created_at) WHERE run IS NULL AND thread IS NULL",
        """CREATE TABLE interlingua.chunks (
            artifact bigint NOT NULL, number integer NOT NULL, data bytea NOT NULL,
            PRIMARY KEY (artifact, number)
        )""",
        "ALTER TABLE interlingua.chunks ALTER COLUMN data SET STORAGE EXTERNAL",
        """CREATE TABLE interlingua.deliveries (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
            owner text COLLATE "C" NOT NULL, run text COLLATE "C" NOT NULL, due_at double precision NOT NULL,
            attempts integer NOT NULL, record bytea NOT NULL
        )""",
        "CREATE INDEX deliveries_due ON interlingua.deliveries (owner, due_at, seq)",
        "CREATE INDEX deliveries_run ON interlingua.deliveries (run)",
        """CREATE TABLE interlingua.registrations (
            name text COLLATE "C" PRIMARY KEY, owner text COLLATE "C" NOT NULL, held boolean NOT NULL,
            expires_at double precision, record bytea NOT NULL
        )""",
        "CREATE TABLE interlingua.counters (name text PRIMARY KEY, value bigint NOT NULL)",
        "INSERT INTO interlingua.counters (name, value) VALUES ('registrations', 0)",
    ),
    # bell: see mail.py
    (
        'ALTER TABLE interlingua.leases ADD COLUMN bell text COLLATE "C"',
        """CREATE TABLE interlingua.mail (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, recipient text COLLATE "C" NOT NULL,
            id text COLLATE "C" NOT NULL, sender text COLLATE "C" NOT NULL, answers text COLLATE "C" NOT NULL,
            expires_at timestamptz NOT NULL, body bytea NOT NULL
        )""",
        "CREATE INDEX mail_recipient ON interlingua.mail (recipient)",
    ),
    # an index for each part of a search: see gateway/store/searches.py
    (
        "CREATE INDEX runs_protocol ON interlingua.runs (protocol, created_at, seq) INCLUDE (bytes)",
        "CREATE INDEX runs_agent ON interlingua.runs (agent, protocol, created_at, seq)",
        f"CREATE INDEX runs_failed ON interlingua.runs (protocol, status, created_at, seq) WHERE {FAILED}",
        f"CREATE INDEX runs_agent_failed ON interlingua.runs (agent, protocol, status, created_at, seq) WHERE {FAILED}",
        "DROP INDEX interlingua.runs_created",
        "CREATE INDEX threads_protocol ON interlingua.threads (protocol, created_at, seq) INCLUDE (bytes)",
        "CREATE INDEX threads_agent ON interlingua.threads (agent, protocol, created_at, seq) WHERE agent IS NOT NULL",
        "CREATE INDEX threads_status ON interlingua.threads (protocol, status, created_at, seq) WHERE status <> 'idle'",
        "DROP INDEX interlingua.threads_created",
        "INSERT INTO interlingua.counters (name, value) VALUES ('pruned', 1)",
    ),
    (
        """CREATE TABLE interlingua.allowances (
            name text COLLATE "C" PRIMARY KEY, used bigint NOT NULL, until double precision NOT NULL
        ) WITH (fillfactor = 50)""",
    ),
)


async def migrate(connection: Connection) -> None:
    """Migrate the database to this version, all or nothing. Of several processes the first to come does it.

    Raises Unavailable if the database is of a newer version.
    """
    if await version(connection) == len(MIGRATIONS):
        return
    async with connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK}, {MIGRATING})")
        found = await version(connection)
        if found is None:
            await connection.execute("CREATE SCHEMA IF NOT EXISTS interlingua")
            await connection.execute("CREATE TABLE interlingua.version (number integer NOT NULL)")
            await connection.execute("INSERT INTO interlingua.version (number) VALUES (0)")
        if found:
            logger.warning(
                "the store is brought from version %d to %d; with many runs it takes a while", found, len(MIGRATIONS)
            )
        for script in MIGRATIONS[found or 0 :]:
            for statement in script:
                await connection.execute(statement)
        await connection.execute(f"UPDATE interlingua.version SET number = {len(MIGRATIONS)}")


async def version(connection: Connection) -> int | None:
    """The version of the database; None where there is nothing of ours. Raises Unavailable if it is newer than this."""
    # not `to_regclass`: what it finds may be as old as the transaction, in which another process has migrated
    there = "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'interlingua'"
    if await connection.fetchval(f"{there} AND relname = 'version'") is None:
        return None
    found: int = await connection.fetchval("SELECT number FROM interlingua.version")
    if found > len(MIGRATIONS):
        raise Unavailable(
            f"the store was written by a newer version of this program (schema {found}, "
            f"this one knows {len(MIGRATIONS)}): upgrade, or point store.url at another database"
        )
    return found
