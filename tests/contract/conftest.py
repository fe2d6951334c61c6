"""The real agents behind each outbound half."""

from __future__ import annotations

import pytest

from tests.support.processes import Process


@pytest.fixture(scope="session")
def urls(
    agent_protocol_server: Process, agent_connect_agent: Process, plain_agent: Process, agent_client_server: Process
) -> dict[str, str]:
    """Where the real agents are, by the adapter that calls them."""
    return {
        "plain": plain_agent.url,
        "agent_client": f"{agent_client_server.url}/agent",
        "agent_connect": agent_connect_agent.url,
        "agent_protocol": agent_protocol_server.url,
    }
