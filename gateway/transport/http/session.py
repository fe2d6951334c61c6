"""The requests to one target: URLs, headers, redirects, the one retry.

A request is repeated only when a kept connection was closed before a byte of the answer came, which is the one case
where the agent has likely not seen the request, and only if its method is idempotent. A redirect to another origin
carries no header but harmless ones. Proxies of the environment are not used, and no cookies are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from gateway.core.errors import AgentBroken, Invalid
from gateway.transport.http.connection import StaleConnection, WireResponse
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
from gateway.transport.http.pool import ConnectionPool

if TYPE_CHECKING:
    from gateway.transport.guard import Guard

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
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

    async def open(self, out: Outgoing, authorization: str | None = None) -> WireResponse:
        """Send, and return when the head of the answer has arrived. Raises our errors only.

        `authorization`: the header of that name, for the target alone.
        """
        body = out.body
        plain = out.method == "POST" and out.params is None and authorization is None and self._guard is None
        if plain and type(body) is bytes and len(body) <= ONE_WRITE:  # most requests: the head is an earlier one's
            key = (out.path, out.content_type, out.compressed, *(out.headers or {}).items())
            origin, first = self._posted.get(key) or self._remembered(key, out)
            connection = await self._pool.connection(origin)
            return await connection.exchange("POST", first % len(body), body, chunked=False)
        url = self._url(out.path)
        lines = self._merged(out, url, authorization)
        target = with_params(url.target, out.params)
        for left in range(out.redirects, -1, -1):
            response = await self._send(out, url, target, lines)
            location = response.headers.get("location") if response.status in _REDIRECTS else None
            if not left or location is None or out.method not in ("GET", "HEAD"):
                break
            response.close()
            there = _redirected(url, location)
            if there.origin != url.origin:
                lines = _only(_HARMLESS, lines)
            url, target = there, there.target
        return response

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

    async def _send(self, out: Outgoing, url: CallUrl, target: str, lines: Lines) -> WireResponse:
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


def _redirected(url: CallUrl, location: str) -> CallUrl:
    """Return the URL that a redirect leads to. Raises AgentBroken."""
    try:
        there = urljoin(url.text, location)
        if there.startswith(("http://", "https://")):
            return CallUrl.parse(there)
    except (Invalid, ValueError) as exc:
        raise AgentBroken("the agent redirects to no URL", detail=location) from exc
    raise AgentBroken("the agent redirects out of HTTP", detail=location)


def _lines(headers: Mapping[str, str]) -> Lines:
    return {name.lower(): header_line(name, value) for name, value in headers.items()}


def _only(names: tuple[str, ...], lines: Lines) -> Lines:
    return {name: lines[name] for name in names if name in lines}
