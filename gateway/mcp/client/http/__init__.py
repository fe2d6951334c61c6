"""MCP servers over HTTP, the client's end.

address.py     Address: one server's URL, its HttpClient, what its statuses mean
sse.py         SsePipe: HTTP+SSE (2024-11-05), a Pipe
streamable.py  StreamableChannel: Streamable HTTP (from 2025-03-26), sessions or none
exchange.py    one request on it: its POST, its stream, and the GETs that go on with a stream that broke off
incoming.py    what the server asks on it, and our answers, a POST each
events.py      a response's events, as messages
"""

from gateway.mcp.client.http.address import Address, HttpRefused
from gateway.mcp.client.http.sse import SsePipe
from gateway.mcp.client.http.streamable import StreamableChannel

__all__ = ["Address", "HttpRefused", "SsePipe", "StreamableChannel"]
