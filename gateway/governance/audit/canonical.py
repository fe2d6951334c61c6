"""Canonical JSON (RFC 8785), which is hashed, signed and written, and its hashes.

The library is right and slow. msgspec writes the same bytes forty times faster unless there are floats, integers beyond
2^53, or keys outside the basic plane: whoever knows that there are none asks for it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import rfc8785

_HASHES = {
    "sha256": lambda data: hashlib.sha256(data).hexdigest(),
    "sha512": lambda data: hashlib.sha512(data).hexdigest(),
    "blake2b-256": lambda data: hashlib.blake2b(data, digest_size=32).hexdigest(),
}
ALGORITHMS = tuple(_HASHES)
"""The values of an audit event's `hashAlg`."""

GENESIS = "GENESIS"
"""The `prevHash` of the first entry of a log."""

LARGEST = 2**53 - 1
"""The largest integer of canonical JSON. A larger one is read as a float, as in JavaScript."""

_ASTRAL = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")
"""First bytes of characters that sort otherwise as UTF-16 than as code points."""


def canonical(value: dict[str, Any], *, simple: bool = False) -> bytes:
    """The one way to write a JSON object. Integers beyond `LARGEST` are written as the nearest float.

    `simple`: there is no float in it and no such integer. Raises ValueError for what is not JSON or not Unicode,
    RecursionError for what is nested too deeply.
    """
    if simple:
        raw = plain(value)
        if raw.isascii() or not any(lead in raw for lead in _ASTRAL):
            return raw
    try:
        return rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        return rfc8785.dumps(_floated(value))


def plain(value: dict[str, Any]) -> bytes:
    """Encode most objects canonically, fast: sorted keys, no spaces. Raises as `canonical` does."""
    return msgspec.json.encode(value, order="sorted")


def _floated(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _floated(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_floated(each) for each in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST:
        return float(value)
    return value


def digest(data: bytes, algorithm: str = "sha256") -> str:
    """Lower-case hex. `algorithm` is one of `ALGORITHMS`, else KeyError."""
    return _HASHES[algorithm](data)
