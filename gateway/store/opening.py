"""Opens a store by its URL."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from gateway.core.errors import Unavailable
from gateway.store import Store
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.schema import probe_file

POSTGRES = ("postgresql", "postgres")


def open_store(url: str, base: str = ".", *, fsync: bool = True) -> Store:
    """Make the engine for a URL: `sqlite:///file.db` (relative to `base`), `sqlite://` for one in memory, or
    `postgresql://user:password@host/database`.

    Without `fsync`, a commit has left the process when it returns but may not be on the disk yet.
    """
    if _scheme(url) in POSTGRES:
        from gateway.store.postgres import PostgresStore

        return PostgresStore(url, fsync=fsync)
    return SqliteStore(store_path(url, base), fsync=fsync)


async def probe_store(url: str) -> None:
    """Look whether the store can be opened, without changing it. A file is not looked at. Raises Unavailable."""
    if _scheme(url) in POSTGRES:
        from gateway.store.postgres import probe

        await probe(url)


def faults_of_file(url: str, base: Path) -> Iterator[str]:
    """What keeps a store's file from being used, if there is one and something does. Changes nothing."""
    path = store_path(url, base)
    try:
        if path is not None:
            probe_file(path)
    except (sqlite3.Error, Unavailable) as error:
        yield f"cannot open the store {path}: {error}"


def store_path(url: str, base: str | Path = ".") -> Path | None:
    """Return the file of a store's URL, or None for one that has none. Raises ValueError for an unknown scheme."""
    scheme, _, rest = url.partition("://")
    if scheme in POSTGRES:
        return None
    if scheme != "sqlite":
        raise ValueError(f"no store engine for {scheme!r}; have sqlite, postgresql")
    return Path(base) / rest.removeprefix("/") if rest else None


def _scheme(url: str) -> str:
    return url.partition("://")[0]
