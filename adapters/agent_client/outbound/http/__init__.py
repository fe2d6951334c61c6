"""Streamable HTTP, the client's end (docs/rfds/streamable-http-websocket-transport).

pipe.py     HttpPipe, a Pipe: what we say is POSTed, what we hear comes on streams
reader.py   one stream: a GET, opened again when it drops
tracking.py which session a message belongs to, and who waits for what
answers.py  what a status means
"""

from adapters.agent_client.outbound.http.pipe import HttpPipe, connect

__all__ = ["HttpPipe", "connect"]
