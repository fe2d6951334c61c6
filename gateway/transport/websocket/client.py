"""The client's end of a WebSocket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from gateway.core.errors import Invalid
from gateway.transport.pipe import LIMIT, Unreadable
from gateway.transport.refusal import UpgradeRefused
from gateway.transport.websocket.headers import checked
from gateway.transport.websocket.limits import binary, hard, judged

if TYPE_CHECKING:
    from gateway.transport.guard import Guard
    from gateway.transport.http import HttpAuth
    from gateway.transport.websocket.dialing import WebSocketConnection

_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}


class ClientSocket:
    """A Pipe to an agent; made by `connect`.

    headers: of the answer to the upgrade, names in lower case, several values joined by ", ".
    """

    def __init__(self, name: str, connection: WebSocketConnection, limit: int) -> None:
        self.name = name
        self.headers = connection.headers
        self._connection = connection
        self._limit = limit
        self._closed = False

    async def send(self, messages: Sequence[bytes]) -> None:
        await self._connection.send(messages)

    async def receive(self) -> Sequence[bytes | Unreadable]:
        """Receive one message. If others have arrived, the next call returns at once."""
        message = None if self._closed else await self._connection.receive()
        if message is None or self._closed:
            return []
        return [judged(message.encode(), self._limit) if isinstance(message, str) else binary(message)]

    async def aclose(self) -> None:
        self._closed = True
        await self._connection.close()


async def connect(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    subprotocols: Sequence[str] = (),
    limit: int = LIMIT,
    open_timeout: float = 10.0,
    auth: HttpAuth | None = None,
    guard: Guard | None = None,
) -> ClientSocket:
    """Open a WebSocket. `url` is ws, wss, http or https. `open_timeout`: seconds until the answer to the upgrade.

    No redirect is followed and no proxy of the environment used, as with HttpClient. A peer that does not answer a
    ping within PING_TIMEOUT seconds is gone. `guard` judges the addresses that are connected to. `auth` is shown in
    the upgrade; where its token is refused, once more with a new one.

    Raises Unreachable if no connection could be made, AgentTimeout, UpgradeRefused for any status but 101,
    AgentGone if the connection was lost in between, AgentBroken if the server speaks no WebSocket, Invalid if no
    request can be made of the arguments; Denied by the guard.
    """
    from gateway.transport.websocket.dialing import dial

    address, name = _address(url)
    given = {**(headers or {}), **(auth.headers() if auth else {})}
    tls = auth.tls.context() if auth and auth.tls and address.startswith("wss:") else None

    async def dialled(token: str = "") -> WebSocketConnection:
        sent = checked({**given, "Authorization": f"Bearer {token}"} if token else given)
        return await dial(
            address,
            name,
            headers=sent,
            subprotocols=subprotocols,
            max_size=hard(limit),
            open_timeout=open_timeout,
            ssl_context=tls,
            guard=guard,
        )

    tokens = auth.tokens if auth else None
    if tokens is None:
        return ClientSocket(name, await dialled(), limit)
    token = await tokens.token()
    try:
        connection = await dialled(token)
    except UpgradeRefused as refused:
        if refused.status != 401:
            raise
        tokens.refused(token)
        connection = await dialled(await tokens.token())
    return ClientSocket(name, connection, limit)


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
