"""One run of an agent that is called over an MCP session: its notifications become events of the run, until it answers.

An adapter derives from `CalledRun` and says how its protocol calls, and what its notifications mean. `CalledRuns` are
all runs of one agent.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import OutcomeUnknown
from gateway.core.types import Answer, Interrupt
from gateway.transport.deadline import Deadline
from gateway.wire.jsonrpc import RpcError

DRAIN_EVERY = 256
"""Notifications after which the run's log is asked whether it may grow,"""
DRAIN_BYTES = 256 * 1024
"""or bytes of them."""


class CalledRun(ABC):
    """One run, and the Listener of its call. `run` is its whole life; `cancel` may come at any time.

    over: nothing more is expected: what still comes is counted as `late`.
    losses: what could not be said, by name; the run is told when it ends.
    """

    late = "late_message"

    def __init__(self, context: RunContext) -> None:
        self.context = context
        self.over = False
        self.losses: Counter[str] = Counter()
        self._questions: set[str] = set()
        self._scope = Deadline()
        self._stopped = False
        self._held: list[e.Event] = []
        self._count = self._bytes = 0

    # --- the protocol's --------------------------------------------------------------------------------------------

    @abstractmethod
    async def called(self) -> e.Event:
        """The call, to its end: the run's last event. Cancelled when the run is. Raises RpcError with the agent's own
        error, and errors of the tree.
        """

    @abstractmethod
    def failed(self, error: RpcError) -> e.RunFailed:
        """The end of a run whose agent has answered with an error."""

    @abstractmethod
    def told(self, method: str, params: Raw) -> list[e.Event]:
        """The events of a notification."""

    @abstractmethod
    def again(self) -> None:
        """See `CallListener.again`."""

    @abstractmethod
    async def asked(self, method: str, params: Raw) -> Any:
        """See `CallListener.asked`."""

    # --- its life --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        end: e.Event | None = None
        try:
            if not self.stopped:
                with self._scope:
                    end = await self.called()
        except RpcError as error:
            end = self.failed(error)
        except Exception:
            if not self.stopped:
                raise
        finally:  # the run may be given up here, and then so is its call
            self.over = True
            self.flush()
            for what, count in self.losses.items():
                self.context.lost(what, count)
        if end is None or self.stopped:  # whatever came of it, it came too late
            end = e.RunCancelled(reason=self.context.run.cancel_reason or "")
        self.context.emit(end)

    async def cancel(self) -> None:
        """See `Outbound.cancel`. The call ends with it, and with that the agent is told."""
        self._stopped = True
        self._scope.move(0.0)

    @property
    def stopped(self) -> bool:
        """Whether the run is to be cancelled."""
        return self._stopped or self.context.cancelled

    # --- what comes while the call is under way --------------------------------------------------------------------

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        if self.over:
            self.context.lost(self.late)
            return None
        self.say(*self.told(method, params))
        self._count += 1
        self._bytes += len(params)
        if self._count >= DRAIN_EVERY or self._bytes > DRAIN_BYTES:
            self._count = self._bytes = 0
            self.flush()
            return self.context.drain()
        return None

    def say(self, *events: e.Event) -> None:
        """Log what the agent said: what arrives together is logged together, which is three times as fast."""
        if events and not self._held:
            asyncio.get_running_loop().call_soon(self.flush)
        self._held += events

    def flush(self) -> None:
        """Log what the agent has said by now."""
        if self._held:
            held, self._held = self._held, []
            self.context.emit(*held)

    async def ask(self, interrupt: Interrupt) -> Answer:
        """Put a question to the run's client. Never returns once the run is cancelled: then the call is taken back."""
        while interrupt.id in self._questions:
            interrupt = replace(interrupt, id=f"{interrupt.id}'")
        self._questions.add(interrupt.id)
        self.flush()
        answer = await self.context.ask(interrupt)
        if self.context.cancelled:  # servers exist that end where an answer and a cancel cross
            await asyncio.Event().wait()
        return answer


class CalledRuns:
    """All runs of one agent: what `gateway.contract.Outbound` has of runs."""

    def __init__(self, begin: Callable[[RunContext], CalledRun]) -> None:
        self._begin = begin
        self._turns: dict[str, CalledRun] = {}

    async def run(self, context: RunContext) -> None:
        turn = self._turns[context.run.id] = self._begin(context)
        try:
            await turn.run()
        finally:
            del self._turns[context.run.id]

    async def attach(self, context: RunContext) -> None:
        """A call has no way back to it, and is never made twice. Raises OutcomeUnknown."""
        raise OutcomeUnknown("the gateway was stopped while the agent worked; what came of it is not known")

    async def cancel(self, context: RunContext) -> None:
        turn = self._turns.get(context.run.id)
        if turn is not None:
            await turn.cancel()
