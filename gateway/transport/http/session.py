"""The requests to one target, and the connections to agents: made, kept while idle, at most so many at once.

A request is repeated only when a kept connection was closed before a byte of the answer came, which is the one case
where the agent has likely not seen the request, and only if its method is idempotent. Redirects are not followed,
proxies of the environment not used, and no cookies kept.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Coroutine, Hashable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from aiohappyeyeballs import AddrInfoType, start_connection

from gateway.core.errors import AgentGone, AgentTimeout, InterlinguaError, Invalid
from gateway.transport.http.connection import CallConnection, StaleConnection
from gateway.transport.http.outgoing import (
    ONE_WRITE,
    CallUrl,
    HttpOrigin,
    Lines,
    Outgoing,
    TlsFiles,
    head,
    header_line,
    with_params,
)
from gateway.transport.http.response import StreamResponse, Unreachable
from gateway.transport.waiting import Deadline

if TYPE_CHECKING:
    from gateway.transport.guard import Guard

KEEP_ALIVE = 4.0
"""Seconds that an idle connection may serve again. Servers drop one after 5 s (uvicorn, Node): be first."""
DNS_SECONDS = 10.0
"""How long the addresses of a name are used for further connections. A guard judges them for each."""
NEXT_ADDRESS = 0.25
"""Seconds after which the next address is tried beside one that has not answered (RFC 8305)."""

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_NO_LENGTH, _LENGTH = b"\r\nContent-Length: 0\r\n", b"\r\nContent-Length: %d\r\n"
HEADS = 64
"""How many heads of requests are remembered."""
_HARMLESS = ("accept", "accept-encoding", "user-agent", "traceparent", "tracestate")


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
        tls: TlsFiles | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._base = CallUrl.parse(base.rstrip("/")) if base else None
        self._lines = _lines(headers)
        self._guard = guard
        self._posted: dict[Hashable, tuple[HttpOrigin, bytes]] = {}
        self._pool = ConnectionPool(self.loop, limit=pool_size, connect_timeout=connect_timeout, guard=guard, tls=tls)

    def close(self) -> None:
        """Close every connection. Calls under way end with AgentGone."""
        self._pool.close()

    def open(self, out: Outgoing, authorization: str | None = None) -> Coroutine[Any, Any, StreamResponse]:
        """Send, and return when the head of the answer has arrived. Raises our errors only. To be awaited at once.

        `authorization`: the header of that name, for the target alone.
        """
        body = out.body
        plain = out.method == "POST" and out.params is None and authorization is None and self._guard is None
        if plain and type(body) is bytes and len(body) <= ONE_WRITE:  # most requests: the head is an earlier one's
            key = (out.path, out.content_type, out.compressed, *(out.headers or {}).items())
            origin, first = self._posted.get(key) or self._remembered(key, out)
            if (kept := self._pool.kept(origin)) is not None:
                return kept.exchange("POST", first % len(body), body, chunked=False)
        return self._open(out, authorization)

    async def _open(self, out: Outgoing, authorization: str | None) -> StreamResponse:
        url = self._url(out.path)
        lines = self._merged(out, url, authorization)
        return await self._send(out, url, with_params(url.target, out.params), lines)

    def _remembered(self, key: Hashable, out: Outgoing) -> tuple[HttpOrigin, bytes]:
        """Where a POST goes, and its head, with `%d` where the length of its body is to stand."""
        url = self._url(out.path)
        lines = self._merged(out, url, None)
        first = head(url.origin, "POST", url.target, lines, 0, bodiless=False).replace(b"%", b"%%")
        if len(self._posted) >= HEADS:
            self._posted.clear()
        found = self._posted[key] = url.origin, first.replace(_NO_LENGTH, _LENGTH, 1)
        return found

    def target(self, path: str) -> str:
        """Return host:port for messages. `path` is one that `open` accepted."""
        return self._url(path).origin.name

    async def _send(self, out: Outgoing, url: CallUrl, target: str, lines: Lines) -> StreamResponse:
        if self._guard is not None:
            self._guard.check_form(url.origin.scheme, url.origin.host, userinfo=bool(url.userinfo))
        again = out.repeatable and out.method in _IDEMPOTENT
        while True:
            kind, length, body = out.framed()
            if kind is not None and "content-type" not in lines:
                lines = {**lines, "content-type": header_line("Content-Type", kind)}
            first = head(url.origin, out.method, target, lines, length, bodiless=out.body is None)
            connection = await self._pool.connection(url.origin)
            try:
                return await connection.exchange(out.method, first, body, chunked=length is None)
            except StaleConnection:
                if not again:
                    raise
                again = False

    def _url(self, path: str) -> CallUrl:
        """Resolve `path` below the base, or parse an absolute URL. Raises Invalid if it is neither."""
        if path.startswith(("http://", "https://")):
            return CallUrl.parse(path)
        if self._base is None:
            raise Invalid(f"not an absolute URL: {path!r}")
        return self._base.below(path)

    def _merged(self, out: Outgoing, url: CallUrl, authorization: str | None) -> Lines:
        """Merge our headers and the caller's. Ours hold secrets, so another origin does not get them."""
        base = self._base
        ours = base is None or url.origin == base.origin
        lines = self._lines.copy() if ours else _only(_HARMLESS, self._lines)
        if authorization is not None and ours:
            lines["authorization"] = header_line("Authorization", authorization)
        if not out.compressed:
            lines["accept-encoding"] = "Accept-Encoding: identity\r\n"
        if out.content_type is not None:
            lines["content-type"] = header_line("Content-Type", out.content_type)
        if out.headers:
            lines.update(_lines(out.headers))
        if url.userinfo and "authorization" not in lines:
            lines["authorization"] = f"Authorization: Basic {url.basic}\r\n"
        return lines


def _lines(headers: Mapping[str, str]) -> Lines:
    return {name.lower(): header_line(name, value) for name, value in headers.items()}


def _only(names: tuple[str, ...], lines: Lines) -> Lines:
    return {name: lines[name] for name in names if name in lines}


# --- connections

_Addresses: TypeAlias = list[AddrInfoType]


@cache
def default_tls() -> ssl.SSLContext:
    """TLS where no context is given: the agent's certificate is verified by the system's authorities."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class ConnectionPool:
    """`limit`: exchanges at once; others wait. `connect_timeout`: seconds to get a connection, the wait included."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        limit: int,
        connect_timeout: float,
        guard: Guard | None,
        tls: TlsFiles | None,
    ) -> None:
        self.loop = loop
        self._limit = limit
        self._connect_timeout = connect_timeout
        self._guard = guard
        self._tls = tls
        self._in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._connecting: set[Deadline] = set()
        self._origins: dict[CallConnection, HttpOrigin] = {}
        self._idle: dict[HttpOrigin, list[tuple[float, CallConnection]]] = {}
        self._found: dict[HttpOrigin, tuple[float, asyncio.Task[_Addresses]]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    def close(self) -> None:
        """Close every connection. Exchanges under way, and who waits for a connection, end with AgentGone."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for deadline in self._connecting:
            deadline.move(self.loop.time())
        for connection in list(self._origins):
            connection.fail(AgentGone("the gateway closed the connection"))
        for _, finding in self._found.values():
            finding.cancel()

    async def connection(self, origin: HttpOrigin) -> CallConnection:
        """Return a connection for one exchange.

        Raises Unreachable, AgentTimeout if `connect_timeout` is over, Denied by the guard, AgentGone if the pool is
        closed.
        """
        kept = self.kept(origin)
        if kept is not None:
            return kept
        has_place = self._in_use < self._limit
        if has_place:
            self._in_use += 1
        deadline = Deadline(self._connect_timeout)
        self._connecting.add(deadline)
        try:
            with deadline:
                if self._closed:
                    raise self._gone(origin)
                if not has_place:
                    await self._place()
                    has_place = True
                    kept = self.kept(origin, has_place=True)
                    if kept is not None:
                        return kept
                return await self._connect(origin)
        except BaseException as exc:
            if has_place:
                self._leave()
            if isinstance(exc, TimeoutError) and deadline.expired:
                if self._closed:
                    raise self._gone(origin) from None
                raise AgentTimeout(f"{origin.name} did not accept a connection in time", untaken=True) from exc
            if isinstance(exc, InterlinguaError) or not isinstance(exc, Exception):
                raise
            raise _refused(exc, origin.name) from exc
        finally:
            self._connecting.discard(deadline)

    async def _place(self) -> None:
        """Wait until another exchange leaves its place to this one."""
        waiter = self.loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._in_use -= 1

    def kept(self, origin: HttpOrigin, *, has_place: bool = False) -> CallConnection | None:
        """Take the idle connection that was used last, if there is one and (or `has_place`) room for an exchange."""
        idle = self._idle.get(origin)
        while idle and (has_place or self._in_use < self._limit):
            since, connection = idle.pop()
            if connection.open and self.loop.time() - since <= KEEP_ALIVE:
                if not has_place:
                    self._in_use += 1
                return connection
            connection.fail(self._gone(origin))
        return None

    async def _connect(self, origin: HttpOrigin) -> CallConnection:
        addresses = await self._addresses(origin)
        tls = None if origin.scheme == "http" else self._tls.context() if self._tls is not None else default_tls()
        connect = partial(
            self.loop.create_connection,
            lambda: CallConnection(self.loop, origin.name, over=self._over, lost=self._lost),
            ssl=tls,
            server_hostname=None if tls is None else origin.host.rstrip("."),
        )
        connection: CallConnection
        if len(addresses) == 1 and addresses[0][0] == socket.AF_INET:  # nothing to choose from: half the cost
            _, connection = await connect(*addresses[0][4])
        else:
            sock = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS, loop=self.loop)
            try:
                _, connection = await connect(sock=sock)
            except BaseException:
                sock.close()
                raise
        if self._closed:
            connection.fail(self._gone(origin))
            raise self._gone(origin)
        if not connection.open:
            raise ConnectionResetError("closed at once")
        self._origins[connection] = origin
        return connection

    async def _addresses(self, origin: HttpOrigin) -> _Addresses:
        """Resolve the host. Raises OSError, Denied."""
        if self._guard is not None:
            judged = await self._guard.addresses(origin.host, origin.port)
            return [each for address in judged for each in _numeric(address, origin.port)]
        now = self.loop.time()
        found = self._found.get(origin)
        if found is None or now - found[0] > DNS_SECONDS or (found[1].done() and found[1].cancelled()):
            if len(self._found) >= 64:
                self._found.clear()
            found = self._found[origin] = (now, self.loop.create_task(self._resolve(origin)))
            found[1].add_done_callback(lambda task: task.cancelled() or task.exception())  # everyone may have gone
        addresses = await asyncio.shield(found[1])
        addresses.append(addresses.pop(0))  # the next connection begins with another one
        return list(addresses)

    async def _resolve(self, origin: HttpOrigin) -> _Addresses:
        try:
            found = await self.loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            return cast("_Addresses", found)
        except BaseException:
            self._found.pop(origin, None)
            raise

    def _over(self, connection: CallConnection, keep: bool) -> None:
        """An exchange has ended."""
        self._leave()
        origin = self._origins.get(connection)
        if keep and origin is not None and not self._closed:
            self._idle.setdefault(origin, []).append((self.loop.time(), connection))
            if self._sweep is None:
                self._sweep = self.loop.call_later(KEEP_ALIVE, self._drop_idle)

    def _lost(self, connection: CallConnection) -> None:
        origin = self._origins.pop(connection, None)
        if origin is not None and (idle := self._idle.get(origin)):
            idle[:] = [each for each in idle if each[1] is not connection]

    def _drop_idle(self) -> None:
        """Close what has been idle for too long. One timer for all; a connection may be idle for twice the time."""
        self._sweep = None
        before = self.loop.time() - KEEP_ALIVE
        for origin, idle in list(self._idle.items()):
            for since, connection in list(idle):
                if since <= before:
                    connection.fail(self._gone(origin))
            idle[:] = [each for each in idle if each[0] > before]
            if not idle:
                del self._idle[origin]
        if self._idle:
            self._sweep = self.loop.call_later(KEEP_ALIVE, self._drop_idle)

    def _gone(self, origin: HttpOrigin) -> AgentGone:
        return AgentGone(f"the connection to {origin.name} was closed")


def _numeric(address: str, port: int) -> _Addresses:
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return cast("_Addresses", socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=flags))


def _refused(exc: Exception, name: str) -> InterlinguaError:
    """Map the reason for which no connection was made."""
    detail = f"{type(exc).__name__}: {exc}"
    if isinstance(exc, OSError):  # a certificate that is not trusted is a ValueError as well
        return Unreachable.because(exc, name)
    if isinstance(exc, ValueError):  # the resolver's codec, for labels that are too long
        return Invalid(f"no request can be made of this URL for {name}", detail=detail)
    return Unreachable(f"no connection could be made to {name}", detail=detail)
