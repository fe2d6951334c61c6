"""Refuses the requests of other sites' pages at doors that do not authenticate their clients.

A page of any site can make its visitor's browser send requests to a gateway on that visitor's machine. It can read the
answers too, if its own name is made to resolve to that machine (DNS rebinding). A browser sends the name that it asked
as `Host`, and the page's site as `Origin`; programs send `Host` alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.core.errors import Denied, InterlinguaError
from gateway.transport.asgi import origin
from gateway.transport.asgi.request import headers_of, twice
from gateway.transport.guard import address

FORWARDED: Final = frozenset(
    (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip")
)
"""Headers by which a proxy says that it asks for another client."""
_FOREIGN: Final = "Host: {!r} is no name of this gateway (see `hosts` in routes.yaml)"
JUDGED: Final = 256
"""How many values of `Host` are remembered, with the verdict on each."""


class HostNames:
    """The names of the gateway: localhost, every IP address, and those that are configured."""

    def __init__(self, hosts: Iterable[str], urls: Iterable[str] = ()) -> None:
        """hosts: names; `*` stands for anything. urls: addresses of the gateway, whose names count too."""
        named = (urlsplit(url).hostname for url in urls)
        self._patterns = [name.lower().removesuffix(".") for name in (*hosts, *named) if name]
        self.asked: Callable[[str], bool] = lru_cache(JUDGED)(self._asked)
        """Whether a request with this `Host` means the gateway. An IP address does: DNS cannot have led there."""

    def _asked(self, host: str) -> bool:
        name = _named(f"//{host}")
        return name is not None and (name == "" or address(name) is not None or self._known(name))

    def ours(self, page: str) -> bool:
        """Whether a page with this `Origin` is served by this machine, or under a name of the gateway."""
        name = _named(page)
        return self._known(name) if name else False

    def served(self, page: str, host: str) -> bool:
        """Whether a page with this `Origin` is the gateway's own: served under this `Host`, a name of the gateway."""
        return page.partition("://")[2] == host and self.asked(host)

    def _known(self, name: str) -> bool:
        return _near(name) or any(fnmatchcase(name, pattern) for pattern in self._patterns)


def near(page: str, host: str) -> bool:
    """Whether a page with this `Origin` is served by this machine, and `Host` is a name that resolves only to it."""
    return _near(_named(page)) and _near(_named(f"//{host}"))


def _near(name: str | None) -> bool:
    """Whether a host is this machine wherever it is resolved: localhost, or a loopback address."""
    if name is None:
        return False
    literal = address(name)
    return name == "localhost" or name.endswith(".localhost") or (literal is not None and literal.is_loopback)


def _named(url: str) -> str | None:
    """The host in a URL, "" where it has none; None for no URL."""
    try:
        return (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return None


def comes_directly(
    scope: Scope, names: HostNames, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network] = ()
) -> bool:
    """Whether a request comes from this machine or one of the networks, and not through a proxy there.

    A browser there asks for pages of any site whose name leads here: it counts only where it asks for the gateway.
    """
    client = scope.get("client")
    headers = headers_of(scope)
    if client is None or FORWARDED.intersection(headers):
        return False
    here = address(client[0])
    if here is None or not (here.is_loopback or any(here in network for network in networks)):
        return False
    return names.asked(headers.get(b"host", b"").decode("latin-1"))


PathRefusal = Callable[[str, InterlinguaError], Response]
"""The answer to a request for a path that is refused with an error."""


class BrowserGuard:
    """ASGI middleware: refuses requests under a foreign name, or two (RFC 9112, 3.2), or of other sites' pages."""

    def __init__(
        self, inner: ASGIApp, names: HostNames, doors: Mapping[str, bool], refusal: PathRefusal, *, private: bool
    ) -> None:
        """doors: the paths of those that are guarded, and whether they check `Origin` themselves. private: no other
        machine reaches the gateway, so that doors which check `Origin`, guarded or not, take pages of this machine
        beside the gateway's own (see `origin.admit`).
        """
        self._inner = inner
        self._own = (lambda page, host: near(page, host) or names.served(page, host)) if private else names.served
        self._names = names
        self._doors = [(path, f"{path}/", judging) for path, judging in doors.items()]
        self._refusal = refusal

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        scope[origin.OWN] = self._own
        if scope["type"] != "lifespan":
            if twice(scope, b"host"):
                return PlainTextResponse("Host was sent more than once.", 400)(scope, receive, send)
            if (refused := self._refused(scope)) is not None:
                return refused(scope, receive, send)
        return self._inner(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        """The answer to a request that may not come in; None to let it through."""
        headers = headers_of(scope)
        host = headers.get(b"host", b"").decode("latin-1")
        named = self._names.asked(host)
        if named and b"origin" not in headers:
            return None
        asked = scope["path"]
        for path, below, judging in self._doors:
            if asked.startswith(below) or asked == path:
                why = self._wrong(headers, host, judging) if named else _FOREIGN.format(host)
                return None if why is None else self._refusal(path, Denied(why))
        return None

    def _wrong(self, headers: Mapping[bytes, bytes], host: str, judging: bool) -> str | None:
        """The reason to refuse the request of a page; None to let it through."""
        page = headers[b"origin"].decode("latin-1")
        same = headers.get(b"sec-fetch-site") == b"same-origin"  # no page can set it
        if judging or same or self._names.ours(page) or (host and page.partition("://")[2] == host):
            return None
        return f"Origin: pages of {page} may not ask here (see `hosts` in routes.yaml)"
