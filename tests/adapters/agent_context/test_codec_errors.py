"""Errors of the tree as the protocol's, an agent's as errors of the tree, and both as `agent/error`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from adapters.agent_context.codec import errors as codec
from adapters.agent_context.codec.errors import Expired, NoMatch
from adapters.agent_context.outbound import answers
from gateway.core import errors
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import RpcError
from gateway.wire.jsonrpc.messages import ErrorObject
from tests.adapters.agent_context.wire_schema import valid

TREE = [cls for cls in codec._TREE.values() if cls is not errors.InterlinguaError]


def sent(error: RpcError) -> dict[str, Any]:
    """The error as it is on the wire, which the schema allows."""
    message = json.loads(jsonrpc.error(1, error.error))
    valid("JSONRPCError", message)
    found: dict[str, Any] = message["error"]
    return found


@pytest.mark.parametrize("cls", [cls for cls in TREE if not issubclass(cls, errors.GatewayError)])
def test_what_another_gateway_says_is_the_same_error_here(cls: type[errors.InterlinguaError]) -> None:
    told = codec.to_rpc(cls("it broke")).error
    again = codec.tree_error(ErrorObject(told.code, told.message, Raw(json.dumps(told.data).encode())))
    assert (type(again), str(again)) == (cls, "it broke")


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (-32001, errors.Invalid),
        (-32602, errors.Invalid),
        (-32002, errors.NotFound),
        (-32003, errors.Denied),
        (-32004, errors.AgentGone),
        (-32005, errors.Conflict),
        (-32006, Expired),
        (-32007, NoMatch),
        (-32601, errors.Unsupported),
        (-32008, errors.AgentFailed),
        (-32603, errors.AgentFailed),
        (7, errors.AgentFailed),
    ],
)
@pytest.mark.parametrize("data", [Raw(), Raw(b"null"), Raw(b'"words"'), Raw(b'{"code": 5}'), {"code": "internal"}])
def test_an_agents_own_code_tells_what_it_means(code: int, cls: type[errors.InterlinguaError], data: Any) -> None:
    found = codec.tree_error(ErrorObject(code, "no", data))
    assert (type(found), str(found)) == (cls, "no: words" if data == Raw(b'"words"') else "no")


@pytest.mark.parametrize(
    "error",
    [
        RpcError(
            -32001, "Invalid", {"details": {"expected": "a", "received": "b"}, "path": "/x", "correlationId": "c"}
        ),
        codec.to_rpc(errors.Denied("no"), "c"),
        RpcError(-5, "bare"),
        RpcError(-5, "words", "words"),
    ],
)
def test_a_note_says_what_the_answer_would_have(error: RpcError) -> None:
    note = codec.note(error, source="interlingua")
    message = json.loads(jsonrpc.notification("agent/error", note))
    valid("ErrorNotification", message)
    found = answers.error_of(message["params"]["error"])
    assert (found.code, found.message) == (error.error.code, error.error.message)
    if isinstance(error.error.data, dict):
        assert message["params"]["_meta"]["correlationId"] == "c"
        assert found.data["details"] == error.error.data.get("details", {"code": "denied", "retryable": False})
