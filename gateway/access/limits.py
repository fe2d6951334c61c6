"""Limits of use: counts what clients, doors, routes and threads use in this process, and refuses what is too much."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from gateway.access.options import ANONYMOUS
from gateway.contract.options import EVERY_OTHER, ClientLimits, DoorLimits, InboundOptions, RouteLimits
from gateway.core.errors import Limited, Unavailable
from gateway.core.types import IfBusy, RunRequest

Key: TypeAlias = tuple[str, str]
"""Of what is counted: the limit and whose it is."""
Taken: TypeAlias = tuple[Key, int]
"""The same with how many there may be."""
Counted = Callable[[str, str], None]
"""Told of every refusal: at which door, by which limit."""

SOON, LATE = 1.0, 60.0
"""Seconds: the least and the most after which a run that was refused is to be tried again, by an estimate."""
QUEUE: Final = "thread_queue"
ROUNDING: Final = 1e-6
"""Waits of up to this many seconds count as 0."""
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
        now = self.now()
        self._paid[key] = max(self._paid.get(key, 0.0), now) + 1.0 / rate
        if len(self._paid) > MOST_RATES:
            self._paid = {known: paid for known, paid in self._paid.items() if paid > now}


class Turnover:
    """Estimates when a place becomes free where all are taken: by how often one did since a client was refused."""

    def __init__(self, clock: Rates) -> None:
        self._clock = clock
        self.watched: dict[Key, tuple[float, float]] = {}
        """When the last place became free, or else somebody was refused first; and the mean time between two, or 0."""

    def wait(self, key: Key) -> float:
        """Seconds until the next one is expected, from SOON to LATE. One that is overdue takes as long again."""
        now = self._clock.now()
        if len(self.watched) > MOST_RATES:
            self.watched.clear()
        last, mean = self.watched.setdefault(key, (now, 0.0))
        passed = now - last
        return min(max(mean - passed if mean > passed else passed, SOON), LATE)

    def freed(self, keys: Iterable[Key]) -> None:
        """Places have become free."""
        for key in keys:
            if (known := self.watched.get(key)) is not None:
                last, mean = known
                now = self._clock.now()
                self.watched[key] = (now, (3 * mean + now - last) / 4 if mean else now - last)


class Slots(msgspec.Struct, eq=False):
    """The share of the limits that a run or a connection takes, until it is freed.

    taken: what it counts for. used: how much of it is used in all. turnover: told when it is freed.
    """

    taken: Sequence[Taken]
    used: dict[Key, int]
    turnover: Turnover

    def free(self) -> None:
        """It is over, or never came to be. Again: no effect."""
        used, taken, self.taken, watched = self.used, self.taken, (), self.turnover.watched
        if watched:
            self.turnover.freed(key for key, _ in taken)
        for key, _ in taken:
            if left := used.pop(key) - 1:
                used[key] = left
            elif watched:
                watched.pop(key, None)


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
        self._routes: dict[tuple[str, str], tuple[RouteLimits, float | None, Sequence[Taken]]] = {}
        """By door and route: the route's limits as they were given, and `_of_route` of them."""
        self._comers: dict[tuple[str, str | None], tuple[Sequence[Taken], float | None, float | None]] = {}
        """By door and client: `_of_comer`."""
        self.rates = Rates(now)
        self._turnover = Turnover(self.rates)

    def request(self, door: str, client: str | None) -> None:
        self._count(door, client, self._of(door, client).requests, self._doors.get(door, self._door).requests)

    def admit(self, door: str, client: str | None) -> Slots | None:
        """Count a request over HTTP, or an upgrade, as `request` does, and the connection that it takes.

        The caller frees the slots when it is answered, its stream has ended or its WebSocket is closed. None where that
        is not limited. Raises Limited, Unavailable.
        """
        limited, own, shared = self._comers.get((door, client)) or self._of_comer(door, client)
        slots = self._take(door, limited, queues=False) if limited else None
        if own is not None or shared is not None:
            try:
                self._count(door, client, own, shared)
            except Unavailable:
                if slots is not None:
                    slots.free()
                raise
        return slots

    def _of_comer(self, door: str, client: str | None) -> tuple[Sequence[Taken], float | None, float | None]:
        """What is limited of a client's connections to a door, and the rates of its requests and of the door's. Made
        once.
        """
        own, shared = self._of(door, client), self._doors.get(door, self._door)
        most = (("client_connections", client or ""), own.connections), (("door_connections", door), shared.connections)
        if len(self._comers) > MOST_RATES:
            self._comers.clear()
        limited = [(key, count) for key, count in most if count is not None]
        found = self._comers[door, client] = limited, own.requests, shared.requests
        return found

    def session(self, door: str, client: str | None, held: int, spare: Callable[[], bool]) -> None:
        most = self._of(door, client).sessions
        if most is not None and held >= most and not spare():
            key = ("client_sessions", client or "")
            raise self._over(door, key[0], Limited, "you have as many sessions as you may", self._turnover.wait(key))

    def _count(self, door: str, client: str | None, own: float | None, shared: float | None) -> None:
        """Count a request at two rates: of the client and of the door."""
        if own is not None and (wait := self.rates.wait(("client", client or ""), own)):
            raise self._over(door, "client_requests", Limited, "too many requests", wait)
        if shared is not None and (wait := self.rates.wait(("door", door), shared)):
            raise self._over(door, "door_requests", Unavailable, "too many requests of all clients", wait)
        if own is not None:
            self.rates.add(("client", client or ""), own)
        if shared is not None:
            self.rates.add(("door", door), shared)

    def run(self, asked: RunRequest, route: str, limits: RouteLimits) -> Slots:
        """Count a run that is to be started, for a route. The caller frees the slots. Raises Limited, Unavailable."""
        starts, limited = self._limits(asked, route, limits)
        if starts is not None and (wait := self.rates.wait(("route", route), starts)):
            why = f"too many runs of {route} are started"
            raise self._over(asked.protocol, "route_starts", Unavailable, why, wait)
        slots = self._take(asked.protocol, limited, queues=asked.if_busy is IfBusy.ENQUEUE)
        if starts is not None:
            self.rates.add(("route", route), starts)
        return slots

    def goes_on(self, asked: RunRequest, route: str, limits: RouteLimits) -> Slots:
        """Count a run that was started before, by a process that is no more. It is never refused."""
        return self._take(asked.protocol, self._limits(asked, route, limits)[1], queues=False, check=False)

    def _limits(self, asked: RunRequest, route: str, limits: RouteLimits) -> tuple[float | None, Sequence[Taken]]:
        """How many runs of a route may be started a second, and what else of one is limited. What is the same for all
        of a route's is made once. A part of another run counts for its route alone.
        """
        door = asked.protocol
        known = self._routes.get((door, route))
        if known is None or known[0] is not limits:
            if len(self._routes) > MOST_RATES:
                self._routes.clear()
            known = self._routes[door, route] = limits, *self._of_route(door, route, limits)
        _, starts, limited = known
        if asked.part_of is not None:
            return starts, [taken for taken in limited if taken[0][0] == "route_runs"]
        if (thread := asked.thread) is not None and self._queue is not None:
            limited = [((QUEUE, thread), self._queue), *limited]
        if (client := asked.principal) is not None and (most := self._of(door, client).runs) is not None:
            limited = [(("client_runs", client), most), *limited]
        return starts, limited

    def _of_route(self, door: str, route: str, limits: RouteLimits) -> tuple[float | None, Sequence[Taken]]:
        at = limits.over(self._route) if limits.model_fields_set else self._route
        runs = (("door_runs", door), self._doors.get(door, self._door).runs), (("route_runs", route), at.runs)
        return at.starts, [(key, most) for key, most in runs if most is not None]

    def _take(self, door: str, limited: Sequence[Taken], *, queues: bool, check: bool = True) -> Slots:
        """Count what something takes of what is limited. It may be refused only with `check`, and by the length of a
        queue only if it `queues`.
        """
        used = self._used
        if check:
            for key, most in limited:
                if used.get(key, 0) >= most and (queues or key[0] != QUEUE):
                    limit, name = key
                    kind, why = _FULL[limit]
                    raise self._over(door, limit, kind, why.format(name=name), self._turnover.wait(key))
        for key, _ in limited:
            used[key] = used.get(key, 0) + 1
        return Slots(limited, used, self._turnover)

    def _of(self, door: str, client: str | None) -> ClientLimits:
        if client is None or client == ANONYMOUS:
            return _NOBODY
        return self._clients.get((door, client)) or self._clients.get((door, EVERY_OTHER)) or self._client

    def _over(self, door: str, limit: str, kind: type[Unavailable], why: str, wait: float) -> Unavailable:
        self._refused(door, limit)
        wait = math.ceil(wait * 1000) / 1000
        return kind(f"{why}; try again in {wait:g} s", retry_after=wait)


_NOBODY: Final = ClientLimits()
_FULL: Final[Mapping[str, tuple[type[Unavailable], str]]] = {
    "client_connections": (Limited, "you have as many connections as you may"),
    "client_runs": (Limited, "you have as many runs as you may"),
    QUEUE: (Limited, "the thread has as many runs as it may"),
    "door_connections": (Unavailable, "there are as many connections as there may be"),
    "door_runs": (Unavailable, "there are as many runs as there may be"),
    "route_runs": (Unavailable, "agent {name} has as many runs as it may"),
}
