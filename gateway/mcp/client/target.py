"""The outbound half of a route: one agent of a target, or all that live there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from gateway.contract import Outbound, RunContext
from gateway.core.errors import Unsupported
from gateway.core.types import Agent

Entry = TypeVar("Entry")
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
