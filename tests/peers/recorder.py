"""Remembers what a test server was asked, and asks for its key. Shared by the servers of this folder."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Recorder:
    """Wraps an application: records each request, then lets it through if it carries the key.

    `GET /_seen` gives all requests so far as `{method, path, query, headers, body}`, header names in lower case;
    `DELETE /_seen` forgets them. `key()` is the wanted `x-api-key`, or None for none; `denied` is the body of the 401.
    """

    def __init__(self, app: ASGIApp, key: Callable[[], str | None], denied: Any) -> None:
        self._app, self._key, self._denied = app, key, denied
        self._seen: list[dict[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if scope["path"] == "/_seen":
            if scope["method"] == "DELETE":
                self._seen.clear()
            return await JSONResponse(self._seen)(scope, receive, send)
        request = Request(scope, receive)
        body = await request.body()
        seen = {"method": request.method, "path": request.url.path, "query": request.url.query}
        self._seen.append({**seen, "headers": dict(request.headers), "body": body.decode(errors="replace")})
        if self._key() and request.headers.get("x-api-key") != self._key():
            return await JSONResponse(self._denied, 401)(scope, receive, send)
        parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return parts.pop() if parts else await receive()

        await self._app(scope, replay, send)
