"""Agent Client Protocol v1 (Zed): JSON-RPC over stdio, WebSocket and Streamable HTTP, both directions."""

from __future__ import annotations

from typing import Any

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
    losses={
        "mcp_servers": "An agent of another protocol cannot be given the MCP servers that an editor offers, nor one "
        "that is elsewhere and takes none over HTTP those without an address; nor a governed one those with the name "
        "of one of its manifest's.",
        "rewrite": "Text that an editor was told cannot be taken back: a document that rewrites its text is told "
        "again, as a new message, before the turn ends.",
        "custom": "An event of another protocol's own has no update here.",
        "other_roles": "Messages of an agent of another protocol that are neither the assistant's nor the user's.",
        "beside_output": "A part of a message that is not in the output document: text beside data, or more data.",
        "file": "A file that another protocol described without an address.",
        "file_not_sent": "A client's file that the agent takes in no block, where the gateway has no address for a "
        "link.",
        "session_forgotten": "The agent was started again and has forgotten the conversation: it goes on with a new "
        "one.",
        "unreadable": "A message of the agent's was over the limit, or none at all, and was left out.",
        "subagent": "What a subagent of an agent of version 2 says in a session of its own, which no client opened.",
        "deletion": "What an agent of version 2 said and takes back stays where a client of version 1 was told it.",
        "terminal": "A terminal of version 2 that no tool call shows, or whose output is too long for the text that "
        "stands for it in version 1; and before clients of version 2 a terminal of version 1, which is the client's.",
        "unknown_content": "Content of a kind that version 1 has no word for.",
        "unknown_option": "A session option of a type that version 1 has no word for.",
        "unknown_update": "An update of a kind that version 1 has no word for: a notice, a plan that is no list.",
        "unknown_word": "A status, a kind or a priority that version 1 has no word for is told as the nearest it has.",
        "tool_refused": "A tool call that the rules of a governed route did not let through is told to nobody.",
        "file_too_large": "A file in a message of the agent's was over the limit of artifacts and was not kept.",
    },
    example="interlingua stdio {agent} --gateway {gateway}  # as the command of an editor's agent setting",
    socket="/{agent}",
    editors=True,
    late=True,
)
