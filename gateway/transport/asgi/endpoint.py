"""One path of a REST protocol: which operation serves a method, and how its errors are answered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeAlias, TypeVar

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


class RestEndpoint(Generic[T]):
    """An ASGI application, which Starlette's router calls as it is."""

    def __init__(
        self,
        operations: Mapping[str, RestOperation[T]],
        serving: Callable[[Scope], T],
        refusal: Callable[[InterlinguaError], Reply],
        *,
        undeclared: str = UNDECLARED,
    ) -> None:
        """operations: by method. serving: what serves the client of a request; may raise errors of the tree.

        refusal: the answer to an error. undeclared: the text of a 405, with `{method}` and `{path}`.
        """
        self._operations = operations
        self._serving = serving
        self._refusal = refusal
        self._undeclared = undeclared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        operation = self._operations.get("GET" if method == "HEAD" else method)
        request = HttpRequest(scope, receive, send)
        if operation is None:
            return await request.answer(self._not_allowed(request))
        try:
            reply = await operation(self._serving(scope), request)
        except InterlinguaError as error:
            if request.begun:
                raise
            if error.detail:
                log.info("%s %s: %s (%s)", method, scope["path"], error, error.detail)
            reply = self._refusal(error)
        except ClientGone:
            return
        except Exception:
            if request.begun:  # the server ends the connection: its client sees that something is missing
                raise
            log.exception("%s %s failed", method, scope["path"])
            reply = self._refusal(InterlinguaError("internal error"))
        if reply is not None:
            await request.answer(reply)

    def _not_allowed(self, request: HttpRequest) -> Reply:
        """405, with all the methods of the path."""
        told = self._undeclared.format(method=request.method, path=request.scope["path"])
        allowed = ", ".join(self._operations).encode()
        return Reply(405, self._refusal(NotFound(told)).body, [(b"allow", allowed)])
