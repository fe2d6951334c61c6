"""Fixtures for the whole suite: the peers, started once for all tests that only talk to them.

A test that needs a server of its own (its requests counted, its key, its crash) starts one with the context managers
of `tests/support/peers.py` instead.
"""

from collections.abc import Iterator

import pytest

from tests.support import peers
from tests.support.agent_client import agent_client_agent_server
from tests.support.processes import Process


@pytest.fixture(scope="session")
def agent_protocol_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """An agent made with the real `agent-protocol` SDK; `.url` excludes `/ap/v1`."""
    with peers.agent_protocol_server(tmp_path_factory.mktemp("agent-protocol")) as process:
        yield process


@pytest.fixture(scope="session")
def agent_connect_agent() -> Iterator[Process]:
    """The plain Agent Connect server with `echo`, `slow`, `asker`, `failer`, `writer`; no key."""
    with peers.agent_connect_agent() as process:
        yield process


@pytest.fixture(scope="session")
def agent_connect_replay() -> Iterator[Process]:
    """The Agent Connect server that answers as the recorded one did."""
    with peers.agent_connect_replay() as process:
        yield process


@pytest.fixture(scope="session")
def plain_agent() -> Iterator[Process]:
    """Agents of the toy protocol: `/echo`, `/fail`, `/ask`, `/slow`, `/big`."""
    with peers.plain_agent() as process:
        yield process


@pytest.fixture(scope="session")
def agent_client_server() -> Iterator[Process]:
    """An agent made with the official Agent Client SDK for Python: WebSocket and Streamable HTTP on every path."""
    with agent_client_agent_server("py") as process:
        yield process
