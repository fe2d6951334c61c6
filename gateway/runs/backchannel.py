"""The back-channel: what passes between clients and agents beside runs, to whichever process has the conversation."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec

from gateway.agents.entry import Entry
from gateway.agents.roster import Roster
from gateway.contract import Caller, Relay, ThreadWatch
from gateway.core.errors import Unsupported
from gateway.core.types import RunQuery, Thread, ThreadUpdate
from gateway.runs.callers import LentCaller, Lobby
from gateway.runs.post import PostOffice
from gateway.runs.thread_context import ConversationContext
from gateway.runs.threads import Threads
from gateway.store import Store, Undelivered


class RelayRequest(msgspec.Struct, frozen=True):
    """Relay a request to an agent that is connected, or has the thread's conversation open, in the asked process.

    `history`: what the agent notes before it answers belongs to the answer (see `GatewayBackchannel.relay`).
    """

    agent: str
    protocol: str
    method: str
    params: msgspec.Raw
    thread: str | None = None
    caller: LentCaller | None = None
    history: bool = False


class RelayAnswer(msgspec.Struct, frozen=True):
    """The agent's answer, after the history that it told."""

    result: msgspec.Raw
    history: tuple[ThreadUpdate, ...] = ()


class ForwardNotification(msgspec.Struct, frozen=True):
    """The same for a notification."""

    agent: str
    protocol: str
    method: str
    params: msgspec.Raw
    thread: str | None = None


class EngineBackchannel:
    """Implements `gateway.contract.GatewayBackchannel`."""

    def __init__(self, store: Store, roster: Roster, conversations: Threads, post: PostOffice, lobby: Lobby) -> None:
        self._store = store
        self._roster = roster
        self._conversations = conversations
        self._post = post
        self._lobby = lobby
        post.serve(RelayRequest, self._relay_for)
        post.serve(ForwardNotification, self._forward_for)

    @contextlib.asynccontextmanager
    async def join(self, thread_id: str, caller: Caller | None = None) -> AsyncIterator[ThreadWatch]:
        await self._store.thread(thread_id)
        with self._lobby.join(thread_id, caller) as listener:
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
        entry, found = await self._found(agent, protocol, thread)
        if (process := self._lobby.place(entry, thread)) is not None:
            with contextlib.ExitStack() as stack:
                lent = stack.enter_context(self._lobby.lend(caller)) if caller is not None else None
                call = RelayRequest(agent, protocol, method, params, thread, lent, told is not None)
                try:
                    answer = await self._post.ask(process, call, RelayAnswer, within=None)
                except Undelivered as error:
                    self._lobby.gone(process, error)
                    self._lobby.not_moved(entry)
                else:
                    if told is not None:
                        for update in answer.history:
                            told(update)
                    return answer.result
        return await self._relay(entry, protocol, method, params, found, caller=caller, told=told)

    async def forward(
        self, agent: str, protocol: str, method: str, params: msgspec.Raw, *, thread: str | None = None
    ) -> None:
        entry, found = await self._found(agent, protocol, thread)
        if (process := self._lobby.place(entry, thread)) is not None:
            self._post.tell(process, ForwardNotification(agent, protocol, method, params, thread))
            return
        await self._forward(entry, protocol, method, params, found)

    # --- for other processes ----------------------------------------------------------------------------------------

    async def _relay_for(self, process: str, call: RelayRequest) -> RelayAnswer:
        """Relay for another process. Raises Undelivered if the agent has moved on."""
        entry, thread = await self._found(call.agent, call.protocol, call.thread)
        self._lobby.not_moved(entry)
        caller = self._lobby.borrow(process, call.caller) if call.caller is not None else None
        history: list[ThreadUpdate] = []
        told = history.append if call.history else None
        result = await self._relay(entry, call.protocol, call.method, call.params, thread, caller=caller, told=told)
        return RelayAnswer(result, tuple(history))

    async def _forward_for(self, _: str, call: ForwardNotification) -> None:
        entry, thread = await self._found(call.agent, call.protocol, call.thread)
        self._lobby.not_moved(entry)
        await self._forward(entry, call.protocol, call.method, call.params, thread)

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _found(self, name: str, protocol: str, thread_id: str | None) -> tuple[Entry, Thread | None]:
        thread = await self._store.thread(thread_id) if thread_id is not None else None
        return await self._roster.find(name, protocol, thread.metadata if thread else None), thread

    async def _relay(
        self,
        entry: Entry,
        protocol: str,
        method: str,
        params: msgspec.Raw,
        thread: Thread | None,
        *,
        caller: Caller | None,
        told: Callable[[ThreadUpdate], None] | None,
    ) -> msgspec.Raw:
        relay, context = await self._beside(entry, protocol, thread, caller, told)
        try:
            return await relay.relay(context, method, params)
        finally:
            context.answered()

    async def _forward(
        self, entry: Entry, protocol: str, method: str, params: msgspec.Raw, thread: Thread | None
    ) -> None:
        relay, context = await self._beside(entry, protocol, thread)
        await relay.forward(context, method, params)

    async def _beside(
        self,
        entry: Entry,
        protocol: str,
        thread: Thread | None,
        caller: Caller | None = None,
        told: Callable[[ThreadUpdate], None] | None = None,
    ) -> tuple[Relay, ConversationContext]:
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
            last=newest[0].id if newest else None,
            told=told,
        )
        return relay, context
