"""What the policies of a log have allowed lately: a restart refills no budget."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.governance.audit.files import Place
from gateway.governance.budgets import DAY, Spent

BUDGETS: Final = "budgets"
"""The key in the record of a call (`metadata.aip44.audit`) with the slugs of the policies that counted it."""


class _Line(msgspec.Struct):
    ts: datetime
    action: str
    metadata: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Line).decode


def spent(path: Path, now: float) -> list[Spent]:
    """What counts at `now` (seconds since the epoch) for the log at `path` (see `AuditLog`), oldest first.

    Reads the files of today, by UTC; called when the log has been checked. Raises OSError.
    """
    found: list[list[Spent]] = []
    since = int(now // DAY) * DAY
    for file in reversed(Place(path).files()):
        here, older = _of(file, since)
        found.append(here)
        if older:
            break
    return [one for part in reversed(found) for one in part]


def _of(file: Path, since: float) -> tuple[list[Spent], bool]:
    """What a file has, and whether what comes before it is older than that."""
    found: list[Spent] = []
    older = False
    with file.open("rb") as lines:
        for raw in lines:
            line = _decode(raw)
            at = line.ts.timestamp()
            if at < since:
                older = True
            elif line.action == "tool.call":
                found += [Spent(policy=slug, at=at) for slug in _counted(line.metadata)]
    return found, older


def _counted(metadata: dict[str, Any]) -> list[str]:
    try:
        slugs = metadata["aip44"]["audit"].get(BUDGETS, ())
    except (KeyError, TypeError, AttributeError):
        return []
    return [slug for slug in slugs if isinstance(slug, str)] if isinstance(slugs, list) else []
