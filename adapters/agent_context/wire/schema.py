"""All messages as one JSON Schema (draft 2020-12): docs/schemas/agent_context.schema.json, made by `docs/make.py`.

A definition for each request, its params and its result, each notification, resource body, tool and its arguments,
and for errors. `AgentIdentifier`, `AgentCapabilities` and the methods of `AgentRequest` are those of the protocol's
appendix A.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from adapters.agent_context.wire import constants as c
from adapters.agent_context.wire import messages, results, sampling, tools

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TEXTS: Final = {"type": "array", "items": {"type": "string"}}
APPENDIX: Final[dict[str, dict[str, Any]]] = {
    "AgentIdentifier": {
        "type": "string",
        "description": "A unique identifier for an agent",
        "pattern": "^[a-zA-Z0-9-_]+$",
    },
    "AgentCapabilities": {
        "type": "object",
        "description": "Capabilities and features an agent supports",
        "properties": {
            "tools": {"description": "List of tools the agent can use", **_TEXTS},
            "models": {"description": "Language models the agent can work with", **_TEXTS},
            "specializations": {"description": "Areas of expertise or specific skills", **_TEXTS},
            "protocols": {"description": "Supported protocol versions and extensions", **_TEXTS},
        },
        "required": ["tools", "models", "specializations", "protocols"],
    },
    "AgentRequest": {
        "allOf": [
            {"$ref": "#/$defs/JSONRPCRequest"},
            {"properties": {"method": {"type": "string", "enum": list(c.METHODS)}}},
        ]
    },
}
"""The definitions of the protocol's appendix A, as they are there."""

_ID: Final = {"type": ["string", "number"]}
_ENVELOPES: Final[dict[str, dict[str, Any]]] = {
    "JSONRPCRequest": {
        "type": "object",
        "description": "Wants an answer with the same id.",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": _ID,
            "method": {"type": "string"},
            "params": {"type": "object"},
        },
        "required": ["jsonrpc", "id", "method"],
    },
    "JSONRPCNotification": {
        "type": "object",
        "description": "Wants none.",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": False,
            "method": {"type": "string"},
            "params": {"type": "object"},
        },
        "required": ["jsonrpc", "method"],
    },
    "JSONRPCResponse": {
        "type": "object",
        "description": "An answer that is no error.",
        "properties": {"jsonrpc": {"const": "2.0"}, "id": _ID, "result": {"type": "object"}},
        "required": ["jsonrpc", "id", "result"],
    },
    "JSONRPCError": {
        "type": "object",
        "description": "An answer that is one. id is null where nobody knows what it answers.",
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "number", "null"]},
            "error": {"$ref": "#/$defs/ErrorObject"},
        },
        "required": ["jsonrpc", "id", "error"],
    },
}

REQUESTS: Final[Mapping[str, tuple[str, type[BaseModel], type[BaseModel] | None]]] = {
    "Register": (c.REGISTER, messages.Register, results.RegisterResult),
    "Unregister": (c.UNREGISTER, messages.Unregister, results.UnregisterResult),
    "Message": (c.MESSAGE, messages.Message, results.MessageResult),
    "Delegate": (c.DELEGATE, messages.Delegate, results.DelegateResult),
    "Heartbeat": (c.HEARTBEAT, messages.Heartbeat, results.HeartbeatResult),
    "Revoke": (c.REVOKE, messages.Revoke, results.RevokeResult),
    "Restore": (c.RESTORE, messages.Restore, results.RestoreResult),
    "ReadResource": (c.RESOURCES_READ, tools.Resource, results.ReadResult),
    "Subscribe": (c.SUBSCRIBE, tools.Resource, None),
    "Unsubscribe": (c.UNSUBSCRIBE, tools.Resource, None),
    "ListResources": (c.RESOURCES_LIST, tools.Page, None),
    "ListResourceTemplates": (c.TEMPLATES_LIST, tools.Page, None),
    "ListPrompts": (c.PROMPTS_LIST, tools.Page, None),
    "GetPrompt": (c.PROMPTS_GET, tools.GetPrompt, None),
    "ListTools": (c.TOOLS_LIST, tools.Page, None),
    "CallTool": (c.TOOLS_CALL, tools.CallTool, None),
    "CreateMessage": (c.SAMPLE, sampling.CreateMessage, sampling.MessageCreated),
}
"""Name -> method, params, result; None where the result is MCP's (and of tools/call one of `TOOLS`)."""

NOTIFICATIONS: Final[Mapping[str, tuple[str, type[BaseModel] | None]]] = {
    "Register": (c.REGISTER, messages.Register),
    "Unregister": (c.UNREGISTER, messages.Unregister),
    "Message": (c.MESSAGE, messages.Message),
    "Delegate": (c.DELEGATE, messages.Delegate),
    "Heartbeat": (c.HEARTBEAT, messages.Heartbeat),
    "Error": (c.ERROR, messages.ErrorNote),
    "ResourceUpdated": (c.RESOURCE_UPDATED, results.Updated),
    "ResourcesChanged": (c.RESOURCES_CHANGED, None),
}
"""What comes without an id, and has no answer."""

TOOLS: Final[Mapping[str, tuple[dict[str, Any], type[BaseModel], type[BaseModel]]]] = {
    "AgentSearch": (tools.SEARCH_TOOL, tools.AgentSearch, results.SearchResult),
    "TaskAssign": (tools.ASSIGN_TOOL, tools.TaskAssign, results.TaskToolResult),
    "AgentEvaluate": (tools.EVALUATE_TOOL, tools.AgentEvaluate, results.EvaluateResult),
    "TaskAnswer": (tools.ANSWER_TOOL, tools.TaskAnswer, results.TaskToolResult),
    "TaskList": (tools.LIST_TOOL, tools.TaskList, results.TaskListResult),
    "TaskCancel": (tools.CANCEL_TOOL, tools.TaskCancel, results.TaskToolResult),
    "AgentRevoke": (tools.REVOKE_TOOL, tools.AgentRevoke, results.AccessResult),
    "AgentRestore": (tools.RESTORE_TOOL, tools.AgentRestore, results.AccessResult),
}
"""Name -> definition, arguments, result."""

BESIDE: Final[tuple[type[BaseModel], ...]] = (
    messages.Payload,
    results.ResponsePayload,
    results.Question,
    results.AnswerPayload,
    results.Assignment,
    results.DirectoryBody,
    results.TasksBody,
    results.StatusBody,
    results.MetricsBody,
    results.ToolFailure,
    results.ErrorObject,
)
"""What is inside of others where their schemas allow anything: payloads, texts of resources, keys of `_meta`."""


def schema() -> dict[str, Any]:
    """The whole schema. Any message of the protocol is valid against it, any part against its definition."""
    definitions = {**_models(), **_ENVELOPES, **APPENDIX}
    definitions |= dict(_requests()) | dict(_notifications()) | dict(_tools())
    every = [name for name in definitions if name.endswith(("Request", "Notification", "Response", "JSONRPCError"))]
    kinds = [name for name in sorted(every) if name not in ("AgentRequest", *_ENVELOPES) or name == "JSONRPCError"]
    return {
        "$schema": DIALECT,
        "title": f"Agent Context Protocol {c.VERSION.removeprefix('ACP-')}, as the Interlingua gateway speaks it",
        "description": "Definitions of its messages over those of MCP. Unknown members are allowed everywhere.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in kinds],
        "$defs": {name: definitions[name] for name in sorted(definitions)},
    }


def _requests() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, (method, params, result) in REQUESTS.items():
        yield f"{name}Request", _message("JSONRPCRequest", method, params)
        if result is not None:
            answer = {"properties": {"result": {"$ref": f"#/$defs/{result.__name__}"}}}
            yield f"{name}Response", {"allOf": [{"$ref": "#/$defs/JSONRPCResponse"}, answer]}


def _notifications() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, (method, params) in NOTIFICATIONS.items():
        yield f"{name}Notification", _message("JSONRPCNotification", method, params)


def _message(envelope: str, method: str, params: type[BaseModel] | None) -> dict[str, Any]:
    own: dict[str, Any] = {"properties": {"method": {"const": method}}}
    if params is not None:
        own["properties"]["params"] = {"$ref": f"#/$defs/{params.__name__}"}
        if any(field.is_required() for field in params.model_fields.values()):
            own["required"] = ["params"]
    return {"allOf": [{"$ref": f"#/$defs/{envelope}"}, own]}


def _tools() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, (definition, _, result) in TOOLS.items():
        yield f"{name}Tool", {"description": "As tools/list has it.", "const": definition}
        answer = {"properties": {"result": {"$ref": f"#/$defs/{result.__name__}"}}}
        yield f"{name}Response", {"allOf": [{"$ref": "#/$defs/JSONRPCResponse"}, answer]}


def _models() -> dict[str, dict[str, Any]]:
    models: list[type[BaseModel]] = [*BESIDE]
    for _, params, result in REQUESTS.values():
        models += [params] if result is None else [params, result]
    models += [each for _, each in NOTIFICATIONS.values() if each is not None]
    models += [each for _, arguments, result in TOOLS.values() for each in (arguments, result)]
    distinct = list(dict.fromkeys(models))
    _, document = models_json_schema([(model, "validation") for model in distinct], ref_template="#/$defs/{model}")
    return {name: _plain(definition) for name, definition in document["$defs"].items()}


def _plain(node: Any, *, names: bool = False) -> Any:
    """Without what pydantic says besides: titles, that there may be more members, defaults that mean no member."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    if names:
        return {name: _plain(part) for name, part in node.items()}
    out = {key: _plain(value, names=key == "properties") for key, value in node.items() if key != "title"}
    if "default" in out and out["default"] is None:
        del out["default"]
    if out.get("additionalProperties") is True:
        del out["additionalProperties"]
    if "description" in out:
        out["description"] = " ".join(str(out["description"]).split())
    return out
