"""The gateway's agents, as its route table names them here: what grows a text or a list by deltas, an Agent Connect
agent that sends snapshots (bench/agent.py), and example ones that say so many bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import msgspec

from bench.stage import ROOT

AGENT = [sys.executable, "-m", "bench.agent_communication.agent"]
"""Started in ROOT."""
TEXT = "text"
LIST = "list"
ECHO = "echo"

_DELTAS = """\
  - name: {name}
    target: {{protocol: agent_communication, command: {command}, cwd: {root}, agent: {name}}}
"""
_ECHO = """\
  - name: echo
    target: {{protocol: agent_connect, url: "http://127.0.0.1:{port}"}}
"""
_EXAMPLE = """\
  - name: example{size}
    target: {{protocol: example, url: "http://127.0.0.1:{port}/example/{size}"}}
"""


def table(port: int, examples: Iterable[int]) -> str:
    """See `Stage.gateway`. `port`: of the agent of bench/agent.py; `examples`: bytes of example agents' answers."""
    command, root = msgspec.json.encode(AGENT).decode(), msgspec.json.encode(str(ROOT)).decode()
    told = [_DELTAS.format(name=name, command=command, root=root) for name in (TEXT, LIST)]
    told += [_ECHO.format(port=port), *(_EXAMPLE.format(size=size, port=port) for size in examples)]
    return "routes:\n" + "".join(told)
