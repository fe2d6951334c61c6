"""Decides which web pages may connect.

A page of any site can make its visitor's browser call a gateway on that visitor's machine; with DNS rebinding it even
reads the answers. A browser names the page's site in `Origin`; programs send none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.types import Scope

from gateway.core.errors import Denied
from gateway.transport.asgi.request import headers_of

OWN: Final = "interlingua.own"
"""Key of a request's scope: a function of `Origin` and `Host`, whether the page is one that needs no permission.

The gateway's own pages do not, nor, where no other machine reaches the gateway, those of this machine.
"""


def admit(page: str | None, scope: Scope, origins: Collection[str]) -> None:
    """Raises Denied for a page (the value of `Origin`; None for a program) that may not connect.

    `origins` may, and so may those of OWN: the program that served a page of this machine could connect itself.
    """
    if page is None or page in origins:
        return
    own = scope.get(OWN)
    if own is None or not own(page, headers_of(scope).get(b"host", b"").decode("latin-1")):
        raise Denied(f"pages of {page} may not connect here (see `origins`)")


def cors(origin: str, exposed: str) -> list[tuple[bytes, bytes]]:
    """The headers with which the browser of a page that may connect lets it read an answer.

    exposed: response headers that the page may read, separated by commas.
    """
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-expose-headers", exposed.lower().encode("latin-1")),
        (b"vary", b"origin"),
    ]


def preflight(asked: str | None) -> list[tuple[bytes, bytes]]:
    """The further headers that answer a preflight. asked: the headers that the page wants to send."""
    return [
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", (asked or "content-type").encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]
