"""Rules for every run of the engine."""

from __future__ import annotations

import msgspec


class Rules(msgspec.Struct, frozen=True):
    """Times in seconds, sizes in bytes."""

    artifact_limit: int = 64_000_000
    cancel_grace: float = 5.0
