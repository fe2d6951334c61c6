"""Serves clients of the pre-alpha Agent Communication Protocol, and plain MCP clients: the gateway is their server.

service.py   the methods: lists, templates; an agent is a tool as well
calls.py     agents/run and tools/call: finds or starts the run, and renders it for the client

How a run is followed for a call is in gateway/mcp/runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from starlette.responses import Response
from starlette.routing import BaseRoute

from adapters.agent_communication.inbound.service import AgentService
from adapters.agent_communication.options import AgentCommunicationServe
from adapters.agent_communication.wire import AGENTS_CHANGED, PROTOCOL, TOOLS_CHANGED
from gateway.contract import Gateway, GatewayLimits
from gateway.core.errors import InterlinguaError
from gateway.mcp.runs import ClientRuns
from gateway.mcp.server import McpServer
from gateway.mcp.server.contract import McpSession
from gateway.transport.pipe import Pipe


class AgentCommunicationInbound:
    """See `Inbound`, `Conversing`, `Informed` and `Leaving` of `gateway.contract`."""

    def __init__(self, options: AgentCommunicationServe, gateway: Gateway) -> None:
        self.runs = ClientRuns(PROTOCOL, gateway)
        self.service = AgentService(options, self.runs)
        self.server = McpServer(
            self.service,
            options,
            asks=options.authenticates,
            watching=partial(gateway.requests, PROTOCOL),
            admit=partial(_admit, gateway.limits),
            admit_session=partial(_admit_session, gateway.limits),
            new_id=gateway.new_id,
        )

    def routes(self) -> Sequence[BaseRoute]:
        return self.server.routes()

    def refusal(self, error: InterlinguaError) -> Response:
        return self.server.refusal(error)

    async def converse(self, pipe: Pipe, agent: str | None) -> None:
        """See `Conversing.converse`. An unknown agent is an error of `initialize`."""
        try:
            await self.server.converse(pipe, agent)
        finally:
            with contextlib.suppress(InterlinguaError):
                await pipe.aclose()

    def agents_changed(self) -> None:
        for session in self.server.sessions:
            session.tell(AGENTS_CHANGED)
            session.tell(TOOLS_CHANGED)

    def quiet(self) -> None:
        self.runs.go_quiet()
        self.server.quiet()


def _admit(limits: GatewayLimits, session: McpSession) -> None:
    """Count a request on a WebSocket. Raises Unavailable."""
    limits.request(PROTOCOL, _client(session))


def _admit_session(
    limits: GatewayLimits, session: McpSession, held: Callable[[str | None], int], spare: Callable[[str], bool]
) -> str | None:
    """See `AdmitSession`."""
    client = _client(session)
    limits.session(PROTOCOL, client, held(client), lambda: client is not None and spare(client))
    return client


def _client(session: McpSession) -> str | None:
    return None if session.visit is None else session.visit.principal.who.id
