"""Agent Connect Protocol 0.2.3 (AGNTCY): REST and server-sent events, both directions."""

from __future__ import annotations

from typing import Any

from adapters.agent_connect.options import AgentConnectServe, AgentConnectTarget
from gateway.contract import Adapter, Gateway, Inbound, Outbound


def _serve(options: Any, gateway: Gateway) -> Inbound:
    from adapters.agent_connect.inbound import AgentConnectInbound

    return AgentConnectInbound(options, gateway)


def _call(target: Any) -> Outbound:
    from adapters.agent_connect.outbound import AgentConnectOutbound

    return AgentConnectOutbound(target)


ADAPTER = Adapter(
    name="agent_connect",
    title="Agent Connect Protocol (AGNTCY)",
    path="/agent-connect",
    serve=_serve,
    serve_options=AgentConnectServe,
    call=_call,
    target_options=AgentConnectTarget,
    losses={
        "tags": "`config.tags` and `config.recursion_limit` mean nothing to agents of other protocols.",
        "content": "A message's content is always text: the SDK drops lists. Files are links in its metadata.",
        "status": "Of seven statuses the protocol has five: running is `pending`, cancelled is `error`.",
        "interrupts": "Of several open interrupts a client sees the oldest.",
        "streams": "A snapshot says nothing of how it came about: thoughts, tool calls and plans are `custom` updates.",
        "cancel_unsupported": "The agent's server cannot cancel: the run ends here and may go on there.",
        "thread_recreated": "The agent's server has lost the thread: the session goes on with an empty one.",
        "thread_state": "The agent does not take the state that its thread is to have: it is told the conversation.",
    },
    example="curl -s {url}/runs/wait -H 'content-type: application/json' "
    '-d \'{"agent_id": "{agent}", "input": {input}}\'',
    late=True,
)
