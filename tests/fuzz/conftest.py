"""One gateway for the fuzzers of a file, with agents that take any input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Gateway, Process

AGENT = Path(__file__).parent / "agent.py"
ROUTES = """\
routes:
  - name: every
    target: {{protocol: agent_client, command: ["{python}", "{agent}"]}}
    labels: {{specializations: [gardening]}}
  - name: echo
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: echo}}
    labels: {{specializations: [books]}}
  - name: asker
    target: {{protocol: agent_connect, url: "{agent_connect}", agent: asker}}
  - name: writer
    target: {{protocol: agent_protocol, url: "{agent_protocol}"}}
inbound:
  agent_client: {{v2: true}}
  agent_communication: {{}}
  agent_connect: {{}}
  agent_context: {{coordinator: tasks}}
  agent_protocol: {{}}
"""


@pytest.fixture(scope="module")
def served(
    agent_connect_agent: Process, agent_protocol_server: Process, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    urls = {"agent_connect": agent_connect_agent.url, "agent_protocol": agent_protocol_server.url}
    routes = ROUTES.format(python=sys.executable, agent=AGENT, **urls)
    with Gateway(routes, tmp_path_factory.mktemp("fuzz")) as running:
        yield running
