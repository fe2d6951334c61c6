"""One request, before it is written."""

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
    """What `Session.open` sends. `path` as in HttpClient; `compressed`: gzip may come back."""

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
        """Whether the body can be written a second time."""
        return self.body is None or isinstance(self.body, bytes)

    def data(self) -> Any:
        """The body as aiohttp likes to have it; new for every time it is written."""
        body = self.body
        return io.BytesIO(body) if isinstance(body, bytes) and len(body) > _WHOLE_WRITE else body


def segment(value: str) -> str:
    """`value` as one segment of a path. Raises Invalid where it could not stay one ("", "..")."""
    if value in ("", ".", ".."):
        raise Invalid(f"{value!r} cannot be part of a URL's path")
    return quote(value, safe="")
