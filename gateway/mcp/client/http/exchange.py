"""One request over Streamable HTTP: its POST, what comes on the stream that answers it, and the GETs that go on with
that stream where it broke off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw

from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError
from gateway.mcp import wire
from gateway.mcp.client.calls import Call
from gateway.mcp.client.http.address import LATER, HttpRefused, unexpected
from gateway.mcp.client.http.events import Cursor, read
from gateway.transport.http import StreamResponse
from gateway.transport.pipe import Unreadable
from gateway.transport.websocket.limits import hard, judged
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, Malformed, Response, RpcError

if TYPE_CHECKING:
    from gateway.mcp.client.http.streamable import StreamableChannel

log = logging.getLogger(__name__)

TRIES = 7
"""To go on with a stream, in a row without anything heard in between."""
MOST_DELAY = 60.0
"""Seconds before one."""
SETTLE_SECONDS = 0.05
"""How long an answer waits for progress that comes on another stream; again if some came."""
SETTLE_MOST = 1.0
TURNS = 3
"""Of the loop, in which what has come on another stream, if only together with the answer, is heard."""
REST_SECONDS = 1.0
"""What a stream still says after the answer is read for this long, so that its connection can serve again."""


class SessionLost(AgentGone):
    """The server does not know the session any more; it has not done anything."""


class Exchange:
    """Made for one request, run once. `id` is its id, `body` it whole."""

    def __init__(self, channel: StreamableChannel, id: int, method: str, body: bytes, call: Call | None) -> None:
        self._channel = channel
        self._address = channel.address
        self._id = id
        self._method = method
        self._body = body
        self._call = call
        self._cursor = Cursor()
        self._answer: Response | InterlinguaError | None = None

    async def run(self, headers: dict[str, str]) -> Raw:
        """See `Channel.request`. Raises SessionLost too."""
        async with AsyncExitStack() as stack:
            patient = self._method != wire.INITIALIZE
            response = await stack.enter_async_context(self._address.post(self._body, headers, patient=patient))
            if response.status != 200:
                raise await self._refused(response, wire.SESSION_HEADER in headers)
            if self._method == wire.INITIALIZE:
                self._channel.session_id = response.headers.get(wire.SESSION_HEADER) or None
            if response.content_type == wire.JSON:
                body = await response.read(hard(self._address.limit))
                await self._take(judged(body, self._address.limit))
            elif response.content_type == wire.EVENTS:
                if await self._read(response):
                    self._channel.rest(stack.pop_all(), response)
            else:
                raise unexpected(self._address.name, self._method, response)
        if self._answer is None:
            await self._resume(AgentGone(f"{self._address.name} ended its answer to {self._method} before it was one"))
        if self._call is not None and (self._call.elsewhere or self._channel.listens):
            await self._settle(self._call)
        if isinstance(self._answer, Response):
            error = self._answer.error
            if error is not None:
                raise RpcError(error.code, error.message, error.data)
            return self._answer.result
        assert self._answer is not None
        raise self._answer

    async def _refused(self, response: StreamResponse, in_session: bool) -> InterlinguaError:
        """What a status other than 200 means."""
        if response.status < 300:
            return AgentBroken(f"{self._address.name} takes {self._method} and does not answer it")
        error = await self._address.refusal(response, self._method)
        if in_session and _lost(response.status, error):
            return SessionLost(f"{self._address.name} does not know the session any more")
        return error

    # --- the stream ------------------------------------------------------------------------------------------------

    async def _read(self, response: StreamResponse) -> bool:
        """Whether the answer came. A stream that breaks off has ended."""
        try:
            return await read(response, self._cursor, self._address.limit, self._take)
        except AgentGone as error:
            if not self._cursor.id:
                raise
            log.debug("%s: the stream of %s broke off: %s", self._address.name, self._method, error)
            return False

    async def _resume(self, why: InterlinguaError) -> None:
        """Go on with the stream until the answer has come. Raises AgentGone where that cannot be."""
        tries = 0
        while self._cursor.id:
            await asyncio.sleep(self._cursor.delay(tries, MOST_DELAY))
            tries += 1
            heard = self._cursor.heard
            try:
                if await self._once():
                    return
            except HttpRefused as error:
                why = AgentGone(str(error))
                if error.status not in LATER:
                    break
            except AgentGone as error:
                why = error
            if self._cursor.heard > heard:
                tries = 0
            elif tries >= TRIES:
                break
        raise AgentGone(str(why), detail=why.detail)

    async def _once(self) -> bool:
        headers = {**self._channel.headers(), "Accept": wire.EVENTS, wire.RESUME_HEADER: self._cursor.id}
        client, address = self._address.client, self._address
        async with client.stream("GET", address.url, headers=headers, timeout=address.timeout) as response:
            if response.status != 200 or response.content_type != wire.EVENTS:
                error = await address.refusal(response, f"going on with {self._method}")
                raise error if isinstance(error, AgentGone) else HttpRefused(str(error), response.status)
            return await self._read(response)

    async def _take(self, data: bytes | Unreadable) -> bool:
        """A message, or several, of the stream, or the whole answer. Whether it was the answer."""
        await self._handle(data if isinstance(data, Unreadable) else jsonrpc.decode(data))
        return self._answer is not None

    async def _handle(self, message: jsonrpc.Message | Unreadable) -> None:
        if isinstance(message, Response):
            if _same(message, self._id):
                self._answer = self._answer or message
            else:
                self._channel.calls.stray(f"an answer to {message.id!r}")
        elif isinstance(message, Malformed | Unreadable):
            self._garbled(message)
        elif isinstance(message, Batch):
            for each in sorted(message.messages, key=lambda each: isinstance(each, Response)):
                await self._handle(each)
        elif self._answer is None:
            await self._channel.take(message, self._call)

    def _garbled(self, what: Malformed | Unreadable) -> None:
        self._channel.calls.garbage(what.reason, what.start, what.size)
        seen = jsonrpc.glimpse(what.start) if isinstance(what, Unreadable) else what
        if seen.id is not UNSET and seen.answer and self._answer is None:
            self._answer = AgentBroken(f"the answer of {self._address.name} cannot be read: {what.reason}")

    async def _settle(self, call: Call) -> None:
        """What it was told on another stream was sent before the answer, but may come after it."""
        time = asyncio.get_running_loop().time
        end = time() + SETTLE_MOST
        await _heard_elsewhere(call)
        while call.elsewhere and time() < end:
            call.elsewhere = False
            await asyncio.sleep(SETTLE_SECONDS)
            await _heard_elsewhere(call)


async def _heard_elsewhere(call: Call) -> None:
    """Returns once it is known whether anything has come, also in a process that was held up meanwhile."""
    for _ in range(TURNS):
        if call.elsewhere:
            return
        await asyncio.sleep(0)


def _same(answer: Response, id: int) -> bool:
    """Whether it is the answer to the stream's own request: an error may not know which, some make ids strings."""
    return answer.id == id or (answer.id is None and answer.error is not None) or answer.id == str(id)


def _lost(status: int, error: InterlinguaError) -> bool:
    """Whether a refusal is about the session: 404 by the book, 400 by some, with a word about it."""
    if isinstance(error, RpcError) and error.error.code == jsonrpc.METHOD_NOT_FOUND:
        return False
    return status == 404 or (status == 400 and "session" in str(error).lower())


async def rest(stack: AsyncExitStack, response: StreamResponse) -> None:
    """Read what is left of a stream whose answer has come; whatever it says, nobody waits for it."""
    async with stack:
        with contextlib.suppress(InterlinguaError, TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                async for _ in response.chunks():
                    pass
