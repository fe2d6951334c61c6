"""Limits of use: counts what clients, doors, routes and threads use in this process, and refuses what is too much."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.access.identification import wrapped
from gateway.access.issuer import AwaitsKeys
from gateway.access.options import ANONYMOUS
from gateway.contract.options import EVERY_OTHER, ClientLimits, DoorLimits, InboundOptions, RouteLimits
from gateway.core.errors import InterlinguaError, Limited, Unavailable

Key: TypeAlias = tuple[str, str]
"""Of what is counted: its kind and its name."""
Counted = Callable[[str, str], None]
"""Told of every refusal: at which door, by which limit."""

SOON: Final = 1.0
"""Seconds after which a run that was refused may be tried again: when another one ends is not known."""
ROUNDING: Final = 1e-6
"""Seconds that are none."""
MOST_RATES: Final = 10_000
"""The most rates that are kept while some of them need not be."""


class Rates:
    """How often something happens, for any number of things. `now`: the clock, in seconds.

    What happens at a rate may come as unevenly as it likes within one second: as many at once as in a second, at least
    one. Kept for each thing is when it will have used up what has come so far.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._paid: dict[Key, float] = {}

    @property
    def known(self) -> int:
        """How many rates are kept."""
        return len(self._paid)

    def wait(self, key: Key, rate: float) -> float:
        """Seconds until one more may come; 0 for now."""
        wait = self._paid.get(key, 0.0) - self.now() - max(1.0 - 1.0 / rate, 0.0)
        return wait if wait > ROUNDING else 0.0

    def add(self, key: Key, rate: float) -> None:
        """One more has come."""
        now = self.now()
        self._paid[key] = max(self._paid.get(key, 0.0), now) + 1.0 / rate
        if len(self._paid) > MOST_RATES:
            self._paid = {known: paid for known, paid in self._paid.items() if paid > now}


class Slots:
    """What one run takes of the limits, until it is freed."""

    __slots__ = ("_keys", "_used")

    def __init__(self, used: dict[Key, int], limits: Sequence[tuple[str, str, int | None]]) -> None:
        """used: what is used so far. limits: what it counts for, None where any number may."""
        self._used = used
        self._keys = [(kind, name) for kind, name, most in limits if most is not None]
        for key in self._keys:
            used[key] = used.get(key, 0) + 1

    def free(self) -> None:
        """The run is over, or never came to be. Again: no effect."""
        for key in self._keys:
            self._used[key] -= 1
            if not self._used[key]:
                del self._used[key]
        self._keys = []


class UsageLimits:
    """Implements `gateway.contract.GatewayLimits`. One per engine.

    Clients are counted by their names, whichever doors they use; those that nobody has asked who they are by none.
    """

    def __init__(
        self,
        *,
        client: ClientLimits | None = None,
        door: DoorLimits | None = None,
        route: RouteLimits | None = None,
        queue: int | None = None,
        doors: Mapping[str, InboundOptions] | None = None,
        refused: Counted = lambda door, limit: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """client, door, route: for those that say nothing else. doors: the protocols that are served, which may."""
        self._client, self._door = client or ClientLimits(), door or DoorLimits()
        self._route, self._queue = route or RouteLimits(), queue
        doors = doors or {}
        self._doors = {name: options.limits.over(self._door) for name, options in doors.items()}
        self._clients = {
            (name, who): limits.over(self._client)
            for name, options in doors.items()
            for who, limits in options.client_limits.items()
        }
        self._refused = refused
        self._used: dict[Key, int] = {}
        self.rates = Rates(now)

    def request(self, door: str, client: str | None) -> None:
        """See `GatewayLimits`."""
        own = self._of(door, client).requests
        if own is not None and (wait := self.rates.wait(("client", client or ""), own)):
            raise self._over(door, "client_requests", Limited, "too many requests", wait)
        shared = self._doors.get(door, self._door).requests
        if shared is not None and (wait := self.rates.wait(("door", door), shared)):
            raise self._over(door, "door_requests", Unavailable, "too many requests of all clients", wait)
        if own is not None:
            self.rates.add(("client", client or ""), own)
        if shared is not None:
            self.rates.add(("door", door), shared)

    def run(
        self,
        door: str,
        client: str | None,
        route: str,
        limits: RouteLimits,
        *,
        thread: str | None = None,
        queues: bool = False,
    ) -> Slots:
        """Count a run that is to be started. `queues`: it waits for its turn on its thread. The caller frees the slots.

        Raises Limited, Unavailable.
        """
        at = self._at(limits)
        if at.starts is not None and (wait := self.rates.wait(("route", route), at.starts)):
            raise self._over(door, "route_starts", Unavailable, f"too many runs of {route} are started", wait)
        limited = self._limits(door, client, route, at, thread)
        for kind, name, most in limited:
            if most is None or self._used.get((kind, name), 0) < most or (kind == "thread" and not queues):
                continue
            if kind == "client":
                raise self._over(door, "client_runs", Limited, f"you have as many runs as you may ({most})")
            if kind == "thread":
                raise self._over(door, "thread_queue", Limited, f"the thread has as many runs as it may ({most})")
            raise self._over(door, f"{kind}_runs", Unavailable, f"{kind} {name} has as many runs as it may")
        if at.starts is not None:
            self.rates.add(("route", route), at.starts)
        return Slots(self._used, limited)

    def goes_on(self, door: str, client: str | None, route: str, limits: RouteLimits, *, thread: str | None) -> Slots:
        """Count a run that was started before, by a process that is no more. It is never refused."""
        return Slots(self._used, self._limits(door, client, route, self._at(limits), thread))

    def _limits(
        self, door: str, client: str | None, route: str, at: RouteLimits, thread: str | None
    ) -> Sequence[tuple[str, str, int | None]]:
        """What a run counts for: the kind, its name, and how many it may have."""
        return (
            ("client", client or "", self._of(door, client).runs),
            ("thread", thread or "", None if thread is None else self._queue),
            ("door", door, self._doors.get(door, self._door).runs),
            ("route", route, at.runs),
        )

    def _at(self, limits: RouteLimits) -> RouteLimits:
        return limits.over(self._route) if limits.model_fields_set else self._route

    def _of(self, door: str, client: str | None) -> ClientLimits:
        if client is None or client == ANONYMOUS:
            return _NOBODY
        return self._clients.get((door, client)) or self._clients.get((door, EVERY_OTHER)) or self._client

    def _over(self, door: str, limit: str, kind: type[Unavailable], why: str, wait: float = SOON) -> Unavailable:
        self._refused(door, limit)
        wait = math.ceil(wait * 1000) / 1000
        return kind(f"{why}; try again in {wait:g} s", retry_after=wait)


_NOBODY: Final = ClientLimits()


def limiting(
    routes: Sequence[BaseRoute],
    admit: Callable[[Scope], None],
    refusal: Callable[[InterlinguaError], Response],
) -> Sequence[BaseRoute]:
    """Have each request, or upgrade to a WebSocket, admitted before its route has it. `admit` raises what it is refused
    with.
    """
    return wrapped(routes, lambda app: _limited(app, admit, refusal))


def _limited(app: ASGIApp, admit: Callable[[Scope], None], refusal: Callable[[InterlinguaError], Response]) -> ASGIApp:
    def limited(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # no coroutine of its own
        try:
            admit(scope)
        except AwaitsKeys as awaits:
            return awaits.then(lambda: limited(scope, receive, send))
        except InterlinguaError as error:
            return refusal(error)(scope, receive, send)
        return app(scope, receive, send)

    return limited
