"""Calls MCP servers, over every transport and revision. Knows no protocol that is built on it.

contract.py  what an adapter gets: Pool, Session; and brings: Listener
options.py   McpTarget: where a server is, in routes.yaml
pool.py      Pool: sessions, leased out
opening.py   a new session: which transport
session.py   ClientSession: which revision; calls, lists, questions and news of 2026-07-28
calls.py     the calls under way, and what belongs to which
target.py    for adapters: a route's target, one agent or all that live there
turn.py      for adapters: one run over a session
news.py      for adapters: a session that stays open to hear that a list has changed
asks.py      for adapters: what a server asks meanwhile, to be answered as the run's questions
channel.py   how a session's messages travel: Channel
piped.py     over a Pipe: stdio, WebSocket, HTTP+SSE
http/        Streamable HTTP and HTTP+SSE
"""

from gateway.mcp.client.contract import Hearing, Listener, Session
from gateway.mcp.client.options import McpTarget
from gateway.mcp.client.pool import Pool

__all__ = ["Hearing", "Listener", "McpTarget", "Pool", "Session"]
