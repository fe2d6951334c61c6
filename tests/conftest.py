"""Fixtures for the whole suite: the peers, started once for all tests that only talk to them.

A test that needs a server of its own (its requests counted, its key, its crash) starts one with the context managers
of `tests/support/peers.py` instead.
"""

import functools
import gc
from collections.abc import Iterator

import httpcore2
import pytest

from tests.support import peers
from tests.support.agent_client import agent_client_agent_server
from tests.support.agent_communication import mcp_agents_server
from tests.support.processes import Process

# Each client of httpx2 reads the machine's authorities anew: 50 ms, in tests that have a client each.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)


def pytest_collection_finish() -> None:
    """What stands now stays: a collection looks only at what the tests make, which takes a tenth of the time."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture(scope="session")
def mcp_agents() -> Iterator[Process]:
    """An MCP server with agents, made with the official SDK: `echo`, `fail`, `elicit`, `slow` and others, at `/mcp`."""
    with mcp_agents_server("1") as process:
        yield process


@pytest.fixture(scope="session")
def urls(
    agent_protocol_server: Process,
    agent_connect_agent: Process,
    plain_agent: Process,
    agent_client_server: Process,
    mcp_agents: Process,
) -> dict[str, str]:
    """Where the real agents are, by the adapter that calls them."""
    return {
        "plain": plain_agent.url,
        "agent_client": f"{agent_client_server.url}/agent",
        "agent_communication": f"{mcp_agents.url}/mcp",
        "agent_connect": agent_connect_agent.url,
        "agent_protocol": agent_protocol_server.url,
    }
