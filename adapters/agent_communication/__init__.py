"""Agent Communication Protocol, pre-alpha (BeeAI): MCP with agents, over all of MCP's transports, both directions."""

from __future__ import annotations

from typing import Any

from adapters.agent_communication.losses import LOSSES
from adapters.agent_communication.options import AgentCommunicationServe, AgentCommunicationTarget
from gateway.contract import Adapter, Gateway, Inbound, Outbound


def _serve(options: Any, gateway: Gateway) -> Inbound:
    from adapters.agent_communication.inbound import AgentCommunicationInbound

    return AgentCommunicationInbound(options, gateway)


def _call(target: Any) -> Outbound:
    from adapters.agent_communication.outbound import AgentCommunicationOutbound

    return AgentCommunicationOutbound(target)


ADAPTER = Adapter(
    name="agent_communication",
    title="Agent Communication Protocol (BeeAI pre-alpha)",
    path="/agent-communication",
    serve=_serve,
    serve_options=AgentCommunicationServe,
    call=_call,
    target_options=AgentCommunicationTarget,
    losses=LOSSES,
    example="curl -s {url}/mcp -H 'content-type: application/json' -H 'mcp-protocol-version: 2026-07-28' "
    '-H \'mcp-method: agents/run\' -d \'{"jsonrpc": "2.0", "id": 1, "method": "agents/run", "params": '
    '{"name": "{agent}", "input": {input}, "_meta": {"io.modelcontextprotocol/protocolVersion": '
    '"2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}\'',
    socket="/ws/{agent}",
    late=True,
)
