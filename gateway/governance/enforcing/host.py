"""The part of a run that its gate uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from gateway.core import events as e
from gateway.core.types import Answer, Failure, Interrupt, Run
from gateway.governance.enforcing.approval import AskedApproval

REFUSED: Final = "tool_refused"
"""The loss that counts calls that are not shown."""


class GateHost(Protocol):
    """A governed run. `GovernedRun` implements it."""

    @property
    def run(self) -> Run:
        """The run as it is now."""

    def show(self, events: Sequence[e.Event]) -> None:
        """Append to the run's log. Raises IllegalEvent."""

    async def put(self, interrupt: Interrupt, asked: AskedApproval) -> Answer:
        """Ask the run's caller and wait. Only an answer that `Judge.answering` has accepted counts."""

    async def tell_again(self) -> None:
        """Tell the agent its operator's skills, as in a first turn. Raises Unavailable."""

    def lost(self, what: str, count: int = 1) -> None:
        """Count something that is left out."""

    def was_asked(self, name: str) -> bool:
        """Whether there was a question of that id in the run."""

    def interrupt(self, failure: Failure) -> None:
        """End the run: its agent is told to stop, and nothing else is shown."""
