"""Who sends a request: found out once, in front of a protocol's routes, and told to them in the scope."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.access.authentication import Asking
from gateway.access.people import People, challenge
from gateway.access.scoped_gateway import ScopedGateway
from gateway.access.visit import Visit
from gateway.contract.gateway import Gateway
from gateway.core.errors import InterlinguaError, Unauthenticated, Unavailable
from gateway.transport.asgi import Headers

T = TypeVar("T")

log = logging.getLogger(__name__)

VISIT: Final = "interlingua.visit"
"""Key of a request's scope: the client's `Visit`, or the `Unauthenticated` that it is to be refused with."""


def identifying(routes: Sequence[BaseRoute], people: People) -> Sequence[BaseRoute]:
    """Put who sends a request, or asks for a WebSocket, into the scope of each. The routes refuse whom they must."""
    for route in routes:
        if isinstance(route, Route | WebSocketRoute):
            route.app = _identifying(route.app, people)
    return routes


def _identifying(app: ASGIApp, people: People) -> ASGIApp:
    def identified(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # no coroutine of its own
        try:
            scope[VISIT] = Visit(people, people.enters(scope["headers"]))
        except Unauthenticated as error:
            scope[VISIT] = error
        return app(scope, receive, send)

    return identified


def visit_of(scope: Scope) -> Visit:
    """Who sends a request. Raises Unauthenticated, and KeyError where nothing has found it out."""
    found: Visit | Unauthenticated = scope[VISIT]
    if isinstance(found, Unauthenticated):
        log.info("a client at %s is refused at %r: %s", (scope.get("client") or [None])[0], scope["path"], found)
        raise found
    return found


def refusal_headers(error: InterlinguaError) -> Headers:
    """The headers with which a REST door answers an error."""
    if isinstance(error, Unauthenticated):
        return [(name.encode(), value.encode()) for name, value in challenge(error).items()]
    return [(b"retry-after", b"1")] if isinstance(error, Unavailable) else ()


def serving(make: Callable[[Gateway], T], gateway: Gateway, options: Asking) -> Callable[[Scope], T]:
    """What serves the client of a request: made once where clients are not asked who they are, else for each request.

    The function that is returned raises Unauthenticated.
    """
    if not options.authenticates:
        everybody = make(gateway)
        return lambda scope: everybody
    return lambda scope: make(ScopedGateway(gateway, visit_of(scope)))
