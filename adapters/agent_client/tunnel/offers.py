"""An MCP server that a client offers in one of an agent's sessions; and what the tunnel knows of that session."""

from __future__ import annotations

import secrets
from typing import Any, Protocol

from msgspec import Raw

from adapters.agent_client.tunnel.mcp_messages import Offered
from gateway.contract import RunContext, ThreadContext, governing


class AgentPeer(Protocol):
    """The connection to an agent."""

    def offers(self, *path: str) -> bool:
        """Whether the agent declared that capability."""

    async def ask(self, method: str, params: Any) -> Raw:
        """Send a request. Raises RpcError with the agent's error, and the errors of the tree."""

    def tell(self, method: str, params: Any) -> None:
        """Send a notification."""

    async def drain(self) -> None:
        """Wait until the agent has read most of what it was sent. Raises AgentGone."""


class OfferingSession(Protocol):
    """The agent's session in which a server is offered."""

    @property
    def thread(self) -> str | None:
        """The gateway's id of it; None for a run without a thread."""

    @property
    def connection(self) -> AgentPeer | None:
        """Where the agent has it open."""

    @property
    def context(self) -> ThreadContext | None:
        """The conversation as it was last seen."""

    @property
    def governor(self) -> governing.Governor | None:
        """The governor of its route."""

    @property
    def prompted(self) -> RunContext | None:
        """The run whose prompt the agent works on."""

    async def shown(self) -> None:
        """Wait until its run is on the disk: see `RunContext.shown`."""


class OfferedServer:
    """One server in one session. The agent knows it by `id`, and proves that it does with `secret`."""

    def __init__(self, session: OfferingSession, offered: Offered) -> None:
        self.session = session
        self.offered = offered
        self.id = secrets.token_hex(16)
        self.secret = secrets.token_bytes(32)
