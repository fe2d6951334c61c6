"""The published schema of the protocol, for tests: every message of ours is held against it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from tests.support import mcp_schemas as mcp

FILE = Path(__file__).parents[3] / "adapters" / "agent_context" / "wire" / "schema.json"


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


@cache
def validator(name: str) -> Draft202012Validator:
    """Of a definition; "" is any message at all."""
    if not name:
        return Draft202012Validator(document())
    assert name in document()["$defs"], f"the schema has no {name}"
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": document()["$defs"]})


def valid(name: str, value: Any) -> Any:
    """The value, if it is what the schema calls by that name."""
    errors = [f"{error.json_path}: {error.message[:200]}" for error in validator(name).iter_errors(value)]
    assert not errors, (value, errors)
    return value


# --- what the gateway says, held against MCP's schema as well ---------------------------------------------------------


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
        mcp.valid(version, "JSONRPCError" if mcp.has(version, "JSONRPCError") else "JSONRPCErrorResponse", answer)
        valid("JSONRPCError", answer)
        return
    result = answer["result"]
    asks = result.get("resultType") == "input_required"
    name = "InputRequiredResult" if asks else MCP_RESULTS.get(method)
    if name is not None and mcp.has(version, name):
        dialect = method == "initialize" and str(result["protocolVersion"]).startswith("ACP-")
        mcp.valid(version, name, result)
        assert dialect or method != "initialize" or result["protocolVersion"] == version
    if asks:
        return
    valid("JSONRPCResponse", answer)
    if method in OWN_RESULTS:
        valid(OWN_RESULTS[method], result)
    if method == "tools/call" and not result.get("isError"):
        valid(OWN_TOOLS[params["name"]], result)
    if method == "tools/call" and result.get("isError") and "interlingua/failure" in result.get("_meta", {}):
        valid("ToolFailure", result)
    if method == "resources/read":
        for each in result["contents"]:
            valid(BODIES.get(each["uri"], "MetricsBody"), json.loads(each["text"]))


def check_said(message: dict[str, Any], version: str) -> None:
    """The same of a request or a notification of the gateway's."""
    method = message["method"]
    asked = "id" in message
    name = (MCP_REQUESTS if asked else MCP_NOTIFICATIONS).get(method)
    if name is not None and mcp.has(version, name):
        mcp.valid(version, name, message)
    mine = (OWN_REQUESTS if asked else OWN_NOTIFICATIONS).get(method)
    assert name is not None or mine is not None, f"no schema has {method}"
    if mine is not None:
        valid(mine, message)
