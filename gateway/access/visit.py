"""An authenticated client, for as long as its newest token is valid, and waits that end with the token."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.access.authenticator import EXPIRED, Authenticator, Principal
from gateway.contract.gateway import Take, Watch
from gateway.contract.wrapping import Wrapped
from gateway.core.errors import Unauthenticated

T = TypeVar("T")

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


class LastingWatch(Wrapped):
    """A `Watch` whose `follow` raises Unauthenticated once the token has expired."""

    def __init__(self, watch: Watch, visit: Visit) -> None:
        super().__init__(watch)
        self._visit = visit

    async def follow(self, take: Take, timeout: float | None = None) -> bool:
        left = TimeLeft(timeout)
        while True:
            seconds = left.of(self._visit)
            try:
                done: bool = await self._inner.follow(take, seconds)
                return done
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
        """Whether the timeout has passed."""
        return self._clock() >= self._until

    def of(self, visit: Visit) -> float:
        """Seconds to wait now, until the timeout ends or the token has to be checked again. Raises Unauthenticated."""
        return max(min(self._until - self._clock(), visit.left()), 0.0)
