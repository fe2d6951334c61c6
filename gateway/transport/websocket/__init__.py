"""WebSockets as Pipes: one text message is one JSON text (RFC 6455). No compression: it costs a quarter of the speed.

client.py   connect() -> ClientSocket; imports its library at the first call
dialing.py  that library (`websockets`), and its errors as ours
server.py   ServerSocket, over what Starlette hands an endpoint
uvicorn.py  MessageProtocol: the server's protocol with a short way for messages; what `serve` gives uvicorn
frames.py   messages as frames
headers.py  headers and cookies that cannot be used to smuggle others in
limits.py   how large a message may be

Both ends treat a message in the same way. A binary one is ignored by the protocols here: it is Unreadable, and its
`start` is empty, lest something be read into it. One over `limit` is Unreadable too and the connection lives on; only
one over the hard limit, which the library enforces while it reads, ends the connection (close code 1009). So does text
that is not UTF-8 (1007), as the RFC has it.
"""

from gateway.transport.pipe import LIMIT
from gateway.transport.websocket.client import ClientSocket, UpgradeRefused, connect
from gateway.transport.websocket.limits import HARD_LIMIT, PING_INTERVAL, PING_TIMEOUT
from gateway.transport.websocket.server import ServerSocket

__all__ = [
    "HARD_LIMIT",
    "LIMIT",
    "PING_INTERVAL",
    "PING_TIMEOUT",
    "ClientSocket",
    "ServerSocket",
    "UpgradeRefused",
    "connect",
]
