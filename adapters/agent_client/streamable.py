"""Rules of the Streamable HTTP transport for both halves (docs/rfds/streamable-http-websocket-transport).

One endpoint. A client POSTs its messages. It receives on long GETs of server-sent events, one for the connection and
one for each session. Two headers say which: the connection's id, and the session's.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from gateway.wire import jsonrpc

CONNECTION_ID = "Acp-Connection-Id"
SESSION_ID = "Acp-Session-Id"


INITIALIZE = "initialize"
NEW, FORK = "session/new", "session/fork"
LOAD, RESUME = "session/load", "session/resume"
CLOSE, DELETE = "session/close", "session/delete"
CANCEL_REQUEST = "$/cancel_request"

NAMING = frozenset({NEW, FORK})
"""Their answers name a session that the client has not heard of."""
OPENING = frozenset({LOAD, RESUME})
"""They name a session that is not open yet."""
SERVED = OPENING | {"session/prompt", "session/set_mode", "session/set_config_option"}
"""Methods that succeed only where the session exists."""
ENDING = frozenset({CLOSE, DELETE})
"""After them there is nothing more to say about the session."""


class _Scoped(Struct, gc=False):
    sessionId: str | None = None


class _Cancelled(Struct, gc=False):
    requestId: jsonrpc.Id = None


_scoped = msgspec.json.Decoder(_Scoped).decode


def session_in(raw: Raw) -> str | None:
    """The session that `params` or a `result` names; None where it names none, or is no object."""
    if not raw:
        return None
    try:
        return _scoped(raw).sessionId
    except ValueError:  # not an object, or half a surrogate pair somewhere
        pass
    try:
        return jsonrpc.unpack(raw, _Scoped).sessionId
    except (ValueError, RecursionError):
        return None


def cancelled_in(params: Raw) -> jsonrpc.Id:
    """The request that a `$/cancel_request` is about."""
    try:
        return jsonrpc.unpack(params, _Cancelled).requestId
    except (ValueError, RecursionError):
        return None
