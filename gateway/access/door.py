"""What a door serves to whom, where every request says for itself who sends it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from starlette.types import Scope

from gateway.access.authentication import Authentication
from gateway.access.people import People
from gateway.access.scoped_gateway import ScopedGateway
from gateway.access.visit import Visit
from gateway.contract.inbound import Gateway
from gateway.core.errors import Unauthenticated

T = TypeVar("T")

log = logging.getLogger(__name__)


class Door:
    """The clients of one inbound half, each of which shows who it is with every request, where clients are asked."""

    def __init__(self, options: Authentication | None, gateway: Gateway) -> None:
        self.people = People(options)
        self._gateway = gateway

    @property
    def open(self) -> bool:
        """Whether nobody is asked."""
        return not self.people.required

    def sees(self, headers: Iterable[tuple[bytes, bytes]]) -> Callable[[str], bool] | None:
        """See `gateway.contract.Knowing`."""
        return self.people.sees(headers, self._gateway.created)

    def serving(self, make: Callable[[Gateway], T]) -> Callable[[Scope], T]:
        """What serves the client of a request, given that: made once where the door is open, else for each request.

        It raises Unauthenticated.
        """
        if self.open:
            everybody = make(self._gateway)
            return lambda scope: everybody
        return lambda scope: make(ScopedGateway(self._gateway, entering(self.people, scope)))


def entering(people: People, scope: Scope) -> Visit:
    """Whoever sent a request, or asks for a WebSocket. Raises Unauthenticated."""
    try:
        return Visit(people, people.enters(scope["headers"]))
    except Unauthenticated as error:
        log.info("a client at %s is refused at %r: %s", (scope.get("client") or [None])[0], scope["path"], error)
        raise
