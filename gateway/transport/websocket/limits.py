"""What both ends hold to: limits of messages, timeouts, and headers of the upgrade, checked against injection."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.core.errors import Invalid
from gateway.transport.pipe import LIMIT, Unreadable, hard

HARD_LIMIT = hard(LIMIT)
"""The limit for the server itself (uvicorn: `ws_max_size`), so that messages between both limits get an answer."""
PING_INTERVAL = 20.0
PING_TIMEOUT = 120.0
"""A pong waits behind a message in transit: 16 MiB take a minute or more on a slow line. An agent may think as long."""
CLOSE_SECONDS = 5.0
"""The time for the closing handshake."""

_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+").fullmatch
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]*").fullmatch
_OURS = frozenset({"host", "connection", "upgrade", "content-length", "transfer-encoding"})


def binary(data: bytes) -> Unreadable:
    return Unreadable("a binary message", b"", len(data))


def checked(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers as pairs. Raises Invalid for a malformed one, and for one that belongs to the upgrade itself.

    Errors never contain a value, which may be secret.
    """
    for name, value in headers.items():
        if not _NAME(name):
            raise Invalid(f"{name!r} is no name of a header")
        if name.lower() in _OURS or name.lower().startswith("sec-websocket-"):
            raise Invalid(f"the header {name} belongs to the upgrade itself")
        if not _VALUE(value):
            raise Invalid(f"the value of the header {name} has characters that no header has")
    return list(headers.items())
