"""Values as Raw."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.wire import jsonrpc


def encoded(value: Any) -> Raw:
    """Params or a result made here."""
    return Raw(jsonrpc.encoded(value))
