"""Durations and sizes as people write them: `60s`, `5m`, `500ms`, `16MB`."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "B": 1}
_BYTES |= {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", start=1)} | {"KB": 1000}
_BYTES |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)}

_DURATION = r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d)\s*)+"
_SIZE = rf"(\d+(?:\.\d+)?)\s*({'|'.join(sorted(_BYTES, key=len, reverse=True))})"


def seconds(value: Any) -> float:
    """`90`, `60s`, `1m30s`, `500ms`, `7d` as seconds. Raises ValueError; zero and less are refused."""
    total = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        total = float(value)
    elif isinstance(value, str):
        text = value.strip()
        if re.fullmatch(_DURATION, text):
            total = sum(float(n) * _SECONDS[unit] for n, unit in re.findall(r"([\d.]+)([a-z]+)", text))
        elif re.fullmatch(r"\d+(\.\d+)?", text):
            total = float(text)
    if math.isnan(total):
        raise ValueError("should be a duration such as 60s, 5m, 1h30m, 500ms, or a number of seconds")
    if not 0 < total < math.inf:
        raise ValueError("should be longer than nothing, and end")
    return total


def size_in_bytes(value: Any) -> int:
    """`1024`, `64MB`, `1.5GiB` as bytes. Raises ValueError; zero and less are refused."""
    total: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        total = value
    elif isinstance(value, str) and (match := re.fullmatch(_SIZE, value.strip())):
        total = float(match[1]) * _BYTES[match[2]]
    if total is None:
        raise ValueError("should be a size such as 64MB, 1.5GiB, or a number of bytes")
    if total < 1:
        raise ValueError("should be at least one byte")
    return int(total)


Duration = Annotated[
    float,
    BeforeValidator(seconds),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": rf"^\s*({_DURATION}|\d+(\.\d+)?)\s*$", "examples": ["60s", "5m"]},
            ]
        }
    ),
]
"""Seconds."""

Size = Annotated[
    int,
    BeforeValidator(size_in_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 1},
                {"type": "string", "pattern": rf"^\s*{_SIZE}\s*$", "examples": ["64MB", "1GiB"]},
            ]
        }
    ),
]
"""Bytes."""
