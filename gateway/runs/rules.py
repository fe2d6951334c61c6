"""What the engine and its runs are told about how to behave, and whom they tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.store import Delivery

if TYPE_CHECKING:
    from gateway.runs.live import LiveRun


@dataclass(frozen=True)
class Rules:
    """What holds for every run. Times in seconds, sizes in bytes."""

    artifact_limit: int = 64_000_000
    cancel_grace: float = 5.0


@dataclass(frozen=True)
class Hooks:
    """Who else wants to know of a run. Called synchronously, after the commit; must not raise."""

    ended: Callable[[LiveRun], None]
    owed: Callable[[Delivery], None]
    calling: Callable[[asyncio.Future[None]], None]
    """Its agent is being told to stop, which may take longer than the run."""
