"""Agent Client Protocol v1 (Zed): JSON-RPC over stdio, WebSocket and Streamable HTTP, both directions."""

from __future__ import annotations

from typing import Any

from adapters.agent_client.losses import LOSSES
from adapters.agent_client.options import AgentClientServe, AgentClientTarget
from gateway.contract import Adapter, Gateway, Inbound, Outbound


def _serve(options: Any, gateway: Gateway) -> Inbound:
    from adapters.agent_client.inbound import AgentClientInbound

    return AgentClientInbound(options, gateway)


def _call(target: Any) -> Outbound:
    from adapters.agent_client.outbound import AgentClientOutbound

    return AgentClientOutbound(target)


ADAPTER = Adapter(
    name="agent_client",
    title="Agent Client Protocol (Zed)",
    path="/agent-client",
    serve=_serve,
    serve_options=AgentClientServe,
    call=_call,
    target_options=AgentClientTarget,
    losses=LOSSES,
    example="interlingua stdio {agent} --gateway {gateway}  # as the command of an editor's agent setting",
    socket="/{agent}",
    editors=True,
    late=True,
)
