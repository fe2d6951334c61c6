"""What the gateway says, held against the schemas: MCP's of the session's revision, and the protocol's own."""

from __future__ import annotations

import json
from typing import Any

from tests.adapters.agent_context import wire_schema as own
from tests.support.mcp_schemas import has, valid

MCP_RESULTS = {
    "initialize": "InitializeResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "sampling/createMessage": "CreateMessageResult",
}
MCP_NOTIFICATIONS = {
    "notifications/progress": "ProgressNotification",
    "notifications/message": "LoggingMessageNotification",
    "notifications/cancelled": "CancelledNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "notifications/tools/list_changed": "ToolListChangedNotification",
}
MCP_REQUESTS = {"elicitation/create": "ElicitRequest", "sampling/createMessage": "CreateMessageRequest"}
OWN_RESULTS = {
    "agent/register": "RegisterResult",
    "agent/unregister": "UnregisterResult",
    "agent/message": "MessageResult",
    "agent/delegate": "DelegateResult",
    "agent/heartbeat": "HeartbeatResult",
    "agent/revoke": "RevokeResult",
    "agent/restore": "RestoreResult",
    "resources/read": "ReadResult",
    "sampling/createMessage": "MessageCreated",
}
OWN_TOOLS = {
    "agentSearch": "SearchResult",
    "taskAssign": "TaskToolResult",
    "agentEvaluate": "EvaluateResult",
    "taskAnswer": "TaskToolResult",
    "taskList": "TaskListResult",
    "taskCancel": "TaskToolResult",
    "agentRevoke": "AccessResult",
    "agentRestore": "AccessResult",
}
OWN_NOTIFICATIONS = {
    "agent/message": "MessageNotification",
    "agent/error": "ErrorNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
    "notifications/resources/list_changed": "ResourcesChangedNotification",
}
OWN_REQUESTS = {"agent/message": "MessageRequest", "agent/delegate": "DelegateRequest"}
BODIES = {"agent://directory": "DirectoryBody", "agent://tasks": "TasksBody", "agent://status": "StatusBody"}


def check_answer(answer: dict[str, Any], version: str, method: str, params: dict[str, Any]) -> None:
    """Fails where an answer of the gateway's to a request fits no schema."""
    if "error" in answer:
        valid(version, "JSONRPCError" if has(version, "JSONRPCError") else "JSONRPCErrorResponse", answer)
        own.valid("JSONRPCError", answer)
        return
    result = answer["result"]
    asks = result.get("resultType") == "input_required"
    name = "InputRequiredResult" if asks else MCP_RESULTS.get(method)
    if name is not None and has(version, name):
        dialect = method == "initialize" and str(result["protocolVersion"]).startswith("ACP-")
        valid(version, name, result)
        assert dialect or method != "initialize" or result["protocolVersion"] == version
    if asks:
        return
    own.valid("JSONRPCResponse", answer)
    if method in OWN_RESULTS:
        own.valid(OWN_RESULTS[method], result)
    if method == "tools/call" and not result.get("isError"):
        own.valid(OWN_TOOLS[params["name"]], result)
    if method == "tools/call" and result.get("isError") and "interlingua/failure" in result.get("_meta", {}):
        own.valid("ToolFailure", result)
    if method == "resources/read":
        for each in result["contents"]:
            own.valid(BODIES.get(each["uri"], "MetricsBody"), json.loads(each["text"]))


def check_said(message: dict[str, Any], version: str) -> None:
    """The same of a request or a notification of the gateway's."""
    method = message["method"]
    asked = "id" in message
    name = (MCP_REQUESTS if asked else MCP_NOTIFICATIONS).get(method)
    if name is not None and has(version, name):
        valid(version, name, message)
    mine = (OWN_REQUESTS if asked else OWN_NOTIFICATIONS).get(method)
    assert name is not None or mine is not None, f"no schema has {method}"
    if mine is not None:
        own.valid(mine, message)
