"""Joins a client's pipe and a gateway's: passes messages both ways, and leaves no request without an answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence

from msgspec import UNSET

from gateway.core.errors import InterlinguaError
from gateway.transport.pipe import Pipe, Unreadable
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Message, MessageBatch, Request, Response

log = logging.getLogger("interlingua")

LINGER_SECONDS = 2.0
"""How long a client that sends nothing more still gets its answers, as from a gateway in this process."""


class PipeBridge:
    """Call `run` once, and close the pipes afterwards. Messages are read only as far as needed to find their ids."""

    def __init__(self, client: Pipe, gateway: Pipe) -> None:
        self._client = client
        self._gateway = gateway
        self._asked: set[Id] = set()
        """The client's requests without an answer."""
        self._answered = asyncio.Event()

    async def run(self) -> bool:
        """Pass messages until one end closes. Returns whether that was the client's."""
        up, down = asyncio.create_task(self._up()), asyncio.create_task(self._down())
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            finished = up.done() and up.result()
            if finished and self._asked:
                answered = asyncio.create_task(self._answered.wait())
                await asyncio.wait({answered, down}, timeout=LINGER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                answered.cancel()
            return finished
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _up(self) -> bool:
        """Pass the client's messages. Returns True at their end, False if the gateway has gone."""
        async for messages in _said(self._client):
            for message in messages:
                if isinstance(message, bytes) and (ids := _ids(jsonrpc.decode(message), Request)):
                    self._asked |= ids
                    self._answered.clear()
            if not await _pass_on(messages, self._client, self._gateway):
                return False
        return True

    async def _down(self) -> None:
        """Pass the gateway's messages, until their end or until the client has gone."""
        async for messages in _said(self._gateway):
            if not await _pass_on(messages, self._gateway, self._client):
                return
            for message in messages:
                if self._asked and isinstance(message, bytes) and (b'"result"' in message or b'"error"' in message):
                    self._settle(message)

    def _settle(self, message: bytes) -> None:
        self._asked -= _ids(jsonrpc.decode(message), Response)
        if not self._asked:
            self._answered.set()


def _ids(said: Message, kind: type[Request | Response]) -> set[Id]:
    """Return the ids of one kind in a message, which may be an array."""
    return {one.id for one in (said.messages if isinstance(said, MessageBatch) else (said,)) if isinstance(one, kind)}


async def _said(pipe: Pipe) -> AsyncIterator[Sequence[bytes | Unreadable]]:
    with contextlib.suppress(InterlinguaError):
        while messages := await pipe.receive():
            yield messages


async def _pass_on(messages: Sequence[bytes | Unreadable], source: Pipe, sink: Pipe) -> bool:
    """Answer a request that is too large to pass, or whose answer is. Returns False if `sink` has gone."""
    onward: list[bytes] = []
    back: list[bytes] = []
    for message in messages:
        if isinstance(message, bytes):
            onward.append(message)
            continue
        log.error("%s: %s", source.name, message.reason)
        seen = jsonrpc.glimpse(message.start, message.end)
        if seen.id is not UNSET and (seen.answer or seen.method):
            refusal = jsonrpc.error(seen.id, ErrorObject(jsonrpc.INVALID_REQUEST, message.reason))
            (onward if seen.answer else back).append(refusal)
    try:
        await sink.send(onward)
    except InterlinguaError:
        return False
    if back:
        with contextlib.suppress(InterlinguaError):
            await source.send(back)
    return True
