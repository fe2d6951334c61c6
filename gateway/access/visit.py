"""An authenticated client, for as long as its newest token is valid: found once for each request, in front of a door's
routes, and put into its scope. Waits that end with the token.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from starlette.types import Scope

from gateway.access.authenticator import EXPIRED, Authenticator, Principal
from gateway.access.issuer import AwaitsKeys
from gateway.contract.gateway import Take, Watch
from gateway.contract.wrapping import Wrapped
from gateway.core.errors import Unauthenticated, Unavailable

T = TypeVar("T")

log = logging.getLogger(__name__)

VISIT: Final = "interlingua.visit"
"""Key of a request's scope: the client's `Visit`, or the error that it is to be refused with."""
LOOK_SECONDS: Final = 3600.0
"""Seconds after which the clock is read again: it may have been set."""


class Visit:
    """The client of one connection, or of one request. `principal`: its identity by the newest token."""

    def __init__(self, people: Authenticator, principal: Principal) -> None:
        self.principal = principal
        self._people = people
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expired(self) -> bool:
        return self.principal.expires <= self._people.now()

    @property
    def lasting(self) -> bool:
        """Whether the token never expires."""
        return self.principal.expires == math.inf

    def left(self) -> float:
        """Seconds until the token has to be checked again. Raises Unauthenticated once it has expired."""
        if self.expired:
            raise Unauthenticated(EXPIRED)
        return min(self.principal.expires - self._people.now(), LOOK_SECONDS)

    def fits(self, shown: Principal) -> bool:
        """Whether a request with this principal may use the connection. If its token lasts longer, that counts now."""
        if self.expired or not self.principal.same(shown):
            return False
        if shown.expires > self.principal.expires:
            self.principal = shown
        return True

    def enter(self, end: Callable[[], None]) -> None:
        """Serve the connection: `end` is called once, when the token has expired."""
        if not self.lasting:
            left = 0.0 if self.expired else self.left()
            self._timer = asyncio.get_running_loop().call_later(left, self._look, end)

    def leave(self) -> None:
        """Stop serving the connection: `end` is not called any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, end: Callable[[], None]) -> None:
        if self.expired:
            end()
        else:
            self.enter(end)


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


class LastingWatch(Wrapped[Watch]):
    """A `Watch` whose `follow` raises Unauthenticated once the token has expired."""

    def __init__(self, watch: Watch, visit: Visit) -> None:
        super().__init__(watch)
        self._visit = visit

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        left = TimeLeft(timeout)
        while True:
            seconds = left.of(self._visit)
            try:
                return await self._inner.follow(take, seconds)
            except TimeoutError:
                if left.over:
                    raise


async def waited(wait: Callable[[float | None], Awaitable[T | None]], timeout: float | None, visit: Visit) -> T | None:
    """`wait(timeout)`, which returns None after the timeout. Raises Unauthenticated once the token has expired."""
    left = TimeLeft(timeout)
    while True:
        found = await wait(left.of(visit))
        if found is not None or left.over:
            return found


class TimeLeft:
    """The rest of a timeout in seconds; None is for ever."""

    def __init__(self, timeout: float | None) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until = math.inf if timeout is None else self._clock() + timeout

    @property
    def over(self) -> bool:
        return self._clock() >= self._until

    def of(self, visit: Visit) -> float:
        """Seconds to wait now, until the timeout ends or the token has to be checked again. Raises Unauthenticated."""
        return max(min(self._until - self._clock(), visit.left()), 0.0)
