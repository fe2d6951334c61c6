"""Which web pages may connect. A page of any site can make its visitor's browser call a gateway on that visitor's own
machine (DNS rebinding even lets it read the answers); browsers say whose page it is, and programs say nothing."""

from __future__ import annotations

from collections.abc import Collection


def allowed(origin: str | None, origins: Collection[str]) -> bool:
    """Whether a request with this `Origin` header is served. `origins` are those that may connect."""
    return origin is None or origin in origins


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
