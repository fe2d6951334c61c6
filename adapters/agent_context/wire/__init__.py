"""The Agent Context Protocol's own messages, as far as the adapter reads them.

schema.json describes all of them, read and sent: params are held against it, and by the tests all that is sent.

here         names: methods, resources, tools, error codes, keys of `_meta`, and what the gateway adds to them
messages.py  params held against the schema, `read(raw, definition)`; what is worked out of them

Source: Agent Context Protocol 0.1 of 2025-02-25; what it leaves open is decided in the adapter's README. The base
protocol is in gateway/mcp/wire.py. What is read is checked strictly, and keys that are not known are kept.
"""

from __future__ import annotations

from typing import Final

PROTOCOL: Final = "agent_context"
"""This adapter's name: key of `Agent.extra`, protocol of its runs."""
PATH: Final = "/agent-context"
"""Where it is mounted, unless the options say otherwise."""
VERSION: Final = "ACP-0.1"
MCP_VERSION: Final = "2025-11-25"
"""The revision of MCP that VERSION stands for where a client proposes it in `initialize`."""
SELF: Final = "interlingua"
"""The gateway's own agent id: the source of what nobody else says."""

# --- methods ---------------------------------------------------------------------------------------------------------

REGISTER: Final = "agent/register"
UNREGISTER: Final = "agent/unregister"
MESSAGE: Final = "agent/message"
DELEGATE: Final = "agent/delegate"
HEARTBEAT: Final = "agent/heartbeat"
ERROR: Final = "agent/error"
REVOKE: Final = "agent/revoke"
"""An extension, as is the next: an agent's access is taken away at once (section 7.1), and given back."""
RESTORE: Final = "agent/restore"

RESOURCES_LIST: Final = "resources/list"
TEMPLATES_LIST: Final = "resources/templates/list"
RESOURCES_READ: Final = "resources/read"
SUBSCRIBE: Final = "resources/subscribe"
UNSUBSCRIBE: Final = "resources/unsubscribe"
TOOLS_LIST: Final = "tools/list"
PROMPTS_LIST: Final = "prompts/list"
PROMPTS_GET: Final = "prompts/get"
TOOLS_CALL: Final = "tools/call"
SAMPLE: Final = "sampling/createMessage"

RESOURCE_UPDATED: Final = "notifications/resources/updated"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"

# --- resources and tools ---------------------------------------------------------------------------------------------

DIRECTORY: Final = "agent://directory"
TASKS: Final = "agent://tasks"
STATUS: Final = "agent://status"
"""An extension: how the system is (section 5.4 asks for resources of that kind and names none)."""
METRICS: Final = "agent://metrics/{agentId}"
METRICS_PREFIX: Final = "agent://metrics/"
JSON_TYPE: Final = "application/json"
"""Media type of all resources."""

AGENT_SEARCH: Final = "agentSearch"
TASK_ASSIGN: Final = "taskAssign"
AGENT_EVALUATE: Final = "agentEvaluate"
TASK_ANSWER: Final = "taskAnswer"
"""An extension, as are the next: answers a question of a task, for clients that cannot be asked."""
TASK_LIST: Final = "taskList"
TASK_CANCEL: Final = "taskCancel"
AGENT_REVOKE: Final = "agentRevoke"
AGENT_RESTORE: Final = "agentRestore"

# --- capabilities ----------------------------------------------------------------------------------------------------

AGENT: Final = "agent"
"""Key of `capabilities`: a client that declares it knows this protocol, any other knows MCP only."""
SERVED: Final = {"discovery": True, "evaluation": True, "coordination": True, "monitoring": True}
"""The gateway's declaration under it (appendix B)."""
MESSAGES: Final = "messages"
"""Key of a client's `capabilities.agent`: it can be sent `agent/message`."""

# --- values ----------------------------------------------------------------------------------------------------------

REQUEST: Final = "request"
"""`content.type`, as are the next two."""
RESPONSE: Final = "response"
UPDATE: Final = "update"

ACKNOWLEDGEMENTS: Final = frozenset({"accepted", "received", "pending", "queued", "ok"})
"""`status` of an answer that only acknowledges: the work is done later and told by a message."""

ACTIVE: Final = "active"
"""`status` of an agent in the directory, as are the next."""
BUSY: Final = "busy"
INACTIVE: Final = "inactive"
OFFLINE: Final = "offline"
REVOKED: Final = "revoked"

# --- error codes, besides those of JSON-RPC --------------------------------------------------------------------------

INVALID: Final = -32001
"""The protocol's own example: a payload that does not fit. All others are the gateway's choice."""
NOT_FOUND: Final = -32002
"""No such agent, task, resource; MCP's own code for resources."""
DENIED: Final = -32003
"""A bad token or signature, a policy, a revoked agent."""
UNAVAILABLE: Final = -32004
"""The agent is offline or inactive; it may be tried again."""
CONFLICT: Final = -32005
"""The id is taken."""
DEADLINE: Final = -32006
"""The deadline is past, or passed meanwhile."""
NO_MATCH: Final = -32007
"""No agent can do what is required."""
AGENT_FAILED: Final = -32008
CANCELLED: Final = -32800

# --- keys, besides those of gateway/mcp/runs/keys.py ------------------------------------------------------------------

CORRELATION: Final = "correlationId"
"""Key of `_meta`: the same in every message about one piece of work."""
ASSIGNMENT: Final = "interlingua/assignment"
"""Key of an answer's `_meta`: why this agent was chosen."""
HOPS: Final = "interlingua/hops"
"""Key of `_meta` between gateways: how often the work was delegated before."""
SENDER: Final = "interlingua/source"
"""Key of `_meta` between gateways: the sending agent, which the other could not know."""
EVENT: Final = "interlingua/event"
"""Key of an update's `_meta`: an event that text cannot express, in the form of gateway/core/events.py."""
