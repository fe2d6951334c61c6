"""Answers requests: which operation of a REST path serves a method, and what errors become."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from starlette.types import Receive, Scope, Send

from gateway.core.errors import InterlinguaError, NotFound
from gateway.transport.asgi.request import ClientGone, HttpRequest, Reply

T = TypeVar("T")

log = logging.getLogger(__name__)

UNDECLARED = "{method} {path} is no operation of this protocol"

RestOperation: TypeAlias = Callable[[T, HttpRequest], Awaitable[Reply | None]]
"""Called with what serves the client, and its request. Returns None where it has answered itself.

Raises errors of the tree, ClientGone.
"""


async def respond(
    request: HttpRequest,
    serve: Callable[[HttpRequest], Awaitable[Reply | None]],
    refusal: Callable[[InterlinguaError], Reply],
    failed: Callable[[], Reply] | None = None,
) -> None:
    """Answer a request with what `serve` returns or raises: a Reply, ClientGone, an error of the tree.

    serve: returns None where it has answered itself. refusal: the answer to an error. failed: the answer to a fault of
    ours, if that is not the refusal of an InterlinguaError. An answer that has begun is broken off: the server ends the
    connection, and its client sees that something is missing.
    """
    try:
        reply = await serve(request)
    except Reply as raised:
        reply = raised
    except ClientGone:
        return
    except InterlinguaError as error:
        if request.begun:
            raise
        if error.detail:
            log.info("%s %s: %s (%s)", request.method, request.scope["path"], error, error.detail)
        reply = refusal(error)
    except Exception:
        if request.begun:
            raise
        log.exception("%s %s failed", request.method, request.scope["path"])
        reply = refusal(InterlinguaError("internal error")) if failed is None else failed()
    if reply is not None:
        await request.answer(reply)


class Everybody(NamedTuple, Generic[T]):
    """What serves all clients alike."""

    service: T


class RestEndpoint:
    """An ASGI application, which Starlette's router calls as it is."""

    def __init__(
        self,
        operations: Mapping[str, RestOperation[T]],
        serving: Callable[[Scope], T] | Everybody[T],
        refusal: Callable[[InterlinguaError], Reply],
        *,
        undeclared: str = UNDECLARED,
    ) -> None:
        """operations: by method. serving: what serves the client of a request; may raise errors of the tree.

        refusal: the answer to an error. undeclared: the text of a 405, with `{method}` and `{path}`.
        """
        self._operations = {method: _bound(operation, serving) for method, operation in operations.items()}
        self._refusal = refusal
        self._undeclared = undeclared

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:  # no coroutine of its own
        method = scope["method"]
        operation = self._operations.get("GET" if method == "HEAD" else method)
        request = HttpRequest(scope, receive, send)
        if operation is None:
            return request.answer(self._not_allowed(request))
        return respond(request, operation, self._refusal)

    def _not_allowed(self, request: HttpRequest) -> Reply:
        """405, with all the methods of the path."""
        told = self._undeclared.format(method=request.method, path=request.scope["path"])
        allowed = ", ".join(self._operations).encode()
        return Reply(405, self._refusal(NotFound(told)).body, [(b"allow", allowed)])


def _bound(
    operation: RestOperation[T], serving: Callable[[Scope], T] | Everybody[T]
) -> Callable[[HttpRequest], Awaitable[Reply | None]]:
    if isinstance(serving, Everybody):
        return partial(operation, serving.service)
    return lambda request: operation(serving(request.scope), request)
