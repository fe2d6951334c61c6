"""The back-channel: what passes between a client and an agent beside runs.

Down, from client to agent: `Gateway.backchannel.relay` hands a request of the client's own protocol, unchanged, to an
agent of the same protocol (`Relay`). Up, from agent to client: `ThreadContext.caller` is the client that is connected
now, if any, and `ThreadContext.note` tells the conversation's watchers what changed about it, during a run or between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from gateway.core.types import Agent, JsonObject, Run, Thread, ThreadUpdate


class Caller(Protocol):
    """A client that is connected now, as far as agents may ask it for what only it has: files, terminals, a person.

    Made by an inbound adapter for one connection. `protocol` says whose words `method` and `params` are in, so only
    an outbound adapter of the same protocol uses it.
    """

    @property
    def protocol(self) -> str:
        """The client's protocol."""

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that the client declared, in its protocol's own words."""

    @property
    def tools(self) -> Sequence[str] | None:
        """Patterns of the tools that may be called for the client, as far as that is known (None: all)."""

    async def ask(self, method: str, params: msgspec.Raw) -> msgspec.Raw:
        """Send a request and wait for the answer, which is returned encoded.

        Cancelling the wait tells the client that it is no longer needed. Raises `gateway.wire.jsonrpc.RpcError` with
        the client's own error, Unavailable once it has gone.
        """

    def tell(self, method: str, params: msgspec.Raw) -> None:
        """Send a notification; dropped if the client has gone."""


class ThreadContext(Protocol):
    """An outbound adapter's view of one conversation. `note`, `retell`, `caller`, `hold` and `set_thread` stay valid
    between runs."""

    @property
    def agent(self) -> Agent:
        """The agent as published, with its schemas and text pointers."""

    @property
    def thread(self) -> Thread | None:
        """The conversation; None for a stateless run, or for what concerns the connection alone."""

    @property
    def upstream_thread(self) -> JsonObject | None:
        """The value that `set_thread` last recorded for this thread and agent."""

    @property
    def caller(self) -> Caller | None:
        """The client that may be asked now, the newest of `callers`; None if none is there."""

    @property
    def callers(self) -> Sequence[Caller]:
        """All clients that are there and may be asked now, the newest first: they need not be able to do the same."""

    async def set_thread(self, upstream: JsonObject) -> None:
        """Record on the thread, under this agent's name, how to find the conversation again."""

    def hold(self) -> Callable[[], None]:
        """Say that the agent has the conversation open in this process. What is returned says that it is over.

        Until then the thread's runs of this agent, and what is relayed to it on the thread, come to this process,
        whichever is asked.
        """

    def note(self, update: ThreadUpdate) -> None:
        """Something about the conversation changed: recorded on the thread and told to its watchers.

        While a run is in progress on the context it becomes a `Custom` event of the run's instead (named by the
        update's protocol, with its `data`), in the order of the run's other events. Never blocks.
        """

    def retell(self, update: ThreadUpdate) -> None:
        """Behind the answer to the request that the context is of: what was part of the conversation before, and its
        client had asked for. Never blocks.
        """


News = ThreadUpdate | Run
"""News of a thread: an update, or a run that has started (its record at the start)."""


class ThreadWatch(Protocol):
    """A watcher of one thread, from now on."""

    async def next(self) -> News:
        """The next news. One that lags too far behind loses the oldest updates; runs are never lost."""

    @property
    def behind(self) -> int:
        """How much news there is that `next` has not given yet."""
