"""The operator's API below `/admin`: every run and agent of the gateway, in the gateway's own words.

It belongs to whoever operates the gateway, and is no protocol: no token of a protocol's clients opens it. Here is the
console at `/ui`, files that a browser shows: all that they show comes from `/admin`.

operators.py  who an operator is
api.py        the operations; openapi.json describes them
ui/           the console's files
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from gateway.admin.api import AdminApi
from gateway.admin.operators import CLOSED, Operators, open_near

PATH: Final = "/ui"
FILES: Final = Path(__file__).with_name("ui")
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


class Console:
    """An ASGI application below PATH."""

    def __init__(self, operators: Operators) -> None:
        self._operators = operators
        self._files = StaticFiles(directory=FILES, html=True)

    def routes(self) -> Sequence[BaseRoute]:
        return [Route(PATH, _with_slash), Mount(PATH, app=self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._operators.open_to(scope):
            return await PlainTextResponse(f"{CLOSED}\n", 403)(scope, receive, send)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._files(scope, receive, guarded)


async def _with_slash(request: Request) -> RedirectResponse:
    """Its files are beside each other below the path, whatever a proxy puts in front of that."""
    return RedirectResponse(PATH.removeprefix("/") + "/")
