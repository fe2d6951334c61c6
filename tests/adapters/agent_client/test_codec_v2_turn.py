"""How work begins, waits and ends in version 2."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.agent_client.codec import turn as v1
from adapters.agent_client.codec.v2 import turn
from gateway.core import delta
from gateway.core import events as e
from gateway.core.types import Agent, Failure, Run, RunStatus, StopReason
from gateway.wire.jsonrpc import RpcError
from tests.adapters.agent_client.codec_cases import ANY, FOREIGN, META, NATIVE, dumped, unhurried
from tests.adapters.agent_client.codec_cases import valid as valid_v1
from tests.adapters.agent_client.codec_told import run
from tests.adapters.agent_client.codec_v2_cases import NEWER, valid

_REASONS = st.none() | st.sampled_from(["end_turn", "max_tokens", "cancelled", "refusal", "_tired"])
IDLE = st.fixed_dictionaries(
    {"sessionUpdate": st.just("state_update"), "state": st.just("idle")},
    optional={"stopReason": _REASONS, "_meta": st.none() | META, "x-extra": ANY},
)


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


@unhurried
@given(IDLE)
def test_an_end_is_told_as_the_agent_said_it(update: Any) -> None:
    valid("SessionUpdate", update)
    *_, end = (e.decode(e.encode(event)) for event in turn.ended(update))
    assert len(over(end)) == 1 and delta.same(over(end)[0], update)


@unhurried
@given(IDLE)
def test_a_client_of_version_1_is_answered_with_a_reason_that_it_knows(update: Any) -> None:
    *_, end = turn.ended(update)
    answer = v1.prompt_result(last(end), end, agent=NEWER)
    valid_v1("PromptResponse", answer)
    word = update.get("stopReason")
    assert answer["stopReason"] == (word if word in {reason.value for reason in StopReason} else "end_turn")


@pytest.mark.parametrize(
    ("reason", "event"),
    [
        ("end_turn", e.RunFinished()),
        ("refusal", e.RunFinished(stop_reason=StopReason.REFUSAL)),
        ("cancelled", e.RunCancelled(reason="the agent says that it was cancelled")),
    ],
)
def test_a_plain_end_says_no_word_more(reason: str, event: e.Event) -> None:
    assert turn.ended(idle(reason)) == [event]
    assert turn.ended(Raw(dumped(idle(reason)))) == [event]


def test_counts_of_tokens_are_reported() -> None:
    usage = {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}
    report, end = turn.ended(idle("end_turn", usage=usage))
    assert isinstance(report, e.UsageReported) and (report.input_tokens, report.output_tokens) == (1, 2)
    assert over(end)[0]["usage"] == usage
    assert v1.prompt_result(last(end), end, agent=NEWER)["usage"] == usage


def test_the_states_of_the_gateways_own_are_the_protocols() -> None:
    for update in (turn.running(), turn.requires_action(), turn.idle(), turn.idle(StopReason.CANCELLED)):
        valid("SessionUpdate", json.loads(update))
    assert json.loads(turn.idle(StopReason.CANCELLED)) == idle("cancelled")


@pytest.mark.parametrize("agent", [FOREIGN, NATIVE, NEWER])
def test_any_agents_end_has_its_reason(agent: Agent) -> None:
    for end in (e.RunFinished(stop_reason=StopReason.MAX_TOKENS), e.RunCancelled()):
        output = {"output": Raw(b'{"message":""}')}
        (told,) = over(end, agent, **output)
        assert told["stopReason"] == ("cancelled" if isinstance(end, e.RunCancelled) else "max_tokens")


def test_what_was_lost_and_what_an_output_has_beside_its_text_is_told() -> None:
    output = Raw(msgspec.json.encode({"message": "x", "score": 1}))
    (told,) = over(e.RunFinished(), FOREIGN, output=output, losses={"file": 1})
    assert told["_meta"]["interlingua"] == {"lost": ["file"], "output": {"message": "x", "score": 1}}
    (_, end) = (0, turn.ended(idle("_tired", _meta={"a": 1}))[-1])
    (told,) = over(end, losses={"file": 1})
    assert told == idle("_tired", _meta={"a": 1, "interlingua": {"lost": ["file"]}})


def test_a_failure_is_an_end_with_the_error_beside_it() -> None:
    end = e.RunFailed(failure=Failure(code="unavailable", message="The agent is down.", retryable=True))
    (state,) = over(end, FOREIGN, losses={"file": 1})
    data = {"code": "unavailable", "details": "The agent is down.", "retryable": True}
    error = {"code": -32603, "message": "The agent is down.", "data": data}
    assert state == idle("error", error=error, _meta={"interlingua": {"lost": ["file"]}})


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
    end = turn.failed(RpcError(-32000, "No luck", {"why": "none"}))
    (state,) = over(end)
    (again,) = turn.ended(state)
    assert again == end and over(again) == [state]


def test_an_agents_refusal_of_a_prompt_is_the_end_it_is_in_version_1() -> None:
    assert turn.failed is v1.failed


@pytest.mark.parametrize("word", [5, ["end_turn"], {"a": 1}, True])
def test_a_stop_reason_that_is_no_word_is_not_passed_on(word: Any) -> None:
    [end] = turn.ended({"sessionUpdate": "state_update", "state": "idle", "stopReason": word})
    assert over(end) == [{"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}]
