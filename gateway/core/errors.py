"""The error tree: whose fault it is, and whether to try again.

    InterlinguaError
    ├── Refused            the caller's fault; the same request fails again
    │   ├── Invalid        a value does not fit; `path` is a JSON pointer to it
    │   ├── NotFound       no such run, thread, agent, artifact
    │   ├── Conflict       legal, but not in this state (busy thread, run not interrupted)
    │   ├── Unsupported    the target cannot do this at all
    │   ├── TooLarge       over a size limit
    │   └── Denied         not allowed
    │       └── Unauthenticated  nobody knows who asks
    ├── AgentError         the agent's fault
    │   ├── AgentFailed    it answered: it failed
    │   ├── AgentBroken    it broke its protocol (bad JSON, illegal order, wrong content type)
    │   ├── AgentGone      it cannot be reached, or went away (retryable before dispatch)
    │   │   ├── AgentForgot  it is there, and does not know the run or the thread any more
    │   │   └── AgentBusy  it is there, and takes no more requests now
    │   └── AgentTimeout   it did not answer in time
    └── GatewayError       our fault
        ├── IllegalEvent   an event that may not follow the one before (see stream.py)
        ├── OutcomeUnknown the gateway died after sending a run and before learning what became of it
        └── Unavailable    shutting down, overloaded, or the store takes nothing; retryable after `retry_after` seconds
            └── Limited    not ours for once: the client is over a limit of its own

Every codec maps these to its protocol's own codes in one table, `ERRORS`, looked up along the MRO
(`lookup`). `str(error)` may be sent to a client; `detail` is logged and never sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self, TypeVar

T = TypeVar("T")


class InterlinguaError(Exception):
    """Root of the tree. `message` is for the client, `detail` for the log only.

    `retry_after`: in how many seconds it may be tried again, where that is known.
    """

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    retry_after: float | None = None

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Refused(InterlinguaError):
    """The caller's fault."""

    code = "refused"


class Invalid(Refused):
    """A value does not fit. `path` is a JSON pointer into what was sent ("" is the whole)."""

    code = "invalid"

    def __init__(self, message: str, *, path: str = "", detail: str = "") -> None:
        super().__init__(message, detail=detail)
        self.path = path


class NotFound(Refused):
    """No such run, thread, agent, artifact."""

    code = "not_found"


class Conflict(Refused):
    """Legal, but not in this state."""

    code = "conflict"


class Unsupported(Refused):
    """The target cannot do this at all."""

    code = "unsupported"


class TooLarge(Refused):
    """Over a size limit."""

    code = "too_large"


class Denied(Refused):
    """Not allowed."""

    code = "denied"


class Unauthenticated(Denied):
    """The client is unknown: it sent no valid token. It may try another one."""

    code = "unauthenticated"


class AgentError(InterlinguaError):
    """The agent's fault.

    `untaken`: nothing of the request was taken, so that it may be sent again, also to another target: no connection was
    made, or the answer says to come later.
    """

    code = "agent_error"
    untaken: bool = False

    def __init__(
        self, message: str, *, detail: str = "", untaken: bool | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message, detail=detail)
        if untaken is not None:
            self.untaken = untaken
        if retry_after is not None:
            self.retry_after = retry_after

    def unsent(self) -> Self:
        """This error, of a request that was never sent."""
        self.untaken = True
        return self


class AgentFailed(AgentError):
    """The agent answered that it failed."""

    code = "agent_failed"


class AgentBroken(AgentError):
    """The agent broke its own protocol."""

    code = "agent_broken"


class AgentGone(AgentError):
    """The agent cannot be reached, or went away in the middle."""

    code = "agent_gone"
    retryable = True

    @staticmethod
    def of(error: InterlinguaError) -> AgentGone:
        """The same, told as this. A new one for each who gets it: raising adds a traceback."""
        return AgentGone(str(error), detail=error.detail)


class AgentForgot(AgentGone):
    """The agent is there, and does not know the run or the thread any more. Clients are told AgentGone."""


class AgentBusy(AgentGone):
    """The agent is there, and takes no more requests now (HTTP's 429)."""

    code = "agent_busy"


class AgentTimeout(AgentError):
    """The agent did not answer in time."""

    code = "agent_timeout"
    retryable = True


class GatewayError(InterlinguaError):
    """Our fault."""


class IllegalEvent(GatewayError):
    """An event that may not follow the one before it."""

    code = "illegal_event"


class OutcomeUnknown(GatewayError):
    """The run was sent, and the gateway died before it learned what became of it."""

    code = "outcome_unknown"

    def __init__(self, message: str = "the gateway was stopped while the agent worked: outcome unknown") -> None:
        super().__init__(message)


class Unavailable(GatewayError):
    """The gateway is shutting down or overloaded, or its store, or an audit log, takes nothing now."""

    code = "unavailable"
    retryable = True
    retry_after: float

    def __init__(self, message: str, *, detail: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, detail=detail)
        self.retry_after = retry_after


class Limited(Unavailable):
    """The client asks for more than it may have at a time, or in a second."""

    code = "limited"


def lookup(table: Mapping[type[InterlinguaError], T], error: InterlinguaError) -> T:
    """The table's entry for the nearest class of `error` along its MRO.

    A table that lacks `InterlinguaError` itself is a defect of the codec: KeyError.
    """
    for cls in type(error).__mro__:
        if cls in table:
            return table[cls]
    raise KeyError(type(error).__name__)


def first(error: BaseException) -> InterlinguaError | None:
    """The error itself, or the first of the tree in a group of a task group's; None if it is none of the tree."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := first(inner)) is not None), None)
    return error if isinstance(error, InterlinguaError) else None


def let_go_of(run_id: str) -> Unavailable:
    """The error for callers that wait for a run when the gateway stops."""
    return Unavailable(f"the gateway is stopping; run {run_id} goes on at its next start")
