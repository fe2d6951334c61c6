"""What a page in somebody's browser may ask of the gateway.

A page of any site can make its visitor's browser send requests to a gateway on that visitor's own machine, and reads
the answers too where the name that the page came by is made to lead there (DNS rebinding). Browsers say by `Host` which
name was asked, and by `Origin` whose page asks; programs say the one, and never the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.exposure import address
from gateway.contract import Inbound
from gateway.core.errors import Denied
from gateway.transport.asgi import origin

JUDGED: Final = 256
"""How many values of `Host` are remembered with what they came to."""


class Names:
    """What the gateway is called: localhost, any address, and the names that it is given."""

    def __init__(self, hosts: Iterable[str], urls: Iterable[str] = ()) -> None:
        """hosts: names, `*` in them stands for anything. urls: where the gateway is; empty ones count for nothing."""
        named = (urlsplit(url).hostname for url in urls)
        self._patterns = [name.lower().removesuffix(".") for name in (*hosts, *named) if name]
        self.asked: Callable[[str], bool] = lru_cache(JUDGED)(self._asked)
        """Whether a request with this `Host` means the gateway. An address does: no name led there."""

    def _asked(self, host: str) -> bool:
        name = _named(f"//{host}")
        return name is not None and (name == "" or address(name) is not None or self._known(name))

    def ours(self, page: str) -> bool:
        """Whether a page with this `Origin` is of this machine, or of a name of the gateway's."""
        name = _named(page)
        return self._known(name) if name else False

    def _known(self, name: str) -> bool:
        return _near(name) or any(fnmatchcase(name, pattern) for pattern in self._patterns)


def near(page: str, host: str) -> bool:
    """Whether a page with this `Origin` is of this machine, and asks for the gateway by a name that leads only here."""
    return _near(_named(page)) and _near(_named(f"//{host}"))


def _near(name: str | None) -> bool:
    """Whether a host is this machine for everybody: localhost, or a loopback address."""
    if name is None:
        return False
    literal = address(name)
    return name == "localhost" or name.endswith(".localhost") or (literal is not None and literal.is_loopback)


def _named(url: str) -> str | None:
    """The host in an URL, "" where it has none; None if it cannot be read."""
    try:
        return (urlsplit(url).hostname or "").removesuffix(".")
    except ValueError:
        return None


class Doorkeeper:
    """An application in front of the gateway's, which refuses what a page must not ask at doors where nobody else asks
    who it is: requests under a name that is none of the gateway's, and those of other sites' pages.
    """

    def __init__(
        self, inner: ASGIApp, names: Names, doors: Mapping[str, Inbound], judging: Iterable[str], *, private: bool
    ) -> None:
        """doors: those that are kept, by the path that they are mounted at. judging: paths of those that know
        themselves which pages may connect. private: no other machine reaches the gateway: doors that judge, whether
        they are kept or not, take pages of this machine (see `origin.admit`).
        """
        self._inner = inner
        self._private = private
        self._names = names
        self._doors = [(path, f"{path}/", door) for path, door in doors.items()]
        self._judging = frozenset(judging)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._private:
            scope[origin.NEAR] = near
        asked = scope.get("path", "")
        for path, below, door in self._doors:
            if asked.startswith(below) or asked == path:
                if (why := self._wrong(scope, path in self._judging)) is not None:
                    return await door.refusal(Denied(why))(scope, receive, send)
                break
        await self._inner(scope, receive, send)

    def _wrong(self, scope: Scope, judging: bool) -> str | None:
        """Why a request is refused; None if it is not."""
        host, same = "", False
        page: str | None = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1")
                if not self._names.asked(host):
                    return f"Host: {host!r} is no name of this gateway (see `hosts` in routes.yaml)"
            elif name == b"origin":
                page = value.decode("latin-1")
            elif name == b"sec-fetch-site":  # no page can set it
                same = value == b"same-origin"
        if judging or page is None or same or self._names.ours(page) or (host and page.partition("://")[2] == host):
            return None
        return f"Origin: pages of {page} may not ask here (see `hosts` in routes.yaml)"
