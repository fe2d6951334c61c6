"""Gateways as their users run them, in front of the real peers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Gateway, Process

ROUTES = """\
routes:
  - name: writer
    description: An agent made with the agent-protocol SDK
    target: {{protocol: agent_protocol, url: "{agent_protocol}"}}
    text: {{input: /message, output: /message}}
  - name: stepwise
    target: {{protocol: agent_protocol, url: "{agent_protocol}", drive: one}}
  - name: echo
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: echo}}
  - name: lossy
    lossy: allow
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: echo}}
  - name: asker
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: asker}}
  - name: failer
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: failer}}
  - name: slow
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: slow}}
"""


def routes(agent_protocol: Process, agent_connect: Process) -> str:
    return ROUTES.format(agent_protocol=agent_protocol.url, agent_connect=agent_connect.url)


@pytest.fixture(scope="session")
def gateway(
    agent_protocol_server: Process, agent_connect_agent: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """One gateway for every test that only talks to it."""
    directory: Path = tmp_path_factory.mktemp("gateway")
    with Gateway(routes(agent_protocol_server, agent_connect_agent), directory) as running:
        yield running
