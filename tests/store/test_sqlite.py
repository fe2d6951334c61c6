"""SQLite passes the contract of stores, in a file and in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.contract import Place, SharedContract, StoreContract
from tests.store.makers import SQLITE


class TestFile(StoreContract, SharedContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(SQLITE, f"sqlite:///{tmp_path / 'it is 100% odd?#.db'}")


class TestMemory(StoreContract):
    @pytest.fixture
    def place(self) -> Place:
        return Place(SQLITE, "sqlite://")
