"""What the engine and its runs are told about how to behave, and whom they tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.store import Delivery

if TYPE_CHECKING:
    from gateway.engine.live import LiveRun


@dataclass(frozen=True)
class Rules:
    """What holds for every run. Times in seconds, sizes in bytes."""

    artifact_limit: int = 64_000_000
    cancel_grace: float = 5.0


@dataclass(frozen=True)
class Settings:
    """What the route and the gateway say about a run. Times in seconds, sizes in bytes."""

    timeout: float | None = None
    cancel_grace: float = 5.0
    artifact_limit: int = 64 * 1024 * 1024
    public_url: str = ""
    backpressure: bool = False


@dataclass(frozen=True)
class Hooks:
    """Who else wants to know. Called synchronously, after the commit; must not raise.

    Neither holds on to the run: what a run has said is to be gone from memory with it, not with the next collection.
    """

    ended: Callable[[LiveRun], None]
    owed: Callable[[Delivery], None]
