"""The gateway's own pages: `/healthz`, `/readyz` and `/metrics`, which name agents only to those who may see them."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from gateway.access import bearer
from gateway.browser_guard import HostNames, comes_directly
from gateway.config.models import Monitors
from gateway.core.types import JsonObject
from gateway.runs import Engine
from gateway.tracing import metrics
from gateway.workers.messages import Gathered, WorkerReport, packed, unpacked

Sees = Callable[[str], bool]
"""Whether a client may see an agent, by its name."""
GatherAll = Callable[[WorkerReport], Awaitable[Gathered | None]]
View = Callable[[Iterable[tuple[bytes, bytes]]], Sees | None]
"""The same of one door, given the headers of a request: see `gateway.contract.Knowing.sees`."""


class Overview:
    """How a gateway is: all of its workers together, or the one process that it is."""

    def __init__(self, told: Gathered) -> None:
        self._told = told
        answering = [report for worker, report in told.reports.items() if worker not in told.silent]
        self.serving = sum(report.ready for report in answering)
        """How many workers take runs, of `places`."""
        self.places = told.places
        self.ready = _most(self.serving, told.places)
        self.reason = "; ".join(dict.fromkeys(report.why for report in answering if report.why))
        """Why some take none."""
        self.backlog = sum(report.backlog for report in told.reports.values())
        self.late = told.late
        """Whether some of its figures may be older than those that another worker has told already."""

    @property
    def agents(self) -> Mapping[str, bool]:
        """Whether each agent is ready, by its name."""
        found: dict[str, list[bool]] = {}
        for worker, report in self._told.reports.items():
            for name, ready in report.agents.items() if worker not in self._told.silent else ():
                found.setdefault(name, []).append(ready)
        return {name: _most(sum(each), len(each)) for name, each in found.items()}

    def metrics(self) -> Sequence[metrics.Metric]:
        """What all have counted."""
        told = self._told
        if told.places == 1:
            return metrics.families
        figures = (*(report.figures for report in told.reports.values()), told.ended)
        return metrics.merged(unpacked(each) for each in figures)

    @property
    def remarks(self) -> list[str]:
        """What a reader of the figures has to know."""
        old = sorted(self._told.silent.items())
        return [f"Worker {each} does not answer: its figures are {age:.0f} seconds old." for each, age in old]


class Overlooker:
    """Finds out how the gateway is."""

    def __init__(self, engine: Engine, refuses: Callable[[], str], gather: GatherAll | None = None) -> None:
        """refuses: why this process takes no runs, empty if it does. gather: asks all workers, given how this is."""
        self._engine = engine
        self._refuses = refuses
        self._gather = gather

    def report(self) -> WorkerReport:
        agents = self._engine.agents
        waiting = [entry for entry in agents.configured if entry.many is not None and not entry.ready]
        entries = (*waiting, *agents.entries)
        return WorkerReport(
            ready=not (why := self._refuses()),
            why=why,
            agents={entry.route.name: entry.ready for entry in entries if not entry.hidden},
            backlog=self._engine.store.backlog,
            figures=packed([metric.sent() for metric in metrics.families] if self._gather is not None else []),
        )

    async def all(self) -> Overview:
        own = self.report()
        told = await self._gather(own) if self._gather is not None else None
        late = self._gather is not None
        return Overview(told or Gathered(number=0, places=1, reports={1: own}, silent={}, ended=packed([]), late=late))


def _most(some: int, of: int) -> bool:
    """Whether a gateway of several workers counts as what some of them are. One that restarts, hangs or is cut off
    from an agent is to take no pod out of service: the others have its part.
    """
    return 2 * some >= of and some > 0


class HealthPages:
    """The pages."""

    def __init__(self, visible: VisibleAgents, overlooker: Overlooker) -> None:
        self._visible = visible
        self._overlooker = overlooker

    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/healthz", self._healthz), Route("/readyz", self._readyz), Route("/metrics", self._metrics)]

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, request: Request) -> Response:
        found = await self._overlooker.all()
        return JSONResponse(readiness(found, self._visible.to(request)), 200 if found.ready else 503)

    async def _metrics(self, request: Request) -> Response:
        found = await self._overlooker.all()
        if found.late:
            return PlainTextResponse("the supervisor does not answer, and no counter goes back\n", 503)
        page = metrics.render(self._visible.to(request), found.metrics(), found.remarks)
        return Response(page, media_type=metrics.CONTENT_TYPE)


def readiness(overview: Overview, sees: Sees | None) -> JsonObject:
    """The answer of `/readyz`. sees: None for a client that may see no agent."""
    agents = overview.agents
    found: JsonObject = {
        "ready": overview.ready,
        "counts": {"agents": len(agents), "ready": sum(agents.values())},
    }
    if not overview.ready:
        found["reason"] = overview.reason or "too few workers answer"
    if overview.places > 1:
        found["workers"] = {"all": overview.places, "ready": overview.serving}
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
        token = bearer(request.scope["headers"])
        return token is not None and any([hmac.compare_digest(token.encode(), each) for each in self._tokens])
