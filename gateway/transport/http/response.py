"""The results of calls."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.core.errors import AgentBroken, AgentGone
from gateway.transport.http.headers import ResponseHeaders

if TYPE_CHECKING:
    from gateway.transport.http.body import Body


class Unreachable(AgentGone):
    """No connection could be made and nothing was sent, so the call may be repeated."""

    untaken = True


_LATER = (429, 503)


def come_later(status: int, headers: Mapping[str, str]) -> float | None:
    """The seconds of `Retry-After` in an answer that says so: nothing of the request was taken. None in any other."""
    given = headers.get("Retry-After", "").strip() if status in _LATER else ""
    if given.isascii() and given.isdigit():
        return float(given[:9])
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time()) if given else None
    except (ValueError, OverflowError):
        return None


def media_type(headers: Mapping[str, str]) -> str:
    """The content type in lower case without its parameters, "" if there is none."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


class HttpResponse(msgspec.Struct, frozen=True):
    """A complete response, of any status."""

    status: int
    headers: ResponseHeaders
    body: bytes

    @property
    def content_type(self) -> str:
        """The content type in lower case without its parameters, "" if there is none."""
        return media_type(self.headers)

    @property
    def later(self) -> float | None:
        """See `come_later`."""
        return come_later(self.status, self.headers)

    def json(self) -> Any:
        """Decode the body as JSON, whatever its content type. Raises AgentBroken if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (ValueError, RecursionError) as exc:  # msgspec's errors, and bytes that are no text
            raise AgentBroken("the agent's answer is not JSON", detail=str(exc)) from exc


class StreamResponse:
    """A response whose body is still arriving. Valid inside `async with client.stream(...)`.

    `content_type` is in lower case without its parameters.
    """

    __slots__ = ("_body", "content_type", "headers", "status")

    def __init__(self, status: int, headers: ResponseHeaders, body: Body) -> None:
        self.status = status
        self.headers = headers
        self.content_type = media_type(headers)
        self._body = body

    @property
    def whole(self) -> bool:
        """Whether nothing more will arrive than `chunks` gives without waiting."""
        return self._body.whole

    async def read(self, max_bytes: int | None = None) -> bytes:
        """Read the rest of the body, e.g. of an error. Raises as `chunks` does.

        AgentBroken if it is larger than `max_bytes` (default: the stream's own limit).
        """
        return await self._body.read(max_bytes)

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it arrives, without delay and never b"".

        Bytes that arrived before an error are yielded before it is raised. Raises AgentTimeout if nothing arrives for
        the stream's `idle_timeout` (the time that the caller takes does not count), AgentGone if the
        agent closes before the end, AgentBroken if the body is malformed or over the limit. Leaving
        the loop early is fine: leaving the `async with` closes the connection.
        """
        return self._body

    async def pour(self, take: Callable[[bytes], bool]) -> bool:
        """Give `take` the pieces that `chunks` would give, each from where it comes off the socket: no task is woken
        for it. True as soon as `take` has returned false, False at the end. What `take` raises is raised here; it
        runs in this task's context, and must not wait.
        """
        return await self._body.pour(take)
