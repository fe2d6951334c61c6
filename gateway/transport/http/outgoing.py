"""A request before it is sent."""

from __future__ import annotations

import io
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from gateway.core.errors import Invalid

BytesBody: TypeAlias = bytes | AsyncIterable[bytes]
Params: TypeAlias = Mapping[str, str | int] | list[tuple[str, str]]

_WHOLE_WRITE = 1024 * 1024  # aiohttp writes larger bodies piece by piece if they come as a file


@dataclass(frozen=True, slots=True)
class FilePart:
    """One file of a multipart form."""

    name: str
    filename: str
    content: BytesBody
    content_type: str = "application/octet-stream"


class Form(NamedTuple):
    """A multipart form."""

    fields: Mapping[str, str]
    files: tuple[FilePart, ...]


class Outgoing(NamedTuple):
    """A request for `HttpSession.open`. `path` as in HttpClient. `compressed`: the answer may be gzipped."""

    method: str
    path: str
    headers: Mapping[str, str] | None = None
    params: Params | None = None
    body: BytesBody | Form | None = None
    content_type: str | None = None
    compressed: bool = True
    redirects: int = 0

    @property
    def repeatable(self) -> bool:
        """Whether the body can be sent a second time."""
        return self.body is None or isinstance(self.body, bytes)

    def data(self) -> Any:
        """Make the body for aiohttp, anew for each time it is sent."""
        body = self.body
        return io.BytesIO(body) if isinstance(body, bytes) and len(body) > _WHOLE_WRITE else body


def segment(value: str) -> str:
    """Quote `value` as one segment of a path. Raises Invalid for one that cannot be a segment ("", "..")."""
    if value in ("", ".", ".."):
        raise Invalid(f"{value!r} cannot be part of a URL's path")
    return quote(value, safe="")
