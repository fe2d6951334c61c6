"""Streamable HTTP, the client's end (docs/rfds/streamable-http-websocket-transport).

pipe.py    HttpPipe, a Pipe: our messages are POSTed, the agent's come on streams
reader.py  EventStreamReader, one stream: a GET, opened again when it drops; the meaning of refusals
"""

from adapters.agent_client.outbound.http.pipe import HttpPipe, connect

__all__ = ["HttpPipe", "connect"]
