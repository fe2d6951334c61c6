"""Brings requests to their routes: admitted, counted, traced, and without a search where the path has no parameters.

The functions in front of a route are made at start-up. Those that have nothing to wait for are no coroutines: each of
these would be resumed whenever the request goes on.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import tracing
from gateway.access import AwaitsKeys, Slots
from gateway.core.errors import InterlinguaError
from gateway.transport.asgi.request import ANSWERED, EXTENSION, headers_of
from gateway.transport.tap import TAP, Exchange

log = logging.getLogger(__name__)

METHODS = ("GET", "POST", "PATCH", "DELETE")
"""The methods for which a route that takes any method is found without a search."""

Admit = Callable[[str | None], Slots | None]
Identify = Callable[[Scope], str | None]
Refusal = Callable[[InterlinguaError], Response]
LateRoutes = tuple[Mount, Callable[[], Sequence[BaseRoute]]]
"""A mount, and what gives its routes when the first request for a path below it comes."""


def served(
    routes: Sequence[BaseRoute],
    protocol: str,
    refusal: Refusal,
    *,
    admit: Admit = lambda client: None,
    identify: Identify | None = None,
) -> Sequence[BaseRoute]:
    """A protocol's routes, each with what is done before its application: its client is identified, the request, or
    upgrade to a WebSocket, is admitted, and has a span; its answer is counted. Where the wire of a run is recorded, it
    is noted.

    identify: returns the client's name; None where nobody asks. admit: given that name, returns what the request
    takes until its route is done with it. Both raise what it is refused with.
    """

    def wrapped(app: ASGIApp, route: Route | WebSocketRoute) -> ASGIApp:
        app = _admitted(app, admit, identify, refusal)
        return _counted(app, protocol, route.path) if isinstance(route, Route) else app

    return _in_front(routes, wrapped)


def _in_front(
    routes: Sequence[BaseRoute], wrap: Callable[[ASGIApp, Route | WebSocketRoute], ASGIApp]
) -> Sequence[BaseRoute]:
    """Put something in front of the application of each route."""
    for route in routes:
        if isinstance(route, Route | WebSocketRoute):
            route.app = wrap(route.app, route)
    return routes


def awaiting(routes: Sequence[BaseRoute], look: Callable[[Scope], object]) -> Sequence[BaseRoute]:
    """Have requests wait whose tokens cannot be judged before keys are fetched. `look` judges them: it may raise
    AwaitsKeys, and what the route then refuses the request with itself.
    """
    return _in_front(routes, lambda app, route: _awaiting(app, look))


def _awaiting(app: ASGIApp, look: Callable[[Scope], object]) -> ASGIApp:
    def looked(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        try:
            look(scope)
        except AwaitsKeys as awaits:
            return awaits.then(lambda: app(scope, receive, send))
        except InterlinguaError:
            log.debug("%s is refused", scope["path"])
        return app(scope, receive, send)

    return looked


def _admitted(app: ASGIApp, admit: Admit, identify: Identify | None, refusal: Refusal) -> ASGIApp:
    def admitted(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        try:
            slots = admit(None if identify is None else identify(scope))
        except AwaitsKeys as awaits:
            return awaits.then(lambda: admitted(scope, receive, send))
        except InterlinguaError as error:
            return refusal(error)(scope, receive, send)
        return app(scope, receive, send) if slots is None else _holding(slots, app, scope, receive, send)

    return admitted


async def _holding(slots: Slots, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        await app(scope, receive, send)
    finally:
        slots.free()


def _counted(app: ASGIApp, protocol: str, path: str) -> ASGIApp:
    def counted(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if TAP.on:
            scope, receive, send = _noted(scope, receive, send)
        span: tracing.Span | None = None

        def answered(status: int) -> None:
            if span is not None:
                span.answered(status)
            tracing.metrics.requests.values[protocol, str(status)] += 1

        def told(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                answered(message["status"])
            return send(message)

        scope[ANSWERED] = answered
        given = headers_of(scope).get(b"traceparent")
        if given is None and not tracing.tracing():
            return app(scope, receive, told)
        parent = None if given is None else given.decode("latin-1")
        span = tracing.inbound_span(protocol, f"{scope['method']} {path}", parent)
        return _within(span, app(scope, receive, told))

    return counted


async def _within(span: tracing.Span, serving: Awaitable[None]) -> None:
    with span:
        await serving


def _noted(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """A request of which notes are taken. Pieces of its answer come by `send`, as all else does."""
    exchange = Exchange(scope, receive, send)
    extensions = {name: each for name, each in scope.get("extensions", {}).items() if name != EXTENSION}
    return {**scope, "extensions": extensions}, exchange.receive, exchange.send


def below(prefix: str, app: ASGIApp) -> ASGIApp:
    """Serve an application where clients reach it below `prefix`, empty or with a slash in front and none behind: a
    proxy may take it off the path or leave it. Links that are made of a request have it, as `app_root_path`.
    """

    def told(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "lifespan":
            path = scope["path"]
            if path.startswith(under) or path == prefix:
                scope["path"] = path[len(prefix) :] or "/"
            scope["app_root_path"] = prefix
        return app(scope, receive, send)

    under = f"{prefix}/"
    return told if prefix else app


class FixedPaths:
    """ASGI middleware: a request for a path without parameters, below a mount, goes straight to its route. So does a
    WebSocket for any path: what is between would be there as long as its connection.

    Starlette tries one regular expression after the other, on two levels, and puts three layers of exception handlers
    around each message. Only routes whose endpoint is an ASGI application, and so answers its own errors, skip all of
    that; every other request goes to `inner`.
    """

    def __init__(
        self, inner: ASGIApp, routes: Sequence[BaseRoute], late: Iterable[LateRoutes] = (), *, prefix: str = ""
    ) -> None:
        """`routes` are those of `inner`. prefix: see `below`."""
        self._inner = inner
        self._prefix = prefix
        self._routes = routes
        self._late = [(f"{mount.path}/", mount, routes) for mount, routes in late]
        mounts = [each for each in routes if isinstance(each, Mount) and isinstance(each.app, Router)]
        self._mounts = frozenset(mount.path for mount in mounts)
        self._table: dict[tuple[str, str], tuple[ASGIApp, Scope]] = {}
        for mount in mounts:
            self._enter(mount)

    def _enter(self, mount: Mount) -> None:
        for route in mount.routes:
            if isinstance(route, Route) and not route.param_convertors and not _is_function(route):
                for method in route.methods or METHODS:
                    path = mount.path + route.path
                    asked = {"type": "http", "method": method, "path": path, "root_path": ""}
                    chosen = _chosen(self._routes, {**asked, "app_root_path": self._prefix})
                    if chosen is not None and not _is_function(chosen[0]):
                        self._table[method, path] = chosen[0].app, chosen[1]

    def _open(self, path: str) -> bool:
        """Give the mount that a path is below its routes. False if it has them, or there is none."""
        path += "/"
        for at, (prefix, mount, routes) in enumerate(self._late):
            if path.startswith(prefix):
                mount.routes.extend(routes())
                self._enter(mount)
                del self._late[at]
                return True
        return False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # Starlette would redirect from the mount itself, and WebSockets follow no redirect
        if scope.get("path") in self._mounts:
            scope["path"] += "/"
        if scope["type"] == "http" and not scope.get("root_path"):
            found = self._table.get((scope["method"], scope["path"]))
            if found is not None:
                app, more = found
                scope.update(more)
                return app(scope, receive, send)
        if self._late and self._open(scope.get("path", "")):
            return self(scope, receive, send)
        if scope["type"] == "websocket" and (chosen := _chosen(self._routes, dict(scope))) is not None:
            scope.update(chosen[1])
            return chosen[0].app(scope, receive, send)
        return self._inner(scope, receive, send)


def _is_function(route: Route | WebSocketRoute) -> bool:
    """Starlette's own test: whether the endpoint is called with a request, not as an ASGI application."""
    return inspect.isfunction(route.endpoint) or inspect.ismethod(route.endpoint)


def _chosen(routes: Sequence[BaseRoute], scope: Scope) -> tuple[Route | WebSocketRoute, Scope] | None:
    """The route that Starlette would choose for a request, and what it would add to the scope. Changes `scope`."""
    more: Scope = {}
    while True:
        for route in routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                break
        else:
            return None
        scope.update(child)
        more.update(child, route=route)
        if isinstance(route, Route | WebSocketRoute):
            return route, more
        routes = route.routes if isinstance(route, Mount) else ()
