"""An outbound adapter's view of a conversation, in a run and beside runs (see `gateway.contract.ThreadContext`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Raw
from msgspec.structs import replace

from gateway.contract import Caller
from gateway.core.errors import InterlinguaError
from gateway.core.types import Agent, JsonObject, Thread, ThreadChange, ThreadUpdate
from gateway.runs.threads import Threads, noted


class UntoldCaller:
    """The client of a run that nobody was told of (see `gateway.contract.Caller`): `show` puts that on the disk before
    the client is asked or told anything.
    """

    def __init__(self, caller: Caller, show: Callable[[], Awaitable[None]]) -> None:
        self.protocol = caller.protocol
        self.tools = caller.tools
        self._caller = caller
        self._show = show
        self._telling: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> JsonObject:
        return self._caller.capabilities

    async def ask(self, method: str, params: Raw) -> Raw:
        await self._shown(self._telling)
        return await self._caller.ask(method, params)

    def tell(self, method: str, params: Raw) -> None:
        self._telling = asyncio.ensure_future(self._tell(method, params, self._telling))

    async def told(self) -> None:
        """Until the client has been told what it was to be told."""
        if self._telling is not None:
            await asyncio.wait([self._telling])

    async def _tell(self, method: str, params: Raw, before: asyncio.Task[None] | None) -> None:
        with contextlib.suppress(InterlinguaError):
            await self._shown(before)
            self._caller.tell(method, params)

    async def _shown(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._show()


class ConversationContext:
    """One conversation, or none: then `given` is the client whose request this is."""

    def __init__(
        self,
        agent: Agent,
        threads: Threads,
        thread: Thread | None,
        *,
        given: Caller | None = None,
        last: str | None = None,
        told: Callable[[ThreadUpdate], None] | None = None,
        new: bool = False,
    ) -> None:
        """`last` is the thread's newest run. `told`: see `GatewayBackchannel.relay`. `new`: it is not stored before
        `create`.
        """
        self.agent = agent
        self.thread = thread
        self._threads = threads
        self._given = given
        self._last = last
        self._told = self._retold = told
        self._new = new

    @property
    def upstream_thread(self) -> JsonObject | None:
        return self.thread.upstream.get(self.agent.name) if self.thread else None

    @property
    def caller(self) -> Caller | None:
        return next(iter(self.callers), None)

    @property
    def callers(self) -> Sequence[Caller]:
        if self._given is not None:
            return [self._given]
        return self._threads.watchers.callers(self.thread.id) if self.thread else []

    async def set_thread(self, upstream: JsonObject) -> None:
        if self.thread is None:
            return
        upstream = {**upstream, **self._threads.holding(self.thread.id, self.agent.name)}
        if upstream == self.upstream_thread:
            return
        change = ThreadChange(upstream={self.agent.name: upstream})
        self.thread = change.of(self.thread) if self._new else await self._threads.change(self.thread.id, change)

    def hold(self) -> Callable[[], None]:
        return _nothing if self.thread is None else self._threads.hold(self.thread.id, self.agent.name)

    def note(self, update: ThreadUpdate) -> None:
        if self._told is not None:
            self._told(update)
        if self.thread is not None and (self._told is None or not update.kept):
            self.record(replace(update, after=self._last), tell=self._told is None)

    def retell(self, update: ThreadUpdate) -> None:
        (self._retold or self.note)(update)

    def record(self, update: ThreadUpdate, *, tell: bool) -> None:
        """Record an update on the thread, if there is one; its watchers are told where `tell` says so."""
        if self.thread is None:
            return
        if tell:
            self._threads.watchers.tell(self.thread.id, update)
        if self._new:
            self.thread = noted(update).of(self.thread)
        else:
            self._threads.note(self.thread.id, update)

    async def create(self) -> None:
        """Store a new thread, with what was said of it by now."""
        if self.thread is not None:
            self._new = False
            self.thread = await self._threads.create(self.thread)

    def refreshed(self, thread: Thread) -> None:
        """Take the thread's record as it is now."""
        self.thread = thread

    def answered(self) -> None:
        """The request that asked for history is answered: what the agent notes from now on is news."""
        self._told = None


def _nothing() -> None:
    """Where there is no conversation."""
