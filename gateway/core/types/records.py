"""The base of every record."""

from typing import Any

import msgspec

Json = Any
JsonObject = dict[str, Any]

NULL = msgspec.Raw(b"null")


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every record here."""
