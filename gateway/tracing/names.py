"""Every name that leaves the gateway in a trace. The metrics' names are in metrics.py, each beside its meaning.

The `gen_ai.*`, `http.*`, `server.*`, `url.*` and `error.*` names are OpenTelemetry's semantic conventions; the
library's constants are not used so that nothing of it is imported while nothing is traced.
"""

from __future__ import annotations

SCOPE = "interlingua"
SERVICE = "interlingua"

# Spans.
INBOUND_SPAN = "{protocol} {operation}"
REQUEST_SPAN_OF_AGENT = "{method} {agent}"
UNKNOWN_REQUEST_SPAN = "jsonrpc"
RUN_SPAN = "invoke_agent {agent}"
CALL_SPAN = "call {protocol}"
TOOL_SPAN = "execute_tool {tool}"
APPROVAL_SPAN = "approve_tool {tool}"
DESCRIBE_SPAN = "describe_agent {agent}"
CALLBACK_SPAN = "callback {protocol}"

# Inbound span.
PROTOCOL = "interlingua.protocol"
OPERATION = "interlingua.operation"
HTTP_STATUS = "http.response.status_code"

# Span of a JSON-RPC request.
RPC_SYSTEM = "rpc.system.name"
JSONRPC = "jsonrpc"
RPC_METHOD = "rpc.method"
RPC_METHOD_ORIGINAL = "rpc.method_original"
"""The name of a method that is not known, whose `rpc.method` is UNKNOWN."""
UNKNOWN = "_OTHER"
RPC_STATUS = "rpc.response.status_code"
"""The code of the error that was answered."""
RPC_ID = "jsonrpc.request.id"
MCP_METHOD = "mcp.method.name"
MCP_VERSION = "mcp.protocol.version"
MCP_SESSION = "mcp.session.id"

# Run span.
RUN_ID = "interlingua.run.id"
RUN_STATUS = "interlingua.run.status"
RUN_RESUMED = "interlingua.run.resumed"
"""True where a restarted gateway went on with the run."""
DELTAS = "interlingua.stream.deltas"
"""How many deltas the agent streamed: counted, never recorded one by one."""
LOSS = "interlingua.loss.{what}"
"""How often this was lost."""
GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_INVOKE = "invoke_agent"
GEN_AI_AGENT_NAME = "gen_ai.agent.name"
GEN_AI_AGENT_ID = "gen_ai.agent.id"
GEN_AI_AGENT_DESCRIPTION = "gen_ai.agent.description"
GEN_AI_AGENT_VERSION = "gen_ai.agent.version"
GEN_AI_CONVERSATION = "gen_ai.conversation.id"
GEN_AI_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"

# Span of a tool call, and of a client's request for one.
GEN_AI_EXECUTE = "execute_tool"
GEN_AI_TOOL_NAME = "gen_ai.tool.name"
GEN_AI_TOOL_CALL = "gen_ai.tool.call.id"
TOOL_KIND = "interlingua.tool.kind"
"""The agent's own word for what the tool does: read, edit, execute."""
TOOL_FAILED = "tool_error"

# Span of an approval.
APPROVAL_OUTCOME = "interlingua.approval.outcome"
APPROVED, REJECTED, NOBODY = "approved", "rejected", "cancelled"
APPROVAL_POLICY = "interlingua.approval.policy"
"""The policy that asks for it."""

# Span of a callback.
HTTP_METHOD = "http.request.method"
CALLBACK_ATTEMPT = "interlingua.callback.attempt"
"""From 1."""
CALLBACK_OUTCOME = "interlingua.callback.outcome"
DELIVERED, AGAIN, DROPPED = "delivered", "again", "dropped"

# Call span.
TARGET_PROTOCOL = "interlingua.target.protocol"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

# Any span.
ERROR_TYPE = "error.type"

# Events of the run span.
INTERRUPT_EVENT = "interlingua.interrupt"
INTERRUPT_ID = "interlingua.interrupt.id"
INTERRUPT_KIND = "interlingua.interrupt.kind"
ANSWER_EVENT = "interlingua.answer"
ANSWER_OUTCOME = "interlingua.answer.outcome"
LOSS_EVENT = "interlingua.loss"
"""The first time that something is lost; how often in all is an attribute."""
LOSS_WHAT = "interlingua.loss.what"
