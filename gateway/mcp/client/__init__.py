"""Calls MCP servers, over every transport and revision. Knows no protocol that is built on it.

pool.py            Connector: opens a session (which transport); McpPool: sessions, leased out to adapters
session.py         ClientSession: which revision; calls, lists, questions and subscriptions of 2026-07-28; Channel:
                   how its messages travel
calls.py           the calls under way, each with the CallListener that an adapter brings, and which of them a message
                   belongs to
target.py          for adapters: a route's target, one agent or all that live there; its server: sessions, lists, news
called_run.py      for adapters: one run over a session, and the server's requests during it
piped.py           over a Pipe: stdio, WebSocket, HTTP+SSE
http/              Streamable HTTP and HTTP+SSE
"""

from gateway.mcp.client.pool import McpPool
from gateway.mcp.client.session import ClientSession
