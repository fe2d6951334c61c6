"""One `agents/run`: what the agent says until it answers becomes events of the run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Raw
from msgspec.structs import replace

from adapters.agent_communication.codec.deltas_in import DeltaDecoder
from adapters.agent_communication.outbound import request, upstream
from adapters.agent_communication.outbound.asks import Asks, capabilities
from adapters.agent_communication.outbound.told import Told
from adapters.agent_communication.wire import PROTOCOL, RUN, RUN_PROGRESS
from gateway.adapter import RunContext
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.types import Agent, Answer, Interrupt, JsonObject
from gateway.mcp import forms
from gateway.mcp.client.contract import Session
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

DRAIN_EVERY = 256
"""Notifications after which the run's log is asked whether it may grow,"""
DRAIN_BYTES = 256 * 1024
"""or bytes of them."""
LEAVE_SECONDS = 1.0
"""How long another gateway's run is followed to be cancelled."""


class Home(Protocol):
    """Where an agent is. `configured`: it was given the run's configuration when it was made."""

    configured: bool

    async def describe(self) -> Agent:
        """See `Outbound.describe`."""

    def use(self, context: RunContext, capabilities: JsonObject) -> AbstractAsyncContextManager[tuple[Session, str]]:
        """For one run: a session in which the gateway has the capabilities, and the agent's name there."""

    async def aclose(self) -> None:
        """Give up what it keeps. The server's sessions are closed later."""


class Turn:
    """One run, and the Listener of its call. `run` is its whole life; `cancel` may come at any time."""

    def __init__(self, context: RunContext, home: Home) -> None:
        self._context = context
        self._home = home
        self._decoder = DeltaDecoder(context.agent)
        self._declared = capabilities(context.caller)
        self._asks = Asks(self._ask, lambda: context.caller, self._declared)
        self._told = Told()
        self._losses: Counter[str] = Counter()
        self._questions: set[str] = set()
        self._work: asyncio.Task[e.Event] | None = None
        self._stopped = self._over = False
        self._held: list[e.Event] = []
        self._count = self._bytes = 0

    async def run(self) -> None:
        """See `Outbound.run`."""
        work = self._work = asyncio.create_task(self._called())
        try:
            await asyncio.wait([work])
        finally:  # the run may be given up here, and then so is the call
            self._over = True
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
                work.cancelled() or work.exception()
            self._flush()
            for what, count in (self._losses + self._decoder.losses).items():
                self._context.lost(what, count)
        if self._stopped or self._context.cancelled:
            work.cancelled() or work.exception()  # whatever it was, it came too late
            end: e.Event = e.RunCancelled(reason=self._context.run.cancel_reason or "")
        else:
            try:
                end = work.result()
            except RpcError as error:
                end = request.failed(error)
        self._context.emit(end)
        await self._context.drain()

    async def cancel(self) -> None:
        """See `Outbound.cancel`. The call ends with it, and with that the server is told."""
        self._stopped = True
        if self._work is not None:
            self._work.cancel()

    # --- what comes while the call is under way ---------------------------------------------------------------------

    def notification(self, method: str, params: Raw) -> Awaitable[None] | None:
        """See `Listener.notification`."""
        if self._over:
            self._context.lost("late_progress")
            return None
        if not self._held:  # what arrives together is logged together, which is three times as fast
            asyncio.get_running_loop().call_soon(self._flush)
        told = self._decoder.feed(params) if method == RUN_PROGRESS else request.told(method, params)
        self._held += self._told.new(told)
        self._count += 1
        self._bytes += len(params)
        if self._count >= DRAIN_EVERY or self._bytes > DRAIN_BYTES:
            self._count = self._bytes = 0
            self._flush()
            return self._context.drain()
        return None

    def again(self) -> None:
        """See `Listener.again`."""
        self._told.again(self._decoder.said)
        self._losses += self._decoder.losses
        self._decoder = DeltaDecoder(self._context.agent)

    async def asked(self, method: str, params: Raw) -> Any:
        """See `Listener.asked`."""
        return await self._asks.answer(method, params)

    async def _ask(self, interrupt: Interrupt) -> Answer:
        while interrupt.id in self._questions:
            interrupt = replace(interrupt, id=f"{interrupt.id}'")
        self._questions.add(interrupt.id)
        self._flush()
        answer = await self._context.ask(interrupt)
        if self._context.cancelled:  # it is the call that is taken back: servers exist that end where both cross
            await asyncio.Event().wait()
        return answer

    def _flush(self) -> None:
        """Log what the agent has said by now."""
        if self._held:
            held, self._held = self._held, []
            self._context.emit(*held)

    # --- the call -----------------------------------------------------------------------------------------------------

    async def _called(self) -> e.Event:
        context = self._context
        configured = not self._home.configured
        request.params(context, "", configured=configured)  # what is wrong with it is said before anything is started
        if configured and context.run.request.config and context.run.request.protocol != PROTOCOL:
            context.lost("config")
        async with self._home.use(context, self._declared) as (session, name):
            params = request.params(context, name, configured=configured)
            result = await self._answered(session, params)
            self._over = True
        return self._decoder.result(result)

    async def _answered(self, session: Session, run: JsonObject) -> Raw:
        """The result. What another gateway could not ask us is asked, and answered by the next call."""
        params = run
        while True:
            try:
                return await session.call(RUN, params, listener=self)
            except RpcError as error:
                question = upstream.question(error)
                if question is None:
                    raise
            try:
                answer = await self._ask(question.interrupt)
            except asyncio.CancelledError:
                if self._stopped or self._context.cancelled:
                    await self._leave(session, question.answered(run, forms.CANCELLED))
                raise
            self.again()
            params = question.answered(run, answer)

    async def _leave(self, session: Session, params: JsonObject) -> None:
        """Cancel a run of another gateway's that waits: only a call that follows it can be taken back."""
        with contextlib.suppress(InterlinguaError):
            await session.call(RUN, params, timeout=LEAVE_SECONDS)
