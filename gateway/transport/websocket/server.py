"""The server's end: a client of ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from gateway.core.errors import AgentGone
from gateway.transport.pipe import LIMIT, Unreadable
from gateway.transport.websocket.headers import checked
from gateway.transport.websocket.limits import CLOSE_SECONDS, binary, judged

if TYPE_CHECKING:
    from gateway.transport.websocket.uvicorn import MessageProtocol

EXTENSION = "interlingua.messages"
"""Among a scope's `extensions`: the connection's `MessageProtocol`, where the server has that (see uvicorn.py)."""
_IN_ORDER = (1000, 1001, 1005)
"""Closed, leaving, and closed without a code, which is also what uvicorn makes of a lost connection."""


class ServerSocket:
    """A Pipe over what Starlette hands an endpoint, accepted already. The endpoint returns after `aclose`.

    The server must let messages of HARD_LIMIT through. While nobody receives it reads nothing from the network.
    """

    def __init__(self, websocket: WebSocket, *, limit: int = LIMIT) -> None:
        self._websocket = websocket
        self._limit = limit
        self._ended = False
        self._short: MessageProtocol | None = websocket.scope.get("extensions", {}).get(EXTENSION)
        client = websocket.client
        self._name = f"the client at {client.host}:{client.port}" if client else "a client"

    @classmethod
    async def accept(
        cls,
        websocket: WebSocket,
        *,
        headers: Mapping[str, str] | None = None,
        subprotocol: str | None = None,
        limit: int = LIMIT,
    ) -> Self:
        """Answer the upgrade, with `headers`. Raises Invalid if they are none, AgentGone if the client has left."""
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in checked(headers or {})]
        try:
            await websocket.accept(subprotocol, pairs)
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise AgentGone("the client left before it was answered", detail=repr(error)) from error
        return cls(websocket, limit=limit)

    @property
    def name(self) -> str:
        return self._name

    async def send(self, messages: Sequence[bytes]) -> None:
        send = self._websocket.send
        try:
            if self._short is not None:
                await self._short.send_messages(messages)
                return
            for message in messages:
                await send({"type": "websocket.send", "text": message.decode()})
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise AgentGone(f"{self._name} has gone", detail=repr(error)) from error

    def offer(self, messages: Sequence[bytes]) -> bool:
        return self._short is not None and self._short.offer(messages)

    async def receive(self) -> Sequence[bytes | Unreadable]:
        """See Pipe. One message at a time: what has arrived beside it is there at once."""
        if self._ended:
            return []
        message = await self._websocket.receive()
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
        """See Pipe. A server gives a `receive` that waits its end."""
        if self._websocket.application_state is WebSocketState.CONNECTED:
            self._ended = True
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._websocket.close(code, reason)
        self._ended = True
