"""Answers to errors of requests that reach no route, or no connection: plain JSON, in no protocol's words."""

from __future__ import annotations

from collections.abc import Mapping
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
    errors.AgentTimeout: 504,
    errors.Unavailable: 503,
}


def status(error: errors.InterlinguaError) -> int:
    """The status of an error."""
    return errors.lookup(STATUS, error)


def refusal(error: errors.InterlinguaError) -> Response:
    """`{"error": ...}` with the status for it."""
    headers = {"retry-after": "1"} if isinstance(error, errors.Unavailable) else None
    return JSONResponse({"error": str(error)}, status(error), headers)
