"""Values as Raw."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw


def encoded(value: Any) -> Raw:
    """Params or a result made here."""
    return Raw(msgspec.json.encode(value))
