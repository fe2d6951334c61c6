"""WebSockets as Pipes: one text message is one JSON text (RFC 6455). No compression: it costs a quarter of the speed.

client.py   connect() -> ClientSocket; imported where it is called, since its library (`websockets`) takes its time
server.py   ServerSocket, on Starlette's WebSocket
uvicorn.py  MessageProtocol: uvicorn's protocol with a fast path for messages; `serve` passes it to uvicorn
limits.py   limits of messages, timeouts, headers of the upgrade

Both ends treat messages alike. The protocols here ignore a binary message: it is an Unreadable whose
`start` is empty, so that nothing is read into it. One over `limit` is Unreadable too, and the connection goes on. Only
one over the hard limit, which the library enforces while it reads, ends the connection (close code 1009). Text
that is not UTF-8 ends it too (1007), as the RFC requires.
"""

from gateway.transport.websocket.limits import HARD_LIMIT, PING_INTERVAL, PING_TIMEOUT
from gateway.transport.websocket.server import ServerSocket
