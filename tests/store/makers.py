"""How the engines of the contract make a store, also in the other process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gateway.store import Store
from gateway.store.opening import open_store
from gateway.store.postgres import PostgresStore
from gateway.store.sqlite import SqliteStore

SQLITE, POSTGRES = f"{__name__}:sqlite", f"{__name__}:postgres"


def sqlite(url: str, **options: Any) -> Store:
    """The store that `open_store` makes, or one with the options that it keeps from users."""
    if not options:
        return open_store(url)
    return SqliteStore(Path(url.removeprefix("sqlite:///")), **options)


def postgres(url: str, **options: Any) -> PostgresStore:
    """A store whose server is ahead by as much as the test has set Python's clock."""
    return PostgresStore(url, ahead=lambda: time.time() - time.clock_gettime(time.CLOCK_REALTIME), **options)
