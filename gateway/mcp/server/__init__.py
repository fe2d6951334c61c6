"""Serving MCP clients, whatever the adapter says over it.

contract.py  what an adapter brings (Service) and what it gets (McpCall, McpSession)
server.py    McpServer(service): the routes, WebSockets, and converse for every other connection
hub.py       Hub: what all transports share: whose clients they are, who is there
call.py      one request, and what becomes of it
session.py   clients that shake hands, the states of their sessions; modern.py those that need not (2026-07-28)
pipe.py      over a Pipe: standard input and output, a WebSocket, HTTP+SSE
http/        Streamable HTTP and HTTP+SSE
"""

from gateway.mcp.server.contract import InputRequired, McpCall, McpSession, ServerIdentity
from gateway.mcp.server.server import McpServer
