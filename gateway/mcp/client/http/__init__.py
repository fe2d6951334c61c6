"""MCP servers over HTTP, the client's end.

address.py     Address: one server's URL, its HttpClient, the meaning of its statuses
sse.py         SsePipe: HTTP+SSE (2024-11-05), a Pipe
streamable.py  StreamableChannel: Streamable HTTP (from 2025-03-26), sessions or none
"""

from gateway.mcp.client.http.address import Address
from gateway.mcp.client.http.sse import SsePipe
from gateway.mcp.client.http.streamable import StreamableChannel
