"""What every endpoint does: who may come, and how it is told what is wrong."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway import access
from gateway.access import Visit
from gateway.core import errors
from gateway.core.errors import InterlinguaError, lookup
from gateway.mcp import wire
from gateway.mcp.server.hub import Hub
from gateway.transport.asgi import ClientGone, Exchange, Headers, Reply, origin
from gateway.transport.streamable_http import JSON
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id, Malformed

log = logging.getLogger(__name__)

EXPOSED: Final = f"{wire.SESSION_HEADER}, {wire.VERSION_HEADER}, WWW-Authenticate"
"""Headers of answers that a page may read."""
STATUS: Final[Mapping[type[InterlinguaError], int]] = {
    InterlinguaError: 500,
    errors.Refused: 400,
    errors.NotFound: 404,
    errors.TooLarge: 413,
    errors.Denied: 403,
    errors.Unauthenticated: 401,
    errors.Unavailable: 503,
}


def refusal(status: int, why: str, code: int = jsonrpc.INVALID_REQUEST, *, headers: Headers = ()) -> Reply:
    """A request that is not served: the body is an error that belongs to no message."""
    return answer(status, None, ErrorObject(code, why), headers)


def refused(error: InterlinguaError) -> Reply:
    """The same of an error of the tree, with its status."""
    return refusal(lookup(STATUS, error), str(error), headers=_headers(error))


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


class Endpoint(ABC):
    """An ASGI application: one path, or one and the same below it with `{agent}`.

    `allowed` are its methods, for the Allow header.
    """

    allowed: str

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.options = hub.options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        try:
            reply = await self._served(exchange)
        except Reply as raised:
            reply = raised
        except ClientGone:
            return
        except InterlinguaError as error:
            reply = refused(error)
        except Exception:
            log.exception("%s %s failed", exchange.method, scope["path"])
            reply = refusal(500, "internal error", jsonrpc.INTERNAL_ERROR)
        if reply is not None:
            await exchange.answer(reply)

    @abstractmethod
    async def answer(self, exchange: Exchange, visit: Visit | None) -> Reply | None:
        """None where it was answered as a stream. `visit`: who sends it, where clients are asked.

        Raises Reply, ClientGone, errors of the tree.
        """

    async def _served(self, exchange: Exchange) -> Reply | None:
        page = exchange.header("origin")
        origin.admit(page, exchange.scope, self.options.origins)
        if page is not None:
            exchange.extra += origin.cors(page, EXPOSED)
            if exchange.method == "OPTIONS":
                return Reply(204, headers=origin.preflight(exchange.header("access-control-request-headers")))
        if exchange.method not in self.allowed.split(", "):
            raise self.not_served(exchange, self.allowed)
        if self.hub.quiet:
            raise errors.Unavailable("the gateway is stopping")
        return await self.answer(exchange, self.hub.enter(exchange.scope))

    def not_served(self, exchange: Exchange, allowed: str) -> Reply:
        """A method that is not served."""
        return refusal(405, f"{exchange.method} is not served here", headers=[(b"allow", allowed.encode())])

    async def body(self, exchange: Exchange) -> bytes:
        """What was POSTed. Raises Reply, TooLarge, ClientGone."""
        kind = (exchange.header("content-type") or "").partition(";")[0].strip().lower()
        if kind != JSON or exchange.header("content-encoding") not in (None, "identity"):
            raise refusal(415, f"the Content-Type must be {JSON}, not encoded")
        return await exchange.body(self.options.max_body, "message")


def _headers(error: InterlinguaError) -> Headers:
    """What the answer of an error has beside it."""
    if isinstance(error, errors.Unauthenticated):
        return [(name.encode(), value.encode()) for name, value in access.challenge(error).items()]
    return [(b"retry-after", b"5")] if isinstance(error, errors.Unavailable) else []


def accepts(exchange: Exchange, *kinds: str) -> None:
    """Raises a Reply unless the client takes answers of all of these kinds; one that does not say takes any."""
    said = exchange.header("accept")
    if said is None:
        return
    ranges = {one.partition(";")[0].strip().lower() for one in said.split(",")}
    for kind in kinds:
        if ranges.isdisjoint((kind, kind.partition("/")[0] + "/*", "*/*")):
            raise refusal(406, f"the Accept header must include {' and '.join(kinds)}")


def bearer(exchange: Exchange) -> str | None:
    """The token that came with a request."""
    name = wire.AUTHORIZATION.lower().encode()
    return access.bearer([value.decode("latin-1") for found, value in exchange.scope["headers"] if found == name])


def json(value: Any) -> Reply:
    """An answer that is one message, or several."""
    return Reply(200, value if isinstance(value, bytes) else b"[" + b",".join(value) + b"]")


def same(known: Visit | None, shown: Visit | None) -> bool:
    """Whether a request is of the connection that knows its client: what it shows counts there from then on."""
    return known is None or (shown is not None and known.fits(shown.principal))
