"""One request and its answer, straight on aiohttp's pooled connections and its parser.

`ClientSession.request` builds some ten objects a call for what no agent is ever sent (cookies, proxies, middlewares,
traces, uploads in pieces), and costs three times the processor time of all the rest. A request whose body is at hand
needs none of it: its head and body are one write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.http import HttpProcessingError
from aiohttp.http_writer import _serialize_headers
from multidict import CIMultiDict, CIMultiDictProxy

if TYPE_CHECKING:
    from aiohttp.connector import Connection

MOST_BYTES = 64 * 1024
"""Of a body; a larger one is written by aiohttp, as fast as the peer takes it."""
SPECIAL = ("Connection", "Content-Encoding", "Content-Length", "Cookie", "Expect", "Host", "Transfer-Encoding")
"""Headers that a caller may give and aiohttp acts on: such a request is left to it."""

_CLOSED = aiohttp.ClientConnectionError("Connection closed")


class Exchange:
    """An answer whose head has come: of `aiohttp.ClientResponse`, what `Body` and `HttpClient` use."""

    __slots__ = ("_connection", "content", "headers", "method", "peer", "status")

    def __init__(
        self,
        connection: Connection,
        method: str,
        status: int,
        headers: CIMultiDictProxy[str],
        content: aiohttp.StreamReader,
    ) -> None:
        self._connection: Connection | None = connection
        self.peer: Any = connection.protocol
        """The connection's protocol, which is another answer's when this one has ended."""
        self.method = method
        self.status = status
        self.headers = headers
        self.content = content
        content.on_eof(self._whole)

    def _whole(self) -> None:
        """The body has come: the connection is free for the next request."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()

    def close(self) -> None:
        """Nothing more will be read; a connection with the rest of the body on it is closed."""
        if self.content.exception() is None:
            self.content.set_exception(_CLOSED)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def possible(headers: CIMultiDict[str], body: object) -> bool:
    """Whether a request can be sent by `exchange`."""
    if body is not None and (type(body) is not bytes or len(body) > MOST_BYTES):
        return False
    for name in SPECIAL:  # noqa: SIM110 - `any` costs four times as much
        if name in headers:
            return False
    return True


async def exchange(
    connector: aiohttp.TCPConnector,
    peer: aiohttp.ClientRequest,
    timeout: aiohttp.ClientTimeout,
    *,
    method: str,
    target: str,
    headers: CIMultiDict[str],
    body: bytes | None,
) -> Exchange:
    """Send, and return once the head of the answer is there. Raises what aiohttp does.

    `peer` is any request to the same origin: it says where to connect and what `Host` is. `target` is the path with its
    query, quoted.
    """
    lines = CIMultiDict({"Host": peer.headers["Host"]})
    lines.extend(headers)
    lines.setdefault("Accept", "*/*")
    if body is not None or method not in peer.GET_METHODS:
        lines["Content-Length"] = str(len(body or b""))
    if body is not None or method in peer.POST_METHODS:
        lines.setdefault("Content-Type", "application/octet-stream")
    head = _serialize_headers(f"{method} {target} HTTP/1.1", lines)
    try:
        connection = await connector.connect(peer, [], timeout)
    except TimeoutError as exc:
        raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {peer.url}") from exc
    try:
        protocol, transport = connection.protocol, connection.transport
        if protocol is None or transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
        protocol.set_response_params(skip_payload=method == "HEAD", read_until_eof=True, auto_decompress=False)
        transport.write(head + body if body else head)
        while True:
            message, payload = await protocol.read()
            if not 100 <= message.code <= 199 or message.code == 101:
                return Exchange(connection, method, message.code, message.headers, payload)
    except HttpProcessingError as exc:
        connection.close()
        raise aiohttp.ClientError(f"{exc.code} {exc.message}") from exc
    except BaseException:
        connection.close()
        raise
