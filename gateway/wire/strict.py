"""Checks JSON by its specification where a parser is more lenient or stricter."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.errors import Invalid


def check(body: bytes | bytearray, otherwise: str) -> None:
    """Raise Invalid, with `otherwise` and the reason, for bytes that are not JSON.

    pydantic takes NaN, and 1e400 for infinity; both would be null from then on.
    """
    try:
        msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{otherwise}: {error}") from None


def whole(value: Any) -> Any:
    """Return a number without a fraction as an `int`: `2.0` is an integer in JSON Schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
