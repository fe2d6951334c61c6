"""One run: what the agent says until it is done becomes events of the run, and ends it exactly once.

    native agent       messages.py   agent/message or agent/delegate, updates, questions, a response now or later
    plain MCP server   tools.py      tools/call

A run whose connection ends, or whose gateway dies, is not taken up again: not even one that was acknowledged, since the
agent would have to say the rest on another connection, of which nothing tells that the same agent is at its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from typing import Any, Protocol

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_context.codec.errors import data_of, tree_error
from adapters.agent_context.outbound.asks import Asks, capabilities
from adapters.agent_context.outbound.link import Line, Link
from adapters.agent_context.outbound.request import correlation
from gateway.adapter import RunContext
from gateway.core import delta
from gateway.core import events as e
from gateway.core.errors import OutcomeUnknown
from gateway.core.types import Answer, Failure, Interrupt, JsonObject
from gateway.wire.jsonrpc import ErrorObject, RpcError

log = logging.getLogger(__name__)

DRAIN_EVERY = 256
"""Notifications after which the run's log is asked whether it may grow,"""
DRAIN_BYTES = 256 * 1024
"""or bytes of them."""


class Way(Protocol):
    """How an agent is run over a line. Made for one run."""

    def check(self) -> None:
        """Raises Invalid for a run that it cannot be told, before anything is started."""

    async def go(self, line: Line) -> e.Event:
        """To its end: the last event. Raises RpcError with the agent's own error, and errors of the tree."""

    def told(self, method: str, params: Raw) -> list[e.Event]:
        """What a notification says."""

    async def asked(self, method: str, params: Raw) -> Any:
        """The result of a request of the agent's. Raises RpcError."""

    def again(self) -> None:
        """See `gateway.mcp.client.contract.Listener.again`."""


class Chooser(Protocol):
    """Which way an agent is run. `native`: whether it speaks this protocol, None while that can only be guessed."""

    def __call__(self, turn: Turn, *, native: bool | None) -> Way: ...


class Turn:
    """One run, and the Listener of its line. `run` is its whole life; `cancel` may come at any time."""

    def __init__(self, context: RunContext, link: Link, choose: Chooser) -> None:
        self.context = context
        self.losses: Counter[str] = Counter()
        declared = capabilities(context.caller)
        self.asks = Asks(self._ask, lambda: context.caller, declared)
        self._declared = declared
        self._link = link
        self._choose = choose
        self._way: Way | None = None
        self._questions: set[str] = set()
        self._work: asyncio.Task[e.Event] | None = None
        self._stopped = self._over = False
        self._held: list[e.Event] = []
        self._count = self._bytes = 0

    async def run(self) -> None:
        """See `Outbound.run`."""
        work = self._work = asyncio.create_task(self._gone_through())
        try:
            await asyncio.wait([work])
        finally:  # the run may be given up here, and then so is its request
            self._over = True
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
                work.cancelled() or work.exception()
            self.flush()
            for what, count in self.losses.items():
                self.context.lost(what, count)
        if self._stopped or self.context.cancelled:
            work.cancelled() or work.exception()  # whatever it was, it came too late
            end: e.Event = e.RunCancelled(reason=self.context.run.cancel_reason or "")
        else:
            try:
                end = work.result()
            except RpcError as error:
                end = failed(error.error)
        self.context.emit(end)
        await self.context.drain()

    async def cancel(self) -> None:
        """See `Outbound.cancel`. The request ends with it, and with that the agent is told."""
        self._stopped = True
        if self._work is not None:
            self._work.cancel()

    async def _gone_through(self) -> e.Event:
        self._choose(self, native=None).check()
        async with self._link.open(correlation(self.context), self, self._declared) as line:
            self._way = self._choose(self, native=line.native)
            try:
                end = await self._way.go(line)
            finally:
                self._over = True
            return end

    # --- what comes meanwhile ---------------------------------------------------------------------------------------

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        """See `Listener.notification`."""
        if self._over or self._way is None:
            self.context.lost("late_message")
            return None
        self.say(*self._way.told(method, params))
        self._count += 1
        self._bytes += len(params)
        if self._count >= DRAIN_EVERY or self._bytes > DRAIN_BYTES:
            self._count = self._bytes = 0
            self.flush()
            return self.context.drain()
        return None

    def again(self) -> None:
        """See `Listener.again`."""
        if self._way is not None:
            self._way.again()

    async def asked(self, method: str, params: Raw) -> Any:
        """See `Listener.asked`."""
        if self._way is None:
            return await self.asks.answer(method, params)
        return await self._way.asked(method, params)

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

    async def _ask(self, interrupt: Interrupt) -> Answer:
        while interrupt.id in self._questions:
            interrupt = replace(interrupt, id=f"{interrupt.id}'")
        self._questions.add(interrupt.id)
        self.flush()
        answer = await self.context.ask(interrupt)
        if self.context.cancelled:  # it is the request that is taken back: servers exist that end where both cross
            await asyncio.Event().wait()
        return answer


class Turns:
    """All runs of one agent. See `gateway.adapter.Outbound` and `Supervised`, of which it has what concerns runs."""

    def __init__(self, link: Link, choose: Chooser) -> None:
        self._link = link
        self._choose = choose
        self._turns: dict[str, Turn] = {}

    async def run(self, context: RunContext) -> None:
        """See `Outbound.run`."""
        turn = self._turns[context.run.id] = Turn(context, self._link, self._choose)
        try:
            await turn.run()
        finally:
            del self._turns[context.run.id]

    async def attach(self, context: RunContext) -> None:
        """Raises OutcomeUnknown: see the module."""
        raise OutcomeUnknown("the gateway was stopped while the agent worked; what came of it is not known")

    async def cancel(self, context: RunContext) -> None:
        """See `Outbound.cancel`."""
        turn = self._turns.get(context.run.id)
        if turn is not None:
            await turn.cancel()

    @property
    def reachable(self) -> bool | None:
        """See `Supervised.reachable`."""
        return self._link.reachable


def failed(error: ErrorObject) -> e.RunFailed:
    """The end of a run that the agent says has failed; clients of the same protocol hear it in the agent's words."""
    known = tree_error(error)
    data = data_of(error)
    retryable = data.get("retryable") if data else None
    origin: JsonObject = {"code": error.code, "message": delta.sound(error.message)}
    if data:
        origin["data"] = data
    failure = Failure(
        code=known.code,
        message=delta.sound(str(known)) or "the agent failed",
        retryable=retryable if isinstance(retryable, bool) else known.retryable,
    )
    return e.RunFailed(failure=failure, origin={"error": origin})
