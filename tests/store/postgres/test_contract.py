"""PostgreSQL passes the contract of stores."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.store.postgres import PostgresStore
from tests.store.contract import Place, SharedContract, StoreContract


def make(url: str, **options: Any) -> PostgresStore:
    """A store whose server is ahead by as much as the test has set Python's clock."""
    return PostgresStore(url, ahead=lambda: time.time() - time.clock_gettime(time.CLOCK_REALTIME), **options)


class TestPostgres(StoreContract, SharedContract):
    @pytest.fixture
    def place(self, emptied: str) -> Place:
        return Place(f"{__name__}:make", emptied)
