"""Agent Communication Protocol, pre-alpha (BeeAI): MCP with agents, over all of MCP's transports, both directions."""

from __future__ import annotations

from typing import Any

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
    losses={
        "rewrite": "Output that was told cannot be taken back: no delta shortens a text or a list, removes a key, "
        "flips a flag. What no delta can say is held back until the result, which is right; the rest of the document "
        "goes on.",
        "bad_delta": "A piece of an agent's delta that cannot be combined with its output so far (a text with a "
        "number, say) is left out; the result has it.",
        "late_progress": "Progress that came after the result is left out.",
        "default": "Agents made with the Python SDK repeat all fields of their model in every delta, those not set "
        "with their defaults. A value that is its field's default in the output schema is left out of such a delta, "
        "and comes with the result. A default that the schema does not tell is told each time, and the result corrects "
        "it.",
        "bad_event": "An event beside the output, told by another gateway in `_meta`, that cannot be read is left out.",
        "config": "An agent of this protocol takes no configuration with a run, only when it is made of a template.",
        "output_schema": "A tool's output that does not fit the schema it is published with is no structured content: "
        "the answer is an error that says so, with the output as text.",
        "artifact": "Before MCP 2025-06-18 a tool's answer has no links: a file is named in the text.",
    },
    example="curl -s {url}/mcp -H 'content-type: application/json' -H 'mcp-protocol-version: 2026-07-28' "
    '-H \'mcp-method: agents/run\' -d \'{"jsonrpc": "2.0", "id": 1, "method": "agents/run", "params": '
    '{"name": "{agent}", "input": {input}, "_meta": {"io.modelcontextprotocol/protocolVersion": '
    '"2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}\'',
    socket="/ws/{agent}",
    late=True,
)
