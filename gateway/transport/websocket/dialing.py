"""Wraps the client of the `websockets` library, and maps its errors to ours."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as _connect
from websockets.datastructures import Headers
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.typing import Subprotocol

from gateway.core.errors import AgentBroken, AgentGone, AgentTimeout, InterlinguaError, Invalid
from gateway.transport.http import Unreachable
from gateway.transport.refusal import UpgradeRefused, refusal_reason
from gateway.transport.websocket.limits import CLOSE_SECONDS, PING_INTERVAL, PING_TIMEOUT

if TYPE_CHECKING:
    from gateway.transport.guard import Guard

USER_AGENT = "interlingua"
_BODY = 8 * 1024
_REASONS = {
    1002: "it broke the WebSocket protocol",
    1007: "it sent text that is not UTF-8",
    1009: "it sent a message far over the limit",
    1011: "it did not answer a ping",
}
"""The reason for which we closed a connection, by the code that we sent."""


class _Dial(_connect):
    """Follows no redirects. The library would, to other hosts and with all headers but three."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the exception: no redirect is followed."""
        return exc


class WebSocketConnection:
    """One connection of the library."""

    def __init__(self, name: str, connection: ClientConnection) -> None:
        assert connection.response is not None
        self._name = name
        self._connection = connection
        self.headers = _plain(connection.response.headers)

    async def send(self, messages: Iterable[bytes]) -> None:
        """Send text messages. Raises AgentGone."""
        try:
            for message in messages:
                await self._connection.send(message, text=True)
        except ConnectionClosed as error:
            raise self._gone(error) from error

    async def receive(self) -> str | bytes | None:
        """Return the next message, or None when the other end has closed in order. Raises AgentGone."""
        try:
            return await self._connection.recv()
        except ConnectionClosedOK:
            return None
        except ConnectionClosed as error:
            raise self._gone(error) from error

    async def close(self) -> None:
        """Close in bounded time, even if the other end reads nothing."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.close()
        except TimeoutError:
            self._connection.transport.abort()

    def _gone(self, error: ConnectionClosed) -> AgentGone:
        if error.rcvd is not None:
            said = f"{error.rcvd.code} {error.rcvd.reason}".strip()
            return AgentGone(f"{self._name} closed the connection ({said})")
        if error.sent is not None and error.sent.code in _REASONS:
            return AgentGone(f"the connection to {self._name} was ended: {_REASONS[error.sent.code]}")
        return AgentGone(f"the connection to {self._name} was lost", detail=repr(error.__cause__ or error))


async def dial(
    address: str,
    name: str,
    *,
    headers: Sequence[tuple[str, str]],
    subprotocols: Sequence[str],
    max_size: int,
    open_timeout: float,
    ssl_context: ssl.SSLContext | None,
    guard: Guard | None,
) -> WebSocketConnection:
    """Connect. Raises as `connect` does."""
    options: dict[str, Any] = {} if ssl_context is None else {"ssl": ssl_context}

    async def one(host: str | None = None) -> WebSocketConnection:
        if host is not None:
            options["host"] = host
        dialled = _Dial(
            address,
            subprotocols=cast("list[Subprotocol]", list(subprotocols)) or None,
            compression=None,
            additional_headers=headers,
            user_agent_header=USER_AGENT,
            proxy=None,
            open_timeout=open_timeout,
            ping_interval=PING_INTERVAL,
            ping_timeout=PING_TIMEOUT,
            close_timeout=CLOSE_SECONDS / 2,
            max_size=max_size,
            # Frames, however large: two at most wait beside the small ones that came with them.
            max_queue=(1, 0),
            **options,
        )
        return WebSocketConnection(name, await dialled)

    try:
        if guard is None:
            return await one()
        async with asyncio.timeout(open_timeout):
            return await _first(await _judged(guard, address), one)
    except InterlinguaError:
        raise
    except Exception as error:
        raise _translated(error, name) from error


async def _judged(guard: Guard, address: str) -> list[str]:
    """Return the addresses to try, in order. Raises Invalid, Denied, OSError."""
    parts = urlsplit(address)
    scheme, port = ("https", 443) if parts.scheme == "wss" else ("http", 80)
    host = parts.hostname or ""
    guard.check_form(scheme, host, userinfo="@" in parts.netloc)
    return await guard.addresses(host, parts.port or port)


async def _first(addresses: Sequence[str], dial: Callable[..., Awaitable[WebSocketConnection]]) -> WebSocketConnection:
    """Connect to the first address that accepts. The name is not resolved again, since the answer might differ."""
    for address in addresses[:-1]:
        try:
            return await dial(address)
        except OSError:
            continue
    return await dial(addresses[-1])


def _translated(error: Exception, name: str) -> InterlinguaError:
    """Map the reason for which no connection was made."""
    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, InvalidStatus):
        status, answer = error.response.status_code, error.response
        body = bytes(answer.body[:_BODY])
        why = refusal_reason(status, body, answer.headers.get("Location", ""))
        message = f"{name} refused the WebSocket with status {status}{why}"
        return UpgradeRefused(message, status=status, headers=_plain(answer.headers), body=body).unsent()
    if isinstance(error, TimeoutError):
        return AgentTimeout(f"{name} did not open a WebSocket in time", detail=detail, untaken=True)
    if isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError):
        return AgentGone(f"{name} closed the connection without an answer", detail=detail, untaken=True)
    if isinstance(error, InvalidHandshake):
        return AgentBroken(f"{name} did not answer as a WebSocket server does", detail=detail)
    if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
        return AgentGone(f"the connection to {name} was lost", detail=detail, untaken=True)
    if isinstance(error, OSError):
        return Unreachable.because(error, name)
    if isinstance(error, (InvalidURI, ValueError)):
        return Invalid(f"no WebSocket can be opened to {name}", detail=detail)
    return AgentGone(f"no WebSocket could be opened to {name}", detail=detail, untaken=True)


def _plain(headers: Headers) -> dict[str, str]:
    plain: dict[str, str] = {}
    for name, value in headers.raw_items():
        key = name.lower()
        plain[key] = f"{plain[key]}, {value}" if key in plain else value
    return plain
