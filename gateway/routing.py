"""Brings requests to their routes: counted and traced, and without a search where the path has no parameters."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence

from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import tracing

METHODS = ("GET", "POST", "PATCH", "DELETE")
"""The methods for which a route that takes any method is found without a search."""


def traced(route: BaseRoute, protocol: str) -> BaseRoute:
    """Wrap a route's application: each request has a span, and its answer is counted."""
    if isinstance(route, Route):
        inner, path = route.app, route.path

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            given: str | None = None
            for key, value in scope["headers"]:
                if key == b"traceparent":
                    given = value.decode("latin-1")
                    break

            def counted(message: Message) -> Awaitable[None]:  # no coroutine of its own: every chunk passes here
                if message["type"] == "http.response.start":
                    span.answered(message["status"])
                    tracing.metrics.requests.add(1, protocol, str(message["status"]))
                return send(message)

            with tracing.inbound_span(protocol, f"{scope['method']} {path}", given) as span:
                await inner(scope, receive, counted)

        route.app = app
    return route


class FixedPaths:
    """ASGI middleware: a request for a path without parameters, below a mount, goes straight to its route.

    Starlette tries one regular expression after the other, on two levels, and puts three layers of exception handlers
    around each message. Only routes whose endpoint is an ASGI application, and so answers its own errors, skip all of
    that; every other request goes to `inner`.
    """

    def __init__(self, inner: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        """`routes` are those of `inner`."""
        self._inner = inner
        self._mounts = frozenset(mount.path for mount in routes if isinstance(mount, Mount))
        self._table = {
            (method, mount.path + route.path): found
            for mount in routes
            if isinstance(mount, Mount)
            for route in mount.routes
            if isinstance(route, Route) and not route.param_convertors and not _is_function(route)
            for method in route.methods or METHODS
            if (found := _found(routes, method, mount.path + route.path)) is not None
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope.get("path") in self._mounts
        ):  # Starlette would redirect from the mount itself, and WebSockets follow no redirect
            scope["path"] += "/"
        if scope["type"] == "http" and not scope.get("root_path"):
            found = self._table.get((scope["method"], scope["path"]))
            if found is not None:
                app, more = found
                scope.update(more)
                return await app(scope, receive, send)
        await self._inner(scope, receive, send)


def _is_function(route: Route) -> bool:
    """Starlette's own test: whether the endpoint is called with a request, not as an ASGI application."""
    return inspect.isfunction(route.endpoint) or inspect.ismethod(route.endpoint)


def _found(routes: Sequence[BaseRoute], method: str, path: str) -> tuple[ASGIApp, Scope] | None:
    """The application that Starlette would choose for a request, and what it would add to the scope."""
    scope: Scope = {"type": "http", "method": method, "path": path, "root_path": ""}
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
        if isinstance(route, Route):
            return (route.app, more) if not _is_function(route) else None
        routes = route.routes if isinstance(route, Mount) else ()
