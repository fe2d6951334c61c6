"""A server's refusal: its reason in words, and the error of a WebSocket upgrade."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from gateway.core.errors import AgentFailed

SHOWN: Final = 200
"""The most characters of a reason."""


def refusal_reason(status: int, body: bytes) -> str:
    """Return the reason that follows "with status 404": `: ` and the body's message on one line, or "" without any.

    The body is `{"error": TEXT}`, `{"error": {"message": TEXT}}` or plain text. If it says nothing, or is an HTML page,
    the phrase of the status takes its place.
    """
    text: object = None
    try:
        error = msgspec.json.decode(body)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, RecursionError, KeyError, TypeError):
        text = body.decode("utf-8", "replace") if not body.lstrip().startswith(b"<") else ""
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
