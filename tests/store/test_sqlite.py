"""SQLite passes the contract of stores, in a file and in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.store import Store
from gateway.store.opening import open_store
from gateway.store.sqlite import SqliteStore
from tests.store.contract import Place, SharedContract, StoreContract


def make(url: str, **options: Any) -> Store:
    """The store that `open_store` makes, or one with the options that it keeps from users."""
    if not options:
        return open_store(url)
    return SqliteStore(Path(url.removeprefix("sqlite:///")), **options)


class TestFile(StoreContract, SharedContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(f"{__name__}:make", f"sqlite:///{tmp_path / 'it is 100% odd?#.db'}")


class TestMemory(StoreContract):
    @pytest.fixture
    def place(self) -> Place:
        return Place(f"{__name__}:make", "sqlite://")
