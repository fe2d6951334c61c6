"""What is JSON and nothing else, for bodies that a more lenient parser reads."""

from __future__ import annotations

import msgspec

from gateway.core.errors import Invalid


def check(body: bytes | bytearray, otherwise: str) -> None:
    """Raise Invalid, with `otherwise` and why, for what is no JSON.

    pydantic takes NaN, and 1e400 for infinity; both would be null from then on.
    """
    try:
        msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{otherwise}: {error}") from None
