"""Sends one plain request directly on aiohttp's pooled connections, and reads the answer's head with its parser.

`ClientSession.request` builds some ten objects per call for features that we never use (cookies, proxies, middlewares,
traces, chunked uploads), and takes three times the processor time of all the rest. A request whose body is in memory
needs none of them: its head and body are one write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
from aiohttp.http import HttpProcessingError
from aiohttp.http_writer import _serialize_headers
from multidict import CIMultiDict, CIMultiDictProxy

if TYPE_CHECKING:
    from aiohttp.connector import Connection

MOST_BYTES = 64 * 1024
"""The largest body to send this way. aiohttp sends a larger one as fast as the peer reads."""
SPECIAL = ("Connection", "Content-Encoding", "Content-Length", "Cookie", "Expect", "Host", "Transfer-Encoding")
"""A request with one of these headers, on which aiohttp acts, is left to aiohttp."""

_CLOSED = aiohttp.ClientConnectionError("Connection closed")


class PooledResponse:
    """A response whose head has arrived, with the part of `aiohttp.ClientResponse` that `Body` and `HttpClient` use."""

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
        """The connection's protocol. It serves another response once this one has ended."""
        self.method = method
        self.status = status
        self.headers = headers
        self.content = content
        content.on_eof(self._whole)

    def _whole(self) -> None:
        """Release the connection: the body is complete."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.release()

    def close(self) -> None:
        """Stop reading. If the body is incomplete, close the connection."""
        if self.content.exception() is None:
            self.content.set_exception(_CLOSED)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def possible(headers: CIMultiDict[str], body: object) -> bool:
    """Whether `exchange` can send a request."""
    if body is not None and (type(body) is not bytes or len(body) > MOST_BYTES):
        return False
    for name in SPECIAL:  # noqa: SIM110 - `any` costs four times as much
        if name in headers:
            return False
    return True


RawResponse: TypeAlias = aiohttp.ClientResponse | PooledResponse
"""A response whose head has arrived: status, headers, content, `close`."""


async def exchange(
    connector: aiohttp.TCPConnector,
    peer: aiohttp.ClientRequest,
    timeout: aiohttp.ClientTimeout,
    *,
    method: str,
    target: str,
    headers: CIMultiDict[str],
    body: bytes | None,
) -> PooledResponse:
    """Send a request and return when the head of its response has arrived. Raises aiohttp's errors.

    `peer` is any request to the same origin; it holds the address and `Host`. `target` is the quoted path with its
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
                return PooledResponse(connection, method, message.code, message.headers, payload)
    except HttpProcessingError as exc:
        connection.close()
        raise aiohttp.ClientError(f"{exc.code} {exc.message}") from exc
    except BaseException:
        connection.close()
        raise
