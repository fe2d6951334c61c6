"""Which kind of run: one whose route is governed passes a gate, every other one is as it always was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.runs.live import LiveRun

if TYPE_CHECKING:
    from gateway.governance.enforcing import RouteGovernor


def run_of(governor: RouteGovernor | None) -> Callable[..., LiveRun]:
    """What makes a run of a route, with the fields of `LiveRun`. Only governed routes load what governs them."""
    if governor is None:
        return LiveRun
    if not governor.judges:
        return functools.partial(LiveRun, governor=governor)
    from gateway.runs.governed import GovernedRun

    return functools.partial(GovernedRun, rules=governor)
