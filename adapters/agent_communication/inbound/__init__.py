"""Serves clients of the pre-alpha Agent Communication Protocol, and plain MCP clients: the gateway is their server.

service.py   the methods: lists, templates; an agent is a tool as well
calls.py     agents/run and tools/call: which run it is
follow.py    one run for one call: what is said on the way, and its answer
words.py     the same as an agent's and as a tool's
asking.py    the run's questions
caller.py    the client, as far as an agent may ask it
speaking.py  notifications/message
paging.py    lists in pages
house.py     what all calls share
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute

from adapters.agent_communication.inbound.house import House
from adapters.agent_communication.inbound.service import AgentService
from adapters.agent_communication.options import AgentCommunicationServe
from adapters.agent_communication.wire import AGENTS_CHANGED, TOOLS_CHANGED
from gateway.adapter import Callback, Gateway
from gateway.core.errors import InterlinguaError, Unsupported
from gateway.core.types import Run
from gateway.mcp.server import McpServer
from gateway.transport.asgi import refusals
from gateway.transport.pipe import Pipe


class AgentCommunicationInbound:
    """See `Inbound`, `Conversing`, `Informed` and `Leaving` of `gateway.adapter`."""

    def __init__(self, options: AgentCommunicationServe, gateway: Gateway) -> None:
        self.house = House(options, gateway)
        self.service = AgentService(self.house)
        self.server = McpServer(self.service, options)

    def routes(self) -> Sequence[BaseRoute]:
        """See `Inbound.routes`."""
        return self.server.routes()

    def refusal(self, error: InterlinguaError) -> Response:
        """See `Inbound.refusal`."""
        return refusals.refusal(error)

    def callback(self, run: Run) -> Callback:
        """The protocol has no callbacks: its clients ask for none."""
        raise Unsupported("this protocol has no callbacks")

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        """See `Conversing.converse`. An unknown agent is an error of `initialize`."""
        try:
            await self.server.converse(pipe, agent)
        finally:
            with contextlib.suppress(InterlinguaError):
                await pipe.aclose()

    def agents_changed(self) -> None:
        """See `Informed.agents_changed`."""
        for session in self.server.sessions:
            session.tell(AGENTS_CHANGED)
            session.tell(TOOLS_CHANGED)

    def quiet(self) -> None:
        """See `Leaving.quiet`."""
        self.house.quiet = True  # calls that end now were not given up by their clients
        self.server.quiet()
