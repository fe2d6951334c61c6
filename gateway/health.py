"""The gateway's own pages: `/healthz`, `/readyz` and `/metrics`, which name agents only to those who may see them."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gateway import tracing
from gateway.access import bearer
from gateway.agents.roster import Roster
from gateway.browser_guard import HostNames, comes_directly
from gateway.config.models import Monitors
from gateway.core.types import JsonObject

Sees = Callable[[str], bool]
"""Whether a client may see an agent, by its name."""
View = Callable[[Iterable[tuple[bytes, bytes]]], Sees | None]
"""The same of one door, given the headers of a request: see `gateway.contract.Knowing.sees`."""


class HealthPages:
    """The pages. `ready`: whether the gateway takes runs."""

    def __init__(self, roster: Roster, visible: VisibleAgents, ready: Callable[[], bool]) -> None:
        self._roster = roster
        self._visible = visible
        self._ready = ready

    def routes(self) -> Sequence[BaseRoute]:
        """Starlette routes at the gateway's root."""
        return [
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/metrics", self._metrics),
        ]

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, request: Request) -> Response:
        waiting = [entry for entry in self._roster.configured if entry.many is not None and not entry.ready]
        entries = (*waiting, *self._roster.entries)
        agents = {entry.route.name: entry.ready for entry in entries if not entry.hidden}
        ready = self._ready()
        return JSONResponse(readiness(ready, agents, self._visible.to(request)), 200 if ready else 503)

    async def _metrics(self, request: Request) -> Response:
        page = tracing.metrics.render(self._visible.to(request))
        return Response(page, media_type=tracing.metrics.CONTENT_TYPE)


def readiness(ready: bool, agents: Mapping[str, bool], sees: Sees | None) -> JsonObject:
    """The answer of `/readyz`. agents: whether each is ready, by name. sees: None for a client that may see none."""
    counts = {"agents": len(agents), "ready": sum(agents.values())}
    found: JsonObject = {"ready": ready, "counts": counts}
    if sees is not None:
        found["agents"] = {name: fit for name, fit in agents.items() if sees(name)}
    return found


class VisibleAgents:
    """Which agents a client of these pages may see.

    A client on this machine and a monitor of the options see all; a client of any door sees those that it may use.
    """

    def __init__(self, doors: Sequence[View], monitors: Monitors, names: HostNames) -> None:
        """doors: what a client of each may see. names: what the gateway is called, for browsers on this machine."""
        self._doors = doors
        self._names = names
        self._networks = monitors.networks
        self._tokens = [token.get_secret_value().encode() for token in monitors.tokens]

    def to(self, request: Request) -> Sees | None:
        """A test of the agents that the client of a request may see; None where it may see none."""
        if comes_directly(request.scope, self._names, self._networks) or self._monitors(request):
            return lambda agent: True
        headers = request.scope["headers"]
        known = [sees for door in self._doors if (sees := door(headers)) is not None]
        return (lambda agent: any(sees(agent) for sees in known)) if known else None

    def _monitors(self, request: Request) -> bool:
        """Whether it has a token of the options."""
        token = bearer(request.headers.getlist("authorization"))
        return token is not None and any([hmac.compare_digest(token.encode(), each) for each in self._tokens])
