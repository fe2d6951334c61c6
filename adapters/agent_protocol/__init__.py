"""Agent Protocol (e2b / AI Engineer Foundation) v1: tasks, steps, artifacts over REST."""

from __future__ import annotations

from typing import Any

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
    losses={
        "cancel_not_in_protocol": "The protocol has no cancel: no further step is executed, but the one that the "
        "agent is executing goes on there.",
        "decline_not_in_protocol": "The protocol has no way to decline an agent's question: the run ends here, and the "
        "agent's task still waits there.",
        "additional_input_key_taken": "Config and metadata travel as `config` and `metadata` in `additional_input`; an "
        "input document that has a key of that name keeps it, and the other is not sent.",
        "artifact_unavailable": "The agent listed an artifact and did not deliver it.",
        "artifact_too_large": "An artifact was larger than the route's `max_artifact`.",
        "relative_path_unsafe": "An artifact's `relative_path` led out of its folder and was dropped.",
        "is_last_missing": "The agent never said `is_last`; its last planned step was taken for it.",
        "plan_unavailable": "The agent did not answer with its list of steps.",
    },
    example="curl -s {url}/{agent}/ap/v1/agent/tasks -H 'content-type: application/json' -d '{\"input\": {prompt}}'",
    late=True,
)
