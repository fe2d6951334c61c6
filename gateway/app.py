"""The composition root: a config becomes a store, an engine, one inbound a protocol, and an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Scope

from gateway import tracing
from gateway.access import AuthenticatingOptions, Authenticator, UsageLimits, identifying
from gateway.admin import AdminApi, Console, Operators, open_near
from gateway.agents.entry import Entry
from gateway.agents.targets import targets_of
from gateway.browser_guard import BrowserGuard, HostNames
from gateway.config import Config
from gateway.config import Route as RouteConfig
from gateway.contract import (
    LIST_SECONDS,
    Conversing,
    Hosting,
    Inbound,
    InboundOptions,
    Informed,
    Knowing,
    Leaving,
    Outbound,
    TargetOptions,
    unguessable,
)
from gateway.core.errors import InterlinguaError, NotFound, Unavailable
from gateway.core.types import Artifact
from gateway.front_page import FrontPage
from gateway.health import GatherAll, HealthPages, Overlooker, View, VisibleAgents
from gateway.recording import Recorder
from gateway.registry import OPERATOR
from gateway.routing import FixedPaths, Identify, LateRoutes, awaiting, below, served
from gateway.runs import Engine
from gateway.runs.webhooks import Webhooks
from gateway.store.opening import open_store
from gateway.transport.asgi import refusals
from gateway.transport.guard import Guard
from gateway.transport.http import HttpClient
from gateway.transport.tasks import TaskSet

if TYPE_CHECKING:
    from gateway.governance.binding import Binding
    from gateway.governance.enforcing import Enforcement

log = logging.getLogger(__name__)

PRUNE_SECONDS = 300.0
ADOPT_SECONDS = 10.0
ORPHANED_SECONDS = 0.5
"""How soon it is seen that another gateway of the store has died."""
HOSTED_SECONDS = 1.0
"""How soon what is hosted at another gateway of the store is seen here."""


class App:
    """One gateway. `start` before the first request, `stop` at the end; `reload` takes a new route table."""

    def __init__(
        self,
        config: Config,
        *,
        address: str = "",
        private: bool = False,
        serving: bool = True,
        reread: Callable[[], Awaitable[str]] | None = None,
        gather: GatherAll | None = None,
        new_id: Callable[[], str] = unguessable,
    ) -> None:
        """`address` is where the gateway listens, for links to files where `public_url` is left out; `private` says
        that no other machine reaches it there. Without `serving` agents are described and none is run. `reread` is
        called when an operator asks for a reload (see `AdminApi`). `gather` asks all workers how they are, where this
        is one of several. `new_id`: see `Gateway.new_id`.
        """
        self.config = config
        self._serving = serving
        self._recorder = Recorder()
        self.gateway = Engine(
            open_store(config.store.url, str(config.base), fsync=config.store.fsync),
            public_url=str(config.public_url or address),
            artifact_limit=config.store.artifact_limit,
            limits=UsageLimits(
                client=config.limits.client,
                door=config.limits.door,
                route=config.limits.route,
                queue=config.limits.queue,
                doors=config.inbound,
                refused=partial(tracing.metrics.limited.add, 1),
            ),
            new_id=new_id,
            recorder=self._recorder,
        )
        self._inbound: dict[str, Inbound] = {}
        """Those that are made: by the start, or by the first request (`Adapter.late`)."""
        self.ready = self._leaving = False
        self._doors = config.inbound
        self._paths: dict[str, str] = {}
        names = HostNames(config.hosts, (address, config.public_url or ""))
        self._views: list[View] = []
        """The view of a client, for each door that authenticates its clients."""
        mounts, late = self._mounts(config)
        visible = VisibleAgents(self._views, config.telemetry.monitors, names)
        guard = Guard([str(network) for network in config.webhooks.allow])
        self._callbacks = HttpClient(guard=guard)
        self._webhooks = Webhooks(self.gateway.store, self._half, self._callbacks)
        self.gateway.on_owed(self._webhooks.nudge)
        self.gateway.agents.host({name: half for name, half in self._inbound.items() if isinstance(half, Hosting)})
        self.gateway.agents.on_change(self._tell)
        self._tasks: list[asyncio.Task[None]] = []
        self._warming = TaskSet()
        self._overlooker = Overlooker(self.gateway, self._refuses, gather)
        self.report = self._overlooker.report
        self._enforcement: Enforcement | None = None
        self._use(config)
        routes = [
            *HealthPages(visible, self._overlooker).routes(),
            FrontPage(
                {name: (config.adapters[name], path) for name, path in self._paths.items()},
                self._published,
                visible,
                self.gateway.public_url,
            ).route(),
            *self._admin(names, private, reread),
            Route("/artifacts/{owner}/{artifact}", self._artifact),
            *mounts,
        ]
        starlette = Starlette(routes=routes, exception_handlers={HTTPException: self._no_route})
        prefix = urlsplit(self.gateway.public_url).path
        fixed = FixedPaths(starlette, routes, late, prefix=prefix)
        self.asgi: ASGIApp = below(prefix, self._kept(fixed, names, private))

    async def start(self) -> None:
        """Open the store and the audit logs, take unfinished runs up again, begin with callbacks and retention.

        Raises Unavailable: also where an agent cannot do what its manifest promises.
        """
        try:
            await self.gateway.open()
        except BaseException:
            await self.gateway.close()
            raise
        work = (self._webhooks.run(), *self._chores())
        self._tasks = [asyncio.create_task(one) for one in work]
        self.ready = True

    def _refuses(self) -> str:
        """Why no run is taken; empty while runs are."""
        return self.gateway.store.trouble if self.ready else "the gateway starts or stops"

    def warm(self) -> None:
        """Start the agents whose routes want them started before anybody asks. Once, when clients are served; `reload`
        does so for new routes.
        """
        for entry in self.gateway.agents.configured:
            warmed = any(target.warmed for target in entry.route.places)
            if warmed and entry.many is None and entry.agent is None:
                self._warming.start(_described(entry))

    def quiet(self) -> None:
        """Not ready any more: no new run is taken, and a connection that ends from now on cancels nothing."""
        self.ready = False
        self._leaving = True
        self.gateway.quiet()
        for inbound in self._inbound.values():
            if isinstance(inbound, Leaving):
                inbound.quiet()

    async def stop(self) -> None:
        """Let go of everything; what runs is found again by the next start."""
        self.quiet()
        for task in self._tasks:
            task.cancel()
        self._warming.cancel()
        await asyncio.gather(*self._tasks, *self._warming, return_exceptions=True)
        await self.gateway.close()
        self._recorder.close()
        await self._callbacks.aclose()

    async def conversing(self, protocol: str) -> Conversing:
        """The inbound half that talks over one two-way connection, whether the file serves it on the port or not."""
        adapter = self.config.adapters[protocol]
        inbound = self._half(protocol)
        if inbound is None and adapter.serve is not None:
            inbound = self._inbound[protocol] = adapter.serve(adapter.serve_options(), self.gateway)
            if isinstance(inbound, Hosting):
                await self.gateway.agents.add_host(protocol, inbound)
        assert isinstance(inbound, Conversing), "adapters that say `socket` have one"
        return inbound

    def _tell(self) -> None:
        """Called when the set of agents changes."""
        for inbound in self._inbound.values():
            if isinstance(inbound, Informed):
                inbound.agents_changed()

    async def reload(self, config: Config) -> None:
        """Take a new route table without dropping a run. Other sections need a restart: a change there is logged.

        Raises Unavailable, AuditBroken where an audit log that it needs does not open: then nothing has changed.
        """
        if (bindings := self._bindings(config)) and self._serving:
            await self._enforced().prepare(bindings)
        for section in Config.model_fields:
            if section != "routes" and getattr(config, section) != getattr(self.config, section):
                log.warning("%s: changes here take effect at the next start", section)
        for entry in self._use(config):
            self.gateway.agents.retire(entry)
        self.config = config
        if self._enforcement is not None:
            entries = [*(live.entry for live in self.gateway.live.values()), *self.gateway.agents.configured]
            await self._enforcement.sweep(entry.outbound for entry in entries)
        self.warm()

    def _use(self, config: Config) -> list[Entry]:
        """Hand the routes to the engine. Entries whose route is unchanged stay; returns the others."""
        old = list(self.gateway.agents.configured)
        entries: list[Entry] = []
        for route in config.routes:
            kept = next((entry for entry in old if entry.route == route), None)
            if kept is not None:
                old.remove(kept)
                kept.keep(route)
            entries.append(kept or self._entry(route))
        for entry in entries if self._enforcement is not None else ():
            before = next((gone for gone in old if gone.route.name == entry.route.name), None)
            if before is not None:
                self._enforced().replace(before.outbound, entry.outbound)
        self.gateway.use(entries)
        self._recorder.follow(config)
        return old

    # --- what governs routes -----------------------------------------------------------------------------------

    def _enforced(self) -> Enforcement:
        """The enforcement of governed routes. Imported only where a route has a manifest."""
        if self._enforcement is None:
            from gateway.governance.enforcing import Enforcement

            key = self.config.audit.key
            path = self.config.base / key if key is not None else None
            name = f"{self.config.audit.name}:" if self.config.audit.name else ""
            self._enforcement = made = Enforcement(
                self.gateway.records,
                self.gateway.store.spend,
                self.gateway.adopting,
                key=path,
                name=name,
                driven=self.gateway.driven_elsewhere,
                taken_over=self.gateway.taken_over,
            )
            self.gateway.on_opened(made.open)
            self.gateway.accompany(
                listed=self._promises, claimed=made.inherit, adopted=made.settle, closing=made.aclose
            )
        return self._enforcement

    def _bindings(self, config: Config) -> Sequence[Binding]:
        return [route.binding for route in config.routes if route.binding is not None]

    async def _promises(self) -> None:
        """Refuse to start with an agent that cannot do what its manifest promises. One that cannot be described now is
        found out later: until then it is not ready, and no run of it starts.
        """
        governed = [entry for entry in self.gateway.agents.entries if entry.route.binding is not None]
        await asyncio.gather(*(entry.describe(LIST_SECONDS) for entry in governed))
        known = [(entry.outbound, entry.agent) for entry in governed if entry.agent is not None and entry.reachable]
        broken = [mistake for outbound, agent in known for mistake in self._enforced().broken(outbound, agent)]
        if broken:
            raise Unavailable("\n".join(dict.fromkeys(broken)))

    def _entry(self, route: RouteConfig) -> Entry:
        targets, binding = targets_of(route, self._called), route.binding
        if binding is None or not self._serving:
            return Entry(route, targets, targets)
        return Entry(route, self._enforced().wrap(targets, binding), targets)

    def _called(self, target: TargetOptions) -> Outbound:
        call = self.config.adapters[target.protocol].call
        assert call is not None, "config refuses targets without an outbound half"
        return call(target)

    def _half(self, protocol: str) -> Inbound | None:
        """The inbound half of a protocol, made by the first call. None where the file does not serve the protocol."""
        made, options = self._inbound.get(protocol), self._doors.get(protocol)
        if made is None and options is not None:
            serve = self.config.adapters[protocol].serve
            assert serve is not None, "config refuses doors without an inbound half"
            made = self._inbound[protocol] = serve(options, self.gateway)
            if self._leaving and isinstance(made, Leaving):
                made.quiet()
        return made

    def _mounts(self, config: Config) -> tuple[Sequence[BaseRoute], Sequence[LateRoutes]]:
        """The mounts of all doors; and those without routes yet, with what gives them."""
        mounts: list[BaseRoute] = []
        late: list[LateRoutes] = []
        for name, adapter in config.adapters.items():
            if (options := self._doors.get(name)) is not None:
                path = self._paths[name] = options.path or adapter.path
                made = self._half(name) if adapter.hosts else None
                waits = adapter.late and not options.authenticates and not isinstance(made, Knowing)
                mount = Mount(path, routes=[] if waits else self._routes(name, options), name=name)
                if waits:
                    late.append((mount, partial(self._routes, name, options)))
                mounts.append(mount)
        return mounts, late

    def _routes(self, name: str, options: InboundOptions) -> Sequence[BaseRoute]:
        inbound = self._half(name)
        assert inbound is not None
        identify: Identify | None = None
        if isinstance(options, AuthenticatingOptions) and options.by_request:
            authenticator = Authenticator(options.authentication, created=self.gateway.agents.created)
            identify = identifying(authenticator)
            self._views.append(authenticator.sees)
        elif isinstance(inbound, Knowing):
            identify = partial(_known, inbound)
            self._views.append(inbound.sees)
        admit = partial(self.gateway.limits.admit, name)
        return served(inbound.routes(), name, inbound.refusal, admit=admit, identify=identify)

    def _admin(
        self, names: HostNames, private: bool, reread: Callable[[], Awaitable[str]] | None
    ) -> Sequence[BaseRoute]:
        operators = Operators(self.config.operators, names, near=open_near(self.config, private=private))
        api = AdminApi(self.gateway, lambda: self.config, operators, self._overlooker, reread, recorder=self._recorder)
        return [*awaiting(api.routes(), operators.admit), *Console(operators).routes()]

    def _published(self, protocol: str) -> Sequence[str]:
        """The agents of a protocol's clients, without those that an inbound half brings for its own use."""
        told = set(self.gateway.agents.names(OPERATOR))
        return [name for name in self.gateway.agents.names(protocol) if name in told]

    def _kept(self, inner: ASGIApp, names: HostNames, private: bool) -> BrowserGuard:
        """Keep other sites' pages from the doors that authenticate nobody. Where other machines reach the gateway under
        names that it is not told, only the pages of those doors are judged that check `Origin` themselves.
        """
        options = self.config.inbound
        named = private or bool(self.config.hosts)
        doors = {self._paths[name]: each.judges_pages for name, each in options.items() if not each.authenticates}
        return BrowserGuard(inner, names, doors if named else {}, self.refusal, private=private)

    def _chores(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What is done now and then for as long as the gateway runs."""
        gateway = self.gateway
        return (
            _every(PRUNE_SECONDS, self._prune, "retention", at_once=True),
            _every(ADOPT_SECONDS, gateway.adopt, "runs of other gateways"),
            # what comes of it is told by the line above
            _every(ORPHANED_SECONDS, gateway.adopt_orphans, "runs of other gateways", level=logging.DEBUG),
            _every(HOSTED_SECONDS, gateway.agents.refresh_hosted, "agents of other gateways"),
        )

    async def _prune(self) -> None:
        retention = self.config.store.retention
        cutoff = time.time() - retention.age if retention.age is not None else 0.0
        if gone := await self.gateway.store.prune(older_than=cutoff, max_bytes=retention.size):
            log.info("retention removed %d runs", gone)

    def refusal(self, path: str, error: InterlinguaError) -> Response:
        """The answer to a request that is not served, in the words of the protocol that its path is below."""
        below = self._below(path)
        half = None if below is None else self._half(below)
        return refusals.refusal(error) if half is None else half.refusal(error)

    def _below(self, path: str) -> str | None:
        return next((name for name, mount in self._paths.items() if f"{path}/".startswith(f"{mount}/")), None)

    async def _no_route(self, request: Request, error: Exception) -> Response:
        """An unknown path or a wrong method, in the words of the protocol that it is below."""
        assert isinstance(error, HTTPException)
        path, below = request.scope["path"], self._below(request.scope["path"])
        told = f"{request.method} {path} is no operation of " + ("this gateway" if below is None else "this protocol")
        if error.status_code == HTTPStatus.NOT_FOUND:
            told += "; / shows what is served, with a call of each protocol"
        if below is None:
            return PlainTextResponse(f"{told}\n", error.status_code, error.headers)
        response = self.refusal(path, NotFound(told))
        response.status_code = error.status_code
        response.headers.update(error.headers or {})
        return response

    async def _artifact(self, request: Request) -> Response:
        owner, artifact_id = request.path_params["owner"], request.path_params["artifact"]
        try:
            artifact = await self.gateway.files.get(artifact_id)
        except NotFound:
            artifact = None
        if artifact is None or owner not in (artifact.run, artifact.thread):
            return PlainTextResponse("no such artifact\n", status_code=404)
        return StreamingResponse(self.gateway.files.open(artifact_id), headers=download_headers(artifact))


def _known(inbound: Knowing, scope: Scope) -> str | None:
    return inbound.known(scope["headers"])


async def _every(
    seconds: float,
    work: Callable[[], Awaitable[object]],
    what: str,
    *,
    at_once: bool = False,
    level: int = logging.ERROR,
) -> None:
    """Do it every so many seconds, whatever comes of it; errors are logged."""
    if not at_once:
        await asyncio.sleep(seconds)
    while True:
        try:
            await work()
        except Exception as error:  # whatever it is, it is to be done again
            log.log(level, "%s: %s", what, error, exc_info=None if isinstance(error, InterlinguaError) else error)
        await asyncio.sleep(seconds)


async def _described(entry: Entry) -> None:
    await entry.describe()


def download_headers(artifact: Artifact) -> Mapping[str, str]:
    """The headers of a file: never rendered, never sniffed, named safely (RFC 6266)."""
    from urllib.parse import quote

    return {
        "content-type": artifact.media_type,
        "content-length": str(artifact.size),
        "content-disposition": f"attachment; filename*=UTF-8''{quote(artifact.name, safe='')}",
        "x-content-type-options": "nosniff",
    }
