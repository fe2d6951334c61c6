"""The client's end of a WebSocket, on the client of the `websockets` library, whose errors are mapped to ours."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit, urlunsplit

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
from gateway.transport.pipe import LIMIT, Unreadable, hard, judged
from gateway.transport.refusal import UpgradeRefused, refusal_reason
from gateway.transport.websocket.limits import CLOSE_SECONDS, PING_INTERVAL, PING_TIMEOUT, binary, checked

if TYPE_CHECKING:
    from gateway.transport.guard import Guard
    from gateway.transport.http import HttpAuth

USER_AGENT = "interlingua"
_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_BODY = 8 * 1024
LOOKS = 10
"""How often it is looked whether a byte has moved before a silent peer is given up."""
_REASONS = {
    1002: "it broke the WebSocket protocol",
    1007: "it sent text that is not UTF-8",
    1009: "it sent a message far over the limit",
}
"""The reason for which we closed a connection, by the code that we sent."""


class _Dial(_connect):
    """Follows no redirects. The library would, to other hosts and with all headers but three."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the exception: no redirect is followed."""
        return exc


class _Counted(ClientConnection):
    """Counts the bytes that come."""

    received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)

    @property
    def unsent(self) -> int:
        """Bytes that the other end has not taken: of what is written, those that wait here and in the system."""
        waiting = self.transport.get_write_buffer_size()
        try:
            import fcntl
            import termios

            found = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except (ImportError, OSError, ValueError):  # a system that does not tell, a socket that is closed
            return waiting
        return waiting + int(struct.unpack("i", found)[0])


class ClientSocket:
    """A Pipe to an agent; made by `connect`.

    headers: of the answer to the upgrade, names in lower case, several values joined by ", ".
    """

    def __init__(self, name: str, connection: _Counted, limit: int, patience: float) -> None:
        assert connection.response is not None
        self.name = name
        self.headers = _plain(connection.response.headers)
        self._connection = connection
        self._limit = limit
        self._closed = False
        self._ended = ""
        self._watching = asyncio.create_task(self._watch(patience))

    async def send(self, messages: Sequence[bytes]) -> None:
        try:
            for message in messages:
                await self._connection.send(message, text=True)
        except ConnectionClosed as error:
            raise self._gone(error) from error

    async def receive(self) -> Sequence[bytes | Unreadable]:
        """Receive one message. If others have arrived, the next call returns at once."""
        if self._closed:
            return []
        try:
            message = await self._connection.recv()
        except ConnectionClosedOK:
            return []
        except ConnectionClosed as error:
            raise self._gone(error) from error
        if self._closed:
            return []
        return [judged(message.encode(), self._limit) if isinstance(message, str) else binary(message)]

    async def _watch(self, patience: float) -> None:
        """End the connection when a ping is not answered and no byte has moved for so long.

        A pong waits behind a message in transit, whichever way that goes, and 16 MiB take minutes on a slow line. While
        nobody receives, nothing is read, and nobody can tell.
        """
        connection, clock = self._connection, asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(PING_INTERVAL)
            pong = asyncio.create_task(self._ping())
            try:
                received, unsent, since = connection.received, connection.unsent, clock()
                while not pong.done():
                    await asyncio.wait({pong}, timeout=patience / LOOKS)
                    moved = connection.received != received or connection.unsent < unsent
                    received, unsent = connection.received, connection.unsent
                    if moved or not connection.transport.is_reading():
                        since = clock()
                    elif clock() - since >= patience:
                        self._ended = f"it did not answer a ping, and not a byte has come or gone for {patience:g} s"
                        connection.transport.abort()
                        return
                if not pong.result():
                    return
            finally:
                pong.cancel()

    async def _ping(self) -> bool:
        """Send a ping, behind all that waits to be sent. Returns whether it was answered; False at the end."""
        try:
            await (await self._connection.ping())
        except ConnectionClosed:
            return False
        return True

    async def aclose(self) -> None:
        self._closed = True
        self._watching.cancel()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._connection.close()
        except TimeoutError:
            self._connection.transport.abort()

    def _gone(self, error: ConnectionClosed) -> AgentGone:
        if error.rcvd is not None:
            said = f"{error.rcvd.code} {error.rcvd.reason}".strip()
            return AgentGone(f"{self.name} closed the connection ({said})")
        why = self._ended or (_REASONS.get(error.sent.code) if error.sent is not None else None)
        if why:
            return AgentGone(f"the connection to {self.name} was ended: {why}")
        return AgentGone(f"the connection to {self.name} was lost", detail=repr(error.__cause__ or error))


async def connect(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    subprotocols: Sequence[str] = (),
    limit: int = LIMIT,
    open_timeout: float = 10.0,
    auth: HttpAuth | None = None,
    guard: Guard | None = None,
    patience: float = PING_TIMEOUT,
) -> ClientSocket:
    """Open a WebSocket. `url` is ws, wss, http or https. `open_timeout`: seconds until the answer to the upgrade.

    No redirect is followed and no proxy of the environment used, as with HttpClient. A peer that does not answer a
    ping is gone when no byte has moved either way for `patience` seconds. `guard` judges the addresses that are
    connected to. `auth` is shown in the upgrade; where its token is refused, once more with a new one.

    Raises Unreachable if no connection could be made, AgentTimeout, UpgradeRefused for any status but 101,
    AgentGone if the connection was lost in between, AgentBroken if the server speaks no WebSocket, Invalid if no
    request can be made of the arguments; Denied by the guard.
    """
    address, name = _address(url)
    given = {**(headers or {}), **(auth.headers() if auth else {})}
    tls = auth.tls.context() if auth and auth.tls and address.startswith("wss:") else None

    async def dialled(token: str = "") -> ClientSocket:
        sent = checked({**given, "Authorization": f"Bearer {token}"} if token else given)
        return await _dial(
            address,
            name,
            sent,
            subprotocols,
            limit=limit,
            patience=patience,
            open_timeout=open_timeout,
            ssl_context=tls,
            guard=guard,
        )

    tokens = auth.tokens if auth else None
    if tokens is None:
        return await dialled()
    token = await tokens.token()
    try:
        return await dialled(token)
    except UpgradeRefused as refused:
        if refused.status != 401:
            raise
        tokens.refused(token)
        return await dialled(await tokens.token())


async def _dial(
    address: str,
    name: str,
    headers: Sequence[tuple[str, str]],
    subprotocols: Sequence[str],
    *,
    limit: int,
    patience: float,
    open_timeout: float,
    ssl_context: ssl.SSLContext | None,
    guard: Guard | None,
) -> ClientSocket:
    """Connect once. Raises as `connect` does."""
    options: dict[str, Any] = {} if ssl_context is None else {"ssl": ssl_context}

    async def one(host: str | None = None) -> ClientSocket:
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
            ping_interval=None,
            close_timeout=CLOSE_SECONDS / 2,
            max_size=hard(limit),
            # Frames, however large: two at most wait beside the small ones that came with them.
            max_queue=(1, 0),
            create_connection=_Counted,
            **options,
        )
        return ClientSocket(name, cast("_Counted", await dialled), limit, patience)

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


async def _first(addresses: Sequence[str], dial: Callable[..., Awaitable[ClientSocket]]) -> ClientSocket:
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


def _address(url: str) -> tuple[str, str]:
    """Return the URL to dial, and its name for logs, without credentials or query. Raises Invalid."""
    if any(ch <= " " or ch == "\x7f" for ch in url):
        raise Invalid("the URL has characters that no URL has")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid("the URL cannot be read", detail=str(error)) from error
    if parts.scheme not in _SCHEMES:
        raise Invalid(f"not a URL of a WebSocket: its scheme is {parts.scheme!r}")
    if not host:
        raise Invalid("the URL names no host")
    shown = f"[{host}]" if ":" in host else host
    name = f"{shown}:{port}{parts.path}" if port else f"{shown}{parts.path}"
    return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, parts.path, parts.query, "")), name
