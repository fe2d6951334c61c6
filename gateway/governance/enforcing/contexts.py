"""The contexts that outbound halves of governed routes are given: the engine's, with the rules."""

from __future__ import annotations

from gateway.contract import RunContext, ThreadContext
from gateway.contract.governing import Governor, RunGovernor
from gateway.contract.wrapping import WrappedRun, WrappedThread


class RuledThread(WrappedThread):
    """A `ThreadContext` with the rules of its route."""

    def __init__(self, context: ThreadContext, governor: Governor) -> None:
        super().__init__(context)
        self.governor = governor


class RuledRun(WrappedRun):
    """A `RunContext` with the rules of its route. What judges the run overrides what the half says of it."""

    governed: RunGovernor | None = None

    def __init__(self, context: RunContext, governor: Governor) -> None:
        super().__init__(context)
        self.governor = governor
