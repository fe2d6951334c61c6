"""What the statuses of a server mean, and what its refusals say."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from gateway.core.errors import InterlinguaError
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id

GONE = frozenset({404, 410})
"""What we name is not there: the session, or the whole connection."""
LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Of a GET: worth another try. 409: the server has not noticed yet that the stream before has dropped."""
BUSY = frozenset({429, 503})
"""Of a POST: the message was not taken."""
AUTH_REQUIRED = -32000
SHOWN = 200


class Refused(InterlinguaError):
    """A message that the server did not take."""

    def __init__(self, told: str, status: int, body: bytes) -> None:
        super().__init__(f"{told} with status {status}{_said(status, body)}")
        self.status = status
        self.body = body


def failure(id: Id, why: InterlinguaError) -> bytes:
    """The answer that a request gets from us instead of from the agent."""
    if not isinstance(why, Refused):
        return jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, str(why)))
    code = AUTH_REQUIRED if why.status in (401, 403) else jsonrpc.INTERNAL_ERROR
    body = why.body[:SHOWN].decode("utf-8", "replace")
    return jsonrpc.error(id, ErrorObject(code, str(why), {"status": why.status, "body": body}))


def _said(status: int, body: bytes) -> str:
    """What a refusal says for itself: `{"error": TEXT}`, or plain text."""
    try:
        found = msgspec.json.decode(body)
        text = found["error"]
    except (ValueError, RecursionError, KeyError, TypeError):
        text = body.decode("utf-8", "replace") if not body.lstrip().startswith(b"<") else ""
    if not isinstance(text, str) or not text.strip():
        text = next((known.phrase for known in HTTPStatus if known == status), "")
    return f": {' '.join(text.split())[:SHOWN]}" if text else ""
