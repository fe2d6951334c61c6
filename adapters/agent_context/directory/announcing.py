"""The gateway's own agents at a foreign directory (section 3.1, as its client): registered, kept alive, taken back.

Each agent is registered with its door at this gateway as its endpoint, so the foreign directory calls it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from adapters.agent_context.codec.agents import record_of
from adapters.agent_context.options import AgentContextTarget, Announce
from adapters.agent_context.outbound.links import ServerLink
from adapters.agent_context.wire import HEARTBEAT, PROTOCOL, REGISTER, UNREGISTER
from gateway.access.patterns import fits
from gateway.contract import Auth, Gateway
from gateway.core.errors import InterlinguaError
from gateway.core.types import JsonObject
from gateway.mcp.client.session import ClientSession
from gateway.wire.jsonrpc import RpcError

log = logging.getLogger(__name__)

FIRST_PAUSE: Final = 1.0
"""Seconds before a lost connection is made again; twice as long after each failure, up to LONGEST_PAUSE."""
LONGEST_PAUSE: Final = 60.0
FAREWELL: Final = 5.0
"""Seconds that taking back may take when the gateway stops."""


class Announcing:
    """At one foreign directory. `path`: of the mount that the agents' doors are below."""

    def __init__(self, to: Announce, gateway: Gateway, path: str) -> None:
        self._to = to
        self._gateway = gateway
        self._path = path
        self._link = ServerLink(AgentContextTarget(protocol=PROTOCOL, url=to.url, auth=Auth(bearer=to.token)))
        self._told: dict[str, JsonObject | None] = {}
        """The records that were sent and not refused, by agent; None where the directory may not have it (any more)."""
        self._refused: dict[str, JsonObject] = {}
        """Records that the directory refused. Another process of this gateway may have registered them, and go."""
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._go(), name=f"announcing at {self._to.url}")

    async def aclose(self) -> None:
        """Take everything back, as far as the directory can be reached in time."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        with contextlib.suppress(InterlinguaError, TimeoutError):
            async with asyncio.timeout(FAREWELL):
                if self._told:
                    async with self._link.lease(alone=False) as session:
                        await self._drop(session, list(self._told))
        await self._link.aclose()

    async def _go(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                async with self._link.lease(alone=False) as session:
                    while not session.closed.done():
                        await self._look(session)
                        pause = FIRST_PAUSE
                        await asyncio.wait([session.closed], timeout=self._to.heartbeat)
            except InterlinguaError as error:
                log.warning("agents cannot be announced at %s, again in %g s: %s", self._to.url, pause, error)
            self._told, self._refused = dict.fromkeys(self._told), {}  # whoever is there now may know nothing of them
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _look(self, session: ClientSession) -> None:
        """Have the directory know the agents that are there now, and that they are. Raises AgentGone and the like."""
        now = await self._records()
        await self._drop(session, [name for name in self._told if name not in now])
        for name, record in now.items():
            if self._told.get(name) != record:
                await self._register(session, name, record)
                continue
            if await self._said(session, HEARTBEAT, {"agentId": name, "status": "active"}) is not None:
                await self._register(session, name, record)  # it has forgotten it, say

    async def _register(self, session: ClientSession, name: str, record: JsonObject) -> None:
        self._told[name] = None
        refused = await self._said(session, REGISTER, {"agent": record})
        if refused is None:
            self._told[name] = record
            self._refused.pop(name, None)
            return
        del self._told[name]
        if self._refused.get(name) != record:
            log.warning("%s does not register agent %s, it is tried again: %s", self._to.url, name, refused)
        self._refused[name] = record

    async def _drop(self, session: ClientSession, names: list[str]) -> None:
        for name in names:
            await self._said(session, UNREGISTER, {"agentId": name})
            del self._told[name]

    async def _said(self, session: ClientSession, method: str, params: JsonObject) -> RpcError | None:
        """Send it; the error that it was answered with. Raises AgentGone and the like where nobody answers."""
        try:
            await session.call(method, params, timeout=self._link.target.request_timeout)
        except RpcError as error:
            return error
        return None

    async def _records(self) -> dict[str, JsonObject]:
        gateway = self._gateway
        door = f"{gateway.public_url}{self._path}"
        return {
            agent.name: {**record_of(agent), "endpoint": {"url": f"{door}/{agent.name}"}}
            for agent in await gateway.agents.list(PROTOCOL)
            if gateway.agents.routed(agent.name)
            and gateway.agents.reachable(agent.name, PROTOCOL)
            and fits(agent.name, self._to.agents)
        }
