"""Calls agents of the pre-alpha Agent Communication Protocol: the gateway is their MCP client.

server.py   the target: sessions with it, the agents and templates that are there
agents.py   one of them; those made of a template
turn.py     one run: what is sent, and what is said of it; its call may be sent again with an answer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from adapters.agent_communication.options import AgentCommunicationTarget
from adapters.agent_communication.outbound.agents import ListedTargetAgent, Resident, TargetAgent, Template
from adapters.agent_communication.outbound.server import TargetServer
from gateway.core.types import JsonObject
from gateway.mcp.client.target import Target, TargetPools


class AgentCommunicationOutbound(Target[JsonObject]):
    """See `gateway.contract.Outbound`, `Discovering` and `Supervised`. `pools` is for tests."""

    def __init__(self, target: AgentCommunicationTarget, pools: TargetPools | None = None) -> None:
        self._server = TargetServer(target, pools)
        home = Template(self._server, target.template) if target.template else Resident(self._server, target.agent)
        super().__init__(TargetAgent(self._server, home), discovers=target.stands_for_many)

    async def entries(self) -> Mapping[str, JsonObject]:
        return await self._server.agents.all()

    def found(self, name: str) -> ListedTargetAgent:
        return ListedTargetAgent(self._server, name)

    def on_change(self, changed: Callable[[], None]) -> None:
        self._server.news.on_change(changed)

    @property
    def reachable(self) -> bool | None:
        return self._server.reachable

    async def aclose(self) -> None:
        await self._one.aclose()
        await self._server.aclose()
