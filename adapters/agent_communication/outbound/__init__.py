"""Calls agents of the pre-alpha Agent Communication Protocol: the gateway is their MCP client.

server.py   the target: sessions with it, the agents and templates that are there
agents.py   one of them                                 created.py  agents made of a template
turn.py     one run                                     asks.py     what the agent asks meanwhile
request.py  what is sent for a run, and said of it besides deltas     news.py  hears of agents that come and go
upstream.py questions of another gateway                told.py  what is said again is told once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

from adapters.agent_communication.options import AgentCommunicationTarget
from adapters.agent_communication.outbound.agents import Calls, Found, Resident, Template
from adapters.agent_communication.outbound.news import News
from adapters.agent_communication.outbound.server import Pools, Server
from gateway.adapter import Outbound, RunContext
from gateway.core.errors import Unsupported
from gateway.core.types import Agent


class AgentCommunicationOutbound:
    """See `gateway.adapter.Outbound`, `Discovering` and `Supervised`. `pools` is for tests."""

    def __init__(self, target: AgentCommunicationTarget, pools: Pools | None = None) -> None:
        self._target = target
        self._server = Server(target, pools)
        home = Template(self._server, target.template) if target.template else Resident(self._server, target.agent)
        self._one = Calls(self._server, home)
        self._news = News(self._server)
        self._all: WeakValueDictionary[str, Found] = WeakValueDictionary()

    async def describe(self) -> Agent:
        """See `Outbound.describe`."""
        self._stands_for_one()
        return await self._one.describe()

    async def run(self, context: RunContext) -> None:
        """See `Outbound.run`."""
        self._stands_for_one()
        await self._one.run(context)

    async def attach(self, context: RunContext) -> None:
        """Raises OutcomeUnknown."""
        await self._one.attach(context)

    async def cancel(self, context: RunContext) -> None:
        """See `Outbound.cancel`."""
        await self._one.cancel(context)

    @property
    def discovers(self) -> bool:
        """See `Discovering.discovers`."""
        return self._target.agents is not None

    async def discover(self) -> Mapping[str, Outbound]:
        """See `Discovering.discover`."""
        found: dict[str, Outbound] = {}
        for name, entry in (await self._server.agents()).items():
            known = self._all.get(name)
            if known is None:
                known = self._all[name] = Found(self._server, name)
            known.listed(entry)
            found[name] = known
        return found

    def on_change(self, changed: Callable[[], None]) -> None:
        """See `Discovering.on_change`."""
        self._server.on_change(changed)
        self._news.start()

    @property
    def reachable(self) -> bool | None:
        """See `Supervised.reachable`."""
        return self._server.reachable

    async def aclose(self) -> None:
        """See `Outbound.aclose`."""
        await self._news.aclose()
        await self._one.aclose()
        await self._server.aclose()

    def _stands_for_one(self) -> None:
        if self.discovers:
            raise Unsupported("this target stands for all agents that live there")
