"""Runs that have ended as answers of `agents/run`; errors."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, json

from adapters.agent_communication.codec import deltas_out
from adapters.agent_communication.codec import errors as codec
from adapters.agent_communication.codec.agents import agent_of
from gateway.core import events as e
from gateway.core.types import Failure, JsonObject, RunStatus
from gateway.wire.jsonrpc import RpcError, failing
from tests.mcp.runs.documents import MESSAGE, run_of


def plain(value: Any) -> Any:
    return json.decode(json.encode(value))


def test_what_an_agent_of_this_protocol_says_beside_its_output_comes_along() -> None:
    bee = agent_of({"name": "bee"})
    end = e.RunFinished(output=Raw(b"{}"), origin={"cost": 3, "_meta": {"x/y": 1}})
    assert plain(deltas_out.run_result(bee, run_of(bee, b"{}"), end)) == {
        "output": {},
        "cost": 3,
        "_meta": {"x/y": 1, "interlingua/run": "r1"},
    }
    assert "cost" not in deltas_out.run_result(MESSAGE, run_of(MESSAGE, b"{}"), end)


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


def test_an_error_answer_stays_what_it_is() -> None:
    own = RpcError(-5, "m", {"a": 1})
    assert failing(own, codec.ERRORS) is own
