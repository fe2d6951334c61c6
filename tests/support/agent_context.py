"""Peers of agent_context, of which there is no SDK: made with those of MCP, which it extends."""

import contextlib
from collections.abc import Iterator

from tests.support.forking import standing_in
from tests.support.peers import PEERS, peer_python
from tests.support.processes import Process, free_port, port_answers, start


def agents_command(*args: str) -> list[str]:
    """The agents of `tests/peers/agent_context_server.py`; `stdio` is what a route's `target.command` says."""
    return standing_in([*_agents(), *args])


def _agents() -> list[str]:
    return [str(peer_python("mcp-1")), "-P", str(PEERS / "agent_context_server.py")]


@contextlib.contextmanager
def agents_server() -> Iterator[Process]:
    """The same as a server: Streamable HTTP at `/mcp` of its `.url`, WebSocket at `/ws`."""
    port = free_port()
    with start([*_agents(), str(port)], port=port, ready=port_answers(port)) as process:
        yield process
