"""The answer to a POST: the messages on the way, and the answers, on the stream of the response."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from msgspec import Raw

from gateway.core.errors import Unsupported
from gateway.mcp.server.pipe import given_up
from gateway.transport.rpc.asking import OutgoingRequests
from gateway.transport.streamable_http.server import Encode, MessageStream
from gateway.wire import sse


def numbered(name: str) -> Encode:
    """Events with an id of the stream's name and their number; without one for a stream that has no name."""

    def encode(number: int, message: bytes) -> bytes:
        id = f"{name}-{number}" if name else None
        return sse.encode(sse.escape_separators(message), event="message", id=id, one_line=True)

    return encode


class PostAnswer:
    """The answers to the requests of one POST, `wanted` of them, and what is said before. The last ends the stream.

    messages: the answers.
    """

    def __init__(self, name: str, keep: int, wanted: int = 1) -> None:
        self.stream = MessageStream(name, numbered(name), keep=keep)
        self.messages: list[bytes] = []
        self._wanted = wanted
        self._said = False

    def put(self, message: bytes) -> None:
        """Say something before the answer."""
        self._said = True
        self.stream.put(message)

    def reply(self, message: bytes) -> None:
        """Put an answer."""
        self.messages.append(message)
        self.stream.put(message)
        if len(self.messages) == self._wanted:
            self.stream.end()

    async def silent(self, seconds: float | None) -> bool:
        """Wait for all answers. True if nothing else was said, and they came in time: then they can be a JSON body.

        None: however long they take.
        """
        some = self.stream.some
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._said and not self.stream.over:
                    some.clear()
                    await some.wait()
        return self.stream.over and not self._said


class ResponseOut:
    """An Out: the messages of a call go onto its response.

    asking: takes the client's answers; None for a client that is not asked.
    """

    def __init__(self, answer: PostAnswer, asking: OutgoingRequests | None = None) -> None:
        self.can_ask = asking is not None
        self.answer = answer
        self._asking = asking

    @property
    def full(self) -> bool:
        return self.answer.stream.full

    def put(self, message: bytes) -> None:
        self.answer.put(message)

    async def drain(self) -> None:
        await self.answer.stream.drain()

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        if self._asking is None:
            raise Unsupported(f"{method} cannot be asked over this connection")
        return await self._asking.request(method, params, timeout, given_up, None, sink=self.answer)
