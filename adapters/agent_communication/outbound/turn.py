"""One `agents/run`: what the agent says until it answers becomes events of the run."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Raw

from adapters.agent_communication.codec.deltas_in import DeltaDecoder
from adapters.agent_communication.outbound import request, upstream
from adapters.agent_communication.outbound.asks import Asks, capabilities
from adapters.agent_communication.outbound.repeats import RepeatFilter
from adapters.agent_communication.wire import PROTOCOL, RUN, RUN_PROGRESS
from gateway.contract import RunContext
from gateway.core import events as e
from gateway.core.errors import InterlinguaError
from gateway.core.types import Agent, JsonObject
from gateway.mcp import forms
from gateway.mcp.client import turn as calls
from gateway.mcp.client.contract import Session
from gateway.wire.jsonrpc import RpcError

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


class Turn(calls.Turn):
    """See `gateway.mcp.client.turn`."""

    late = "late_progress"

    def __init__(self, context: RunContext, home: Home) -> None:
        super().__init__(context)
        self._home = home
        self._decoder = DeltaDecoder(context.agent)
        self._declared = capabilities(context.caller)
        self._asks = Asks(self.ask, lambda: context.caller, self._declared)
        self._repeats = RepeatFilter()

    # --- what comes while the call is under way ---------------------------------------------------------------------

    def told(self, method: str, params: Raw) -> list[e.Event]:
        """What a notification says, unless it was said before."""
        told = self._decoder.feed(params) if method == RUN_PROGRESS else request.told(method, params)
        return self._repeats.new(told)

    def again(self) -> None:
        self._repeats.again(self._decoder.said)
        self.losses += self._decoder.losses
        self._decoder = DeltaDecoder(self.context.agent)

    async def asked(self, method: str, params: Raw) -> Any:
        return await self._asks.answer(method, params)

    def counted(self) -> Counter[str]:
        """What could not be said, in all."""
        return self.losses + self._decoder.losses

    def failed(self, error: RpcError) -> e.RunFailed:
        """The end of a run whose agent has answered with an error."""
        return request.failed(error)

    # --- the call -----------------------------------------------------------------------------------------------------

    async def called(self) -> e.Event:
        """`agents/run`, as often as it is asked of us."""
        context = self.context
        configured = not self._home.configured
        given = context.run.request.input
        request.params(context, "", given, configured=configured)  # what is wrong is said before anything is started
        if configured and context.run.request.config and context.run.request.protocol != PROTOCOL:
            context.lost("config")
        async with self._home.use(context, self._declared) as (session, name):
            recalled = await context.recall(fresh=True)
            params = request.params(context, name, recalled.input, configured=configured)
            result = await self._answered(session, params)
            self.over = True
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
                answer = await self.ask(question.interrupt)
            except asyncio.CancelledError:
                if self.stopped:
                    await self._leave(session, question.answered(run, forms.CANCELLED))
                raise
            self.again()
            params = question.answered(run, answer)

    async def _leave(self, session: Session, params: JsonObject) -> None:
        """Cancel a run of another gateway's that waits: only a call that follows it can be taken back."""
        with contextlib.suppress(InterlinguaError):
            await session.call(RUN, params, timeout=LEAVE_SECONDS)
