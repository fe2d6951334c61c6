"""What every operation shares: bodies read within a limit, pages, errors as this protocol has them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from adapters.agent_protocol.codec import ERRORS
from gateway.access import challenge
from gateway.core.delta import encode
from gateway.core.errors import InterlinguaError, Invalid, TooLarge, Unauthenticated, Unavailable, lookup
from gateway.core.types import JsonObject
from gateway.wire import strict

log = logging.getLogger(__name__)
_M = TypeVar("_M", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Response]]
INT32 = 2**31 - 1


def answer(content: JsonObject, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(encode(content), status, headers, "application/json")


def refusal(error: InterlinguaError) -> Response:
    """An error before the run: `{"message": ...}`, with what is wrong where in `detail` if a value is."""
    content: JsonObject = {"message": str(error)}
    if isinstance(error, Invalid) and error.path:
        content["detail"] = [{"loc": error.path.strip("/").split("/"), "msg": str(error)}]
    headers: Mapping[str, str] | None = None
    if isinstance(error, Unavailable):
        headers = {"Retry-After": "1"}
    elif isinstance(error, Unauthenticated):
        headers = challenge(error)
    return answer(content, lookup(ERRORS, error), headers)


class Operations:
    """The operations of one path, by method: an ASGI application that turns errors into answers."""

    def __init__(self, **handlers: Handler) -> None:
        self._handlers = handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        handler = self._handlers.get("GET" if request.method == "HEAD" else request.method)
        if handler is None:
            message = f"{request.method} is not an operation of this path"
            return answer({"message": message}, 405, {"Allow": ", ".join(self._handlers)})
        try:
            return await handler(request)
        except InterlinguaError as error:
            if error.detail:
                log.info("agent_protocol: %s: %s", error, error.detail)
            return refusal(error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            log.exception("agent_protocol: %s failed", request.url.path)
            return answer({"message": "internal error"}, 500)


async def read(request: Request, limit: int) -> bytes:
    """The whole body. Raises TooLarge over `limit` bytes, before it is read if its length is announced, and Invalid for
    one that is compressed.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise Invalid(f"Content-Encoding: a body that is encoded ({encoding}) is not taken")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise TooLarge(f"the body is larger than {limit} bytes")
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
    return bytes(found)


async def body(request: Request, model: type[_M], limit: int) -> _M:
    """The body as `model`; an absent, empty or `null` one is the empty object. Raises Invalid, TooLarge."""
    raw = (await read(request, limit)).strip()
    if raw in (b"", b"null"):
        return model()
    try:
        found = model.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        path = "".join(f"/{step}" for step in first["loc"])
        raise Invalid(f"{path or 'body'}: {first['msg']}", path=path) from error
    strict.check(raw, "body: Invalid JSON")
    return found


@dataclass(frozen=True)
class Page:
    """Which page of a list is asked for: `number` from 1, `size` items."""

    number: int
    size: int

    @property
    def start(self) -> int:
        """How many items come before it."""
        return (self.number - 1) * self.size

    def of(self, items: list[Any]) -> list[Any]:
        """The page's items."""
        return items[self.start : self.start + self.size]


def page(request: Request) -> Page:
    """`current_page` (default 1) and `page_size` (default 10). Raises Invalid for anything but int32 from 1 up."""

    def number(name: str, default: int) -> int:
        text = request.query_params.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= INT32):
            raise Invalid(f"{name} must be a number from 1 up", path=f"/{name}")
        return int(text)

    return Page(number("current_page", 1), number("page_size", 10))
