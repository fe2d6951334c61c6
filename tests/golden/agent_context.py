"""Agent Context 0.1: the examples of the protocol's own document, read; and those of our answers, written.

What is read stands as it is there, less comments and the commas that they leave behind. What is written is on one line
and in the gateway's own order of members: that it is the example apart from that is seen from `given`, which has the
example as it is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from adapters.agent_context import wire as c
from adapters.agent_context.codec import agents, content, errors
from adapters.agent_context.inbound import rendering as results
from adapters.agent_context.outbound import answers
from adapters.agent_context.wire import messages
from adapters.agent_context.wire.messages import checked, read
from gateway.core import projection
from gateway.core.types import Agent, Json
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Notification, Request, RpcError

ANYBODY = Agent(
    name="anybody",
    input_schema=projection.MESSAGE_SCHEMA,
    output_schema=projection.MESSAGE_OUTPUT_SCHEMA,
    text_input="/message",
    text_output="/message",
)
"""An agent that takes text."""

# --- reads -----------------------------------------------------------------------------------------------------------


def _message(chunks: Iterable[bytes], method: str) -> Request | Notification:
    message = jsonrpc.decode(b"".join(chunks))
    assert isinstance(message, Request | Notification) and message.method == method
    return message


def _registered(chunks: Iterable[bytes], given: Any) -> Any:
    """`agent/register`: the agent of the core, and what is told of it in the directory."""
    record = messages.agent_record(read(_message(chunks, c.REGISTER).params, "Register")["agent"])
    agent = agents.agent_of(record)
    auth = [record["auth"]["token"], record["auth"]["signature"]]
    public = {key: value for key, value in record.items() if key != "auth"}
    assert agents.record_of(agent) == public == agent.extra["agent_context"]
    agent = msgspec.structs.replace(agent, extra={}, interrupts=())
    return {"agent": msgspec.json.decode(msgspec.json.encode(agent)), "auth": auth}


def _sent(chunks: Iterable[bytes], given: Any) -> Any:
    """`agent/message`, to an agent that takes text."""
    asked = read(_message(chunks, c.MESSAGE).params, "Message")
    kind, payload = asked["content"]["type"], asked["content"]["payload"]
    said = messages.told_in(payload)
    return {
        "source": asked["source"],
        "target": asked["target"],
        "type": kind,
        "input": content.task_of(ANYBODY, payload).input,
        "session": said.session,
        "capabilities": list(said.needs.capabilities),
        "deadline": said.needs.deadline_at,
        "priority": said.needs.priority,
        "correlation": messages.correlation_in(asked),
    }


def _delegated(chunks: Iterable[bytes], given: Any) -> Any:
    """`agent/delegate`, to an agent that takes text: it is told the payload as JSON."""
    task = messages.task_in(read(_message(chunks, c.DELEGATE).params, "Delegate")["task"])
    begun = content.task_of(ANYBODY, task.payload)
    return {
        "id": task.id,
        "type": task.type,
        "capabilities": list(task.needs.capabilities),
        "deadline": task.needs.deadline_at,
        "maxTokens": task.needs.max_tokens,
        "priority": task.needs.priority,
        "payload": task.payload,
        "input": begun.input,
        "lost": list(begun.losses),
    }


def _beat(chunks: Iterable[bytes], given: Any) -> Any:
    """`agent/heartbeat`, a notification."""
    message = _message(chunks, c.HEARTBEAT)
    assert isinstance(message, Notification)
    return read(message.params, "Heartbeat")


def _failed(chunks: Iterable[bytes], given: Any) -> Any:
    """`agent/error`, as the error of the tree that it stands for."""
    params = _message(chunks, c.ERROR).params
    error = answers.error_of(jsonrpc.unpack(params)["error"])
    tree = errors.tree_error(error)
    return {
        "correlation": answers.correlation(c.ERROR, params),
        "data": error.data,
        "code": tree.code,
        "message": str(tree),
    }


def _plainly(method: str, name: str) -> Callable[[Iterable[bytes], Any], Any]:
    def reader(chunks: Iterable[bytes], given: Any) -> Any:
        return read(_message(chunks, method).params, name)

    return reader


def _called(chunks: Iterable[bytes], given: Any) -> Any:
    """`tools/call` of agentSearch."""
    asked = read(_message(chunks, c.TOOLS_CALL).params, "CallTool")
    given = checked(asked["arguments"], "AgentSearch", "/arguments")
    names = {"capabilities": "capabilities", "minScore": "min_score", "maxCost": "max_cost"}
    return {"name": asked["name"], "arguments": {names[key]: value for key, value in given.items()}}


# --- writes ----------------------------------------------------------------------------------------------------------


def _example(line: bytes, given: Any) -> bytes:
    assert json.loads(line) == given["example"]
    return line + b"\n"


def _written(result: Callable[[Any, Any], Json]) -> Callable[[Any, Any], bytes]:
    """A result."""

    def writer(value: Any, given: Any) -> bytes:
        return _example(jsonrpc.result(given["example"]["id"], result(value, given)), given)

    return writer


def _tool(value: Any, given: Any) -> bytes:
    """The definition of the tool of that name, as `tools/list` has it."""
    return _example(msgspec.json.encode(next(tool for tool in messages.TOOLS if tool["name"] == value)), given)


def _noted(value: Any, given: Any) -> bytes:
    """An error where there is no answer to put it in. The value is the error; given: the correlation id."""
    error = RpcError(value["code"], value["message"], value["data"])
    return _example(jsonrpc.notification(c.ERROR, errors.note(error, given["correlationId"])), given)


READ = {
    "register": _registered,
    "message": _sent,
    "delegate": _delegated,
    "heartbeat": _beat,
    "error": _failed,
    "resource": _plainly(c.RESOURCES_READ, "Resource"),
    "sample": _plainly(c.SAMPLE, "CreateMessage"),
    "call": _called,
}
WRITE = {
    "registered": _written(lambda value, given: results.registered()),
    "found": _written(lambda value, given: results.found_agents(value, given["version"], native=True)),
    "tool": lambda value, given: (
        msgspec.json.encode(next(each for each in messages.TOOLS if each["name"] == value)) + b"\n"
    ),
    "note": _noted,
}
