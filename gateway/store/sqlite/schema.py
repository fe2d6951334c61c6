"""The file: its tables, their migrations, and the connections to it.

Records are JSON in `record`; the other columns are what queries, the queue on a thread and recovery need. `seq` is the
order of creation. A statement that ever ran on somebody's disk is never edited: the next version is a new tuple.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from pathlib import Path

from gateway.core.errors import Unavailable
from gateway.store.records import ACTIVE, QUEUED

logger = logging.getLogger(__name__)

UNFINISHED = "(status = 'pending' OR status = 'running' OR status = 'interrupted')"
"""Queries must use exactly these words, or SQLite does not use the partial index.

Not as `IN`: for a list of three SQLite makes a table in memory, for every row that is written.
"""

FAILED = "(status = 'error' OR status = 'cancelled' OR status = 'timeout')"
"""The same of runs that have ended otherwise than they should."""

COUNT_REGISTRATIONS = "UPDATE counters SET value = value + 1 WHERE name = 'registrations'"

WHOSE = """CASE WHEN json_valid(CAST(record AS TEXT)) THEN
    CASE json_type(CAST(record AS TEXT), '$.attributes.owner') WHEN 'text'
        THEN json_extract(CAST(record AS TEXT), '$.attributes.owner') END END"""
"""`threads.whose` for a record that was written before the column existed."""

PRINCIPAL = """CASE WHEN json_valid(CAST(record AS TEXT)) THEN
    CASE json_type(CAST(record AS TEXT), '$.request.principal') WHEN 'text'
        THEN json_extract(CAST(record AS TEXT), '$.request.principal') END END"""
"""The same for `runs.principal`."""

BUSY_SECONDS = 5.0
"""How long a process waits for another's transaction before it raises Unavailable."""

MANY_RUNS = 100_000
"""From so many on it is told that a migration takes its time: some seconds a million, more on a slow disk."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE leases (
            owner TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL,
            expires_at REAL NOT NULL, expires_tick REAL NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE runs (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, place INTEGER NOT NULL,
            status TEXT NOT NULL, agent TEXT NOT NULL, thread TEXT, protocol TEXT NOT NULL,
            created_at REAL NOT NULL, updated_at REAL NOT NULL, reserved INTEGER NOT NULL, record BLOB NOT NULL
        )""",
        "CREATE INDEX runs_created ON runs(created_at)",
        "CREATE INDEX runs_thread ON runs(thread, created_at) WHERE thread IS NOT NULL",
        "CREATE INDEX runs_unfinished ON runs(owner) WHERE status IN ('pending', 'running', 'interrupted')",
        f"CREATE UNIQUE INDEX runs_active ON runs(thread) WHERE place = {ACTIVE} AND thread IS NOT NULL",
        f"CREATE INDEX runs_queued ON runs(thread) WHERE place = {QUEUED}",
        # key: see log.py
        "CREATE TABLE log (key INTEGER PRIMARY KEY, last INTEGER NOT NULL, delta INTEGER NOT NULL, data BLOB NOT NULL)",
        """CREATE TABLE threads (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, agent TEXT, protocol TEXT NOT NULL,
            created_at REAL NOT NULL, updated_at REAL NOT NULL, record BLOB NOT NULL
        )""",
        "CREATE INDEX threads_created ON threads(created_at)",
        """CREATE TABLE checkpoints (
            seq INTEGER PRIMARY KEY, thread TEXT NOT NULL, id TEXT NOT NULL, created_at REAL NOT NULL,
            record BLOB NOT NULL, UNIQUE (thread, id)
        )""",
        "CREATE INDEX checkpoints_created ON checkpoints(thread, created_at)",
        """CREATE TABLE artifacts (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run TEXT, thread TEXT, uploader TEXT,
            created_at REAL NOT NULL, record BLOB NOT NULL
        )""",
        "CREATE INDEX artifacts_run ON artifacts(run) WHERE run IS NOT NULL",
        "CREATE INDEX artifacts_thread ON artifacts(thread) WHERE thread IS NOT NULL",
        "CREATE INDEX artifacts_unfinished ON artifacts(uploader) WHERE uploader IS NOT NULL",
        """CREATE TABLE chunks (
            artifact INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (artifact, number)
        ) WITHOUT ROWID""",
        """CREATE TABLE deliveries (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, run TEXT NOT NULL,
            due_at REAL NOT NULL, attempts INTEGER NOT NULL, record BLOB NOT NULL
        )""",
        "CREATE INDEX deliveries_due ON deliveries(owner, due_at)",
        "CREATE INDEX deliveries_run ON deliveries(run)",
        """CREATE TABLE registrations (
            name TEXT PRIMARY KEY, owner TEXT NOT NULL, held INTEGER NOT NULL, expires_at REAL, record BLOB NOT NULL
        )""",
    ),
    (
        "DROP INDEX runs_unfinished",
        f"CREATE INDEX runs_unfinished ON runs(owner) WHERE {UNFINISHED}",
    ),
    (
        "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
        "INSERT INTO counters (name, value) VALUES ('registrations', 0)",
        f"CREATE TRIGGER registrations_written AFTER INSERT ON registrations BEGIN {COUNT_REGISTRATIONS}; END",
        f"CREATE TRIGGER registrations_removed AFTER DELETE ON registrations BEGIN {COUNT_REGISTRATIONS}; END",
    ),
    (
        "ALTER TABLE threads ADD COLUMN whose TEXT",
        f"UPDATE threads SET whose = {WHOSE}",
        "CREATE INDEX threads_whose ON threads(whose, created_at) WHERE whose IS NOT NULL",
    ),
    # head, tail: see log.py
    ("ALTER TABLE runs ADD COLUMN head BLOB", "ALTER TABLE runs ADD COLUMN tail BLOB"),
    # bell: see mail.py
    (
        "ALTER TABLE leases ADD COLUMN bell TEXT",
        """CREATE TABLE mail (
            seq INTEGER PRIMARY KEY, recipient TEXT NOT NULL, id TEXT NOT NULL, sender TEXT NOT NULL,
            answers TEXT NOT NULL, expires_at REAL NOT NULL, body BLOB NOT NULL
        )""",
        "CREATE INDEX mail_recipient ON mail(recipient)",
    ),
    # an index for each part of a search: see gateway/store/searches.py
    (
        "ALTER TABLE runs ADD COLUMN principal TEXT",
        f"UPDATE runs SET principal = {PRINCIPAL} WHERE instr(record, CAST('\"principal\":' AS BLOB)) > 0",
        "CREATE INDEX runs_principal ON runs(principal, created_at) WHERE principal IS NOT NULL",
        "CREATE INDEX runs_protocol ON runs(protocol, created_at)",
        "CREATE INDEX runs_agent ON runs(agent, protocol, created_at)",
        f"CREATE INDEX runs_failed ON runs(protocol, status, created_at) WHERE {FAILED}",
        f"CREATE INDEX runs_agent_failed ON runs(agent, protocol, status, created_at) WHERE {FAILED}",
        "DROP INDEX runs_created",
        "CREATE INDEX threads_protocol ON threads(protocol, created_at)",
        "CREATE INDEX threads_agent ON threads(agent, protocol, created_at) WHERE agent IS NOT NULL",
        "CREATE INDEX threads_status ON threads(protocol, status, created_at) WHERE status <> 'idle'",
        "DROP INDEX threads_created",
        "CREATE INDEX artifacts_stray ON artifacts(created_at) WHERE run IS NULL AND thread IS NULL",
    ),
    ("CREATE TABLE allowances (name TEXT PRIMARY KEY, used INTEGER NOT NULL, until REAL NOT NULL) WITHOUT ROWID",),
    # processes of a version before `principal` go on writing while they are replaced one by one
    (
        "CREATE TRIGGER runs_of_principals AFTER INSERT ON runs "
        "WHEN NEW.principal IS NULL AND instr(NEW.record, CAST('\"principal\":' AS BLOB)) > 0 "
        f"BEGIN UPDATE runs SET principal = {PRINCIPAL} WHERE seq = NEW.seq; END",
    ),
)


def connect_writer(path: Path | None) -> sqlite3.Connection:
    """The one connection of this process that writes, for one thread at a time; `path` None is a database in memory.

    Migrates. Raises Unavailable if the file is of a newer version, `sqlite3.Error` if it cannot be opened.
    """
    if path is not None:
        _not_a_folder(path)
        _create(path)
    connection = sqlite3.connect(
        ":memory:" if path is None else path,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        cached_statements=256,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only has an effect before the first table
        if path is not None:
            _use_wal(connection)
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        connection.execute("PRAGMA secure_delete = FAST")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    """Create the file for its owner alone if it is missing: SQLite gives what it puts beside it the same mode.

    One that is there is never opened here: closing it would give up the locks that this process has on it.
    """
    with contextlib.suppress(OSError):  # it is there; or it cannot be made, which SQLite has words for
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def connect_reader(path: Path, *, waits: bool = True) -> sqlite3.Connection:
    """Connect read-only, for one thread at a time. `waits`: whether reads wait for another connection's lock."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    timeout = BUSY_SECONDS if waits else 0.0
    return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)


def _not_a_folder(path: Path) -> None:
    if path.is_dir():  # SQLite says only that it cannot open it
        raise sqlite3.OperationalError("it is a folder")


def probe_file(path: Path) -> None:
    """Look whether this program can use a file, or make it. Raises Unavailable, `sqlite3.Error`."""
    _not_a_folder(path)
    if path.exists() or not path.parent.is_dir():
        uri = f"{path.absolute().as_uri()}?immutable=1"  # takes no lock, and puts nothing beside it
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            _version(connection)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Two processes that create the file at once collide here, and SQLite does not wait for this lock by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            logger.warning("the store's file system has no shared memory: readers and the writer will wait in turn")
        return


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate the file to this version, all or nothing. The first process to come does it."""
    if _version(connection) == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    try:
        found = _version(connection)
        if found and (runs := connection.execute("SELECT max(seq) FROM runs").fetchone()[0] or 0) > MANY_RUNS:
            told = "the store has %d runs and is brought from version %d to %d: this may take a minute a million"
            logger.warning(told, runs, found, len(MIGRATIONS))
        for script in MIGRATIONS[found:]:
            for statement in script:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
        if 0 < found < len(MIGRATIONS):
            logger.info("the store is of version %d now, after %.1f s", len(MIGRATIONS), time.monotonic() - began)
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise Unavailable(
            f"the store was written by a newer version of this program (schema {version}, "
            f"this one knows {len(MIGRATIONS)}): upgrade, or point store.url at another file"
        )
    return version
