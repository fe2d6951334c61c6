"""A connection in memory between an end of an agent's and a `Proxy`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Raw

from adapters.agent_client.tunnel import mcp_messages
from adapters.agent_client.tunnel.end import CANCELLED
from adapters.agent_client.wire import JsonObject
from gateway.core.errors import AgentGone
from gateway.transport.pipe import Unreadable
from gateway.transport.rpc import Peer
from gateway.wire.jsonrpc import Id, Malformed

HELD = 1024 * 1024
"""Bytes on the way after which who sends more waits."""


class Half:
    """One end of it; see `gateway.transport.pipe.Pipe`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.other: Half = self
        self._came: deque[bytes] = deque()
        self._held = 0
        self._closed = False
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def send(self, messages: Sequence[bytes]) -> None:
        """See `Pipe`."""
        await self.other._room.wait()
        if self._closed or self.other._closed:
            raise AgentGone(f"{self.name} has gone")
        self.other._take(messages)

    def _take(self, messages: Sequence[bytes]) -> None:
        self._came += messages
        self._held += sum(map(len, messages))
        self._some.set()
        if self._held > HELD:
            self._room.clear()

    async def receive(self) -> Sequence[bytes | Unreadable]:
        """See `Pipe`."""
        while not self._came and not self._closed and not self.other._closed:
            self._some.clear()
            await self._some.wait()
        came, self._came, self._held = list(self._came), deque(), 0
        self._room.set()
        return came

    async def aclose(self) -> None:
        """See `Pipe`."""
        self._closed = True
        for half in (self, self.other):
            half._some.set()
            half._room.set()


def pair(name: str) -> tuple[Half, Half]:
    """Both ends."""
    one, other = Half(name), Half(name)
    one.other, other.other = other, one
    return one, other


class Link:
    """What an agent's end says to a `Proxy`, and hears from it, by `asked` and `told` as `End` has them."""

    def __init__(
        self, half: Half, asked: Callable[[Raw], Awaitable[Raw]], told: Callable[[Raw], Awaitable[None]]
    ) -> None:
        self._asked = asked
        self._told = told
        self.peer = Peer(half, self)
        self.peer.start()

    async def ask(self, message: Raw) -> Raw:
        """A request. Raises RpcError with its error."""
        said = mcp_messages.read(message)
        return await self.peer.request(said.method, said.params or None, cancel=_no_longer_wanted)

    def tell(self, message: Raw) -> None:
        """A notification."""
        said = mcp_messages.read(message)
        if said.method != CANCELLED:
            self.peer.notify(said.method, said.params or None)

    async def aclose(self) -> None:
        """End it."""
        await self.peer.aclose()

    # --- gateway.transport.rpc.Handler ------------------------------------------------------------------------------

    async def request(self, method: str, params: Raw, id: Id) -> Any:
        """See `Handler`."""
        return await self._asked(_message(method, params))

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        """See `Handler`."""
        if method == CANCELLED:
            self.peer.cancel_incoming(mcp_messages.cancelled(params))
            return None
        return self._told(_message(method, params))

    def unreadable(self, what: Unreadable | Malformed) -> None:
        """See `Handler`: it does not happen."""


def _message(method: str, params: Raw) -> Raw:
    return mcp_messages.encoded({"method": method, "params": params} if params else {"method": method})


def _no_longer_wanted(id: Id) -> tuple[str, JsonObject]:
    return CANCELLED, {"requestId": id}
