"""One stream of what the agent says: a GET, opened again when it drops."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from adapters.agent_client.outbound.http.answers import GONE, LATER, Refused
from adapters.agent_client.streamable import EVENTS
from gateway.core.errors import AgentBroken, InterlinguaError
from gateway.transport.pipe import Unreadable
from gateway.transport.websocket.limits import hard, judged
from gateway.wire import sse

if TYPE_CHECKING:
    from adapters.agent_client.outbound.http.pipe import HttpPipe
    from gateway.transport.http import StreamResponse

log = logging.getLogger(__name__)

TRIES = 7
"""In a row, without anything heard in between, and none of them lasting."""
CONFIRM = 2
"""Tries after which a session's stream is taken to have ended."""
LASTING_SECONDS = 5.0
"""A stream that was open for this long was a good one: what is between us may cut those that are silent."""
FIRST_DELAY = 0.05
"""Seconds; doubled with every further try."""
HEAD_SECONDS = 300.0
IDLE_SECONDS = 300.0
"""Servers send comments every 15 s. One that sends nothing for this long may have gone without a word."""
BODY = 8 * 1024


class Reader:
    """Made for one session, or for the connection itself (None).

    open: whether the GET is being answered now.
    first: done when it was answered for the first time, with whether it was served.
    heard: when something last came, on the loop's clock.
    """

    def __init__(self, pipe: HttpPipe, session: str | None) -> None:
        self.session = session
        self.open = False
        self.heard = 0.0
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[bool] = loop.create_future()
        self._pipe = pipe
        self._time = loop.time
        self._count = 0
        self.task = asyncio.create_task(self._run(), name=f"{pipe.name} stream")

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
            log.exception("%s: reading %s failed", self._pipe.name, self.name)
            why = AgentBroken(f"{self.name} could not be read", detail=repr(error))
        finally:
            if not self.first.done():
                self.first.set_result(False)
        self._pipe.lost(self, why)

    async def _read(self) -> InterlinguaError:
        tries = 0
        while True:
            count = self._count
            try:
                await self._once()
                why: InterlinguaError = AgentBroken(f"{self._pipe.name} ends {self.name} again and again")
            except Refused as error:
                # If it is the connection that has ended, its own stream is to say so first.
                late = error.status in GONE and self.session is not None and self.served and tries < CONFIRM
                if error.status not in LATER and not late:
                    return error
                why = error
            except InterlinguaError as error:
                why = error
            tries = 1 if self._count > count else tries + 1
            if tries > TRIES + (self.session is not None):  # that of the connection gives up first
                return why
            log.debug("%s: %s is opened again: %s", self._pipe.name, self.name, why)
            await asyncio.sleep(FIRST_DELAY * 2 ** (tries - 1))

    async def _once(self) -> None:
        """One GET, to its end. Raises Refused and the errors of HttpClient."""
        pipe = self._pipe
        headers = {"Accept": EVENTS, **pipe.headers(self.session)}
        stream = pipe.client.stream("GET", pipe.url, headers=headers, timeout=HEAD_SECONDS, idle_timeout=IDLE_SECONDS)
        async with stream as response:
            pipe.keep_cookies(response.headers)
            if response.status != 200 or response.content_type != EVENTS:
                told = f"{pipe.name} answered a GET of {self.name}"
                raise Refused(told, response.status, await _body(response))
            self.open = True
            if not self.first.done():
                self.first.set_result(True)
            began = self._time()
            try:
                await self._take(response)
            finally:
                self.open = False
                self._count += self._time() >= began + LASTING_SECONDS

    async def _take(self, response: StreamResponse) -> None:
        limit = self._pipe.limit
        decoder = sse.SseDecoder(hard(limit))
        async for chunk in response.chunks():
            try:
                frames = decoder.feed(chunk)
            except AgentBroken as error:
                # Nobody knows where it ends: what follows comes with the next GET.
                self._count += 1
                await self._pipe.arrived([Unreadable(str(error), b"", hard(limit))], self)
                return
            if frames:
                self._count += 1
                self.heard = self._time()
                await self._pipe.arrived([judged(frame.data, limit) for frame in frames], self)


async def _body(response: StreamResponse) -> bytes:
    """What a refusal says, as far as that can be had."""
    try:
        async with asyncio.timeout(1.0):
            return await response.read(BODY)
    except (InterlinguaError, TimeoutError):
        return b""
