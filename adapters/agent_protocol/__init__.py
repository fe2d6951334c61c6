"""Agent Protocol (e2b / AI Engineer Foundation) v1: tasks, steps, artifacts over REST."""

from adapters.agent_protocol.codec import LOSSES
from adapters.agent_protocol.inbound import AgentProtocolInbound
from adapters.agent_protocol.options import AgentProtocolServe, AgentProtocolTarget
from adapters.agent_protocol.outbound import AgentProtocolOutbound
from gateway.adapter import Adapter

ADAPTER = Adapter(
    name="agent_protocol",
    title="Agent Protocol v1 (e2b, AI Engineer Foundation)",
    path="/agent-protocol",
    serve=AgentProtocolInbound,
    serve_options=AgentProtocolServe,
    call=AgentProtocolOutbound,
    target_options=AgentProtocolTarget,
    losses=LOSSES,
    example="curl -s {url}/{agent}/ap/v1/agent/tasks -H 'content-type: application/json' -d '{\"input\": \"Hello\"}'",
)
