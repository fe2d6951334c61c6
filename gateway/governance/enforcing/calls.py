"""One tool call: what is known of it, what the rules say of it, and how far it has come."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, field
from typing import Final

from gateway.core import events as e
from gateway.core.types import Json
from gateway.governance.audit.aip44 import AUTO
from gateway.governance.policy import Decision, Kind, Signatory

UNDECIDED: Final = Decision(kind=Kind.DENY, policy=None, why="it was not decided")
WAITING: Final = (None, "pending", "created")
"""What a call that has not begun is said to be."""


class Phase(enum.Enum):
    """How far a call has come."""

    NEW = "not decided"
    ANNOUNCED = "needs approval, and its agent may still ask for it"
    ASKING = "somebody is asked"
    ALLOWED = "shown"
    REFUSED = "never shown"
    ENDED = "over"


@dataclass(eq=False)
class Call:
    """One per tool call of a run, from the first that is heard of it to its end."""

    id: str
    tool: str = ""
    server: str | None = None
    risk: int = 0
    arguments: Json = None
    phase: Phase = Phase.NEW
    decision: Decision = UNDECIDED
    rules: object = None
    """Whose decision it is."""
    approval: str = AUTO
    """Who approved it."""
    signed: set[Signatory] = field(default_factory=set)
    turn: bool = False
    """It is no tool's: the operator's next turn waits for approval as a call does."""
    named: bool = False
    """The adapter has said which tool it is; `risk` likewise `rated`."""
    rated: bool = False
    pending: bool = False
    """Its agent has announced it, and not begun it."""
    over: bool = False
    """Its agent has ended it without having begun."""
    judged: bool = False
    """The rules were asked, though it may not be recorded yet what they say."""
    recorded: bool = False
    """The log has what was decided."""
    stale: bool = False
    """It is another tool than was decided about, or a riskier one, or has other arguments than a person approved."""
    another: bool = False
    """It is stale, and not only for its risk: who has approved it has not approved this."""
    earlier: frozenset[tuple[str, str | None]] = frozenset()
    """Tools, and their servers, that it was said to be before anything was decided."""
    grown: bool = False
    """Its arguments are others than the log has."""
    content: Json = None
    """What it has given so far."""
    old: bool = False
    """It was shown before a restart, and there is no end of it yet."""
    act: bool = False
    """No event speaks of it: it is done by way of the gateway."""
    twin: Call | None = None
    """The same call: of an act, the one that events speak of, and the other way round."""

    def __post_init__(self) -> None:
        self.deciding = asyncio.Lock()
        self._moved: asyncio.Event | None = None

    @property
    def allowed(self) -> bool:
        """Whether it may be shown."""
        return self.phase in (Phase.ALLOWED, Phase.ENDED)

    def describe(self, tool: str | None, server: str | None, risk: int | None, arguments: Json) -> None:
        """Something is said of it. What raises no risk and names no other tool changes nothing that was decided."""
        before = (self.tool, self.server, self.risk)
        if tool is not None:
            self.tool, self.named = tool, True
        if server is not None:
            self.server = server
        if risk is not None:
            self.risk = max(self.risk, risk) if self.rated or self.judged else risk
            self.rated = True
        if arguments is not None and arguments != self.arguments:
            self.arguments = arguments
            self.grown = True
            self.twin = None
            if self.phase is Phase.ASKING or (self.phase is Phase.ALLOWED and self.approval != AUTO):
                self.stale = self.another = True
        if not self.judged and before[0] and (self.tool, self.server) != before[:2]:
            self.earlier |= {before[:2]}
        if self.judged and (self.tool, self.server, self.risk) != before:
            self.stale = True
            self.another = self.another or (self.tool, self.server) != before[:2]

    def started(self, event: e.ToolCallStarted, risk: int) -> None:
        """Its first event. What the adapter has said of it counts for more than what the event says."""
        self.describe(
            None if self.named else event.name, None, None if self.rated else risk, _either(event.input, self.arguments)
        )

    def like(self, other: Call) -> bool:
        """Whether it is of the same tool, with the same arguments."""
        known = (self.tool, self.server, self.arguments)
        return known == (other.tool, other.server, other.arguments)

    def same(self, other: Call) -> bool:
        """Whether what was approved of this one is approved of the other."""
        return self.like(other) and self.risk >= other.risk

    def moved(self) -> None:
        """Wake whoever waits for it."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    async def change(self) -> None:
        """Wait until something about it has moved. Several may."""
        if self._moved is None:
            self._moved = asyncio.Event()
        await self._moved.wait()


def _either(first: Json, second: Json) -> Json:
    return second if first is None else first
