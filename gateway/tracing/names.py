"""Every name that leaves the gateway in a trace. The metrics' names are in metrics.py, each beside its meaning.

The `gen_ai.*`, `http.*`, `server.*`, `url.*` and `error.*` names are OpenTelemetry's semantic conventions; the
library's constants are not used so that nothing of it is imported while nothing is traced.
"""

from __future__ import annotations

SCOPE = "interlingua"
SERVICE = "interlingua"

# Spans: one for the client's request, one for the run, one for the call of the agent.
INBOUND_SPAN = "{protocol} {operation}"
RUN_SPAN = "invoke_agent {agent}"
CALL_SPAN = "call {protocol}"

# Inbound span.
PROTOCOL = "interlingua.protocol"
OPERATION = "interlingua.operation"
HTTP_STATUS = "http.response.status_code"

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
