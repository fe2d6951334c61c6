"""Answers to errors of requests that reach no route, or no connection: plain JSON, in no protocol's words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.responses import JSONResponse, Response

from gateway.core import errors

STATUS: Final[Mapping[type[errors.InterlinguaError], int]] = {
    errors.InterlinguaError: 500,
    errors.Refused: 400,
    errors.Unauthenticated: 401,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.Denied: 403,
    errors.AgentError: 502,
    errors.AgentBusy: 503,
    errors.AgentTimeout: 504,
    errors.Unavailable: 503,
    errors.Limited: 429,
}


class NoToken(errors.Unauthenticated):
    """The request has no token."""

    def __init__(self) -> None:
        super().__init__("a token is missing: send Authorization: Bearer")


def status(error: errors.InterlinguaError) -> int:
    return errors.lookup(STATUS, error)


def refusal(error: errors.InterlinguaError) -> Response:
    """`{"error": ...}` with the status for it."""
    told = {name.decode(): value.decode() for name, value in headers(error)}
    return JSONResponse({"error": str(error)}, status(error), told)


def headers(error: errors.InterlinguaError) -> Sequence[tuple[bytes, bytes]]:
    """Of an answer to an error: how to authenticate (RFC 6750, 3), or when to try again, in whole seconds."""
    if isinstance(error, errors.Unauthenticated):
        missing = isinstance(error, NoToken)
        return [(b"www-authenticate", b'Bearer realm="interlingua"' if missing else b'Bearer error="invalid_token"')]
    return () if error.retry_after is None else [(b"retry-after", b"%d" % math.ceil(error.retry_after))]
