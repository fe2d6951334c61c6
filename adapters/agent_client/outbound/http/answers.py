"""What the statuses of a server mean, and what its refusals say."""

from __future__ import annotations

from gateway.core.errors import InterlinguaError
from gateway.transport.refusal import SHOWN, refusal_reason
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import ErrorObject, Id

GONE = frozenset({404, 410})
"""What we name is not there: the session, or the whole connection."""
LATER = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Of a GET: worth another try. 409: the server has not noticed yet that the stream before has dropped."""
BUSY = frozenset({429, 503})
"""Of a POST: the message was not taken."""
AUTH_REQUIRED = -32000


class Refused(InterlinguaError):
    """A message that the server did not take."""

    def __init__(self, told: str, status: int, body: bytes) -> None:
        super().__init__(f"{told} with status {status}{refusal_reason(status, body)}")
        self.status = status
        self.body = body


def failure(id: Id, why: InterlinguaError) -> bytes:
    """The answer that a request gets from us instead of from the agent."""
    if not isinstance(why, Refused):
        return jsonrpc.error(id, ErrorObject(jsonrpc.INTERNAL_ERROR, str(why)))
    code = AUTH_REQUIRED if why.status in (401, 403) else jsonrpc.INTERNAL_ERROR
    body = why.body[:SHOWN].decode("utf-8", "replace")
    return jsonrpc.error(id, ErrorObject(code, str(why), {"status": why.status, "body": body}))
