"""How an agent is reached: over the connection that it registered on, or as an MCP server that is connected to.

    Turn -> Link.open(correlation, listener) -> Line.request / Line.tell -> agent
    Turn <- CallListener.notification / CallListener.asked               <- Line  <- agent

A Line is held for the whole run: an agent may acknowledge a message at once and say the rest later, on the same
connection. What it says meanwhile reaches the listener by the progress token that went along or by
`_meta.correlationId`.
sessions.py has the link over a registered session, pools.py that over a connection of ours.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Raw

from gateway.core.errors import AgentGone
from gateway.core.types import JsonObject
from gateway.mcp.client.contract import CallListener

__all__ = ["AgentLine", "CallListener", "ContextLink"]


class AgentLine(Protocol):
    """One run's hold of a connection to its agent."""

    @property
    def correlation(self) -> str:
        """The id sent in `_meta.correlationId`: the requested one, or the same with a suffix where another run of
        the same connection has it."""

    @property
    def native(self) -> bool:
        """Whether the other end speaks this protocol; else it is a plain MCP server, which has tools."""

    @property
    def gateway(self) -> bool:
        """Whether the other end is such a gateway too: its updates say all that its progress says."""

    @property
    def knows_agents(self) -> bool:
        """Whether the other end knows the gateway's agents: then it is told which of them sends a message."""

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that it declared in its handshake."""

    @property
    def lasting(self) -> bool:
        """Whether it can still say something once it has answered (not in a revision without sessions)."""

    @property
    def closed(self) -> asyncio.Future[AgentGone]:
        """Done, with the reason, once nothing more can come of the agent."""

    async def request(self, method: str, params: JsonObject, *, timeout: float | None = None) -> Raw:
        """Ask, and wait for the result; `_meta` gets the correlation id and a progress token besides what it has.

        All that was told before the answer has been heard when it returns. Cancelling the wait tells the agent
        (`notifications/cancelled`), also if it has just answered. Raises what
        `gateway.mcp.client.contract.UpstreamSession.call` does.
        """

    async def list(self, method: str, key: str, *, timeout: float | None = None) -> list[JsonObject]:
        """See `gateway.mcp.client.contract.UpstreamSession.list`.

        Only of a server: Unsupported over a registered session.
        """

    def tell(self, method: str, params: JsonObject) -> None:
        """A notification; dropped once the agent has gone. Never blocks."""

    def withdraw(self, reason: str) -> None:
        """`notifications/cancelled` for the last request, which has been answered (acknowledged) already."""


class ContextLink(Protocol):
    """The way to one agent, for any number of runs."""

    @property
    def reachable(self) -> bool | None:
        """Whether it is there now; None if nobody needed it yet."""

    def open(
        self, correlation: str, listener: CallListener, capabilities: JsonObject | None = None
    ) -> AbstractAsyncContextManager[AgentLine]:
        """A line for one run. What the agent says on it after the end of the block is counted and dropped.

        capabilities: what the gateway declares as a client, where the connection is of its making.
        Raises AgentGone, AgentTimeout, AgentBroken, AgentFailed, Denied; Unavailable for one that cannot be asked now.
        """

    async def aclose(self) -> None:
        """Close what it opened itself."""
