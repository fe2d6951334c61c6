"""Streamable HTTP, the server's end (docs/rfds/streamable-http-websocket-transport): one endpoint, many clients.

server.py       HttpServer, an ASGI application: which request is served, and which is refused with what status
connections.py  the connections that there are
connection.py   HttpConnection, a Pipe: one connection; which message goes on which stream
sessions.py     a connection's sessions, and the stream of each
"""

from adapters.agent_client.inbound.http.server import HttpServer

__all__ = ["HttpServer"]
