"""The part of the `Gateway` that hands on what clients and agents of one protocol say beside runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec

from gateway.agents.roster import Roster
from gateway.contract import Caller, Relay, ThreadWatch
from gateway.core.errors import Unsupported
from gateway.core.types import RunQuery, ThreadUpdate
from gateway.runs.thread_context import ConversationContext
from gateway.runs.threads import Threads
from gateway.store import Store


class EngineBackchannel:
    """Implements `gateway.contract.GatewayBackchannel`."""

    def __init__(self, store: Store, roster: Roster, conversations: Threads) -> None:
        self._store = store
        self._roster = roster
        self._conversations = conversations

    @contextlib.asynccontextmanager
    async def join(self, thread_id: str, caller: Caller | None = None) -> AsyncIterator[ThreadWatch]:
        await self._store.thread(thread_id)
        with self._conversations.listeners.join(thread_id, caller) as listener:
            yield listener

    async def relay(
        self,
        agent: str,
        protocol: str,
        method: str,
        params: msgspec.Raw,
        *,
        thread: str | None = None,
        caller: Caller | None = None,
        told: Callable[[ThreadUpdate], None] | None = None,
    ) -> msgspec.Raw:
        relay, context = await self._beside(agent, protocol, thread, caller, told)
        try:
            return await relay.relay(context, method, params)
        finally:
            context.answered()

    async def forward(
        self, agent: str, protocol: str, method: str, params: msgspec.Raw, *, thread: str | None = None
    ) -> None:
        relay, context = await self._beside(agent, protocol, thread)
        await relay.forward(context, method, params)

    async def _beside(
        self,
        name: str,
        protocol: str,
        thread_id: str | None,
        caller: Caller | None = None,
        told: Callable[[ThreadUpdate], None] | None = None,
    ) -> tuple[Relay, ConversationContext]:
        thread = await self._store.thread(thread_id) if thread_id is not None else None
        entry = await self._roster.find(name, protocol, thread.metadata if thread else None)
        relay = entry.outbound if entry.route.target.protocol == protocol else None
        if thread is not None:  # of an agent that is down its client hears so, whatever the agent speaks
            await entry.need()
        if not isinstance(relay, Relay):
            raise Unsupported(f"agent {entry.route.name} does not speak this protocol itself")
        agent = await entry.need()
        newest = await self._store.runs(RunQuery(thread=thread.id, limit=1)) if thread is not None else ()
        context = ConversationContext(
            agent,
            self._conversations,
            thread,
            given=caller,
            governor=entry.governor,
            last=newest[0].id if newest else None,
            told=told,
        )
        return relay, context
