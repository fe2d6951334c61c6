"""Identifies the client of a request once, in front of a protocol's routes, and puts it into the scope."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from starlette.types import Scope

from gateway.access.authenticator import Authenticator, challenge
from gateway.access.issuer import AwaitsKeys
from gateway.access.options import AuthenticatingOptions
from gateway.access.scoped_gateway import ScopedGateway
from gateway.access.visit import Visit
from gateway.contract.gateway import Gateway
from gateway.core.errors import InterlinguaError, Unauthenticated, Unavailable
from gateway.transport.asgi import Everybody, Headers
from gateway.transport.asgi.refusals import retry_after

T = TypeVar("T")

log = logging.getLogger(__name__)

VISIT: Final = "interlingua.visit"
"""Key of a request's scope: the client's `Visit`, or the error that it is to be refused with."""


def identifying(authenticator: Authenticator) -> Callable[[Scope], str | None]:
    """Put the client of a request, or WebSocket, into its scope; its name. The routes refuse those that they must.

    The function that is returned raises AwaitsKeys.
    """

    def identify(scope: Scope) -> str | None:
        try:
            visit = scope[VISIT] = Visit(authenticator, authenticator.identify(scope["headers"]))
        except AwaitsKeys:
            raise
        except (Unauthenticated, Unavailable) as error:
            scope[VISIT] = error
            return None
        return visit.principal.who.id

    return identify


def visit_of(scope: Scope) -> Visit:
    """The client of a request. Raises Unauthenticated, Unavailable, and KeyError where nothing has identified it."""
    found: Visit | Unauthenticated | Unavailable = scope[VISIT]
    if not isinstance(found, Visit):
        log.info("a client at %s is refused at %r: %s", (scope.get("client") or [None])[0], scope["path"], found)
        raise found
    return found


def refusal_headers(error: InterlinguaError) -> Headers:
    """The headers with which a REST door answers an error."""
    if isinstance(error, Unauthenticated):
        return [(name.encode(), value.encode()) for name, value in challenge(error).items()]
    return retry_after(error)


def serving(
    make: Callable[[Gateway], T], gateway: Gateway, options: AuthenticatingOptions
) -> Callable[[Scope], T] | Everybody[T]:
    """What serves the clients of a door: made once where they are not asked who they are, else for each request.

    A function that is returned raises Unauthenticated.
    """
    if not options.authenticates:
        return Everybody(make(gateway))
    return lambda scope: make(ScopedGateway(gateway, visit_of(scope)))
