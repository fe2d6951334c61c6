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

REDIRECTS: Final = (301, 302, 303, 307, 308)

_HEADINGS = (rb"(?i)<title\b[^>]*>([^<]+)<", rb"(?i)<h1\b[^>]*>([^<]+)<")


def redirect_advice(status: int, location: str) -> str:
    """What a redirect, which is not followed, tells whoever gave the address; "" for another status.

    It names where that leads as far as others may know: no password, query, fragment or parameter.
    """
    if status not in REDIRECTS:
        return ""
    to = re.sub(r"//[^/]*@", "//", re.split("[?#;]", location)[0])
    leads = f" to {to[:SHOWN]}" if to and to.isprintable() else ""
    return f"it redirects{leads}; the address must be given as it is"


def page_title(body: bytes) -> str:
    """The title of an HTML page on one line, else its first heading; "" without any."""
    for heading in _HEADINGS:
        if found := re.search(heading, body):
            return " ".join(html.unescape(found[1].decode("utf-8", "replace")).split())[:SHOWN]
    return ""


def refusal_reason(status: int, body: bytes, location: str = "") -> str:
    """Return the reason that follows "with status 404": `: ` and the body's message on one line, or "" without any.

    The body is `{"error": TEXT}`, `{"error": {"message": TEXT}}`, plain text or an HTML page with a title. If it says
    nothing, the phrase of the status takes its place. `location`: of a redirect, which says where it leads.
    """
    if advice := redirect_advice(status, location):
        return f": {advice}"
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
