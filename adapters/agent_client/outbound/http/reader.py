"""One stream of the agent's messages: a GET, opened again when it drops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from gateway.core.errors import AgentBroken, InterlinguaError
from gateway.transport import refusal
from gateway.transport.http import StreamResponse
from gateway.transport.pipe import Unreadable
from gateway.transport.streamable_http import client as streamable
from gateway.transport.websocket.limits import hard
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id

log = logging.getLogger(__name__)

TRIES = 7
"""In a row, without anything heard in between, and none of them lasting."""
CONFIRM = 2
"""Tries after which a session's stream is taken to have ended."""
LASTING_SECONDS = 5.0
"""A stream that was open for this long was a good one: proxies may cut those that are silent."""
FIRST_DELAY = 0.05
"""Seconds; doubled with every further try."""
BODY = 8 * 1024
BODY_SECONDS = 1.0
GONE = frozenset({404, 410})
"""The session, or the whole connection, is not there."""
AUTH_REQUIRED = -32000


class RequestRefused(InterlinguaError):
    """A message that the server did not take, or a stream that it does not have."""

    def __init__(self, told: str, status: int, body: bytes) -> None:
        super().__init__(f"{told} with status {status}{refusal.refusal_reason(status, body)}")
        self.status = status
        self.body = body


def failure(id: Id, why: InterlinguaError) -> bytes:
    """The answer that a request gets from us instead of from the agent."""
    if not isinstance(why, RequestRefused):
        return jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, str(why)))
    code = AUTH_REQUIRED if why.status in (401, 403) else jsonrpc.INTERNAL_ERROR
    body = why.body[: refusal.SHOWN].decode("utf-8", "replace")
    return jsonrpc.error(id, ErrorObject(code, str(why), {"status": why.status, "body": body}))


class StreamHost(Protocol):
    """The connection that a stream belongs to."""

    name: str
    limit: int
    """Bytes of the largest message that is taken."""

    def get(self, session: str | None) -> AbstractAsyncContextManager[StreamResponse]:
        """Send the GET of a session's stream, or of the connection's (None)."""

    async def arrived(self, messages: Sequence[bytes | Unreadable], reader: EventStreamReader) -> None:
        """Take messages of the stream. Waits while too many are not received yet."""

    def lost(self, reader: EventStreamReader, why: InterlinguaError) -> None:
        """The stream is not there any more."""


class EventStreamReader:
    """Reads the stream of one session, or of the connection itself (None).

    open: whether the GET is being answered now.
    first: done when it was answered for the first time, with whether it was served.
    heard: when something last came, on the loop's clock.
    """

    def __init__(self, host: StreamHost, session: str | None) -> None:
        self.session = session
        self.open = False
        self.heard = 0.0
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[bool] = loop.create_future()
        self._host = host
        self._time = loop.time
        self._cursor = streamable.Cursor()
        self._good = 0
        self.task = asyncio.create_task(self._run(), name=f"{host.name} stream")

    @property
    def served(self) -> bool:
        """Whether the server ever had such a stream."""
        return self.first.done() and self.first.result()

    @property
    def name(self) -> str:
        """For logs and error messages."""
        return "the connection's stream" if self.session is None else f"the stream of session {self.session}"

    async def _run(self) -> None:
        """Until the pipe is closed, the server says that there is nothing to read, or it does not answer any more."""
        try:
            why = await self._read()
        except Exception as error:
            log.exception("%s: reading %s failed", self._host.name, self.name)
            why = AgentBroken(f"{self.name} could not be read", detail=repr(error))
        finally:
            if not self.first.done():
                self.first.set_result(False)
        self._host.lost(self, why)

    async def _read(self) -> InterlinguaError:
        tries = 0
        while True:
            heard, good = self._cursor.heard, self._good
            try:
                await self._once()
                why: InterlinguaError = AgentBroken(f"{self._host.name} ends {self.name} again and again")
            except RequestRefused as error:
                # If it is the connection that has ended, its own stream is to say so first.
                late = error.status in GONE and self.session is not None and self.served and tries < CONFIRM
                if error.status not in streamable.LATER and not late:
                    return error
                why = error
            except InterlinguaError as error:
                why = error
            tries = 1 if self._cursor.heard > heard or self._good > good else tries + 1
            if tries > TRIES + (self.session is not None):  # that of the connection gives up first
                return why
            log.debug("%s: %s is opened again: %s", self._host.name, self.name, why)
            await asyncio.sleep(FIRST_DELAY * 2 ** (tries - 1))

    async def _once(self) -> None:
        """One GET, to its end. Raises RequestRefused and the errors of HttpClient."""
        host = self._host
        async with host.get(self.session) as response:
            if not streamable.is_stream(response):
                told = f"{host.name} answered a GET of {self.name}"
                raise RequestRefused(told, response.status, await streamable.refusal_body(response, BODY, BODY_SECONDS))
            self.open = True
            if not self.first.done():
                self.first.set_result(True)
            began = self._time()
            try:
                await streamable.read_events(response, self._cursor, host.limit, self._take, named=True)
            except streamable.EventTooLarge as error:  # what follows comes with the next GET
                self._good += 1
                await host.arrived([Unreadable(str(error), b"", hard(host.limit))], self)
            finally:
                self.open = False
                self._good += self._time() >= began + LASTING_SECONDS

    async def _take(self, messages: Sequence[bytes | Unreadable]) -> bool:
        self.heard = self._time()
        await self._host.arrived(messages, self)
        return False
