"""Fixed paths go straight to their route; everything else is Starlette's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from gateway.routing import FixedPaths
from tests.support.aio import run


class Endpoint:
    """Says which endpoint it is; keeps the scope."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.scope: Scope = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = dict(scope)
        await PlainTextResponse(self.name)(scope, receive, send)


async def function(request: Request) -> Response:
    return PlainTextResponse("function")


ONE, WAIT, LATE, ROOT, ANY = (Endpoint(name) for name in ("one", "wait", "late", "root", "any"))
ROUTES = [
    Mount(
        "/mount",
        routes=[
            Route("/runs/wait", WAIT, methods=["POST"]),
            Route("/runs/{run}", ONE, methods=["GET"]),
            Route("/runs/late", LATE, methods=["GET"]),
            Route("/function", function),
            Route("/", ROOT, methods=["POST"]),
            Route("/any", ANY),
        ],
    )
]


class Counting:
    """Starlette, and how often it was asked."""

    def __init__(self, routes: Sequence[BaseRoute] = ROUTES) -> None:
        self.asked = 0
        self._app = Starlette(routes=routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self._app(scope, receive, send)


def ask(app: Any, method: str, path: str, **more: Any) -> tuple[int, bytes]:
    """(status, body) of a request without a body."""
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [], **more}
    run(app(scope, receive, send))
    return said[0]["status"], b"".join(message.get("body", b"") for message in said[1:])


def asked(method: str, path: str, **more: Any) -> tuple[int, bytes, int]:
    """The answer, and how often Starlette was asked."""
    inner = Counting()
    return (*ask(FixedPaths(inner, ROUTES), method, path, **more), inner.asked)


def test_a_fixed_path_goes_straight_to_its_route() -> None:
    assert asked("POST", "/mount/runs/wait") == (200, b"wait", 0)


def test_so_does_one_whose_route_is_for_any_method_and_a_rare_method_is_searched_for() -> None:
    assert [asked(method, "/mount/any") for method in ("GET", "POST", "DELETE")] == [(200, b"any", 0)] * 3
    assert asked("PUT", "/mount/any") == (200, b"any", 1)


def test_its_endpoint_sees_what_starlette_would_have_shown_it() -> None:
    names = ("path_params", "root_path", "app_root_path", "endpoint", "route", "path")
    asked("POST", "/mount/runs/wait")
    short = {name: WAIT.scope[name] for name in names}
    ask(Starlette(routes=ROUTES), "POST", "/mount/runs/wait")
    assert short == {name: WAIT.scope[name] for name in names}


def test_a_fixed_path_behind_a_pattern_that_takes_it_is_the_patterns() -> None:
    assert asked("GET", "/mount/runs/late")[:2] == (200, b"one")


def test_patterns_functions_wrong_methods_and_unknown_paths_are_starlettes() -> None:
    assert asked("GET", "/mount/runs/7") == (200, b"one", 1)
    assert asked("GET", "/mount/function") == (200, b"function", 1)
    assert asked("DELETE", "/mount/runs/wait")[::2] == (405, 1)
    assert asked("GET", "/elsewhere")[::2] == (404, 1)


def test_a_websocket_goes_straight_to_its_route_whatever_its_path() -> None:
    seen: list[Scope] = []

    async def endpoint(socket: WebSocket) -> None:
        seen.append(dict(socket.scope))
        await socket.close()

    async def connect() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        assert message["type"] == "websocket.close"

    mounts = [Mount("/mount", routes=[Route("/{agent}", ANY), WebSocketRoute("/{agent}", endpoint)])]
    inner = Counting(mounts)
    for app in (FixedPaths(inner, mounts), Starlette(routes=mounts)):
        scope = {"type": "websocket", "path": "/mount/ann", "query_string": b"", "headers": [], "subprotocols": []}
        run(app(scope, connect, send))
    names = ("path_params", "root_path", "app_root_path", "endpoint", "route", "path")
    assert inner.asked == 0 and [seen[0][name] for name in names] == [seen[1].get(name) for name in names]


def test_a_mount_gets_its_routes_with_the_first_request_below_it() -> None:
    made: list[str] = []

    def routes(name: str) -> list[Route]:
        made.append(name)
        return [Route("/fixed", Endpoint(name)), Route("/{any}", Endpoint("pattern"))]

    mounts = [Mount(f"/{name}", routes=[]) for name in ("one", "two", "three")]
    late = [(mount, partial(routes, mount.path)) for mount in mounts]
    inner = Counting(mounts)
    app = FixedPaths(inner, mounts, late)
    assert ask(app, "GET", "/elsewhere")[0] == ask(app, "GET", "/onetwo")[0] == 404 and made == []
    assert ask(app, "GET", "/two/fixed") == (200, b"/two") and inner.asked == 2
    assert ask(app, "GET", "/two/7") == ask(app, "GET", "/two/8") == (200, b"pattern")
    assert ask(app, "GET", "/three")[0] == 404 and made == ["/two", "/three"]


def test_a_mount_itself_is_found_with_and_without_its_slash_and_is_no_redirect() -> None:
    assert asked("POST", "/mount") == asked("POST", "/mount/") == (200, b"root", 0)


def test_below_a_root_path_starlette_takes_it_apart() -> None:
    assert asked("POST", "/outer/mount/runs/wait", root_path="/outer") == (200, b"wait", 1)
