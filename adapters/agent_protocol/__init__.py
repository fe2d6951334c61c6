"""Agent Protocol (e2b / AI Engineer Foundation) v1: tasks, steps, artifacts over REST."""

from __future__ import annotations

from typing import Any

from adapters.agent_protocol.losses import LOSSES
from adapters.agent_protocol.options import AgentProtocolServe, AgentProtocolTarget
from gateway.contract import Adapter, Gateway, Inbound, Outbound


def _serve(options: Any, gateway: Gateway) -> Inbound:
    from adapters.agent_protocol.inbound import AgentProtocolInbound

    return AgentProtocolInbound(options, gateway)


def _call(target: Any) -> Outbound:
    from adapters.agent_protocol.outbound import AgentProtocolOutbound

    return AgentProtocolOutbound(target)


ADAPTER = Adapter(
    name="agent_protocol",
    title="Agent Protocol v1 (e2b, AI Engineer Foundation)",
    path="/agent-protocol",
    serve=_serve,
    serve_options=AgentProtocolServe,
    call=_call,
    target_options=AgentProtocolTarget,
    losses=LOSSES,
    example="curl -s {url}/{agent}/ap/v1/agent/tasks -H 'content-type: application/json' -d '{\"input\": {prompt}}'",
)
