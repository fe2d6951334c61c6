"""One valid message of every method of every JSON-RPC door: what the fuzzers change.

`names` are what is there: a session or an agent that was made for them. A message is (method, params); `TOLD` are sent
as notifications, everything else as a request, and each now and then as the other.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Said: TypeAlias = tuple[str, dict[str, Any]]

META = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x": 1}
SERVERS = [
    {"name": "files", "command": "/bin/true", "args": ["a"], "env": [{"name": "A", "value": "b"}]},
    {"type": "http", "name": "web", "url": "http://127.0.0.1:9/mcp", "headers": [{"name": "a", "value": "b"}]},
    {"type": "acp", "name": "own", "id": "own-1"},
]
BLOCKS = [
    {"type": "text", "text": "plant a rose", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png", "uri": "file:///a.png"},
    {"type": "resource_link", "uri": "file:///a.txt", "name": "a.txt", "size": 12},
    {"type": "resource", "resource": {"uri": "file:///b.txt", "text": "b", "mimeType": "text/plain"}},
]
CLIENT = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True, "elicitation": {"form": {}, "url": {}}}
INITIALIZE_V1 = {"protocolVersion": 1, "clientCapabilities": CLIENT, "clientInfo": {"name": "f", "version": "1"}}
INITIALIZE_V2 = {"protocolVersion": 2, "capabilities": CLIENT, "info": {"name": "f", "version": "1"}}

TOLD = {
    "session/cancel",
    "$/cancel_request",
    "_rig/note",
    "mcp/message",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
    "agent/error",
}


def agent_client_common(session: str) -> list[Said]:
    new = {"cwd": "/tmp", "mcpServers": SERVERS, "additionalDirectories": ["/var"], "_meta": META}
    return [
        ("session/new", new),
        ("session/resume", {"sessionId": session, **new}),
        ("session/list", {"cwd": "/tmp", "cursor": None}),
        ("session/fork", {"sessionId": session, **new}),
        ("session/prompt", {"sessionId": session, "prompt": BLOCKS, "_meta": META}),
        ("session/set_config_option", {"sessionId": session, "configId": "model", "value": "large"}),
        ("session/set_config_option", {"sessionId": session, "configId": "agent", "type": "id", "value": "every"}),
        ("session/close", {"sessionId": session}),
        ("session/delete", {"sessionId": session}),
        ("session/cancel", {"sessionId": session}),
        ("$/cancel_request", {"requestId": 3}),
        ("_rig/ask", {"sessionId": session, "question": {"text": "why"}}),
        ("_rig/ask", {"question": {"text": "why"}}),
        ("_rig/note", {"sessionId": session, "text": "so"}),
        ("session/unheard_of", {"sessionId": session, "cwd": "/tmp"}),
        ("tool_call/cancel", {"sessionId": session, "toolCallId": "call"}),
        ("terminal/cancel", {"sessionId": session, "terminalId": "t"}),
        ("mcp/connect", {"serverId": "own-1", "sessionId": session}),
        ("mcp/message", {"connectionId": "c", "method": "tools/list", "params": {"a": 1}}),
        ("mcp/message", {"serverId": "own-1", "requestId": 1, "method": "tools/call", "params": {"name": "t"}}),
        ("mcp/disconnect", {"connectionId": "c"}),
        ("providers/list", {}),
    ]


def agent_client_v1(session: str) -> list[Said]:
    return [
        ("initialize", INITIALIZE_V1),
        ("authenticate", {"methodId": "key", "_meta": {"token": "t"}}),
        ("logout", {}),
        ("session/load", {"sessionId": session, "cwd": "/tmp", "mcpServers": []}),
        ("session/set_mode", {"sessionId": session, "modeId": "code"}),
        *agent_client_common(session),
    ]


def agent_client_v2(session: str) -> list[Said]:
    start = {"sessionId": session, "cwd": "/tmp", "mcpServers": [], "replayFrom": {"type": "start"}}
    return [
        ("initialize", INITIALIZE_V2),
        ("auth/login", {"methodId": "key"}),
        ("auth/logout", {}),
        ("session/resume", start),
        ("session/set_config_option", {"sessionId": session, "configId": "mode", "type": "id", "value": "code"}),
        *agent_client_common(session),
    ]


MCP_CLIENT = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
AGENT_CLIENT = {**MCP_CLIENT, "agent": {"messages": True}}
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": AGENT_CLIENT,
    "io.modelcontextprotocol/clientInfo": {"name": "f", "version": "1"},
}


def initialize(version: str) -> Said:
    info = {"name": "f", "version": "1"}
    return "initialize", {"protocolVersion": version, "capabilities": AGENT_CLIENT, "clientInfo": info}


def mcp_common() -> list[Said]:
    return [
        initialize("2025-11-25"),
        ("ping", {}),
        ("logging/setLevel", {"level": "debug"}),
        ("notifications/initialized", {}),
        ("notifications/cancelled", {"requestId": 2, "reason": "no"}),
        ("notifications/progress", {"progressToken": 1, "progress": 1, "total": 2, "message": "m"}),
        ("notifications/roots/list_changed", {}),
        ("tools/list", {"cursor": None, "_meta": {"progressToken": "t"}}),
        ("server/discover", {"_meta": ENVELOPE}),
        ("tools/list", {"_meta": ENVELOPE}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}}),
        ("unheard/of", {"x": 1}),
    ]


def agent_communication(agent: str) -> list[Said]:
    meta = {"progressToken": "p", "traceparent": META["traceparent"], "interlingua/config": {"x": 1}}
    resume = {"interlingua/resume": "run:question", "interlingua/outcome": "answered"}
    return [
        *mcp_common(),
        ("agents/list", {"cursor": None}),
        ("agents/templates/list", {}),
        ("agents/create", {"templateName": agent, "config": {"a": 1}}),
        ("agents/destroy", {"name": agent}),
        ("agents/run", {"name": agent, "input": {"message": "hello"}, "config": {"x": 1}, "_meta": meta}),
        ("agents/run", {"name": agent, "input": {"message": "hello"}, "_meta": resume}),
        ("agents/run", {"name": agent, "input": {"message": "hello"}, "_meta": ENVELOPE}),
        ("tools/call", {"name": agent, "arguments": {"message": "hello", "text": "hello"}, "_meta": meta}),
        ("tools/call", {"name": agent, "arguments": {"text": "hello"}, "_meta": ENVELOPE}),
        ("tools/call", {"name": "interlingua_answer", "arguments": {"resume": "run:question", "answer": "yes"}}),
        ("agents/run", {"name": agent, "requestState": "s", "inputResponses": {"a": {}}, "_meta": ENVELOPE}),
    ]


def agent_context(agent: str) -> list[Said]:
    """`agent`: one that registered on this connection, or on another of the same client."""
    record = {
        "id": agent,
        "name": "An agent",
        "version": "1.0.0",
        "description": "of the fuzzer",
        "capabilities": {"tools": ["books"], "models": ["m"], "specializations": ["prose"], "protocols": ["ACP-0.1"]},
        "performance": {"qualityScore": 9.5, "latency": 100, "costPerToken": 0.001},
        "inputSchema": {"type": "object", "properties": {"message": {"type": "string"}}},
        "meta": {"x": 1},
    }
    needs = {
        "capabilities": ["books"],
        "constraints": {"deadline": "2099-01-01T00:00:00Z", "priority": 1, "maxTokens": 100, "maxCost": 1},
    }
    task = {"id": "task-1", "type": "write", "payload": {"messages": [{"text": "go"}]}, "requirements": needs}
    payload = {"messages": [{"text": "hi"}], "context": {"sessionId": "s"}, "requirements": needs}
    correlated = {"correlationId": "c-1", "progressToken": 5}
    message = {"source": agent, "target": "echo", "content": {"type": "request", "payload": payload}}
    return [
        *mcp_common(),
        ("agent/register", {"agent": record, "_meta": correlated}),
        ("agent/unregister", {"agentId": agent, "reason": "done"}),
        ("agent/heartbeat", {"agentId": agent, "status": "active"}),
        ("agent/revoke", {"agentId": "someone-else", "reason": "x"}),
        ("agent/restore", {"agentId": "someone-else"}),
        ("agent/message", {**message, "_meta": correlated}),
        ("agent/message", {**message, "target": "every"}),
        ("agent/message", {"target": agent, "content": {"type": "response", "payload": {"x": 1}}, "_meta": correlated}),
        ("agent/message", {"target": agent, "content": {"type": "update", "payload": "more"}, "_meta": correlated}),
        ("agent/delegate", {"task": task, "source": agent, "wait": False, "_meta": correlated}),
        ("agent/delegate", {"task": {**task, "id": "task-2"}, "target": "echo"}),
        ("agent/error", {"error": {"code": -32001, "message": "no", "details": {}}, "_meta": correlated}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "agent://directory"}),
        ("resources/read", {"uri": f"agent://metrics/{agent}"}),
        ("resources/read", {"uri": "agent://tasks", "_meta": ENVELOPE}),
        ("resources/subscribe", {"uri": "agent://tasks"}),
        ("resources/unsubscribe", {"uri": "agent://tasks"}),
        ("tools/call", {"name": "agentSearch", "arguments": {"capabilities": ["books"], "minScore": 1, "maxCost": 2}}),
        ("tools/call", {"name": "taskAssign", "arguments": {"message": "go", "agentId": "echo", "priority": 1}}),
        ("tools/call", {"name": "agentEvaluate", "arguments": {"agentId": "echo", "score": 7.5, "review": "good"}}),
        ("tools/call", {"name": "taskAnswer", "arguments": {"taskId": "task-1", "answer": {"a": 1}}}),
        ("tools/call", {"name": "taskList", "arguments": {"status": "running", "limit": 3}}),
        ("tools/call", {"name": "taskCancel", "arguments": {"taskId": "task-1", "reason": "enough"}}),
        ("tools/call", {"name": "agentRevoke", "arguments": {"agentId": "someone-else", "reason": "no"}}),
        ("resources/read", {"uri": "agent://status"}),
        ("prompts/list", {}),
        ("prompts/get", {"name": "review", "arguments": {"title": "t"}}),
        (
            "agent/message",
            {
                "target": "echo",
                "content": {
                    "type": "request",
                    "payload": {
                        "format": "text",
                        "subformat": "english",
                        "content": "hi",
                        "submessages": [{"format": "token", "subformat": "conversation", "content": "c"}],
                    },
                },
            },
        ),
        (
            "sampling/createMessage",
            {
                "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
                "maxTokens": 10,
                "modelPreferences": {"costPriority": 0.5, "hints": [{"name": "m"}]},
            },
        ),
        ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
    ]


ANSWERS: list[Any] = [
    {"outcome": {"outcome": "selected", "optionId": "yes"}},
    {"action": "accept", "content": {"answer": "yes", "approve": True}},
    {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}},
    {"content": {"type": "response", "payload": {"messages": [{"text": "x"}], "answer": {"a": 1}}}},
    {"connectionId": "c"},
    {"content": "the file"},
    {},
]
"""Results of what the gateway asks of its client."""
