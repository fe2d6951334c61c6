"""Calls MCP servers, over every transport and revision. Knows no protocol that is built on it.

contract.py        what an adapter gets: UpstreamPool, UpstreamSession; and brings: CallListener
pool.py            McpPool: sessions, leased out
connecting.py      a new session: which transport
session.py         ClientSession: which revision; calls, lists, questions and subscriptions of 2026-07-28
calls.py           the calls under way, and which of them a message belongs to
target.py          for adapters: a route's target, one agent or all that live there
called_run.py      for adapters: one run over a session
target_server.py   for adapters: the server of a target: sessions, what it lists, news of changes
server_requests.py for adapters: the requests of a server during a run, answered as the run's questions
channel.py         how a session's messages travel: Channel
piped.py           over a Pipe: stdio, WebSocket, HTTP+SSE
http/              Streamable HTTP and HTTP+SSE
"""

from gateway.mcp.client.pool import McpPool
from gateway.mcp.client.session import ClientSession

__all__ = ["ClientSession", "McpPool"]
