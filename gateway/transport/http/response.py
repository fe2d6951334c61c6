"""The results of calls: whole responses, and the headers of any."""

from __future__ import annotations

import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from gateway.core.errors import AgentBroken, AgentBusy, AgentGone
from gateway.transport.refusal import leads_to


class Unreachable(AgentGone):
    """No connection could be made and nothing was sent, so the call may be repeated."""

    untaken = True

    @classmethod
    def because(cls, error: OSError, name: str) -> Unreachable:
        """The error for an attempt to connect to `name` that failed with `error`."""
        detail = f"{type(error).__name__}: {error}"
        if isinstance(error, ssl.SSLError):
            why = "it does not speak TLS" if error.reason in _NO_TLS else getattr(error, "verify_message", "")
            return cls(f"no TLS connection could be made to {name}" + (f": {why}" if why else ""), detail=detail)
        if isinstance(error, socket.gaierror):  # its numbers are not the system's
            return cls(f"the name of {name} does not resolve", detail=detail)
        several = _ERRNO.search(str(error))  # one for each address of the name
        number = error.errno or (int(several[1]) if several else 0)
        why = os.strerror(number).lower() if number else ""
        return cls(f"no connection could be made to {name}" + (f": {why}" if why else ""), detail=detail)


_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
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


def away(told: str, status: int, headers: Mapping[str, str]) -> AgentGone:
    """The error, with the words `told`, for an answer of an agent that takes no more requests now (429), or of a proxy
    that does not reach it.
    """
    later = come_later(status, headers)
    kind = AgentBusy if status == 429 else AgentGone
    return kind(told, untaken=later is not None, retry_after=later)


def media_type(headers: Mapping[str, str]) -> str:
    """The content type in lower case without its parameters, "" if there is none."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


class ResponseHeaders(Mapping[str, str]):
    """Headers by name, in any case. A name that came several times has its first value; `getall` has all."""

    __slots__ = ("_values",)

    def __init__(self, lines: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """lines: names and values, as they came."""
        found: dict[str, list[str]] = {}
        for name, value in lines:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                text = value.decode("latin-1")
            found.setdefault(name.decode("latin-1").lower(), []).append(text)
        self._values = found

    def getall(self, name: str) -> list[str]:
        """Every value, in the order in which they came."""
        return self._values.get(name.lower(), [])

    def get(self, name: str, default: Any = None) -> Any:
        found = self._values.get(name.lower())
        return default if found is None else found[0]

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()][0]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


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
    def redirected(self) -> str:
        """What a redirect, which is not followed, says to whoever has configured the address."""
        to = leads_to(self.headers.get("Location", ""))
        return f"redirects ({self.status})" + (f" to {to}" if to else "")

    def json(self) -> Any:
        """Decode the body as JSON, whatever its content type. Raises AgentBroken if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (ValueError, RecursionError) as exc:  # msgspec's errors, and bytes that are no text
            raise AgentBroken("the agent's answer is not JSON", detail=str(exc)) from exc
