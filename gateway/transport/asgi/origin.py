"""Which web pages may connect. A page of any site can make its visitor's browser call a gateway on that visitor's own
machine (DNS rebinding even lets it read the answers); browsers say whose page it is, and programs say nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.types import Scope

from gateway.core.errors import Denied

NEAR: Final = "interlingua.near"
"""Key of a request's scope: a function of its `Origin` and `Host` that says whether page and gateway are both of this
machine. Set only where no other machine reaches the gateway."""


def admit(page: str | None, scope: Scope, origins: Collection[str]) -> None:
    """Raises Denied for a page (the value of `Origin`; None for a program) that may not connect.

    `origins` are those that may. So may pages of this machine where NEAR is set: what served them is a program of this
    machine, which could connect itself.
    """
    if page is None or page in origins:
        return
    near = scope.get(NEAR)
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
    if near is None or not near(page, host):
        raise Denied(f"pages of {page} may not connect here (see `origins`)")


def cors(origin: str, exposed: str) -> list[tuple[bytes, bytes]]:
    """The headers of answers to a page that may connect, so that its browser lets it see them.

    exposed: response headers that the page may read, with commas.
    """
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-expose-headers", exposed.lower().encode("latin-1")),
        (b"vary", b"origin"),
    ]


def preflight(asked: str | None) -> list[tuple[bytes, bytes]]:
    """What else a browser wants to know before it sends a request. `asked`: the headers that the page wants to send."""
    return [
        (b"access-control-allow-methods", b"GET, POST, DELETE"),
        (b"access-control-allow-headers", (asked or "content-type").encode("latin-1")),
        (b"access-control-max-age", b"600"),
    ]
