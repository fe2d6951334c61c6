"""Wraps aiohttp: connections, redirects, the one retry, and its errors mapped to ours.

Where we differ from aiohttp, and why:

- Repeating a request. It repeats an idempotent one after any lost connection; we repeat only when a
  kept connection was closed before a byte of the answer came, which is the one case where the agent
  has likely not seen the request.
- A malformed chunk. Its reader is never told and waits for ever; `_Peer` tells it.
- A reset in a body without length. It takes that for the end; `_Peer` makes it an error.
- Bytes after an answer. It may take them for the answer to the next request; `_Peer` closes the connection.
- Redirects. It carries every header but `Authorization` to another origin.
"""

from __future__ import annotations

import asyncio
import functools
import io
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from gateway.core.errors import (
    AgentBroken,
    AgentGone,
    AgentTimeout,
    InterlinguaError,
    Invalid,
)
from gateway.transport.http.exchange import RawResponse, exchange, possible
from gateway.transport.http.outgoing import Form, Outgoing, Params
from gateway.transport.http.response import Unreachable

if TYPE_CHECKING:
    import ssl

    from gateway.transport.guard import Guard

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HARMLESS = ("Accept", "Accept-Encoding", "User-Agent", "traceparent", "tracestate")
_WHOLE_WRITE = 1024 * 1024  # aiohttp writes larger bodies piece by piece if they come as a file
MOST_PEERS = 64
"""Origins to remember. Only callbacks and redirects go to more than one."""
KEEP_ALIVE = 4.0  # servers drop idle connections after 5 s (uvicorn, Node): be first


class Stale(aiohttp.ServerDisconnectedError):
    """A kept connection was closed before a byte of the answer came."""


class MalformedBody(aiohttp.ClientPayloadError):
    """The framing of the body is broken."""


class HttpConnections:
    """One target's connections, bound to the running loop. `base` is "" or an absolute URL."""

    def __init__(
        self,
        base: str,
        headers: Mapping[str, str],
        *,
        connect_timeout: float,
        pool_size: int,
        guard: Guard | None,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._base = base.rstrip("/")
        self._base_url = URL(self._base) if base else None
        self._origin = self._base_url.origin() if self._base_url else None
        self._base_path = self._base_url.raw_path.rstrip("/") + "/" if self._base_url else "/"
        self._headers: CIMultiDict[str] = CIMultiDict(headers)
        self._guard = guard
        connector = aiohttp.TCPConnector(
            limit=pool_size,
            keepalive_timeout=KEEP_ALIVE,
            resolver=_GuardedResolver(guard) if guard else None,
            use_dns_cache=guard is None,
            ssl=ssl_context if ssl_context is not None else True,
        )
        connector._factory = cast(Any, functools.partial(_Peer, loop=self.loop))
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(connect=connect_timeout, sock_connect=connect_timeout),
            auto_decompress=False,
            trust_env=False,
        )
        self._session._retry_connection = False
        self._connector = connector
        self._timeout = self._session.timeout
        self._peers: dict[URL, aiohttp.ClientRequest] = {}

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def open(self, out: Outgoing) -> RawResponse:
        """Send, and return when the head of the answer has arrived. Raises our errors only."""
        url = self._url(out.path)
        headers = self._merged(out, url)
        params = out.params
        for left in range(out.redirects, -1, -1):
            raw = await self._send(out, url, headers, params)
            location = raw.headers.get("Location") if raw.status in _REDIRECTS else None
            if not left or location is None or out.method not in ("GET", "HEAD"):
                break
            raw.close()
            try:
                there = url.join(URL(location))
                same = there.origin() == url.origin()  # ValueError too if it has no host
            except ValueError as exc:
                raise AgentBroken("the agent redirects to no URL", detail=location) from exc
            if there.scheme not in ("http", "https"):
                raise AgentBroken("the agent redirects out of HTTP", detail=location)
            if not same:
                headers = _only(_HARMLESS, headers)
            url, params = there, None
        return raw

    def target(self, path: str) -> str:
        """Return host:port for messages, without credentials or query. `path` is one that `open` accepted."""
        return _host_port(self._url(path))

    def translate(self, path: str, exc: BaseException) -> InterlinguaError:
        """Map an exception raised while the answer to `path` was read."""
        return translate(exc, self.target(path))

    async def _send(self, out: Outgoing, url: URL, headers: CIMultiDict[str], params: Params | None) -> RawResponse:
        if self._guard is not None:
            userinfo = url.raw_user is not None or url.raw_password is not None
            self._guard.check_form(url.scheme, url.host or "", userinfo=userinfo)
        again = out.repeatable and out.method in _IDEMPOTENT
        while True:
            try:
                if url.raw_user is None and url.raw_password is None and possible(headers, out.body):
                    whole = url.extend_query(params) if params else url
                    return await exchange(
                        self._connector,
                        self._peer(url),
                        self._timeout,
                        method=out.method,
                        target=whole.raw_path_qs,
                        headers=headers,
                        body=cast("bytes | None", out.body),
                    )
                return await self._session.request(
                    out.method,
                    url,
                    params=params,
                    headers=headers,
                    data=_form(out.body) if isinstance(out.body, Form) else out.data(),
                    allow_redirects=False,
                )
            except Stale as exc:
                if not again:
                    raise translate(exc, _host_port(url)) from exc
                again = False
            except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as exc:
                raise translate(exc, _host_port(url)) from exc

    def _peer(self, url: URL) -> aiohttp.ClientRequest:
        """Return the request object that tells the connector the URL's origin."""
        origin = url.origin()
        peer = self._peers.get(origin)
        if peer is None:
            if len(self._peers) >= MOST_PEERS:
                self._peers.clear()
            peer = self._peers[origin] = aiohttp.ClientRequest("GET", origin, loop=self.loop)
        return peer

    def _url(self, path: str) -> URL:
        """Resolve `path` below the base, or parse an absolute URL. Raises Invalid if it is neither."""
        try:
            if path.startswith(("http://", "https://")):
                url = URL(path)
            elif self._base_url is None:
                raise Invalid(f"not an absolute URL: {path!r}")
            elif not path:
                return self._base_url
            else:
                url = URL(self._base + path)
                below = f"{url.raw_path}/".startswith(self._base_path)
                if not below or path[0] not in "/?":
                    raise Invalid(f"the path {path!r} leaves the agent's base URL")
            if not url.raw_host:
                raise Invalid(f"the URL {path!r} names no host")
        except ValueError as exc:
            raise Invalid("the URL cannot be read", detail=str(exc)) from exc
        return url

    def _merged(self, out: Outgoing, url: URL) -> CIMultiDict[str]:
        """Merge our headers and the caller's. Ours hold secrets, so another origin does not get them."""
        ours = not out.path.startswith("http") or self._origin in (None, url.origin())
        headers = CIMultiDict(self._headers) if ours else _only(_HARMLESS, self._headers)
        if not out.compressed:
            headers["Accept-Encoding"] = "identity"
        if out.content_type is not None:
            headers["Content-Type"] = out.content_type
        if out.headers is not None:
            headers.update(out.headers)
        return headers


def _only(names: tuple[str, ...], headers: CIMultiDict[str]) -> CIMultiDict[str]:
    return CIMultiDict((name, headers[name]) for name in names if name in headers)


def _form(form: Form) -> aiohttp.FormData:
    """Make a form. File names are sent as browsers do: UTF-8, only quotes escaped."""
    data = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
    for name, value in form.fields.items():
        data.add_field(name, value)
    for part in form.files:
        content = io.BytesIO(part.content) if isinstance(part.content, bytes) else part.content
        data.add_field(part.name, content, filename=part.filename, content_type=part.content_type)
    return data


def translate(exc: BaseException, target: str) -> InterlinguaError:
    """Map an exception of aiohttp to ours. `target` is host:port."""
    if isinstance(exc, InterlinguaError):
        return exc
    for kinds, error, message in _ERRORS:
        if isinstance(exc, kinds):
            return error(message.format(target), detail=f"{type(exc).__name__}: {exc}")
    return AgentGone(f"the call to {target} failed", detail=repr(exc))


_ERRORS: tuple[tuple[tuple[type[BaseException], ...], type[InterlinguaError], str], ...] = (
    ((aiohttp.ConnectionTimeoutError,), AgentTimeout, "{} did not accept a connection in time"),
    ((TimeoutError,), AgentTimeout, "{} did not answer in time"),
    ((aiohttp.ClientSSLError,), Unreachable, "no TLS connection could be made to {}"),
    ((aiohttp.ClientConnectorDNSError,), Unreachable, "the name of {} does not resolve"),
    ((aiohttp.ClientConnectorError,), Unreachable, "no connection could be made to {}"),
    ((MalformedBody,), AgentBroken, "{} sent a malformed body"),
    ((aiohttp.ClientPayloadError,), AgentGone, "{} closed the connection in mid-answer"),
    ((aiohttp.ServerDisconnectedError,), AgentGone, "{} closed the connection without an answer"),
    ((aiohttp.ClientOSError,), AgentGone, "the connection to {} was lost"),
    ((aiohttp.ClientConnectionError,), AgentGone, "the connection to {} was closed"),
    ((aiohttp.InvalidURL,), Invalid, "no request can be made of this URL for {}"),
    ((aiohttp.ClientError,), AgentBroken, "{} did not answer in HTTP"),
    ((OSError,), AgentGone, "the connection to {} was lost"),
    ((ValueError,), Invalid, "no request to {} can be made of these values"),
)


def _host_port(url: URL) -> str:
    host = url.host or "the agent"
    return f"[{host}]:{url.port}" if ":" in host else f"{host}:{url.port}"


class _Peer(ResponseHandler):
    """aiohttp's protocol of one connection, with the differences listed above."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._uses = 0
        self._heard = False  # a byte of the current answer has come
        self._body: Any = None  # of the current answer, once its head has come
        self.arrived: Callable[[], None] | None = None
        """Called when bytes of the answer, or its end, have arrived (see `Body.pour`)."""

    def set_response_params(self, **params: Any) -> None:
        self._uses += 1
        self._heard = False
        self._body = None
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take the head of an answer, and the reader of its body."""
        message, body = data
        if self._body is not None:  # in the read that ended the answer before
            return self._refuse()
        if message.code >= 200:
            self._body = body
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        body = self._body
        if body is not None and body.is_eof():
            return self._refuse()
        self._heard = True
        super().data_received(data)
        if self.arrived is not None:
            self.arrived()

    def _refuse(self) -> None:
        """Close the connection: bytes after an answer must not become the next request's answer."""
        self.force_close()
        if self.transport is not None:
            self.transport.close()

    def resume_reading(self, *args: Any, **options: Any) -> None:
        """aiohttp calls this for every piece read. Nothing is to be done unless reading was paused."""
        if self._reading_paused:
            super().resume_reading(*args, **options)

    def connection_lost(self, exc: BaseException | None) -> None:
        if isinstance(exc, OSError):
            self._tell_reader(aiohttp.ClientPayloadError("connection reset"), exc)
        super().connection_lost(exc)
        if self.arrived is not None:
            self.arrived()

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        lost = isinstance(exc, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))
        if lost and self._uses > 1 and not self._heard:
            exc = Stale(str(exc))
        super().set_exception(exc, *cause)
        if not lost:
            self._tell_reader(MalformedBody(str(exc)), exc)

    def _tell_reader(self, error: aiohttp.ClientPayloadError, cause: BaseException) -> None:
        payload = self._payload
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            payload.set_exception(error, cause)
            if self.arrived is not None:
                self.arrived()


class _GuardedResolver(AbstractResolver):
    """Resolves through the guard, so that no connection is made to an address that it refuses."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in await self._guard.addresses(host, port)
        ]

    async def close(self) -> None:
        """Nothing to close."""
