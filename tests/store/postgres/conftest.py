"""One server for all tests of a worker, and a database of it for each test: its own, or one that is emptied before."""

from __future__ import annotations

import pytest

from tests.support.postgres import PostgresServer


@pytest.fixture(scope="session")
def server(postgres: PostgresServer) -> PostgresServer:
    return postgres


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.database()


@pytest.fixture(scope="session")
def used(server: PostgresServer) -> str:
    return server.database()


@pytest.fixture
def emptied(server: PostgresServer, used: str) -> str:
    """The URL of a database for a test that leaves its tables as they are."""
    server.empty(used)
    return used
