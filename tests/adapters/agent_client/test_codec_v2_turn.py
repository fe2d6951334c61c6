"""How work begins, waits and ends in version 2."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.agent_client.codec import turn as v1
from adapters.agent_client.codec.v2 import turn
from gateway.core import events as e
from gateway.core.types import Agent, Run, RunStatus
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.codec_told import run
from tests.adapters.agent_client.codec_v2_cases import NEWER, valid


def last(end: e.Event, **changes: Any) -> Run:
    """The record of a run that ended so."""
    match end:
        case e.RunFinished(stop_reason=reason):
            return run(status=RunStatus.SUCCESS, stop_reason=reason, **changes)
        case e.RunFailed(failure=failure):
            return run(status=RunStatus.ERROR, failure=failure, **changes)
    return run(status=RunStatus.CANCELLED, **changes)


def over(end: e.Event, agent: Agent = NEWER, **changes: Any) -> list[Any]:
    return [valid("SessionUpdate", json.loads(update)) for update in turn.over(last(end, **changes), end, agent=agent)]


def idle(reason: str | None = None, **more: Any) -> Any:
    said = {"sessionUpdate": "state_update", "state": "idle", **more}
    return said if reason is None else {**said, "stopReason": reason}


def test_counts_of_tokens_are_reported() -> None:
    usage = {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}
    report, end = turn.ended(idle("end_turn", usage=usage))
    assert isinstance(report, e.UsageReported) and (report.input_tokens, report.output_tokens) == (1, 2)
    assert over(end)[0]["usage"] == usage
    assert v1.prompt_result(last(end), end, agent=NEWER)["usage"] == usage


@pytest.mark.parametrize(
    "more",
    [
        {"error": {"code": -32000, "message": "No luck", "data": {"why": "none"}}},
        {"error": {"code": -32000, "message": "No luck"}, "_meta": {"a": 1}},
        {"error": {"code": True, "message": "x"}},
        {"error": "x"},
        {},
    ],
)
def test_an_agent_that_says_that_it_failed_is_passed_on_as_it_said_it(more: Any) -> None:
    *_, end = turn.ended(idle("error", **more))
    assert isinstance(end, e.RunFailed)
    assert over(end) == [idle("error", **more)]


def test_another_gateways_failure_is_one_here_in_the_same_words() -> None:
    end = v1.failed(RpcError(-32000, "No luck", {"why": "none"}))
    (state,) = over(end)
    (again,) = turn.ended(state)
    assert again == end and over(again) == [state]


@pytest.mark.parametrize("word", [5, ["end_turn"], {"a": 1}, True])
def test_a_stop_reason_that_is_no_word_is_not_passed_on(word: Any) -> None:
    [end] = turn.ended({"sessionUpdate": "state_update", "state": "idle", "stopReason": word})
    assert over(end) == [{"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}]
