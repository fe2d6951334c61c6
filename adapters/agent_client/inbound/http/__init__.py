"""Streamable HTTP, the server's end (docs/rfds/streamable-http-websocket-transport): one endpoint, many clients.

server.py    HttpServer, an ASGI application: which request is served, and which is refused with what status
links.py     the connections there are, and when one is taken to have gone
link.py      Link, a Pipe: one connection; which message goes on which stream
sessions.py  what a connection's sessions have to do with that
request_stream.py  the messages that wait for one stream
stream.py    a GET: a lane's messages as server-sent events
"""

from adapters.agent_client.inbound.http.server import HttpServer

__all__ = ["HttpServer"]
