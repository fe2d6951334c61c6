"""The streams of Streamable HTTP: the answer to a POST, with the messages on the way; and the standalone stream of a
GET, which carries what belongs to no request of the client's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from gateway.core.errors import AgentGone, Unavailable, Unsupported
from gateway.mcp.server.pipe import given_up
from gateway.transport.rpc.outgoing import OutgoingRequests
from gateway.transport.streamable_http.server import Encode, MessageStream
from gateway.wire import sse
from gateway.wire.jsonrpc import Id


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
        return await self._asking.request(method, params, timeout=timeout, cancel=given_up, sink=self.answer)


RETURN_SECONDS = 15.0
"""How long a client that has lost its GET is waited for: SDKs try again after a second or a few."""


class StandaloneStream:
    """The stream of one session that belongs to no request, and the questions on it.

    A question stays on the stream until it is answered or given up: a client that comes back with the id of the last
    event it saw gets it then. It fails with AgentGone once its client is taken to have gone: when it was not sent and
    nobody has come back for it in RETURN_SECONDS; when it was, and that long nothing was POSTed either.

    most: how many questions may be unanswered. No more are asked while much is unread.
    """

    def __init__(self, stream: MessageStream, asking: OutgoingRequests, most: int) -> None:
        self.stream = stream
        self._asking = asking
        self._most = most
        self._questions: dict[Id, _Question] = {}
        self._gets = 0
        self._until = 0.0
        self._heard = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        """Whether a client reads it, or may be back soon."""
        return not self.stream.over and (self.read or asyncio.get_running_loop().time() < self._until)

    @property
    def read(self) -> bool:
        """Whether a client reads it now."""
        return self._gets > 0

    @property
    def waiting(self) -> bool:
        return bool(self._questions)

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        if not self.open:
            raise AgentGone("the client has no GET open over which it could be asked")
        if len(self._questions) >= self._most or self.stream.full:
            raise Unavailable("the client has too many questions to answer; try again later")
        question = _Question(self.stream)

        def named(id: Id) -> None:
            question.named(id)
            self._questions[id] = question

        try:
            return await self._asking.request(
                method, params, timeout=timeout, cancel=given_up, named=named, sink=question
            )
        finally:
            question.close()
            self._questions.pop(question.id, None)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """While the block lasts there is a GET that carries the stream, or did until another took it over."""
        self._gets += 1
        self._stop()
        try:
            yield
        finally:
            self._gets -= 1
            if not self._gets and not self.stream.over:
                self._until = asyncio.get_running_loop().time() + RETURN_SECONDS
                self._wait()

    def heard(self) -> None:
        """Note that the client has POSTed something."""
        self._heard = asyncio.get_running_loop().time()

    def end(self) -> None:
        """The session has ended; who waits has been told."""
        self._stop()
        self.stream.end()

    def _wait(self) -> None:
        self._stop()
        self._timer = asyncio.get_running_loop().call_later(RETURN_SECONDS, self._missed)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _missed(self) -> None:
        """Fail the questions of a client that has not come back in time."""
        silent = asyncio.get_running_loop().time() - self._heard >= RETURN_SECONDS
        for id, question in self._questions.items():
            if silent or not question.sent:
                self._asking.fail(id, AgentGone("the client has lost its GET, and not come back"))
        if self._questions and not silent:
            self._wait()


class _Question:
    """A Sink for one request, and the notification that it is given up."""

    def __init__(self, stream: MessageStream) -> None:
        self.id: Id = None
        self._stream = stream
        self._number: int | None = None

    def named(self, id: Id) -> None:
        self.id = id

    @property
    def sent(self) -> bool:
        """Whether it has gone out, and its client has not said that it never came."""
        return self._number is not None and not self._stream.unwritten(self._number)

    def put(self, message: bytes) -> None:
        """See `Sink`. A client is not told that a question is given up which it never got."""
        if self._number is None:
            self._number = self._stream.pin(message)
        elif not self._stream.withdraw(self._number):
            self._stream.put(message)

    def close(self) -> None:
        """It is answered, or given up."""
        if self._number is not None:
            self._stream.withdraw(self._number)
