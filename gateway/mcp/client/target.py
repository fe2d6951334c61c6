"""A route's target, for adapters: the sessions with its server, what that lists, news that a list has changed; and the
outbound half, for one agent of the target or all that live there.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, Never, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from gateway.contract import Outbound, RunContext
from gateway.core.errors import InterlinguaError, NotFound, Unsupported
from gateway.core.types import Agent, JsonObject
from gateway.core.version import version
from gateway.mcp.client.calls import Keyed
from gateway.mcp.client.pool import Connector, McpPool
from gateway.mcp.client.session import ClientSession, few
from gateway.mcp.options import McpTarget
from gateway.transport.guard import Guard

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 5.0

Entry = TypeVar("Entry")
Lease = Callable[[], AbstractAsyncContextManager[ClientSession]]


class TargetPools:
    """The sessions with one target: a pool for each set of capabilities that the gateway declares as a client."""

    def __init__(
        self,
        target: McpTarget,
        always: JsonObject,
        *,
        keyed: Keyed | None = None,
        unclaimed: Callable[[ClientSession, str, Raw], None] | None = None,
        dialects: Mapping[str, str] | None = None,
        guard: Guard | None = None,
        make: Callable[[JsonObject], McpPool] | None = None,
    ) -> None:
        """always: the capabilities that the gateway has itself, whatever the client of a run can do. Agents are
        described over sessions with those: where the target is warm, these are. make: for tests. The rest: see
        `Connector`.
        """

        def made(capabilities: JsonObject) -> McpPool:
            info = {"name": "interlingua", "title": "Interlingua", "version": version()}
            connector = Connector(
                target,
                capabilities=capabilities,
                info=info,
                keyed=keyed,
                unclaimed=unclaimed,
                dialects=dialects,
                guard=guard,
            )
            return McpPool(connector, warm=target.warmed and capabilities == always)

        self._always = always
        self._make = make or made
        self._heard: Callable[[str, Raw], None] = lambda method, params: None
        self._pools: dict[bytes, McpPool] = {}

    def on_notification(self, heard: Callable[[str, Raw], None]) -> None:
        """Pass `heard` the notifications that belong to no call. Called before the first lease."""
        self._heard = heard

    def lease(
        self, capabilities: JsonObject | None = None, *, alone: bool = True
    ) -> AbstractAsyncContextManager[ClientSession]:
        """A session in which the gateway has the capabilities, by default its own. See `McpPool.lease`."""
        declared = self._always if capabilities is None else capabilities
        key = msgspec.json.encode(declared, order="deterministic")
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = self._make(declared)
            pool.on_notification(self._heard)
        return pool.lease(alone=alone)

    @property
    def reachable(self) -> bool | None:
        """See `gateway.contract.Supervised`."""
        known = [pool.reachable for pool in self._pools.values() if pool.reachable is not None]
        return any(known) if known else None

    async def aclose(self) -> None:
        await asyncio.gather(*(pool.aclose() for pool in self._pools.values()))


class TargetList(Generic[Entry]):
    """What a target has of one kind, by name. `fetch` asks for it."""

    def __init__(self, kind: str, fetch: Callable[[], Awaitable[Mapping[str, Entry]]]) -> None:
        self._kind = kind
        self._fetch = fetch
        self._asking: asyncio.Future[Mapping[str, Entry]] | None = None

    async def all(self) -> Mapping[str, Entry]:
        """All that is there. Calls at the same time share one request. Raises what `fetch` does."""
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._fetch())
            self._asking.add_done_callback(self._done)
        return await asyncio.shield(self._asking)

    async def one(self, name: str | None) -> Entry:
        """One of them, by default the only one. Raises NotFound with the names there are."""
        there = await self.all()
        if name is None and len(there) == 1:
            return next(iter(there.values()))
        if name is not None and name in there:
            return there[name]
        names = few(there) or "none"
        if name is None:
            raise NotFound(f"the server has {len(there)} agents, and the route names none of them; there are: {names}")
        raise NotFound(f"the server has no {self._kind} {name}; there are: {names}")

    async def aclose(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    def _done(self, asking: asyncio.Future[Mapping[str, Entry]]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()


class TargetNews:
    """Who is told when what a target lists has changed. `lease`: see `listen`."""

    def __init__(self, target: McpTarget, lease: Lease) -> None:
        self._target = target
        self._lease = lease
        self._changed: list[Callable[[], None]] = []
        self._listening: asyncio.Task[None] | None = None

    def on_change(self, changed: Callable[[], None]) -> None:
        """Register a callback. From the first one on a session stays open to hear of changes."""
        self._changed.append(changed)
        if self._listening is None:
            news = listen(self._target, self._lease, self.tell)
            self._listening = asyncio.create_task(news, name="news of agents")

    def tell(self) -> None:
        """The list may have changed."""
        for changed in self._changed:
            changed()

    async def aclose(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])


async def listen(target: McpTarget, lease: Lease, changed: Callable[[], None]) -> Never:
    """Until it is cancelled. A session by `lease`, which has subscribed to what has to be, hears of changes by itself.

    Each but the first counts as a change, too: what has changed while there was none, or (remote) unheard for long, is
    told nobody.
    """
    heard = False
    while True:
        try:
            async with lease() as session:
                if heard:
                    changed()
                heard = True
                await asyncio.wait([session.closed], timeout=target.idle if target.url else None)
        except InterlinguaError as error:
            log.info("no news of the agents: %s", error)
            await asyncio.sleep(RETRY_SECONDS)


Entry_contra = TypeVar("Entry_contra", contravariant=True)


class DiscoveredAgent(Outbound, Protocol[Entry_contra]):
    """One of all the agents that live there."""

    def listed(self, entry: Entry_contra) -> None:
        """Take what the target has just said of the agent: the next `describe` need not ask."""


class Target(ABC, Generic[Entry]):
    """Implements `gateway.contract.Outbound` and `Discovering` for one agent or many. The adapter adds the rest."""

    def __init__(self, one: Outbound, *, discovers: bool) -> None:
        """`one` is the agent where the route stands for one."""
        self._one = one
        self._discovers = discovers
        self._all: WeakValueDictionary[str, DiscoveredAgent[Entry]] = WeakValueDictionary()

    @abstractmethod
    async def entries(self) -> Mapping[str, Entry]:
        """The agents that are there now, by name."""

    @abstractmethod
    def found(self, name: str) -> DiscoveredAgent[Entry]:
        """The outbound half of one of them."""

    async def describe(self) -> Agent:
        self._stands_for_one()
        return await self._one.describe()

    async def run(self, context: RunContext) -> None:
        self._stands_for_one()
        await self._one.run(context)

    async def attach(self, context: RunContext) -> None:
        await self._one.attach(context)

    async def cancel(self, context: RunContext) -> None:
        await self._one.cancel(context)

    @property
    def discovers(self) -> bool:
        return self._discovers

    async def discover(self) -> Mapping[str, Outbound]:
        halves: dict[str, Outbound] = {}
        for name, entry in (await self.entries()).items():
            known = self._all.get(name)
            if known is None:
                known = self._all[name] = self.found(name)
            known.listed(entry)
            halves[name] = known
        return halves

    def _stands_for_one(self) -> None:
        if self._discovers:
            raise Unsupported("this target stands for all agents that live there")
