"""A connection to a remote agent over Streamable HTTP, as a Pipe."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from msgspec import Struct

from adapters.agent_client import forwarded
from adapters.agent_client.wire import (
    CANCEL_REQUEST,
    CONNECTION_ID,
    ENDING,
    INITIALIZE,
    LOAD,
    NAMING,
    SESSION_ID,
)
from gateway.core.errors import AgentBroken, AgentGone, InterlinguaError, Invalid
from gateway.transport.http import HttpAuth, HttpClient, HttpResponse, StreamResponse
from gateway.transport.pipe import LIMIT, Inbox, Unreadable
from gateway.transport.streamable_http import EVENTS, JSON
from gateway.transport.streamable_http import client as streamable
from gateway.transport.tasks import TaskSet
from gateway.wire import jsonrpc

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
TIMEOUT = 60.0
BUFFER_BYTES = 4 * 1024 * 1024
OPEN_SECONDS = 5.0
"""How long a message waits for its session's stream: some servers answer a GET only when there is something to say."""
CLOSE_SECONDS = 2.0
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+").fullmatch
_VALUE = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e\"]*").fullmatch
"""Of a cookie."""
_EXPIRED = re.compile(r"\s*max-age\s*=\s*(-\d+|0+)\s*", re.I | re.A).fullmatch
SETTLE_SECONDS = 0.1
SETTLE_MOST = 5.0
MOST_STREAMS = 10_000
HEAD_SECONDS = 300.0
IDLE_SECONDS = 300.0
"""Servers send comments every 15 s. One that sends nothing for this long may have gone without a word."""
BUSY = frozenset({429, 503})
"""Of a POST: the message was not taken."""


# --- one stream of the agent's messages -----------------------------------------------------------------------------


def failure(id: jsonrpc.Id, why: InterlinguaError) -> bytes:
    """The answer that a request gets from us instead of from the agent."""
    if not isinstance(why, streamable.HttpRefused):
        return jsonrpc.error(id, jsonrpc.ErrorObject(jsonrpc.INTERNAL_ERROR, str(why)))
    code = AUTH_REQUIRED if why.status in (401, 403) else jsonrpc.INTERNAL_ERROR
    return jsonrpc.error(id, jsonrpc.ErrorObject(code, str(why), {"status": why.status, "body": why.body}))


class EventStreamReader:
    """Reads the stream of one session, or of the connection itself (None).

    open: whether the GET is being answered now.
    first: done when it was answered for the first time, with whether it was served.
    heard: when something last came, on the loop's clock.
    """

    def __init__(self, host: HttpPipe, session: str | None) -> None:
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
        return self.first.done() and self.first.result()

    @property
    def name(self) -> str:
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
            except streamable.HttpRefused as error:
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
        """One GET, to its end. Raises streamable.HttpRefused and the errors of HttpClient."""
        host = self._host
        async with host.get(self.session) as response:
            if not streamable.is_stream(response):
                body = await streamable.refusal_body(response, BODY, BODY_SECONDS)
                raise streamable.HttpRefused(f"{host.name} answered a GET of {self.name}", response.status, body)
            self.open = True
            if not self.first.done():
                self.first.set_result(True)
            began = self._time()
            try:
                await streamable.read_events(response, self._cursor, host.limit, self._take, named=True)
            except streamable.EventTooLarge as error:  # what follows comes with the next GET
                self._good += 1
                await host.arrived([error.unreadable], self)
            finally:
                self.open = False
                self._good += self._time() >= began + LASTING_SECONDS

    async def _take(self, messages: Sequence[bytes | Unreadable]) -> bool:
        self.heard = self._time()
        await self._host.arrived(messages, self)
        return False


# --- the connection -------------------------------------------------------------------------------------------------


class HttpPipe:
    """See `gateway.transport.pipe.Pipe`: to the agent at `url` (http or https). The first message must be `initialize`.

    What a server does not take is answered by us, with an error, where it was a request. AgentGone is raised once the
    server has forgotten the connection, or cannot be reached any more.
    """

    def __init__(
        self,
        url: str,
        *,
        auth: HttpAuth | None = None,
        limit: int = LIMIT,
        timeout: float = TIMEOUT,
        buffer: int = BUFFER_BYTES,
    ) -> None:
        """Nothing is sent yet. Raises Invalid for a malformed url.

        auth: sent with every request, as are cookies that the server sets.
        limit: greatest message in bytes that is taken; larger ones are Unreadable.
        timeout: seconds that the server may take to answer a POST, a large one more.
        buffer: bytes that may wait to be received; then nothing more is read.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise Invalid(f"not an HTTP URL: its scheme is {parts.scheme!r}")
        self.url = url
        self.limit = limit
        self._timeout = timeout
        self._cookies: dict[str, str] = {}
        self.client = HttpClient(
            f"{parts.scheme}://{parts.netloc}",
            headers={"Accept": f"{JSON}, {EVENTS}"},
            auth=auth,
            timeout=timeout,
            pool_size=MOST_STREAMS,
        )
        self.name = parts.netloc.rpartition("@")[2]
        self._inbox = Inbox(buffer)
        self._connection: str | None = None
        self._main: EventStreamReader | None = None
        self._readers: dict[str, EventStreamReader] = {}
        self._under_way = _UnderWay()
        self._sending = asyncio.Lock()
        self._gone: AgentGone | None = None
        self._closed = False
        self._held = TaskSet()

    # --- out -------------------------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[bytes]) -> None:
        """See `Pipe.send`. One POST after the other: in the order of the calls."""
        async with self._sending:
            for data in messages:
                if self._gone is not None or self._closed:
                    raise self._ended()
                message = jsonrpc.decode(data)
                if self._connection is None:
                    await self._initialize(message, data)
                else:
                    await self._post(message, data)

    async def _initialize(self, message: jsonrpc.Message, data: bytes) -> None:
        """Raises AgentGone where there is no answer at all; a refusal is the answer."""
        if not isinstance(message, jsonrpc.Request) or message.method != INITIALIZE:
            raise AgentGone(f"nothing can be said to {self.name} before {INITIALIZE}")
        try:
            response = await self.client.request("POST", self.url, json=data, headers=self.headers(None))
        except InterlinguaError as error:
            self._fail(AgentGone.of(error))
            raise self._ended() from error
        self.keep_cookies(response)
        told = f"{self.name} answered {INITIALIZE}"
        connection = response.headers.get(CONNECTION_ID)
        if response.status != 200:
            to = response.headers.get("Location", "")
            self._inbox.put([failure(message.id, streamable.HttpRefused(told, response.status, response.body, to))])
        elif connection is None:
            self._inbox.put([failure(message.id, AgentBroken(f"{told} without the header {CONNECTION_ID}"))])
        else:
            self._connection = connection
            self._inbox.put([response.body])
            self._main = EventStreamReader(self, None)

    async def _post(self, message: jsonrpc.Message, data: bytes) -> None:
        """Raises AgentGone once the server has forgotten the connection."""
        session = self._under_way.sent(message)
        named = session if session is not None and await self._opened(session) else None
        repeatable = not isinstance(message, jsonrpc.Request)
        try:
            response = await self._call(data, named, repeatable)
            if response.status == 400 and session is not None and named is None:
                named = session  # it insists, though it has no stream for it
                response = await self._call(data, named, repeatable)
        except InterlinguaError as error:
            self._undelivered(message, error)
            return
        if response.status in GONE and named is None:
            self._fail(AgentGone(f"{self.name} does not know the connection any more (status {response.status})"))
        elif response.status >= 300 or response.content_type == "text/html":  # a proxy's page, for a login perhaps
            self._undelivered(
                message, streamable.HttpRefused(f"{self.name} answered a message", response.status, response.body)
            )
        elif response.body.strip() and response.content_type == JSON:
            answer = jsonrpc.decode(response.body)
            if isinstance(answer, jsonrpc.Malformed) and response.status != 202:  # which takes it
                self._undelivered(message, AgentBroken(f"{self.name} answered with no message: {answer.reason}"))
            else:
                await self.arrived([response.body], None)
        if self._gone is not None:
            raise self._ended()

    async def _call(self, data: bytes, session: str | None, repeatable: bool) -> HttpResponse:
        """One POST; again where it was certainly not taken, or may be taken twice. Raises the errors of HttpClient."""
        for delay in streamable.AGAIN:
            try:
                response = await self._once(data, session)
                if response.status not in BUSY:
                    return response
            except AgentGone as error:
                if self._closed or not (repeatable or error.untaken):
                    raise
            await asyncio.sleep(delay)
        return await self._once(data, session)

    async def _once(self, data: bytes, session: str | None) -> HttpResponse:
        timeout = self._timeout + len(data) / streamable.SLOWEST
        response = await self.client.request(
            "POST", self.url, json=data, headers=self.headers(session), timeout=timeout
        )
        self.keep_cookies(response)
        return response

    def _undelivered(self, message: jsonrpc.Message, why: InterlinguaError) -> None:
        """Answer a request that could not be delivered with `why`. A message of another kind is logged."""
        if isinstance(message, jsonrpc.Request):
            self._under_way.forget(message.id)
            self._inbox.put([failure(message.id, why)])
        else:
            log.warning("%s: a message was not taken: %s", self.name, why)

    def headers(self, session: str | None) -> dict[str, str]:
        headers = {} if self._connection is None else {CONNECTION_ID: self._connection}
        if session is not None:
            headers[SESSION_ID] = session
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        return headers

    def keep_cookies(self, response: HttpResponse | StreamResponse) -> None:
        """Keep the cookies that an answer sets, for all our requests: they go to one address. One that could not be
        sent is ignored.
        """
        for line in response.headers.getall("Set-Cookie"):
            pair, _, attributes = line.partition(";")
            name, equals, value = (part.strip() for part in pair.partition("="))
            if not equals or not _NAME(name) or not _VALUE(value):
                continue
            if any(map(_EXPIRED, attributes.split(";"))):
                self._cookies.pop(name, None)
            else:
                self._cookies[name] = value

    # --- in --------------------------------------------------------------------------------------------------------

    async def receive(self) -> Sequence[bytes | Unreadable]:
        messages = await self._inbox.receive()
        if not messages and not self._closed:
            raise self._ended()
        return messages

    @asynccontextmanager
    async def get(self, session: str | None) -> AsyncIterator[StreamResponse]:
        """Send the GET of a session's stream, or of the connection's (None)."""
        headers = {"Accept": EVENTS, **self.headers(session)}
        stream = self.client.stream("GET", self.url, headers=headers, timeout=HEAD_SECONDS, idle_timeout=IDLE_SECONDS)
        async with stream as response:
            self.keep_cookies(response)
            yield response

    async def arrived(self, messages: Sequence[bytes | Unreadable], reader: EventStreamReader | None) -> None:
        """Take what came on a stream, or as the answer of a POST. Waits while too much is not received yet."""
        ready: list[bytes | Unreadable] = []
        for data in messages:
            if isinstance(data, bytes):
                message = jsonrpc.decode(data)
                asked = self._under_way.heard(message, reader.session if reader is not None else None)
                if asked is not None and self._answered(asked, message, data, reader):
                    continue
            ready.append(data)
        self._inbox.put(ready)
        await self._inbox.room()

    def _answered(self, asked: _Asked, answer: jsonrpc.Message, data: bytes, on: EventStreamReader | None) -> bool:
        """Open or end our streams as an answer requires. Returns whether the answer is held back."""
        if not isinstance(answer, jsonrpc.Response) or answer.error is not None:
            return False
        if asked.method in NAMING:
            made = forwarded.session_of(answer.result)
            if made is not None:
                self._open(made)
        elif asked.session is not None:
            reader = self._readers.get(asked.session)
            if asked.method in ENDING and reader is not None:
                del self._readers[asked.session]
                asyncio.get_running_loop().call_soon(reader.task.cancel)
            elif asked.method == LOAD and reader is not None and reader is not on and reader.open:
                self._held.start(self._settled(reader, data))
                return True
        return False

    async def _settled(self, reader: EventStreamReader, data: bytes) -> None:
        """The answer of `session/load` is sent after the replay, but on another stream, so it may be here first: it is
        handed on once the session's stream is silent."""
        time = asyncio.get_running_loop().time
        began = silent = time()
        while (now := time()) < began + SETTLE_MOST and now < silent + SETTLE_SECONDS:
            await asyncio.sleep(silent + SETTLE_SECONDS - now)
            silent = max(began, reader.heard)
        self._inbox.put([data])

    # --- streams ---------------------------------------------------------------------------------------------------

    async def _opened(self, session: str) -> bool:
        """Whether the server has a stream for it. Asked again with every message, where it has not."""
        reader = self._open(session)
        if reader is None:
            return False
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await asyncio.shield(reader.first)
        except TimeoutError:
            return True

    def _open(self, session: str) -> EventStreamReader | None:
        """Its stream, opened if it is not yet. None for an id that no header can hold."""
        if session != session.strip() or not (session.isascii() and session.isprintable()):
            return None
        reader = self._readers.get(session)
        if reader is None and not self._closed:
            reader = self._readers[session] = EventStreamReader(self, session)
        return reader

    def lost(self, reader: EventStreamReader, why: InterlinguaError) -> None:
        """A stream is not there any more. Without the connection's there is none."""
        if reader is self._main:
            self._fail(why if isinstance(why, AgentGone) else AgentGone.of(why))
        elif reader.session is not None and self._readers.get(reader.session) is reader:
            del self._readers[reader.session]
            if reader.served:
                self._inbox.put([failure(id, why) for id in self._under_way.unanswered(reader.session)])

    # --- the end ---------------------------------------------------------------------------------------------------

    def _fail(self, why: AgentGone) -> None:
        if self._gone is None:
            self._gone = why
            self._inbox.end()

    def _ended(self) -> AgentGone:
        return AgentGone.of(self._gone or AgentGone(f"the connection to {self.name} was closed"))

    async def aclose(self) -> None:
        """See `Pipe.aclose`. The server is told."""
        if self._closed:
            return
        self._closed = True
        self._inbox.end()
        readers = [reader.task for reader in (self._main, *self._readers.values()) if reader is not None]
        tasks = [*readers, *self._held]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
        if self._connection is not None and self._gone is None:
            with suppress(InterlinguaError):
                headers = self.headers(None)
                await self.client.request("DELETE", self.url, headers=headers, timeout=CLOSE_SECONDS)
        await self.client.aclose()


class _Asked(Struct, frozen=True, gc=False):
    """A request of ours that is not answered yet."""

    method: str
    session: str | None


class _UnderWay:
    """The requests under way, both ways, and the session that each is about. Told of every message."""

    def __init__(self) -> None:
        self._ours: dict[jsonrpc.Id, _Asked] = {}
        self._theirs: dict[jsonrpc.Id, str] = {}

    def sent(self, message: jsonrpc.Message) -> str | None:
        """A message of ours; the session that it is about."""
        if isinstance(message, jsonrpc.Response):
            return self._theirs.pop(message.id, None)
        if not isinstance(message, jsonrpc.Request | jsonrpc.Notification):
            return None
        session = forwarded.session_of(message.params)
        if isinstance(message, jsonrpc.Request):
            self._ours[message.id] = _Asked(message.method, session)
        return session

    def heard(self, message: jsonrpc.Message, stream: str | None) -> _Asked | None:
        """A message of the agent's, on the stream of that session; what it answers, if it does."""
        if isinstance(message, jsonrpc.Response):
            return self._ours.pop(message.id, None)
        if isinstance(message, jsonrpc.Request):
            session = forwarded.session_of(message.params) or stream
            if session is not None:
                self._theirs[message.id] = session
        elif isinstance(message, jsonrpc.Notification) and message.method == CANCEL_REQUEST:
            self._theirs.pop(forwarded.request_of(message.params), None)
        return None

    def unanswered(self, session: str) -> Iterator[jsonrpc.Id]:
        """Our requests about a session, whose answers will not come. They are forgotten."""
        for id in [id for id, asked in self._ours.items() if asked.session == session]:
            del self._ours[id]
            yield id

    def forget(self, id: jsonrpc.Id) -> None:
        self._ours.pop(id, None)
