"""A request before it is sent: its URL, its head, its body."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from gateway.core.errors import Invalid

if TYPE_CHECKING:
    import ssl

BytesBody: TypeAlias = bytes | AsyncIterable[bytes]
Params: TypeAlias = Mapping[str, str | int] | list[tuple[str, str]]
Pieces: TypeAlias = AsyncGenerator[bytes, None]
Lines: TypeAlias = dict[str, str]
"""The lines of a head by the header's name in lower case."""

ONE_WRITE = 64 * 1024
"""The largest body that is sent in one write with its head."""

_FRAMING = frozenset({"content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer"})
"""Headers that no caller may set: they say what the connection does, and that is ours."""
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_PORTS = {"http": 80, "https": 443}
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BAD_HOST = re.compile(r"[\x00-\x20\x7f\"#/<>?@\\^`{|}]")
_PLAIN_TARGET = re.compile(
    r"(?:/(?![.]|%2e)[\w\-.~!$&'()*+,;=:@%]*)*(?:[?][\w\-.~!$&'()*+,;=:@%/?]*)?", re.ASCII | re.I
)
_KEPT = "-._~!$&'()*+,;=:@%"  # what `quote` leaves in a path beside letters and digits


class BearerTokens(Protocol):
    """See `credentials.TokenSource`."""

    async def token(self) -> str:
        """The token to send now."""

    def refused(self, token: str) -> None:
        """Called when the agent refuses a token: the next `token` is a new one."""


class TlsFiles(Protocol):
    """See `credentials.ReloadedTls`."""

    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""


class HttpOrigin(NamedTuple):
    """Where a connection goes. `host` is in lower case, IPv6 without brackets."""

    scheme: str
    host: str
    port: int

    @property
    def name(self) -> str:
        """host:port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class FilePart(msgspec.Struct, frozen=True):
    """One file of a multipart form."""

    name: str
    filename: str
    content: BytesBody
    content_type: str = "application/octet-stream"


class Form(NamedTuple):
    """A multipart form. File names are sent as browsers do: UTF-8, only quotes escaped."""

    fields: Mapping[str, str]
    files: tuple[FilePart, ...]

    def encode(self) -> tuple[str, list[BytesBody]]:
        """Return the content type and the pieces of the body. Raises Invalid for a name that no header can carry."""
        boundary = secrets.token_hex(16)
        pieces: list[BytesBody] = []
        for name, value in self.fields.items():
            pieces.append(f"--{boundary}\r\n{_disposition(name=name)}\r\n{value}\r\n".encode())
        for part in self.files:
            kind = header_line("Content-Type", part.content_type)
            pieces.append(f"--{boundary}\r\n{_disposition(name=part.name, filename=part.filename)}{kind}\r\n".encode())
            pieces += [part.content, b"\r\n"]
        pieces.append(f"--{boundary}--\r\n".encode())
        return f"multipart/form-data; boundary={boundary}", pieces


class Outgoing(NamedTuple):
    """A request for `HttpConnections.open`. `path` as in HttpClient. `compressed`: the answer may be gzipped."""

    method: str
    path: str
    headers: Mapping[str, str] | None = None
    params: Params | None = None
    body: BytesBody | Form | None = None
    content_type: str | None = None
    compressed: bool = True

    @property
    def repeatable(self) -> bool:
        """Whether the body can be sent a second time."""
        return self.body is None or isinstance(self.body, bytes)

    def framed(self) -> tuple[str | None, int | None, bytes | Pieces]:
        """Return the content type, the length if it is known, and the body, to be sent once. Raises Invalid."""
        if self.body is None:
            return self.content_type, 0, b""
        kind: str | None
        if isinstance(self.body, Form):
            kind, pieces = self.body.encode()
        else:
            kind, pieces = self.content_type, [self.body]
        whole = [piece for piece in pieces if isinstance(piece, bytes)]
        if len(whole) < len(pieces):
            return kind, None, _sliced(pieces)
        length = sum(map(len, whole))
        return kind, length, b"".join(whole) if length <= ONE_WRITE else _sliced(pieces)


class CallUrl(NamedTuple):
    """A parsed URL. `target` is its path and query, quoted as they are sent; `userinfo` its credentials."""

    origin: HttpOrigin
    target: str
    userinfo: str = ""

    @property
    def basic(self) -> str:
        """The credentials as Basic authentication sends them."""
        pair = self.userinfo if ":" in self.userinfo else f"{self.userinfo}:"
        return base64.b64encode(unquote(pair).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> CallUrl:
        """Parse an absolute URL. Raises Invalid."""
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
            if not host.isascii():
                host = host.encode("idna").decode()
        except ValueError as exc:
            raise Invalid("the URL cannot be read", detail=str(exc)) from exc
        if parts.scheme not in _PORTS or not host or _BAD_HOST.search(host) or "\\" in parts.netloc:
            raise Invalid("the URL is not http(s)://host[:port]/path")
        userinfo = parts.netloc.rpartition("@")[0]
        query = f"?{parts.query}" if parts.query else ""
        return cls(HttpOrigin(parts.scheme, host, port or _PORTS[parts.scheme]), target(parts.path + query), userinfo)

    def below(self, path: str) -> CallUrl:
        """Return the URL with `path`, which begins with / or ?, after its own. Raises Invalid if that leaves it."""
        root = self.target.partition("?")[0].rstrip("/")
        if not path:
            return self
        if path[0] == "/" and _PLAIN_TARGET.fullmatch(path):
            return CallUrl(self.origin, root + path, self.userinfo)
        there = target(root + path)
        if path[0] not in "/?" or not f"{there.partition('?')[0]}/".startswith(f"{root}/"):
            raise Invalid(f"the path {path!r} leaves the agent's base URL")
        return CallUrl(self.origin, there, self.userinfo)


def target(path: str) -> str:
    """Quote a path with its query, and resolve its dot segments. Raises Invalid for what is no text."""
    if path[:1] == "/" and _PLAIN_TARGET.fullmatch(path):
        return path
    path, _, query = path.partition("#")[0].partition("?")
    kept: list[str] = []
    segments = path.split("/")[1:]
    for place, segment in enumerate(segments):
        dots = segment.lower().replace("%2e", ".")
        if dots in (".", ".."):
            if dots == ".." and kept:
                kept.pop()
            if place == len(segments) - 1:
                kept.append("")
        else:
            kept.append(segment)
    try:
        return f"/{quote('/'.join(kept), safe='/' + _KEPT)}" + (f"?{quote(query, safe='/?' + _KEPT)}" if query else "")
    except UnicodeEncodeError as exc:
        raise Invalid("the URL cannot be read", detail=str(exc)) from exc


def with_params(target: str, params: Params | None) -> str:
    """Add `params` to a target's query."""
    return f"{target}{'&' if '?' in target else '?'}{urlencode(params)}" if params else target


def header_line(name: str, value: str) -> str:
    """Return a line of a head. Raises Invalid for what cannot be one, or may not be set."""
    if not _TOKEN.fullmatch(name) or name.lower() in _FRAMING or _BAD_VALUE.search(value):
        raise Invalid(f"no request can carry the header {name!r} with this value")
    return f"{name}: {value}\r\n"


def head(origin: HttpOrigin, method: str, target: str, lines: Lines, length: int | None, *, bodiless: bool) -> bytes:
    """Return the head of a request. `length` is the body's, None if it is not known before it is sent."""
    first = f"{method} {target} HTTP/1.1\r\n"
    if "host" not in lines:
        first += f"Host: {_host(origin)}\r\n"
    if "accept" not in lines:
        first += "Accept: */*\r\n"
    if length is None:
        first += "Transfer-Encoding: chunked\r\n"
    elif not bodiless or method not in _BODILESS:
        first += f"Content-Length: {length}\r\n"
    if not bodiless and "content-type" not in lines:
        first += "Content-Type: application/octet-stream\r\n"
    try:
        return "".join((first, *lines.values(), "\r\n")).encode()
    except UnicodeEncodeError as exc:
        raise Invalid("no request can be made of these values", detail=str(exc)) from exc


async def _sliced(pieces: list[BytesBody]) -> Pieces:
    """Yield the pieces of a body one after the other, large ones in slices."""
    for piece in pieces:
        if isinstance(piece, bytes):
            for place in range(0, len(piece), ONE_WRITE):
                yield piece[place : place + ONE_WRITE]
        else:
            async for each in piece:
                yield each


def segment(value: str) -> str:
    """Quote `value` as one segment of a path. Raises Invalid for one that cannot be a segment ("", "..")."""
    if value in ("", ".", ".."):
        raise Invalid(f"{value!r} cannot be part of a URL's path")
    return quote(value, safe="")


def _host(origin: HttpOrigin) -> str:
    host = f"[{origin.host.partition('%')[0]}]" if ":" in origin.host else origin.host
    return host if origin.port == _PORTS[origin.scheme] else f"{host}:{origin.port}"


def _disposition(**names: str) -> str:
    escaped = {key: name.replace("\\", "\\\\").replace('"', '\\"') for key, name in names.items()}
    return header_line("Content-Disposition", "; ".join(["form-data", *(f'{key}="{escaped[key]}"' for key in escaped)]))
