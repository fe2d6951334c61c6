"""PostgreSQL passes the contract of stores."""

from __future__ import annotations

import pytest

from tests.store.contract import Place, SharedContract, StoreContract
from tests.store.makers import POSTGRES


class TestPostgres(StoreContract, SharedContract):
    @pytest.fixture
    def place(self, emptied: str) -> Place:
        return Place(POSTGRES, emptied)
