"""What a server says of a request that it refuses, for a person."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

SHOWN: Final = 200
"""Characters at most."""


def said(status: int, body: bytes) -> str:
    """What follows "with status 404": `: ` and the body's word, on one line; "" if there is none.

    The body is `{"error": TEXT}`, `{"error": {"message": TEXT}}` or plain text. The status in words stands in for what
    says nothing, and for a page.
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
