"""A gateway of its own for the tests of the inbound half, on a real socket."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.adapters.agent_connect.api import Api
from tests.adapters.agent_connect.inbound_server import Server, serve


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def api(server: Server, client: httpx2.Client) -> Api:
    return Api(server.url, client)
