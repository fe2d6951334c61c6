"""Streamable HTTP, without the protocols that use it: messages are POSTed, answers are events on a stream.

client.py  the client's end: a stream's events as messages, where a stream is, what a refusal says
server.py  the server's end: what is refused, the sessions there are, a stream over the responses that carry it

Which headers name a session, which stream a message goes on, and what a status means is the protocol's own.
"""

from typing import Final

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
