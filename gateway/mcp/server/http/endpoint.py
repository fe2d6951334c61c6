"""The part that all endpoints share: they admit or refuse a client, and answer errors."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, Final

from msgspec import UNSET
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.access import Visit
from gateway.core import errors
from gateway.core.errors import InterlinguaError
from gateway.mcp import wire
from gateway.mcp.server.hub import Hub
from gateway.transport.asgi import Headers, HttpRequest, Reply, refusals, respond
from gateway.transport.streamable_http import server
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Malformed

log = logging.getLogger(__name__)

EXPOSED: Final = f"{wire.SESSION_HEADER}, {wire.VERSION_HEADER}, WWW-Authenticate"
"""Headers of answers that a page may read."""


def refusal(status: int, why: str, code: int = jsonrpc.INVALID_REQUEST, *, headers: Headers = ()) -> Reply:
    """A request that is not served: the body is an error that belongs to no message."""
    return answer(status, None, ErrorObject(code, why), headers)


def refused(error: InterlinguaError) -> Reply:
    """The same of an error of the tree, with its status."""
    return refusal(refusals.status(error), str(error), headers=refusals.headers(error))


def response(error: InterlinguaError) -> Response:
    """The same for Starlette."""
    return refused(error).for_starlette()


def answer(status: int, id: Id, error: ErrorObject, headers: Headers = ()) -> Reply:
    """The error of a message."""
    return Reply(status, jsonrpc.error(id, error), headers)


def no_message(what: Malformed) -> Reply:
    """The answer to what was POSTed and is no message."""
    log.info("a client sends what is no message: %s", what.reason)
    return answer(400, None if what.id is UNSET else what.id, ErrorObject(what.code, what.reason))


class McpEndpoint(ABC):
    """An ASGI application: one path, or one and the same below it with `{agent}`.

    `allowed` are its methods, for the Allow header.
    """

    allowed: str

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.options = hub.options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(HttpRequest(scope, receive, send), self._served, refused, _failed)

    @abstractmethod
    async def answer(self, request: HttpRequest, visit: Visit | None) -> Reply | None:
        """None where it was answered as a stream. `visit`: who sends it, where clients are asked.

        Raises Reply, ClientGone, errors of the tree.
        """

    async def _served(self, request: HttpRequest) -> Reply | None:
        preflight = server.admit(request, self.options.origins, EXPOSED, self.allowed, refusal)
        if preflight is not None:
            return preflight
        if self.hub.quiet:
            raise errors.Unavailable("the gateway is stopping")
        return await self.answer(request, self.hub.enter(request.scope))

    async def body(self, request: HttpRequest) -> bytes:
        """The body that was POSTed. Raises Reply, TooLarge, ClientGone."""
        return await server.posted(request, self.options.max_body, refusal)


def not_served(request: HttpRequest, allowed: str) -> Reply:
    return refusal(405, f"{request.method} is not served here", headers=[(b"allow", allowed.encode())])


def _failed() -> Reply:
    """The answer to a fault of ours."""
    return refusal(500, "internal error", jsonrpc.INTERNAL_ERROR)


def accepts(request: HttpRequest, *kinds: str) -> None:
    """Raises a Reply unless the client takes answers of all of these kinds; one that does not say takes any."""
    said = request.header("accept")
    if said is not None and not _takes(said, kinds):
        raise refusal(406, f"the Accept header must include {' and '.join(kinds)}")


@lru_cache(maxsize=32)
def _takes(said: str, kinds: tuple[str, ...]) -> bool:
    """`accepts` of a header: few clients differ in it."""
    ranges = {one.partition(";")[0].strip().lower() for one in said.split(",")}
    return not any(ranges.isdisjoint((kind, kind.partition("/")[0] + "/*", "*/*")) for kind in kinds)


def json(value: Any) -> Reply:
    return Reply(200, value if isinstance(value, bytes) else b"[" + b",".join(value) + b"]")


def same(known: Visit | None, shown: Visit | None) -> bool:
    """Whether a request is of the connection that knows its client: what it shows counts there from then on."""
    return known is None or (shown is not None and known.fits(shown.principal))
