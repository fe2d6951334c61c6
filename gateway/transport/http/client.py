"""HttpClient: calls an agent over HTTP."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from gateway.core.errors import AgentTimeout, InterlinguaError, Invalid, Unavailable
from gateway.transport.http.outgoing import (
    BearerTokens,
    BytesBody,
    FilePart,
    Form,
    Outgoing,
    Params,
    TlsFiles,
    with_params,
)
from gateway.transport.http.response import UNLIMITED, HttpResponse, StreamResponse
from gateway.transport.tap import TAP, WHOLE_BYTES, BodyNotes, NotedWork, Said, current
from gateway.transport.waiting import Deadline

if TYPE_CHECKING:
    from gateway.transport.guard import Guard
    from gateway.transport.http.session import HttpConnections

MAX_BYTES = 32 * 1024 * 1024
USER_AGENT = "interlingua"

_JSON = "application/json"

Headers: TypeAlias = Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class HttpAuth:
    """An agent's credentials: a bearer token, a key in a named header, a certificate; any or none."""

    bearer: str = field(default="", repr=False)
    api_key: str = field(default="", repr=False)
    header: str = "x-api-key"
    tokens: BearerTokens | None = None
    """Where the token to send is asked for."""
    tls: TlsFiles | None = None
    """The authorities to trust, and the certificate to show."""

    def headers(self) -> dict[str, str]:
        """The headers that carry what does not change."""
        found = {"Authorization": f"Bearer {self.bearer}"} if self.bearer else {}
        return found | ({self.header: self.api_key} if self.api_key else {})


class HttpClient:
    """Calls one target; made once per target, closed with `aclose`.

    `path` arguments are appended to `base_url` ("/runs?x=1"; build them with `segment`), or are
    absolute URLs, which get neither the client's headers nor its credentials unless their origin is
    the base's. Without `base_url` only absolute URLs can be called.

    headers, auth: sent with every call. Names of hosts may come out in errors, values never do.
    timeout: seconds for a whole `request`, or for a `stream` until the head of its answer; None for
        no limit. Each call's own `timeout` goes before it; there `math.inf` is no limit.
    connect_timeout: seconds to get a connection, waiting for the pool and DNS included.
    pool_size: connections at once; a stream holds one while it is open.
    max_bytes: the largest answer of a `request` accepted, after decompression.
    guard: judges every address that is connected to (for callbacks).

    Every call raises, besides what it says itself:
      Unreachable   no connection could be made, nothing was sent (an AgentGone)
      AgentGone     the connection was lost; the agent may have seen the request
      AgentTimeout  the time is over
      AgentBroken   the agent does not speak HTTP, or its answer is too large
      Invalid       no request can be made of the arguments; Denied by the guard
      Unavailable   the client is closed
    A status is never an error here. Nothing is repeated, but a GET, HEAD, OPTIONS, PUT or DELETE once
    if a kept connection turns out to have been closed before a byte of the answer. No cookies, no
    proxies from the environment; a redirect is an answer, and is not followed.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        headers: Headers = None,
        auth: HttpAuth | None = None,
        timeout: float | None = 60.0,
        connect_timeout: float = 10.0,
        pool_size: int = 1000,
        max_bytes: int = MAX_BYTES,
        guard: Guard | None = None,
    ) -> None:
        if base_url:
            _check_base(base_url)
        self.base_url = base_url
        self._headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip"}
        self._headers |= dict(headers or {}) | (auth.headers() if auth else {})
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._pool_size = pool_size
        self._max_bytes = max_bytes
        self._guard = guard
        self._tokens = auth.tokens if auth else None
        self._tls = auth.tls if auth else None
        self._session: HttpConnections | None = None
        self._closed = False

    async def aclose(self) -> None:
        """Close every connection; calls under way end with AgentGone. May be called twice."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            session.close()

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: bytes | None = None,
        body: BytesBody | None = None,
        headers: Headers = None,
        params: Params | None = None,
        timeout: float | None = None,
        max_bytes: int | None = None,
    ) -> HttpResponse:
        """Call and read the whole answer. `json` is encoded JSON, `body` anything else."""
        body, kind = (body, None) if json is None else (json, _JSON)
        out = Outgoing(method, path, headers, params, body, kind)
        return await self._whole(out, timeout, max_bytes)

    async def upload(
        self,
        path: str,
        fields: Mapping[str, str],
        files: Sequence[FilePart],
        *,
        headers: Headers = None,
        timeout: float | None = None,
    ) -> HttpResponse:
        """POST a multipart form and read the whole answer."""
        out = Outgoing("POST", path, headers, body=Form(fields, tuple(files)))
        return await self._whole(out, timeout, None)

    def stream(
        self,
        method: str,
        path: str,
        *,
        json: bytes | None = None,
        headers: Headers = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
    ) -> AbstractAsyncContextManager[StreamResponse]:
        """Call, and return the answer as soon as its head has arrived.

        `timeout` ends with the head; `idle_timeout` is the longest silence in the body, None for no
        limit. The body may have any size. Leaving the block before its end closes the connection,
        which tells the peer that we have gone.
        """
        out = Outgoing(method, path, headers, None, json, None if json is None else _JSON, compressed=False)
        return _Streaming(self, out, self._seconds(timeout), idle_timeout)

    async def _whole(self, out: Outgoing, timeout: float | None, limit: int | None) -> HttpResponse:
        seconds = self._seconds(timeout)
        session = self._bound()
        try:
            with Deadline(seconds):
                response = await self._open(session, out)
                try:
                    response.begin(self._max_bytes if limit is None else limit, None)
                    return HttpResponse(response.status, response.headers, await response.read())
                finally:
                    response.close()
        except TimeoutError:
            raise _late(session.target(out.path), seconds) from None

    def _open(self, session: HttpConnections, out: Outgoing) -> Coroutine[Any, Any, StreamResponse]:
        """The answer when its head has arrived, without a time limit."""
        if TAP.on and (subject := current()) is not None:
            return self._noted(subject, session, out)
        return session.open(out) if self._tokens is None else self._known(session, out, self._tokens)

    async def _noted(self, subject: NotedWork, session: HttpConnections, out: Outgoing) -> StreamResponse:
        """`_open`, with notes taken of the request and its answer."""
        data = out.body if isinstance(out.body, bytes) else b""
        kept = data if len(data) <= WHOLE_BYTES else b""
        headers = [*self._headers.items(), *(out.headers or {}).items()]
        title, media = f"{out.method} {with_params(self._shown(out.path), out.params)}", out.content_type or ""
        subject.note(Said(time.time(), True, "request", title, kept, len(data), media, headers, "agent"))
        try:
            response = await (session.open(out) if self._tokens is None else self._known(session, out, self._tokens))
        except InterlinguaError as error:
            subject.note(Said(time.time(), False, "response", f"no answer: {error}", b"", 0, "", (), "agent"))
            raise
        found = [(name, value) for name in response.headers for value in response.headers.getall(name)]
        response.note(BodyNotes(subject, response.status, found, sent=False, side="agent"))
        return response

    def _shown(self, path: str) -> str:
        return path if path.startswith(("http://", "https://")) else f"{self.base_url.rstrip('/')}{path}"

    @staticmethod
    async def _known(session: HttpConnections, out: Outgoing, tokens: BearerTokens) -> StreamResponse:
        """The head of the answer. Where a token is refused the request is sent once more, with a new one."""
        token = await tokens.token()
        response = await session.open(out, f"Bearer {token}")
        if response.status != 401 or not out.repeatable:
            return response
        response.close()
        tokens.refused(token)
        return await session.open(out, f"Bearer {await tokens.token()}")

    def _bound(self) -> HttpConnections:
        """Return the session. The first call makes it, on the loop that runs then."""
        if self._closed:
            raise Unavailable("the connection to the agent is closed")
        if self._session is None:
            from gateway.transport.http.session import HttpConnections

            self._session = HttpConnections(
                self.base_url,
                self._headers,
                connect_timeout=self._connect_timeout,
                pool_size=self._pool_size,
                guard=self._guard,
                tls=self._tls,
            )
        elif self._session.loop is not asyncio.get_running_loop():
            raise RuntimeError("an HttpClient belongs to the event loop of its first call")
        return self._session

    def _seconds(self, timeout: float | None) -> float | None:
        seconds = self._timeout if timeout is None else timeout
        return None if seconds == math.inf else seconds


class _Streaming:
    """The context manager of `HttpClient.stream`. Enter it once."""

    __slots__ = ("_client", "_idle", "_out", "_response", "_seconds")

    def __init__(self, client: HttpClient, out: Outgoing, seconds: float | None, idle: float | None) -> None:
        self._client = client
        self._out = out
        self._seconds = seconds
        self._idle = idle

    async def __aenter__(self) -> StreamResponse:
        client, seconds = self._client, self._seconds
        session = client._session or client._bound()
        if seconds is None:
            response = await client._open(session, self._out)
        else:
            try:
                with Deadline(seconds):
                    response = await client._open(session, self._out)
            except TimeoutError:
                raise _late(session.target(self._out.path), seconds) from None
        response.begin(UNLIMITED, self._idle)
        self._response = response
        return response

    async def __aexit__(self, *_: object) -> None:
        self._response.close()


def _late(target: str, seconds: float | None) -> AgentTimeout:
    return AgentTimeout(f"{target} did not answer within {seconds:g} s")


def _check_base(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in ("http", "https") and parts.hostname and not parts.query
        good = good and not parts.fragment and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise Invalid("an agent's url must be http(s)://host[:port][/path]")
