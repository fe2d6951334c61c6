"""Bodies, pages and errors of Agent Protocol over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from adapters.agent_protocol.codec import ERRORS
from gateway.access import refusal_headers
from gateway.core.delta import encode
from gateway.core.errors import InterlinguaError, Invalid, lookup
from gateway.core.types import JsonObject
from gateway.transport.asgi import HttpRequest, Reply
from gateway.wire import strict

_M = TypeVar("_M", bound=BaseModel)
INT32 = 2**31 - 1


def refusal(error: InterlinguaError) -> Reply:
    """An error before the run: `{"message": ...}`, with what is wrong where in `detail` if a value is."""
    content: JsonObject = {"message": str(error)}
    if isinstance(error, Invalid) and error.path:
        content["detail"] = [{"loc": error.path.strip("/").split("/"), "msg": str(error)}]
    return Reply(lookup(ERRORS, error), encode(content), refusal_headers(error))


def answer(content: JsonObject) -> Reply:
    return Reply(200, encode(content))


async def body(request: HttpRequest, model: type[_M], limit: int) -> _M:
    """The body as `model`; an absent, empty or `null` one is the empty object. Raises Invalid, TooLarge, ClientGone."""
    raw = (await request.body(limit)).strip()
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
class PageAsked:
    """The page of a list that a client asks for: `number` from 1, `size` items."""

    number: int
    size: int

    @property
    def start(self) -> int:
        """How many items come before it."""
        return (self.number - 1) * self.size

    def of(self, items: list[Any]) -> list[Any]:
        """The page's items."""
        return items[self.start : self.start + self.size]


def page(request: HttpRequest) -> PageAsked:
    """`current_page` (default 1) and `page_size` (default 10). Raises Invalid for anything but int32 from 1 up."""

    def number(name: str, default: int) -> int:
        text = request.query(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= INT32):
            raise Invalid(f"{name} must be a number from 1 up", path=f"/{name}")
        return int(text)

    return PageAsked(number("current_page", 1), number("page_size", 10))
