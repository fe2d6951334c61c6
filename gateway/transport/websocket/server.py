"""The server's end of a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Protocol, Self

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from gateway.core.errors import AgentGone
from gateway.transport.pipe import LIMIT, Unreadable, judged
from gateway.transport.websocket.limits import CLOSE_SECONDS, binary, checked

log = logging.getLogger(__name__)

EXTENSION = "interlingua.messages"
"""The key in a scope's `extensions` for the connection's `TextMessages` if the server has them (see uvicorn.py)."""
GOING_AWAY = 1001
"""RFC 6455, 7.4.1."""
_IN_ORDER = (1000, 1001, 1005)
"""Close codes of an orderly end. uvicorn reports a lost connection as 1005, too."""


class TextMessages(Protocol):
    """Reads and writes text messages past ASGI."""

    def direct(self, take: Callable[[bytes], bool]) -> None:
        """Give each message that arrives while none waits to `take` first. ASGI gets it where that returns False."""

    def when_left(self, receive: Callable[[], None]) -> None:
        """Call `receive` once, when there is something that ASGI gets."""

    def offer(self, messages: Sequence[bytes]) -> bool:
        """Write now. False if the client is behind, or nothing can be sent any more."""

    async def send_messages(self, messages: Sequence[bytes]) -> None:
        """Write as fast as the client reads. Raises an OSError when the client has gone."""


class ServerSocket:
    """A Pipe over Starlette's WebSocket, which is accepted already. The endpoint returns after `aclose`.

    The server must let messages of HARD_LIMIT through. Without a `receive` nothing is read from the network. The
    WebSocket's scope is emptied: with its headers it is 3 KB, which nothing asks for after the upgrade; only
    Starlette's `websocket.headers` would keep them.
    """

    def __init__(self, websocket: WebSocket, *, limit: int = LIMIT) -> None:
        self._websocket = websocket
        self._limit = limit
        self._ended = False
        self._used = 0.0  # the time of the last message, either way
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._texts: TextMessages | None = websocket.scope.get("extensions", {}).get(EXTENSION)
        self._receiving = False
        client = websocket.client
        self._name = f"the client at {client.host}:{client.port}" if client else "a client"
        websocket.scope.clear()

    @classmethod
    async def accept(
        cls,
        websocket: WebSocket,
        *,
        headers: Mapping[str, str] | None = None,
        subprotocol: str | None = None,
        limit: int = LIMIT,
    ) -> Self:
        """Accept the upgrade, with `headers`. Raises Invalid for a malformed one, AgentGone if the client has left."""
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in checked(headers or {})]
        try:
            await websocket.accept(subprotocol, pairs)
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise AgentGone("the client left before it was answered", detail=repr(error)) from error
        return cls(websocket, limit=limit)

    @property
    def name(self) -> str:
        return self._name

    def close_when_idle(self, seconds: float, busy: Callable[[], bool]) -> None:
        """Close it (1001) when no message went either way for so long and it is not `busy`. Pings do not count."""
        self._used = monotonic()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look, seconds, busy)

    def _look(self, seconds: float, busy: Callable[[], bool]) -> None:
        left = seconds if busy() else self._used + seconds - monotonic()
        if left > 0:
            self._timer = asyncio.get_running_loop().call_later(left, self._look, seconds, busy)
        else:
            log.info("%s said nothing for %g s: its connection is ended", self._name, seconds)
            self._closing = asyncio.create_task(self.aclose(GOING_AWAY, f"idle for {seconds:g} s"))

    async def send(self, messages: Sequence[bytes]) -> None:
        self._used = monotonic()
        try:
            if self._texts is not None:
                await self._texts.send_messages(messages)
                return
            for message in messages:
                await self._websocket.send({"type": "websocket.send", "text": message.decode()})
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise AgentGone(f"{self._name} has gone", detail=repr(error)) from error

    def offer(self, messages: Sequence[bytes]) -> bool:
        self._used = monotonic()
        return self._texts is not None and self._texts.offer(messages)

    def direct(self, take: Callable[[Sequence[bytes | Unreadable]], Sequence[bytes | Unreadable]]) -> None:
        self._take = take
        if self._texts is not None:
            self._texts.direct(self._taken)

    def _taken(self, data: bytes) -> bool:
        if not self._receiving or self._ended:
            return False
        self._used = monotonic()
        return not self._take([judged(data, self._limit)])

    def when_left(self, receive: Callable[[], None]) -> None:
        if self._texts is None:
            receive()
        else:
            self._receiving, self._receive = True, receive
            self._texts.when_left(self._left)

    def _left(self) -> None:
        self._receiving = False
        self._receive()

    async def receive(self) -> Sequence[bytes | Unreadable]:
        """Receive one message. If others have arrived, the next call returns at once."""
        if self._ended:
            return []
        self._receiving = True
        try:
            message = await self._websocket.receive()
        finally:
            self._receiving = False
        self._used = monotonic()
        if message["type"] == "websocket.disconnect":
            ours, self._ended = self._ended, True
            code, reason = message.get("code", 1005), message.get("reason") or ""
            if ours or code in _IN_ORDER:
                return []
            raise AgentGone(f"{self._name} has gone ({code} {reason}".rstrip() + ")")
        if self._ended:
            return []
        text = message.get("text")
        if text is None:
            return [binary(message.get("bytes") or b"")]
        return [judged(text.encode("utf-8", "surrogatepass"), self._limit)]

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close. The server ends a `receive` that waits."""
        if self._timer is not None:
            self._timer.cancel()
        if self._websocket.application_state is WebSocketState.CONNECTED:
            self._ended = True
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._websocket.close(code, reason)
        self._ended = True
