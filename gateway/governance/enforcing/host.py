"""What the gate of a governed run needs of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from gateway.core import events as e
from gateway.core.types import Answer, Failure, Interrupt, Run
from gateway.governance.enforcing.approval import Asked

REFUSED: Final = "tool_refused"
"""What a call that is not shown is counted as."""


class Host(Protocol):
    """The run, as its gate needs it."""

    run: Run

    def show(self, events: Sequence[e.Event]) -> None:
        """Append to the run's log. Raises IllegalEvent."""

    async def put(self, interrupt: Interrupt, asked: Asked) -> Answer:
        """Ask the run's caller, however long it takes. What `answering` has not let through is no answer."""

    async def tell_again(self) -> None:
        """Have the agent told of its operator's skills, as in a first turn. Raises Unavailable."""

    def lost(self, what: str, count: int = 1) -> None:
        """Count something that is not said."""

    def was_asked(self, name: str) -> bool:
        """Whether there was a question of that id in the run."""

    def interrupt(self, failure: Failure) -> None:
        """End the run: its agent is told to stop, and nothing else is shown."""
