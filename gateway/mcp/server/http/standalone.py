"""The standalone stream of Streamable HTTP: the GET that carries what belongs to no request of the client's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from gateway.core.errors import AgentGone, Unavailable
from gateway.mcp.server.pipe import given_up
from gateway.transport.rpc.asking import OutgoingRequests
from gateway.transport.streamable_http.server import MessageStream
from gateway.wire.jsonrpc import Id

RETURN_SECONDS = 15.0
"""How long a client that has lost its GET is waited for: SDKs try again after a second or a few."""


class StandaloneStream:
    """The stream of one session that belongs to no request, and the questions on it.

    A question stays on the stream until it is answered or given up: a client that comes back with the id of the last
    event it saw gets it then. It fails with AgentGone once its client is taken to have gone: when it was not sent and
    nobody has come back for it in RETURN_SECONDS; when it was, and that long nothing was POSTed either.

    most: how many questions may be unanswered.
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
        return not self.stream.over and (self._gets > 0 or asyncio.get_running_loop().time() < self._until)

    @property
    def waiting(self) -> bool:
        """Whether anything is asked and not answered."""
        return bool(self._questions)

    async def ask(self, method: str, params: Any, timeout: float | None) -> Raw:
        if not self.open:
            raise AgentGone("the client has no GET open over which it could be asked")
        if len(self._questions) >= self._most:
            raise Unavailable("the client has too many questions to answer; try again later")
        question = _Question(self.stream)

        def named(id: Id) -> None:
            question.named(id)
            self._questions[id] = question

        try:
            return await self._asking.request(method, params, timeout, given_up, named, sink=question)
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
        """It has this id."""
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
