"""Opens a store by its URL."""

from __future__ import annotations

from pathlib import Path

from gateway.store import Store
from gateway.store.sqlite import SqliteStore


def open_store(url: str, base: str = ".", *, fsync: bool = True) -> Store:
    """Make the engine for a URL: `sqlite:///file.db` (relative to `base`), or `sqlite://` for one in memory.

    Without `fsync`, a commit has left the process when it returns but may not be on the disk yet.
    """
    return SqliteStore(store_path(url, base), fsync=fsync)


def store_path(url: str, base: str = ".") -> Path | None:
    """Return the file of a store's URL, or None for a store in memory. Raises ValueError for any other scheme."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite":
        raise ValueError(f"no store engine for {scheme!r}; have sqlite")
    return Path(base) / rest.removeprefix("/") if rest else None
