"""Stores whose processes cannot extend their lease, as one that was stopped has not."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.store import Store
from gateway.store.postgres import PostgresStore
from gateway.store.sqlite import SqliteStore
from tests.support.postgres import PostgresServer

REFUSING = {
    "sqlite": [
        "CREATE TRIGGER refusing BEFORE INSERT ON leases WHEN NEW.host = 'there' "
        "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the disk is full'; END $$",
        "CREATE TRIGGER refusing BEFORE UPDATE OF expires_at ON interlingua.leases FOR EACH ROW "
        "WHEN (NEW.host = 'there') EXECUTE FUNCTION refuse()",
    ],
}
ALLOWING = {"sqlite": "DROP TRIGGER refusing", "postgresql": "DROP TRIGGER refusing ON interlingua.leases"}


def lapsing(
    engine: str, folder: Path, request: pytest.FixtureRequest
) -> tuple[Callable[..., Store], Callable[[], None], Callable[[], object]]:
    """Makes the stores of processes that share one; and what keeps those of the host `there` from extending their
    lease, and lets them again.
    """
    opened: Callable[..., Store]
    if engine == "sqlite":
        file = folder / "runs.db"
        opened = functools.partial(SqliteStore, file)

        def do(sql: str) -> object:
            with contextlib.closing(sqlite3.connect(file)) as connection:
                return connection.execute(sql)

    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.database()
        opened = functools.partial(PostgresStore, url)

        def do(sql: str) -> object:
            return server.sql(sql, url.rpartition("/")[2])

    def refuse() -> None:
        for statement in REFUSING[engine]:
            do(statement)

    return opened, refuse, lambda: do(ALLOWING[engine])
