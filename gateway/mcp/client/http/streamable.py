"""Streamable HTTP (from 2025-03-26): a POST for each message, answers on its response; sessions, or none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from msgspec import UNSET, Raw

from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp import versions, wire
from gateway.mcp.client.calls import OutgoingCall, OutgoingCalls
from gateway.mcp.client.http.address import Address, unexpected
from gateway.mcp.client.session import Channel
from gateway.transport.http import StreamResponse, Unreachable
from gateway.transport.pipe import Unreadable, hard, judged
from gateway.transport.rpc.incoming import CROWDED, IncomingRequests
from gateway.transport.streamable_http import EVENTS, JSON
from gateway.transport.streamable_http.client import LATER, Cursor, is_stream, read_events
from gateway.transport.tap import about
from gateway.transport.tasks import TaskSet
from gateway.transport.waiting import Deadline
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Malformed, MessageBatch, Notification, Request, Response, RpcError

log = logging.getLogger(__name__)

OPEN_SECONDS = 0.5
"""How long a new session waits for its standalone stream: some answer a GET only when there is something to say."""
LASTING_SECONDS = 5.0
"""A stream that was open for this long was a good one: proxies may cut those that are silent."""
FIRST_DELAY = 0.1
"""Seconds before a stream that dropped is opened again, doubled with each try in vain. A server may name another,"""
LEAST_DELAY = 0.01
"""which is doubled from here: one that says 0 and has nothing to say is not asked all the time."""
MOST_DELAY = 30.0
"""The longest pause before the standalone stream is opened again,"""
MOST_RESUME_DELAY = 60.0
"""and before the stream of a request is resumed."""
TRIES = 7
"""To open a stream again, in a row without anything heard in between."""
CLOSE_SECONDS = 2.0
MOST_ASKED = 100
"""Requests of a server under way at once; more are refused."""
MOST_RESTS = 50
"""Streams that are read to their end after their answer; of more, the connection is closed."""
REST_SECONDS = 1.0
"""How long such a stream is read, so that its connection can serve again."""
SETTLE_SECONDS = 0.05
"""How long an answer waits for progress that comes on another stream; again if some came."""
SETTLE_MOST = 1.0
TURNS = 3
"""Of the loop, in which what has come on another stream, if only together with the answer, is heard."""


class StreamableChannel(Channel):
    """See `Channel`. Nothing is sent yet when it is made.

    session_id: what the server calls the session; None where it keeps none.
    """

    def __init__(self, address: Address, calls: OutgoingCalls) -> None:
        super().__init__(address.name)
        self.address = address
        self.calls = calls
        self.session_id: str | None = None
        self._next_id = 1
        self._under_way: set[Deadline] = set()
        self._generation = 0
        self._renewing = asyncio.Lock()
        self._serving = IncomingRequests(address.name)
        self._listener: asyncio.Task[None] | None = None
        self._telling = TaskSet()
        self._resting = TaskSet()
        self._closing: asyncio.Task[None] | None = None

    @property
    def shared(self) -> bool:
        """See `Channel`: so it is where nothing is said but on the streams of calls."""
        return self.session_id is None or versions.modern(self.version)

    @property
    def lasting(self) -> bool:
        """See `ClientSession`: whether the standalone stream is open, on which something about a call may come."""
        return self._listener is not None and not self._listener.done()

    # --- out -------------------------------------------------------------------------------------------------------

    async def request(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        """See `Channel`. Where the server has forgotten the session, a new one is made, and it is sent again."""
        if method in wire.GREETINGS:
            return await self._exchange(method, params, call)
        async with self._renewing:  # what is said before the new session has begun would be in none
            generation = self._generation
        try:
            return await self._exchange(method, params, call)
        except SessionLost:
            await self._renew(generation)
            return await self._exchange(method, params, call)

    async def _exchange(self, method: str, params: JsonObject, call: OutgoingCall | None) -> Raw:
        if self.closed.done():
            raise self._gone()
        id = self._next_id
        self._next_id += 1
        if call is not None:
            call.named(id)
        request = _StreamableRequest(self, id, method, jsonrpc.request(id, method, params), call)
        headers = self.headers(method, params)
        scope = Deadline()  # for `aclose`, which is not to wait for anybody
        try:
            with scope:
                self._under_way.add(scope)
                return await request.run(headers)
        except TimeoutError:
            if not scope.expired:
                raise
            raise self._gone() from None
        except asyncio.CancelledError:
            self.calls.gave_up()
            if method != wire.INITIALIZE and not versions.modern(self.version):
                params = {"requestId": id, "reason": "nobody waits for it any more"}
                self._telling.start(self._say(jsonrpc.notification(wire.CANCELLED, params)))
            raise
        except Unreachable as error:
            if len(self._under_way) == 1:
                self._fail(error)
            raise
        finally:
            self._under_way.discard(scope)

    async def notify(self, method: str, params: JsonObject | None = None) -> None:
        """See `Channel`. `notifications/initialized` begins the session: its standalone stream is opened."""
        await self._post(jsonrpc.notification(method, params))
        if method == wire.INITIALIZED and self.session_id is not None:
            opened = asyncio.Event()
            if self._listener is not None:
                self._listener.cancel()
            with about(None):
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
        """Wait until the server was told of the calls that were given up, so that it hears that first."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=CLOSE_SECONDS)

    async def _say(self, message: bytes) -> None:
        """Say what nobody waits for."""
        try:
            await self._post(message)
        except InterlinguaError as error:
            log.debug("%s: it did not take %r: %s", self.name, message[:200], error)

    def headers(self, method: str = "", params: JsonObject | None = None) -> dict[str, str]:
        """The headers of a message; `method` and `params` of a request."""
        headers = {"Accept": f"{JSON}, {EVENTS}"}
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

    def get_headers(self, cursor: Cursor) -> dict[str, str]:
        """The headers of a GET that goes on behind a cursor."""
        headers = {**self.headers(), "Accept": EVENTS}
        if cursor.id:
            headers[wire.RESUME_HEADER] = cursor.id
        return headers

    def began(self, session_id: str | None) -> None:
        """`initialize` was answered; the server named the session so, if it keeps one."""
        self.session_id = session_id

    async def _renew(self, generation: int) -> None:
        """One of those who find the session lost makes a new one."""
        async with self._renewing:
            if self._generation != generation:
                return
            log.info("%s: the session is lost, a new one is made", self.name)
            try:
                await self._handshake()
            except InterlinguaError as error:
                self._fail(error)
                raise
            self._generation += 1

    async def _renew_aside(self, generation: int) -> None:
        """The same where no request waits for it: the standalone stream is to be there again."""
        with contextlib.suppress(InterlinguaError):
            await self._renew(generation)

    # --- in --------------------------------------------------------------------------------------------------------

    async def take(self, message: Request | Notification, on: OutgoingCall | None) -> None:
        """Handle a request or notification that came on the stream of a call, or on the standalone stream (None)."""
        if isinstance(message, Request):
            await self._accept(message, on)
        elif message.method == wire.CANCELLED:
            self._serving.cancel(wire.cancelled_in(message.params))
        else:
            try:
                waiting = self.calls.heard(message.method, message.params, on)
                if waiting is not None:
                    await waiting
            except Exception:
                log.exception("%s: handling %s failed", self.name, message.method)

    async def _accept(self, request: Request, on: OutgoingCall | None) -> None:
        """Serve a request. It has begun when this returns; of too many, it is answered: then nothing grows."""
        answer = _PostedAnswer(self.name, self._post)
        if len(self._serving) >= MOST_ASKED:
            answer.put(jsonrpc.error(request.id, CROWDED))
            await answer.drain()
        elif self._closing is None:
            self._serving.accept(request, partial(self._serve, on, self.version), answer)
            await asyncio.sleep(0)

    async def _serve(self, on: OutgoingCall | None, version: str, method: str, params: Raw, id: Id) -> Any:
        try:
            return await self.calls.answer(method, params, version, partial(self._serving.cancel, id), on)
        except asyncio.CancelledError:
            if self._closing is None:
                await self._told()
            raise

    def rest(self, stack: AsyncExitStack, response: StreamResponse) -> None:
        """Read the rest of a stream whose answer has come, or close it."""
        self._resting.start(stack.aclose() if len(self._resting) >= MOST_RESTS else _read_rest(stack, response))

    async def _listen(self, opened: asyncio.Event) -> None:
        """Read the standalone stream: a GET, opened again when it drops."""
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
            await asyncio.sleep(pause(cursor, tries, MOST_DELAY))

    async def _hear(self, cursor: Cursor, opened: asyncio.Event) -> bool:
        """One GET, to its end. False if the server has no such stream. Raises the errors of HttpClient."""
        headers = self.get_headers(cursor)
        async with self.address.client.stream("GET", self.address.url, headers=headers, timeout=math.inf) as response:
            if not is_stream(response):
                error = await self.address.refusal(response, "a GET")
                if isinstance(error, AgentGone):
                    raise error
                if response.status == 404 and opened.is_set():
                    self._telling.start(self._renew_aside(self._generation))
                log.debug("%s: it has no standalone stream: %s", self.name, error)
                return False
            opened.set()
            await read_events(response, cursor, self.address.limit, self._take_standalone)
            return True

    async def _take_standalone(self, messages: Sequence[bytes | Unreadable]) -> bool:
        for data in messages:
            message = data if isinstance(data, Unreadable) else jsonrpc.decode(data)
            for each in message.messages if isinstance(message, MessageBatch) else (message,):
                if isinstance(each, Request | Notification):
                    await self.take(each, None)
                elif isinstance(each, Response):
                    self.calls.stray(f"an answer to {each.id!r}")
                elif isinstance(each, Malformed | Unreadable):
                    self.unreadable(each)
        return False

    def unreadable(self, what: Malformed | Unreadable) -> bool:
        """What came is no message. A request is refused. Returns whether it was an answer."""
        self.calls.garbage(what.reason, what.start, what.size)
        seen = jsonrpc.glimpse(what.start, what.end) if isinstance(what, Unreadable) else what
        if seen.id is not UNSET and seen.method:
            code = what.code if isinstance(what, Malformed) else jsonrpc.INVALID_REQUEST
            self._telling.start(self._say(jsonrpc.error(seen.id, ErrorObject(code, what.reason))))
        return seen.answer

    # --- the end ---------------------------------------------------------------------------------------------------

    def _fail(self, why: InterlinguaError) -> None:
        if not self.closed.done():
            self.closed.set_result(AgentGone.of(why))

    def _gone(self) -> AgentGone:
        return AgentGone.of(self.closed.result())

    async def aclose(self) -> None:
        """See `Channel`. The server is told."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        lost = self.closed.done()
        self._fail(AgentGone(f"the connection to {self.name} was closed"))
        for scope in list(self._under_way):
            scope.move(0.0)
        aside = [*self._resting, *([self._listener] if self._listener is not None else [])]
        for task in aside:
            task.cancel()
        self._serving.mute()
        asked = self._serving.tasks
        for task in asked:
            self._serving.stop(task)
        for tasks in (asked, aside, self._telling):
            if tasks:
                await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        if self.session_id is not None and not lost:
            with contextlib.suppress(InterlinguaError):
                headers = self.headers()
                await self.address.client.request("DELETE", self.address.url, headers=headers, timeout=CLOSE_SECONDS)


class _PostedAnswer:
    """See `AnswerSink`: what answers a request of the server is a POST of its own."""

    def __init__(self, name: str, post: Callable[[bytes], Awaitable[None]]) -> None:
        self._name = name
        self._post = post
        self._messages: Sequence[bytes] = ()

    def put(self, *messages: bytes) -> None:
        self._messages = messages

    async def drain(self) -> None:
        for message in self._messages:
            try:
                await self._post(message)
            except InterlinguaError as error:
                log.warning("%s: an answer was not taken: %s", self._name, error)


class SessionLost(AgentGone):
    """The server does not know the session any more; it has not done anything."""


class _Unresumable(AgentGone):
    """The server does not go on with a stream, now or later."""


class _StreamableRequest:
    """One request: its POST, the stream that answers it, and the GETs that go on with a stream that broke off.

    Run once. body: the whole message.
    """

    def __init__(
        self, channel: StreamableChannel, id: int, method: str, body: bytes, call: OutgoingCall | None
    ) -> None:
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
                self._channel.began(response.headers.get(wire.SESSION_HEADER) or None)
            if response.content_type == JSON:
                body = await response.read(hard(self._address.limit))
                await self._take([judged(body, self._address.limit)])
            elif response.content_type == EVENTS:
                if await self._read(response):
                    self._channel.rest(stack.pop_all(), response)
            else:
                raise unexpected(self._address.name, self._method, response)
        if self._answer is None:
            await self._resume(AgentGone(f"{self._address.name} ended its answer to {self._method} before it was one"))
        if self._call is not None and (self._call.elsewhere or self._channel.lasting):
            await self._settle(self._call)
        if isinstance(self._answer, Response):
            error = self._answer.error
            if error is not None:
                raise RpcError(error.code, error.message, error.data)
            return self._answer.result
        assert self._answer is not None
        raise self._answer

    async def _refused(self, response: StreamResponse, in_session: bool) -> InterlinguaError:
        """The error for a status other than 200."""
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
            return await read_events(response, self._cursor, self._address.limit, self._take)
        except AgentGone as error:
            if not self._cursor.id:
                raise
            log.debug("%s: the stream of %s broke off: %s", self._address.name, self._method, error)
            return False

    async def _resume(self, why: InterlinguaError) -> None:
        """Go on with the stream until the answer has come. Raises AgentGone where that cannot be."""
        tries = 0
        while self._cursor.id:
            await asyncio.sleep(pause(self._cursor, tries, MOST_RESUME_DELAY))
            tries += 1
            heard = self._cursor.heard
            try:
                if await self._once():
                    return
            except _Unresumable as error:
                why = error
                break
            except AgentGone as error:
                why = error
            if self._cursor.heard > heard:
                tries = 0
            elif tries >= TRIES:
                break
        raise AgentGone.of(why)

    async def _once(self) -> bool:
        headers = self._channel.get_headers(self._cursor)
        client, address = self._address.client, self._address
        async with client.stream("GET", address.url, headers=headers, timeout=address.timeout) as response:
            if not is_stream(response):
                error = await address.refusal(response, f"going on with {self._method}")
                later = isinstance(error, AgentGone) or response.status in LATER
                raise AgentGone.of(error) if later else _Unresumable(str(error), detail=error.detail)
            return await self._read(response)

    async def _take(self, messages: Sequence[bytes | Unreadable]) -> bool:
        """Handle messages up to the answer. Returns whether it was among them."""
        for data in messages:
            await self._handle(data if isinstance(data, Unreadable) else jsonrpc.decode(data))
            if self._answer is not None:
                return True
        return False

    async def _handle(self, message: jsonrpc.Message | Unreadable) -> None:
        if isinstance(message, Response):
            if _same(message, self._id):
                self._answer = self._answer or message
            else:
                self._channel.calls.stray(f"an answer to {message.id!r}")
        elif isinstance(message, Malformed | Unreadable):
            if self._channel.unreadable(message) and self._answer is None:
                self._answer = AgentBroken(f"the answer of {self._address.name} cannot be read: {message.reason}")
        elif isinstance(message, MessageBatch):
            for each in sorted(message.messages, key=lambda each: isinstance(each, Response)):
                await self._handle(each)
        elif self._answer is None:
            await self._channel.take(message, self._call)

    async def _settle(self, call: OutgoingCall) -> None:
        """Wait for progress on another stream: it was sent before the answer, but may come after it."""
        time = asyncio.get_running_loop().time
        end = time() + SETTLE_MOST
        await _heard_elsewhere(call)
        while call.heard_elsewhere() and time() < end:
            await asyncio.sleep(SETTLE_SECONDS)
            await _heard_elsewhere(call)


async def _heard_elsewhere(call: OutgoingCall) -> None:
    """Return once it is known whether anything has come, also in a process that was held up meanwhile."""
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


async def _read_rest(stack: AsyncExitStack, response: StreamResponse) -> None:
    """Read the rest of a stream whose answer has come, so that its connection can serve again."""
    async with stack:
        with contextlib.suppress(InterlinguaError, TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                async for _ in response.chunks():
                    pass


def pause(cursor: Cursor, tries: int, most: float) -> float:
    """Seconds before a stream is opened again, after so many tries on which nothing came."""
    growth = 2.0 ** min(tries, 20)
    return min(most, FIRST_DELAY * growth if cursor.retry is None else max(cursor.retry, LEAST_DELAY * growth))
