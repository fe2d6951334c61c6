"""How long somebody may stay who was let in: as long as the newest token holds that they showed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from gateway.access.people import EXPIRED, People, Principal
from gateway.core.errors import Unauthenticated

LOOK_SECONDS: Final = 3600.0
"""After which the clock is looked at again: it may have been set."""


class Visit:
    """Somebody at one connection, or in one request. `principal`: who it is, by the newest token."""

    def __init__(self, people: People, principal: Principal) -> None:
        self.principal = principal
        self._people = people
        self._end: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expired(self) -> bool:
        """Whether the token holds no longer."""
        return self.principal.expires <= self._people.now()

    @property
    def lasting(self) -> bool:
        """Whether it never expires."""
        return self.principal.expires == math.inf

    def left(self) -> float:
        """Seconds for which nobody need ask again. Raises Unauthenticated once the token has expired."""
        if self.expired:
            raise Unauthenticated(EXPIRED)
        return min(self.principal.expires - self._people.now(), LOOK_SECONDS)

    def fits(self, shown: Principal) -> bool:
        """Whether a request that shows this can be of this connection. What it shows counts from then on: it may last
        longer.
        """
        if self.expired or not self.principal.same(shown):
            return False
        if shown.expires > self.principal.expires:
            self.principal = shown
            self._watch()
        return True

    def enter(self, end: Callable[[], None]) -> None:
        """The connection is served from now on: `end` is called, once, when the token has expired."""
        self._end = end
        self._watch()

    def leave(self) -> None:
        """It is served no longer."""
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
