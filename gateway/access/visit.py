"""An authenticated client, for as long as its newest token is valid, and waits that end with the token."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gateway.access.authenticator import EXPIRED, Authenticator, Principal
from gateway.contract.gateway import Batch, Take, Watch
from gateway.core.errors import Unauthenticated
from gateway.core.types import Run

T = TypeVar("T")

LOOK_SECONDS: Final = 3600.0
"""Seconds after which the clock is read again: it may have been set."""


class Visit:
    """The client of one connection, or of one request. `principal`: its identity by the newest token."""

    def __init__(self, people: Authenticator, principal: Principal) -> None:
        self.principal = principal
        self._people = people
        self._end: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expired(self) -> bool:
        """Whether the token has expired."""
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
            self._watch()
        return True

    def enter(self, end: Callable[[], None]) -> None:
        """Serve the connection: `end` is called once, when the token has expired."""
        self._end = end
        self._watch()

    def leave(self) -> None:
        """Stop serving the connection: `end` is not called any more."""
        self._end = None
        self._watch()

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._end is not None and not self.lasting:
            left = self.principal.expires - self._people.now()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(max(left, 0.0), LOOK_SECONDS), self._look)

    def _look(self) -> None:
        self._timer = None
        if not self.expired:
            self._watch()
        elif self._end is not None:
            end, self._end = self._end, None
            end()


class LastingWatch:
    """A `Watch` whose `next` raises Unauthenticated once the token has expired."""

    def __init__(self, watch: Watch, visit: Visit) -> None:
        self._watch = watch
        self._visit = visit

    @property
    def run(self) -> Run:
        return self._watch.run

    @property
    def newest(self) -> int:
        return self._watch.newest

    async def next(self, timeout: float | None = None, take: Take | None = None) -> Batch | None:
        left = TimeLeft(timeout)
        while True:
            seconds = left.of(self._visit)
            try:
                return await self._watch.next(seconds, take)
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

    def of(self, visit: Visit) -> float | None:
        """Seconds to wait now, until the timeout or the token ends; None for ever. Raises Unauthenticated."""
        seconds = self._until - self._clock()
        if not visit.lasting:
            seconds = min(seconds, visit.left())
        return None if seconds == math.inf else max(seconds, 0.0)
