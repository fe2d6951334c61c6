"""Sends to the client at the other end of one connection, and knows who it is and what it can do."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from msgspec import Raw

from adapters.agent_client.codec.v1.version import V1
from adapters.agent_client.codec.version import ProtocolVersion, unknown
from adapters.agent_client.inbound.clients import EditorClients
from adapters.agent_client.inbound.visitor import Visitor
from adapters.agent_client.tunnel import mcp_messages as tunnel
from adapters.agent_client.tunnel.http_doors import Doors
from adapters.agent_client.wire import PROTOCOL, JsonObject
from gateway.core.errors import AgentGone, InterlinguaError, Unavailable, Unsupported
from gateway.transport.rpc import Peer
from gateway.transport.tasks import TaskSet
from gateway.wire.jsonrpc import Id

log = logging.getLogger(__name__)

CANCEL_REQUEST = "$/cancel_request"

Relay = Callable[[str, Raw], Awaitable[Raw]]
"""Hands a method and its params to an agent, and returns its answer."""


class EditorClient:
    """See `gateway.contract.Caller`.

    agent: the only agent it may talk to; None if its sessions choose theirs.
    visitor: who it is.
    capabilities: what it declared that it can do, in version 1's words.
    version: the version that it speaks.
    """

    protocol = PROTOCOL

    def __init__(self, peer: Peer, clients: EditorClients, agent: str | None, visitor: Visitor) -> None:
        self.clients = clients
        self.gateway = clients.gateway
        self.agent = agent
        self.visitor = visitor
        self.capabilities: JsonObject = {}
        self.version: ProtocolVersion = V1
        self._peer = peer
        self._tasks = TaskSet()

    def speaks(self, version: ProtocolVersion) -> None:
        """Sets the version, once `initialize` has agreed on it."""
        self.version = version

    def declared(self, capabilities: JsonObject) -> None:
        """Sets the capabilities that `initialize` declared."""
        self.capabilities = capabilities

    def names(self) -> Sequence[str]:
        """List the agents that it may talk to."""
        return self.visitor.among([self.agent] if self.agent is not None else self.gateway.agents.names(PROTOCOL))

    # --- what it is told and asked ----------------------------------------------------------------------------

    def say(self, messages: Sequence[bytes]) -> None:
        """Send encoded messages. Dropped if the client has gone."""
        try:
            self._peer.send(*messages)
        except AgentGone:
            return

    @property
    def flowing(self) -> bool:
        """Whether the client reads as fast as it is told, and is there: then `drained` need not be called."""
        return self._peer.flowing

    async def drained(self) -> None:
        """Wait while the client reads slowly. Raises AgentGone."""
        await self._peer.drain()

    async def ask(self, method: str, params: Raw) -> Raw:
        if method in tunnel.METHODS:
            return await self.clients.switchboard.ask(self, method, params)
        return await self.asking(method, params)

    async def asking(self, method: str, params: Raw) -> Raw:
        """Send a request to this very client, also one that `ask` may send to another client of the session."""
        return await self.put(method, self.version.to_client(method, params))

    async def put(self, method: str, params: Raw) -> Raw:
        """Send a request whose params are in the client's own version already."""
        try:
            return await self._peer.request(method, params, cancel=_no_longer_wanted)
        except AgentGone as error:
            raise Unavailable("the client has gone", detail=str(error)) from error

    def tell(self, method: str, params: Raw) -> None:
        if method in tunnel.METHODS:
            self.clients.switchboard.tell(method, params)
        else:
            self.telling(method, params)

    def telling(self, method: str, params: Raw) -> None:
        """Send a notification to this very client."""
        with contextlib.suppress(AgentGone):
            self._peer.notify(method, params)

    async def up_to_date(self, session_id: str) -> None:
        for session in self.clients.open(session_id):
            if session.client is self:
                await session.up_to_date()

    @property
    def doors(self) -> Doors:
        return self.clients.doors

    @property
    def tools(self) -> tuple[str, ...] | None:
        return self.visitor.tools

    # --- what only agents understand --------------------------------------------------------------------------

    async def beside(self, method: str, params: Raw, relay: Relay | None = None) -> Raw:
        """Hand a request to the agent; by `relay` if it is a session's. Raises RpcError where no agent takes it."""
        try:
            if relay is not None:
                return await relay(method, params)
            if self.agent is not None:
                return await self.gateway.backchannel.relay(self.agent, PROTOCOL, method, params, caller=self)
        except Unsupported as error:
            log.debug("%s: %s", method, error)
        raise unknown(method)

    # --- while it is there ------------------------------------------------------------------------------------

    def linger_for(self, work: asyncio.Future[Any]) -> None:
        """Keep a half-closed connection open until `work` is done, as for a request that is not answered."""
        self._peer.linger_for(work)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the requests, until the connection ends."""
        self._tasks.start(work)

    def gone(self) -> None:
        """The connection has ended: cancel what `keep` runs, and end the connections to the client's MCP servers."""
        self._tasks.cancel()
        self.clients.switchboard.left(self)

    async def cancel_run(self, run_id: str) -> None:
        """Cancel a run for the client. A failure is logged, not told."""
        try:
            await self.clients.whole(self.gateway.runs.cancel(run_id, reason="cancelled by the client"))
        except InterlinguaError as error:
            log.warning("%s: run %s could not be cancelled: %s", self._peer.pipe.name, run_id, error)


def _no_longer_wanted(id: Id) -> tuple[str, JsonObject]:
    return CANCEL_REQUEST, {"requestId": id}
