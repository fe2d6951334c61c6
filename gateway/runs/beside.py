"""What an outbound adapter sees of a conversation, in a run and beside runs (see `gateway.contract.ThreadContext`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gateway.contract import Caller, Governor
from gateway.core.types import Agent, JsonObject, Thread, ThreadChange, ThreadUpdate
from gateway.runs.threads import Threads


@dataclass(kw_only=True)
class Beside:
    """One conversation, or none: then `given` is the client whose request this is. `last` is its newest run."""

    agent: Agent
    threads: Threads
    thread: Thread | None = None
    given: Caller | None = None
    governor: Governor | None = None
    last: str | None = None
    asker: Callable[[ThreadUpdate], None] | None = None
    """`told` of `Gateway.relay`, until that has returned."""

    @property
    def upstream_thread(self) -> JsonObject | None:
        return self.thread.upstream.get(self.agent.name) if self.thread else None

    @property
    def caller(self) -> Caller | None:
        return next(iter(self.callers), None)

    @property
    def callers(self) -> Sequence[Caller]:
        if self.given is not None:
            return [self.given]
        return self.threads.listeners.callers(self.thread.id) if self.thread else []

    async def set_thread(self, upstream: JsonObject) -> None:
        if self.thread is None or upstream == self.upstream_thread:
            return
        self.thread = await self.threads.change(self.thread.id, ThreadChange(upstream={self.agent.name: upstream}))

    def note(self, update: ThreadUpdate) -> None:
        if self.asker is not None:
            self.asker(update)
        if self.thread is not None and (self.asker is None or not update.kept):
            self.threads.note(self.thread.id, replace(update, after=self.last), tell=self.asker is None)
