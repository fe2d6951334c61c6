"""One server's address: how it is called, and what it means when it does not answer as it should."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import msgspec

from gateway.core.errors import AgentBroken, AgentFailed, InterlinguaError
from gateway.transport.http import HttpClient, StreamResponse, Unreachable, away
from gateway.transport.streamable_http import JSON
from gateway.transport.streamable_http.client import AGAIN, HttpRefused, refusal_body
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Response, RpcError

BUSY = 429
"""Of a POST: it was not taken. So it is with 503 where the server says when to come back; what is between us says 503
too, of a server that went away over the request (Envoy, say)."""
_AWAY = frozenset({408, 425, 429, 502, 503, 504})
_SAME_METHOD = frozenset({307, 308})
_REDIRECTS = 3
_BODY = 64 * 1024
_BODY_SECONDS = 5.0


class Address:
    """Shared by all sessions with a server. `url` is where it is called: it moves where a redirect points, within the
    same origin.
    """

    def __init__(self, url: str, client: HttpClient, *, limit: int, timeout: float) -> None:
        parts = urlsplit(url)
        self.url = url
        self.name = parts.netloc.rpartition("@")[2]
        self.client = client
        self.limit = limit
        self.timeout = timeout

    @asynccontextmanager
    async def post(
        self, body: bytes, headers: Mapping[str, str], *, patient: bool, wait: float | None = math.inf
    ) -> AsyncIterator[StreamResponse]:
        """POST a message; the answer as soon as its head is there, whatever its status.

        `wait`: seconds for that; a request may well be answered only when its work is done. `patient`: with a few more
        tries where it was certainly not taken.

        Raises the errors of HttpClient.
        """
        tries = list(AGAIN) if patient else []
        moves = 0
        while True:
            try:
                async with self.client.stream("POST", self.url, json=body, headers=headers, timeout=wait) as response:
                    moved = self._moved(response) if moves < _REDIRECTS else None
                    if moved is None and not (tries and _not_taken(response)):
                        yield response
                        return
            except Unreachable:
                if not tries:
                    raise
                moved = None
            if moved is not None:
                self.url = moved
                moves += 1
            else:
                await asyncio.sleep(tries.pop(0))

    def _moved(self, response: StreamResponse) -> str | None:
        """Where the same POST is to go instead: frameworks add or drop the last slash so. Never to another origin."""
        if response.status not in _SAME_METHOD:
            return None
        to = urljoin(self.url, response.headers.get("Location", ""))
        here, there = urlsplit(self.url), urlsplit(to)
        return to if (here.scheme, here.netloc) == (there.scheme, there.netloc) and to != self.url else None

    async def refusal(self, response: StreamResponse, what: str) -> InterlinguaError:
        """The error for a status that is not a success: HttpRefused, unless the status or the body says more."""
        body = await refusal_body(response, _BODY, _BODY_SECONDS)
        status = response.status
        refused = HttpRefused(f"{self.name} answered {what}", status, body, response.headers.get("Location", ""))
        if status in (401, 403):
            told = f"{self.name} does not accept the gateway's credentials: it answered {what} with {status}"
            return AgentFailed(told, detail=refused.detail)
        error = _rpc_error(body) if response.content_type == JSON else None
        if status in _AWAY:
            return away(str(refused), status, response.headers)
        return error or refused


def _not_taken(response: StreamResponse) -> bool:
    return response.status == BUSY or (response.status == 503 and "Retry-After" in response.headers)


def _rpc_error(body: bytes) -> RpcError | None:
    """The error of JSON-RPC in a body, if it is one. Its id may be any: the request may not even have been read."""
    message = jsonrpc.decode(body)
    if isinstance(message, Response) and message.error is not None:
        return RpcError(message.error.code, message.error.message, message.error.data)
    try:  # without an id, or without a version
        error = msgspec.json.decode(body, type=dict[str, jsonrpc.ErrorObject])["error"]
    except (ValueError, RecursionError, KeyError):
        return None
    return RpcError(error.code, error.message, error.data)


def unexpected(name: str, what: str, response: StreamResponse) -> AgentBroken:
    """The error for a success whose status or content type does not fit."""
    kind = response.content_type or "no content type"
    return AgentBroken(f"{name} answered {what} with status {response.status} and {kind}")
