"""A server's refusal: its reason in words, and the error of a WebSocket upgrade."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from gateway.core.errors import AgentFailed

SHOWN: Final = 200
"""The most characters of a reason."""

_HEADINGS = tuple(re.compile(rf"<{tag}\b[^>]*>([^<]+)<".encode(), re.I) for tag in ("title", "h1"))


def leads_to(location: str) -> str:
    """Where a redirect leads, as far as others may know: no password, query, fragment or parameter. Else ""."""
    to = re.sub(r"//[^/]*@", "//", re.split("[?#;]", location)[0])
    return to[:SHOWN] if to.isprintable() else ""


def page_title(body: bytes) -> str:
    """The title of an HTML page on one line, else its first heading; "" without any."""
    for heading in _HEADINGS:
        if found := heading.search(body):
            return " ".join(html.unescape(found[1].decode("utf-8", "replace")).split())[:SHOWN]
    return ""


def refusal_reason(status: int, body: bytes, location: str = "") -> str:
    """Return the reason that follows "with status 404": `: ` and the body's message on one line, or "" without any.

    The body is `{"error": TEXT}`, `{"error": {"message": TEXT}}`, plain text or an HTML page with a title. If it says
    nothing, the phrase of the status takes its place. `location`: of a redirect, which says where it leads.
    """
    if 300 <= status < 400 and (to := leads_to(location)):
        return f": it redirects to {to}; its address must be given as it is"
    text: object = None
    try:
        error = msgspec.json.decode(body)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, RecursionError, KeyError, TypeError):
        text = page_title(body) if body.lstrip().startswith(b"<") else body.decode("utf-8", "replace")
    if not isinstance(text, str) or not text.strip():
        text = next((known.phrase for known in HTTPStatus if known == status), "")
    return f": {' '.join(text.split())[:SHOWN]}" if text else ""


class UpgradeRefused(AgentFailed):
    """The server answered an upgrade with a status other than 101. The message has its reason.

    `headers` are in lower case, `body` at most 8 KiB.
    """

    def __init__(self, message: str, *, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(message, detail=body[:200].decode("utf-8", "replace"))
        self.status = status
        self.headers = headers
        self.body = body
