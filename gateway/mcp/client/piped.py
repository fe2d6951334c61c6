"""A session over a Pipe, whatever carries that: a subprocess, a WebSocket, HTTP+SSE."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from gateway.core.errors import AgentBroken
from gateway.core.types import JsonObject
from gateway.mcp import wire
from gateway.mcp.client.calls import OutgoingCall, OutgoingCalls
from gateway.mcp.client.session import Channel
from gateway.transport.pipe import Pipe, Unreadable
from gateway.transport.rpc import Peer
from gateway.wire.jsonrpc import Id, Malformed

MOST_ASKED = 100
"""Requests of a server under way at once; more are refused."""
_OF_ANSWERS = frozenset(("jsonrpc", "result", "error", "protocolVersion"))


class PipedChannel(Channel):
    """See `Channel`. Owns its pipe.

    prints: whether its server may print other things among its messages, as programs do on standard output.
    """

    def __init__(self, pipe: Pipe, calls: OutgoingCalls, *, prints: bool = False) -> None:
        super().__init__(pipe.name)
        self._prints = prints
        self._greeting: tuple[Id, str] | None = None
        self._calls = calls
        heard = _Heard(self, calls)
        self.peer = Peer(pipe, heard, concurrency=MOST_ASKED, answer_garbage=False, batches=True, agent=True)
        calls.count_late(lambda: self.peer.counts.late)
        self.peer.start()
        self._watch = asyncio.create_task(self._end(), name=f"{pipe.name} end")

    @property
    def alive(self) -> bool:
        return self.peer.gone is None

    async def request(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        if method in wire.GREETINGS:
            return await self._greet(method, params)
        named = None if call is None else call.named
        try:
            return await self.peer.request(method, params, cancel=_no_longer_wanted, named=named)
        except asyncio.CancelledError:
            self._calls.gave_up()
            raise

    async def _greet(self, method: str, params: JsonObject) -> Raw:
        """A request that is never cancelled, and the only one that the server has then."""

        def named(id: Id) -> None:
            self._greeting = id, method

        try:
            return await self.peer.request(method, params, named=named, alone=True)
        finally:
            self._greeting = None

    def unreadable(self, what: Unreadable | Malformed) -> None:
        """The server said what is no message. Before it has shaken hands, that can only be its answer, unless it
        prints; then it is if it looks like one.
        """
        self._calls.garbage(what.reason, what.start, what.size)
        if self._greeting is not None and (not self._prints or _is_like_an_answer(what.start)):
            (id, method), shown = self._greeting, what.start.decode("utf-8", "replace")
            why = f"{self.name} answered {method} with what is no message ({what.reason}): {shown}"
            self.peer.fail(id, AgentBroken(why))

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        self.peer.notify(method, params)
        await self.peer.drain()

    async def aclose(self) -> None:
        await self.peer.aclose()
        await self._watch

    async def _end(self) -> None:
        gone = await self.peer.wait_closed()
        self.closed.set_result(gone)


class _Heard:
    """Takes the server's messages. See `gateway.transport.rpc.Handler`."""

    def __init__(self, channel: PipedChannel, calls: OutgoingCalls) -> None:
        self._channel = channel
        self._calls = calls

    def request(self, method: str, params: Raw, id: Id) -> Awaitable[Any]:
        stop = partial(self._channel.peer.cancel_incoming, id)
        return self._calls.answer(method, params, self._channel.version, stop)

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if method == wire.CANCELLED:
            self._channel.peer.cancel_incoming(wire.cancelled_in(params))
            return None
        return self._calls.heard(method, params)

    def unreadable(self, what: Unreadable | Malformed) -> None:
        self._channel.unreadable(what)


def _is_like_an_answer(start: bytes) -> bool:
    """Whether an object that is no message was meant to be an answer: a line of a log has other members."""
    try:
        members = msgspec.json.decode(start, type=dict[str, Raw])
    except (ValueError, RecursionError):
        return False
    return not members or not _OF_ANSWERS.isdisjoint(members)


def _no_longer_wanted(id: Id) -> tuple[str, JsonObject]:
    return wire.CANCELLED, {"requestId": id, "reason": "nobody waits for it any more"}
