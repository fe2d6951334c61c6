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


def status(error: errors.InterlinguaError) -> int:
    return errors.lookup(STATUS, error)


def refusal(error: errors.InterlinguaError) -> Response:
    """`{"error": ...}` with the status for it."""
    headers = {name.decode(): value.decode() for name, value in retry_after(error)}
    return JSONResponse({"error": str(error)}, status(error), headers)


def retry_after(error: errors.InterlinguaError) -> Sequence[tuple[bytes, bytes]]:
    """The header `Retry-After`, in whole seconds, where it is known when to try again."""
    return () if error.retry_after is None else [(b"retry-after", b"%d" % math.ceil(error.retry_after))]
