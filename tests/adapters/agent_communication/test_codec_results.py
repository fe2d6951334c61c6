"""Runs that have ended as answers of `agents/run`; errors."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, json

from adapters.agent_communication.codec import deltas_out
from adapters.agent_communication.codec import errors as codec
from adapters.agent_communication.codec.agents import agent_of
from gateway.core import errors
from gateway.core import events as e
from gateway.core.types import Failure, JsonObject, RunStatus, StopReason
from gateway.wire.jsonrpc import RpcError
from tests.mcp.runs.documents import ANY, MESSAGE, run_of


def plain(value: Any) -> Any:
    return json.decode(json.encode(value))


def test_the_result_has_the_output_untouched_and_what_could_not_be_said() -> None:
    run = run_of(MESSAGE, b'{"message" : "x" }', losses={"rewrite": 2})
    result = deltas_out.run_result(MESSAGE, run)
    assert bytes(result["output"]) == b'{"message" : "x" }'
    assert result["_meta"] == {"interlingua/run": "r1", "interlingua/lost": {"rewrite": 2}}
    assert plain(deltas_out.run_result(ANY, run_of(ANY, b'"x"'))) == {
        "output": {"output": "x"},
        "_meta": {"interlingua/run": "r1"},
    }


def test_what_an_agent_of_this_protocol_says_beside_its_output_comes_along() -> None:
    bee = agent_of({"name": "bee"})
    end = e.RunFinished(output=Raw(b"{}"), origin={"cost": 3, "_meta": {"x/y": 1}})
    assert plain(deltas_out.run_result(bee, run_of(bee, b"{}"), end)) == {
        "output": {},
        "cost": 3,
        "_meta": {"x/y": 1, "interlingua/run": "r1"},
    }
    assert "cost" not in deltas_out.run_result(MESSAGE, run_of(MESSAGE, b"{}"), end)


def failing(**fields: Any) -> Any:
    failure = Failure(code="agent_gone", message="It went away", retryable=True)
    run = run_of(MESSAGE, b'{"message":"so f"}', **{"status": RunStatus.ERROR, "failure": failure, **fields})
    with pytest.raises(RpcError) as raised:
        deltas_out.run_result(MESSAGE, run)
    return raised.value.error


def test_a_run_that_failed_is_an_error_with_the_output_so_far() -> None:
    error = failing(losses={"rewrite": 1})
    assert (error.code, error.message) == (-32603, "It went away")
    assert plain(error.data) == {
        "run": "r1",
        "code": "agent_gone",
        "retryable": True,
        "output": {"message": "so f"},
        "lost": {"rewrite": 1},
    }
    assert failing(failure=Failure(code="invalid", message="no")).code == -32602
    cancelled = failing(status=RunStatus.CANCELLED, failure=None, stop_reason=StopReason.CANCELLED)
    assert (cancelled.code, cancelled.message) == (-32800, "Request cancelled")


def test_an_agent_of_this_protocol_fails_in_its_own_words() -> None:
    bee = agent_of({"name": "bee"})
    run = run_of(bee, b"null", status=RunStatus.ERROR, failure=Failure(code="agent_failed", message="boom"))

    def said(error: JsonObject) -> Any:
        end = e.RunFailed(failure=Failure(code="agent_failed", message="boom"), origin={"error": error})
        return deltas_out.failed(bee, run, end).error

    assert (said({"code": 0, "message": "boom!"}).code, said({"code": 0, "message": "boom!"}).message) == (0, "boom!")
    assert plain(said({"code": 7, "message": "m", "data": {"why": 1}}).data) == {
        "run": "r1",
        "code": "agent_failed",
        "why": 1,
    }
    assert said({"code": 7, "message": "m", "data": "verbatim"}).data == "verbatim"
    assert said({"message": "no code"}).code == -32603


@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        (errors.Invalid("m", path="/input/x"), -32602, {"code": "invalid", "path": "/input/x"}),
        (errors.NotFound("m"), -32602, {"code": "not_found"}),
        (errors.Conflict("m"), -32600, {"code": "conflict"}),
        (errors.TooLarge("m"), -32600, {"code": "too_large"}),
        (errors.Unsupported("m"), -32601, {"code": "unsupported"}),
        (errors.Denied("m"), -32000, {"code": "denied"}),
        (errors.AgentGone("m"), -32603, {"code": "agent_gone", "retryable": True}),
        (errors.AgentFailed("m"), -32603, {"code": "agent_failed"}),
        (errors.Unavailable("m"), -32603, {"code": "unavailable", "retryable": True, "retryAfter": 1.0}),
        (errors.Limited("m", retry_after=2.5), -32029, {"code": "limited", "retryable": True, "retryAfter": 2.5}),
    ],
)
def test_errors_of_the_tree_have_codes(error: errors.InterlinguaError, code: int, data: JsonObject) -> None:
    said = codec.to_rpc(error).error
    assert (said.code, said.message, said.data) == (code, "m", data)


def test_an_error_answer_stays_what_it_is_and_a_mistake_of_ours_says_nothing() -> None:
    own = RpcError(-5, "m", {"a": 1})
    assert codec.to_rpc(own) is own
    assert codec.internal().error.code == -32603 and "m" not in str(codec.internal().error.data)
