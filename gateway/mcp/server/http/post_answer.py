"""The answer to a POST: the messages on the way, and the answers, on the stream of the response."""

from __future__ import annotations

import asyncio
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

    messages: the answers. made: the stream; None until something else is said, or somebody asks for it.
    """

    def __init__(self, name: str, keep: int, wanted: int = 1) -> None:
        self.messages: list[bytes] = []
        self.made: MessageStream | None = None
        self._name = name
        self._keep = keep
        self._wanted = wanted
        self._said = False
        self._waiting: asyncio.Future[None] | None = None

    @property
    def stream(self) -> MessageStream:
        """All of it, as a response carries it."""
        if self.made is None:
            self.made = MessageStream(self._name, numbered(self._name), keep=self._keep)
            for message in self.messages:
                self.made.put(message)
            if self.over:
                self.made.end()
        return self.made

    @property
    def over(self) -> bool:
        """Whether all answers are there."""
        return len(self.messages) == self._wanted

    def put(self, message: bytes) -> None:
        """Say something before the answer."""
        self._said = True
        self.stream.put(message)
        self._wake()

    def reply(self, message: bytes) -> None:
        """Put an answer."""
        self.messages.append(message)
        if self.made is not None:
            self.made.put(message)
        if self.over:
            if self.made is not None:
                self.made.end()
            self._wake()

    async def silent(self, seconds: float | None) -> bool:
        """Wait for all answers. True if nothing else was said, and they came in time: then they can be a JSON body.

        None: however long they take.
        """
        if not self._said and not self.over:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = None if seconds is None else loop.call_later(seconds, self._wake)
            try:
                await self._waiting
            finally:
                if timer is not None:
                    timer.cancel()
        return self.over and not self._said

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


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
        return self.answer.made is not None and self.answer.made.full

    def put(self, message: bytes) -> None:
        self.answer.put(message)

    async def drain(self) -> None:
        if self.answer.made is not None:
            await self.answer.made.drain()

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        if self._asking is None:
            raise Unsupported(f"{method} cannot be asked over this connection")
        return await self._asking.request(method, params, timeout, given_up, None, sink=self.answer)
