"""Agent Context Protocol 0.1: MCP with a directory that agents join, tasks and metrics; both directions."""

from __future__ import annotations

from typing import Any

from adapters.agent_context.options import AgentContextServe, AgentContextTarget
from adapters.agent_context.wire import PATH
from gateway.contract import Adapter, Gateway, Inbound, Outbound


def _serve(options: Any, gateway: Gateway) -> Inbound:
    if options.access is None:
        from adapters.agent_context.door import AgentContextDoor

        return AgentContextDoor(options, gateway)

    from adapters.agent_context.inbound import AgentContextInbound

    return AgentContextInbound(options, gateway)


def _call(target: Any) -> Outbound:
    from adapters.agent_context.outbound import AgentContextOutbound

    return AgentContextOutbound(target)


ADAPTER = Adapter(
    name="agent_context",
    title="Agent Context Protocol 0.1",
    path=PATH,
    serve=_serve,
    serve_options=AgentContextServe,
    call=_call,
    target_options=AgentContextTarget,
    losses={
        "payload_as_text": "A payload that is no input of the agent and has no text in it is told to it as JSON text.",
        "payload_rest": "What a payload says beside its text and files is not told to an agent that takes text only.",
        "late_message": "What an agent says about a run that has ended is left out.",
        "config": "An agent of this protocol takes no configuration with a run.",
        "task_part": "Output of a task's agent that is neither its text nor a thought or file beside it is not passed "
        "on: the task's result has it.",
        "task_artifact": "A file of a task's agent that cannot be read any more is not passed on.",
    },
    example="curl -s {url} -H 'content-type: application/json' -H 'mcp-protocol-version: 2026-07-28' "
    '-H \'mcp-method: agent/message\' -d \'{"jsonrpc": "2.0", "id": 1, "method": "agent/message", "params": '
    '{"target": "{agent}", "content": {"type": "request", "payload": {"messages": [{"text": {prompt}}]}}, "_meta": '
    '{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}\'',
    socket="/ws/{agent}",
    late=True,
    hosts=True,
)
