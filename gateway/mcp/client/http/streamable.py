"""Streamable HTTP (from 2025-03-26): a POST for each message, answers on its response; sessions, or none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from msgspec import Raw

from gateway.core.errors import AgentGone, InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.client.calls import Call, Calls
from gateway.mcp.client.http.address import Address
from gateway.mcp.client.http.events import Cursor, read
from gateway.mcp.client.http.exchange import Exchange, SessionLost, rest
from gateway.mcp.client.http.incoming import Incoming
from gateway.mcp.client.piped import cancelled
from gateway.transport.deadline import Deadline
from gateway.transport.http import StreamResponse, Unreachable
from gateway.transport.pipe import Unreadable
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, Malformed, Notification, Request, Response

log = logging.getLogger(__name__)

OPEN_SECONDS = 0.5
"""How long a new session waits for its stream of news: some answer a GET only when there is something to say."""
LASTING_SECONDS = 5.0
"""A stream that was open for this long was a good one: what is between us may cut those that are silent."""
MOST_DELAY = 30.0
TRIES = 7
CLOSE_SECONDS = 2.0
MOST_RESTS = 50
"""Streams that are read to their end after their answer; of more, the connection is closed."""
_HANDSHAKE = (wire.INITIALIZE, wire.DISCOVER)


async def _unset() -> None:
    raise AssertionError("a channel is used by a session")


class StreamableChannel:
    """See `Channel`. Made on the running loop; nothing is sent yet.

    session_id: what the server calls the session; None where it keeps none.
    """

    def __init__(self, address: Address, calls: Calls) -> None:
        self.address = address
        self.calls = calls
        self.version = ""
        self.session_id: str | None = None
        self.renew: Callable[[], Awaitable[None]] = _unset
        self.closed: asyncio.Future[AgentGone] = asyncio.get_running_loop().create_future()
        self._next_id = 1
        self._under_way: set[Deadline] = set()
        self._generation = 0
        self._renewing = asyncio.Lock()
        self._incoming = Incoming(address.name, calls, self._post, self._told)
        self._listener: asyncio.Task[None] | None = None
        self._telling = TaskSet()
        self._resting = TaskSet()

    @property
    def name(self) -> str:
        """See `Channel`."""
        return self.address.name

    @property
    def alive(self) -> bool:
        """See `Channel`."""
        return not self.closed.done()

    @property
    def shared(self) -> bool:
        """See `Channel`: so it is where nothing is said but on the streams of calls."""
        return self.session_id is None or versions.modern(self.version)

    @property
    def listens(self) -> bool:
        """Whether there is a stream of news, on which something about a call may come."""
        return self._listener is not None and not self._listener.done()

    # --- out -------------------------------------------------------------------------------------------------------

    async def request(self, method: str, params: JsonObject, call: Call | None) -> Raw:
        """See `Channel`. Where the server has forgotten the session, a new one is made, and it is sent again."""
        if method in _HANDSHAKE:
            return await self._exchange(method, params, call)
        async with self._renewing:  # what is said before the new session has begun would be in none
            generation = self._generation
        try:
            return await self._exchange(method, params, call)
        except SessionLost:
            await self._renew(generation)
            return await self._exchange(method, params, call)

    async def _exchange(self, method: str, params: JsonObject, call: Call | None) -> Raw:
        if self.closed.done():
            raise self._gone()
        id = self._next_id
        self._next_id += 1
        if call is not None:
            call.named(id)
        exchange = Exchange(self, id, method, jsonrpc.request(id, method, params), call)
        headers = self.headers(method, params)
        scope = Deadline()  # for `aclose`, which is not to wait for anybody
        try:
            with scope:
                self._under_way.add(scope)
                return await exchange.run(headers)
        except TimeoutError:
            if not scope.expired:
                raise
            raise self._gone() from None
        except asyncio.CancelledError:
            self.calls.gave_up()
            if method != wire.INITIALIZE and not versions.modern(self.version):
                self._telling.start(self._tell_cancelled(id))
            raise
        except Unreachable as error:
            if len(self._under_way) == 1:
                self._fail(error)
            raise
        finally:
            self._under_way.discard(scope)

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """See `Channel`. `notifications/initialized` begins the session: its stream of news is opened."""
        await self._post(jsonrpc.notification(method, params))
        if method == wire.INITIALIZED and self.session_id is not None:
            opened = asyncio.Event()
            if self._listener is not None:
                self._listener.cancel()
            self._listener = asyncio.create_task(self._listen(opened), name=f"{self.name} stream")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OPEN_SECONDS):
                    await opened.wait()

    async def _post(self, message: bytes) -> None:
        """Say what is no request. Raises the errors of HttpClient, and what a refusal means."""
        headers = self.headers()
        async with self.address.post(message, headers, patient=True, wait=self.address.timeout) as response:
            if response.status >= 300:
                raise await self.address.refusal(response, "a message")
            await response.read(self.address.limit)

    async def _told(self) -> None:
        """Until the server was told which of its calls nobody waits for any more, so that it hears that first."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=CLOSE_SECONDS)

    async def _tell_cancelled(self, id: int) -> None:
        params = {"requestId": id, "reason": "nobody waits for it any more"}
        try:
            await self._post(jsonrpc.notification(wire.CANCELLED, params))
        except InterlinguaError as error:
            log.debug("%s: it was not told that a request was given up: %s", self.name, error)

    def headers(self, method: str = "", params: JsonObject | None = None) -> dict[str, str]:
        """What goes with a message; `method` and `params` of a request."""
        headers = {"Accept": f"{wire.JSON}, {wire.EVENTS}"}
        if method == wire.INITIALIZE:
            return headers
        if self.session_id is not None and not versions.modern(self.version):
            headers[wire.SESSION_HEADER] = self.session_id
        if self.version:
            headers[wire.VERSION_HEADER] = self.version
        if method and versions.modern(self.version):
            headers[wire.METHOD_HEADER] = method
            named = (params or {}).get(wire.NAMED.get(method, ""))
            if isinstance(named, str):
                headers[wire.NAME_HEADER] = wire.header_value(named)
        return headers

    async def _renew(self, generation: int) -> None:
        """One of those who find the session lost makes a new one."""
        async with self._renewing:
            if self._generation != generation:
                return
            log.info("%s: the session is lost, a new one is made", self.name)
            try:
                await self.renew()
            except InterlinguaError as error:
                self._fail(error)
                raise
            self._generation += 1

    async def _renew_aside(self, generation: int) -> None:
        """Nobody waits for it, but there may be news."""
        with contextlib.suppress(InterlinguaError):
            await self._renew(generation)

    # --- in --------------------------------------------------------------------------------------------------------

    async def take(self, message: Request | Notification, on: Call | None) -> None:
        """What the server says of itself: on the stream of a call, or on that of news (None)."""
        if isinstance(message, Request):
            self._incoming.version = self.version
            await self._incoming.accept(message, on)
        elif message.method == wire.CANCELLED:
            self._incoming.cancel(cancelled(message.params))
        else:
            try:
                waiting = self.calls.heard(message.method, message.params, on)
                if waiting is not None:
                    await waiting
            except Exception:
                log.exception("%s: handling %s failed", self.name, message.method)

    def rest(self, stack: AsyncExitStack, response: StreamResponse) -> None:
        """A stream whose answer has come."""
        self._resting.start(stack.aclose() if len(self._resting) >= MOST_RESTS else rest(stack, response))

    async def _listen(self, opened: asyncio.Event) -> None:
        """The stream of what belongs to no call: a GET, opened again when it drops."""
        cursor = Cursor()
        time = asyncio.get_running_loop().time
        tries = 0
        while True:
            began, heard = time(), cursor.heard
            try:
                if not await self._hear(cursor, opened):
                    return
            except AgentGone as error:
                log.debug("%s: its stream dropped: %s", self.name, error)
                if not self._under_way and (tries >= TRIES or isinstance(error, Unreachable)):
                    self._fail(error)
                    return
            except InterlinguaError as error:
                log.warning("%s: its stream cannot be read: %s", self.name, error)
                return
            except Exception:
                log.exception("%s: reading its stream failed", self.name)
                return
            finally:
                opened.set()
            good = cursor.heard > heard or time() - began > LASTING_SECONDS
            tries = 0 if good else tries + 1
            await asyncio.sleep(cursor.delay(tries, MOST_DELAY))

    async def _hear(self, cursor: Cursor, opened: asyncio.Event) -> bool:
        """One GET, to its end. False if the server has no such stream. Raises the errors of HttpClient."""
        headers = {**self.headers(), "Accept": wire.EVENTS}
        if cursor.id:
            headers[wire.RESUME_HEADER] = cursor.id
        async with self.address.client.stream("GET", self.address.url, headers=headers, timeout=math.inf) as response:
            if response.status != 200 or response.content_type != wire.EVENTS:
                error = await self.address.refusal(response, "a GET")
                if isinstance(error, AgentGone):
                    raise error
                if response.status == 404 and opened.is_set():
                    self._telling.start(self._renew_aside(self._generation))
                log.debug("%s: it has no stream of news: %s", self.name, error)
                return False
            opened.set()
            await read(response, cursor, self.address.limit, self._news)
            return True

    async def _news(self, data: bytes | Unreadable) -> bool:
        message = data if isinstance(data, Unreadable) else jsonrpc.decode(data)
        for each in message.messages if isinstance(message, Batch) else (message,):
            if isinstance(each, Request | Notification):
                await self.take(each, None)
            elif isinstance(each, Response):
                self.calls.stray(f"an answer to {each.id!r}")
            elif isinstance(each, Malformed | Unreadable):
                self.calls.garbage(each.reason, each.start, each.size)
        return False

    # --- the end ---------------------------------------------------------------------------------------------------

    def _fail(self, why: InterlinguaError) -> None:
        if not self.closed.done():
            self.closed.set_result(AgentGone(str(why), detail=why.detail))

    def _gone(self) -> AgentGone:
        """A new one for each who gets it: raising adds a traceback."""
        why = self.closed.result()
        return AgentGone(str(why), detail=why.detail)

    async def aclose(self) -> None:
        """See `Channel`. The server is told."""
        lost = self.closed.done()
        self._fail(AgentGone(f"the connection to {self.name} was closed"))
        for scope in list(self._under_way):
            scope.move(0.0)
        aside = [*self._resting, *([self._listener] if self._listener is not None else [])]
        for task in aside:
            task.cancel()
        await self._incoming.aclose()
        for tasks in (aside, self._telling):
            if tasks:
                await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        if self.session_id is not None and not lost:
            with contextlib.suppress(InterlinguaError):
                headers = self.headers()
                await self.address.client.request("DELETE", self.address.url, headers=headers, timeout=CLOSE_SECONDS)
