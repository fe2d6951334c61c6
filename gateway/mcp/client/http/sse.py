"""HTTP+SSE (2024-11-05): one long GET that the server speaks on, and a POST for each of our messages, as a Pipe."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from urllib.parse import urljoin, urlsplit

from gateway.core.errors import AgentBroken, AgentGone, AgentTimeout, InterlinguaError
from gateway.mcp.client.http.address import Address, unexpected
from gateway.transport.http import StreamResponse
from gateway.transport.pipe import Inbox, Unreadable, hard, judged
from gateway.transport.streamable_http import EVENTS, JSON
from gateway.transport.streamable_http.client import SLOWEST
from gateway.transport.tap import about
from gateway.wire import jsonrpc, sse
from gateway.wire.jsonrpc import ErrorObject, Request, RpcError
from gateway.wire.sse import Frame

log = logging.getLogger(__name__)

BUFFER_BYTES = 1024 * 1024
"""The most that may wait to be received. Reading stops beyond it."""
CLOSE_SECONDS = 2.0


class SsePipe:
    """See `gateway.transport.pipe.Pipe`. Made by `connect`.

    A message that the server does not take is answered by us, with an error, where it was a request.
    """

    def __init__(self, address: Address, stack: AsyncExitStack, response: StreamResponse) -> None:
        self.name = address.name
        self._address = address
        self._stack = stack
        self._posts: Address | None = None
        self._inbox = Inbox(BUFFER_BYTES)
        self._endpoint: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone: AgentGone | None = None
        self._ended = False
        self._closed = False
        self._reader = asyncio.create_task(self._run(response), name=f"{self.name} stream")

    @classmethod
    async def connect(cls, address: Address) -> SsePipe:
        """Open the stream and wait for the address of the POSTs.

        Raises the errors of HttpClient, what a refusal means (AgentFailed, RpcError), AgentBroken where the
        server speaks something else.
        """
        async with AsyncExitStack() as stack:
            accept = {"Accept": EVENTS}
            stream = address.client.stream("GET", address.url, headers=accept, timeout=address.timeout)
            with about(None):  # the messages on it are noted one by one
                response = await stack.enter_async_context(stream)
            if response.status != 200:
                raise await address.refusal(response, "a GET")
            if response.content_type != EVENTS:
                raise unexpected(address.name, "a GET", response)
            pipe = cls(address, stack.pop_all(), response)
        try:
            async with asyncio.timeout(address.timeout):
                await pipe._endpoint
        except BaseException as error:
            await pipe.aclose()
            if isinstance(error, TimeoutError):
                raise AgentTimeout(f"{address.name} did not say where to post to") from None
            raise
        return pipe

    # --- out -------------------------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[bytes]) -> None:
        """See `Pipe.send`. One POST after the other: in the order of the calls."""
        for data in messages:
            if self._closed or self._gone is not None or self._ended:
                raise self._end()
            assert self._posts is not None
            wait = self._address.timeout + len(data) / SLOWEST
            try:
                async with self._posts.post(data, {"Accept": JSON}, patient=True, wait=wait) as response:
                    if response.status >= 300:
                        raise await self._posts.refusal(response, "a message")
                    with contextlib.suppress(InterlinguaError):
                        await response.read(self._address.limit)
            except InterlinguaError as error:
                self._undelivered(data, error)

    def _undelivered(self, data: bytes, why: InterlinguaError) -> None:
        """Answer a request that did not reach the server."""
        message = jsonrpc.decode(data)
        if not isinstance(message, Request):
            log.warning("%s: a message was not taken: %s", self.name, why)
            return
        error = why.error if isinstance(why, RpcError) else ErrorObject(jsonrpc.INTERNAL_ERROR, str(why))
        self._inbox.put([jsonrpc.error(message.id, error)])

    # --- in --------------------------------------------------------------------------------------------------------

    async def receive(self) -> Sequence[bytes | Unreadable]:
        messages = await self._inbox.receive()
        if not messages and self._gone is not None and not self._closed:
            raise self._end()
        return messages

    async def _run(self, response: StreamResponse) -> None:
        try:
            await self._read(response)
        except InterlinguaError as error:
            self._gone = error if isinstance(error, AgentGone) else AgentGone.of(error)
        except Exception as error:
            log.exception("%s: reading its stream failed", self.name)
            self._gone = AgentGone(f"the stream of {self.name} could not be read", detail=repr(error))
        finally:
            self._ended = True
            self._inbox.end()
            if not self._endpoint.done():
                why = self._gone or AgentBroken(f"{self.name} ended its stream and did not say where to post to")
                self._endpoint.set_exception(why)
                self._endpoint.exception()  # nobody may be left to fetch it

    async def _read(self, response: StreamResponse) -> None:
        limit = self._address.limit
        decoder = sse.SseDecoder(hard(limit))
        async for chunk in response.chunks():
            for frame in decoder.feed(chunk):
                if frame.event == "endpoint":
                    self._found(frame)
                elif frame.event == "message" and frame.data:
                    self._inbox.put([judged(frame.data, limit)])
            await self._inbox.room()

    def _found(self, frame: Frame) -> None:
        """Where to post to. Never at another origin: our credentials go along. Raises AgentBroken."""
        if self._posts is not None:
            return
        to = urljoin(self._address.url, frame.data.decode("utf-8", "replace").strip())
        here, there = urlsplit(self._address.url), urlsplit(to)
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            raise AgentBroken(f"{self.name} wants messages to be sent to another origin", detail=to)
        address = self._address
        self._posts = Address(to, address.client, limit=address.limit, timeout=address.timeout)
        self._endpoint.set_result(None)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> AgentGone:
        return AgentGone.of(self._gone or AgentGone(f"the connection to {self.name} was closed"))

    async def aclose(self) -> None:
        """See `Pipe.aclose`. The server learns it by the end of the stream."""
        self._closed = True
        self._inbox.end()
        self._reader.cancel()
        await asyncio.wait([self._reader], timeout=CLOSE_SECONDS)
        await self._stack.aclose()
