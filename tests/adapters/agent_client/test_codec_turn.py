"""How a prompt ends, and errors: both ways."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.agent_client.codec import errors, turn
from gateway.core import delta
from gateway.core import errors as tree
from gateway.core import events as e
from gateway.core.stream import Opener
from gateway.core.types import Failure, Run, RunRequest, RunStatus, StopReason
from gateway.wire.jsonrpc import ABSENT, RpcError
from tests.adapters.agent_client.codec_cases import ANY, FOREIGN, META, NATIVE, dumped, unhurried, valid

REASONS = ["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


def run(status: RunStatus = RunStatus.SUCCESS, **changes: Any) -> Run:
    request = RunRequest(agent="x", input={"message": "x"}, protocol="agent_client")
    return Run(id="r", request=request, created_at=0.0, updated_at=0.0, status=status, **changes)


def after(events: list[e.Event]) -> tuple[Run, e.Event]:
    """The run that these events end, and its end as the log has it."""
    end = [e.decode(e.encode(event)) for event in Opener().feed(events)][-1]
    if isinstance(end, e.RunFinished):
        return run(stop_reason=end.stop_reason), end
    if isinstance(end, e.RunFailed):
        return run(RunStatus.ERROR, failure=end.failure), end
    return run(RunStatus.CANCELLED, stop_reason=StopReason.CANCELLED), end


ANSWERS = st.fixed_dictionaries(
    {"stopReason": st.sampled_from(REASONS)},
    optional={
        "_meta": st.none() | META,
        "usage": ANY | st.just({"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}),
        "x": ANY,
    },
)


@unhurried
@given(ANSWERS)
def test_a_prompt_is_answered_as_the_agent_answered_it(answer: Any) -> None:
    ended, end = after(turn.ended(Raw(dumped(answer))))
    again = turn.prompt_result(ended, end, agent=NATIVE)
    assert delta.same(again, answer)
    valid("PromptResponse", json.loads(msgspec.json.encode(again)))


@unhurried
@given(st.dictionaries(st.sampled_from(["stopReason", "_meta", "usage"]), ANY))
def test_an_answer_that_is_none_of_the_protocols_ends_the_turn_all_the_same(answer: Any) -> None:
    ended, end = after(turn.ended(Raw(dumped(answer))))
    assert ended.status is RunStatus.SUCCESS and ended.stop_reason is StopReason.END_TURN
    assert delta.same(turn.prompt_result(ended, end), {"stopReason": "end_turn", **answer})


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'"end_turn"', b"{"])
def test_an_answer_that_is_no_object_is_the_agents_mistake(raw: bytes) -> None:
    with pytest.raises(tree.AgentBroken):
        turn.ended(Raw(raw))


@pytest.mark.parametrize(
    ("reason", "event"), [("refusal", e.RunFinished(stop_reason=StopReason.REFUSAL)), ("end_turn", e.RunFinished())]
)
def test_stop_reasons_are_the_cores(reason: str, event: e.Event) -> None:
    assert turn.ended(Raw(dumped({"stopReason": reason}))) == [event]


def test_a_turn_that_was_cancelled_is_a_cancelled_run() -> None:
    (end,) = turn.ended(Raw(b'{"stopReason":"cancelled"}'))
    assert isinstance(end, e.RunCancelled)
    assert turn.prompt_result(run(RunStatus.CANCELLED, stop_reason=StopReason.CANCELLED)) == {"stopReason": "cancelled"}


def test_a_cancelled_turn_is_cancelled_whatever_the_agent_answered() -> None:
    end = e.RunFinished(origin={"agent_client": {"more": {"stopReason": "odd"}}})
    assert turn.prompt_result(run(RunStatus.CANCELLED), end, agent=NATIVE) == {"stopReason": "cancelled"}


def test_token_counts_of_an_answer_are_usage() -> None:
    usage, _ = turn.ended(Raw(dumped({"stopReason": "end_turn", "usage": {"inputTokens": 3, "outputTokens": True}})))
    assert isinstance(usage, e.UsageReported)
    assert (usage.input_tokens, usage.output_tokens) == (3, None)
    reported = e.UsageReported(input_tokens=3, output_tokens=4)
    assert turn.prompt_result(run(), agent=FOREIGN, usage=reported)["usage"] == {
        "totalTokens": 7,
        "inputTokens": 3,
        "outputTokens": 4,
    }


def test_what_was_lost_and_what_is_no_text_is_told_in_meta() -> None:
    output = Raw(dumped({"message": "Hi", "artifacts": [], "score": 3}))
    ended = run(losses={"rewrite": 1, "custom": 2}, output=output)
    result = json.loads(msgspec.json.encode(turn.prompt_result(ended, agent=FOREIGN)))
    assert valid("PromptResponse", result)["_meta"]["interlingua"] == {
        "lost": ["custom", "rewrite"],
        "output": {"message": "Hi", "artifacts": [], "score": 3},
    }
    plain = run(output=Raw(dumped({"message": "Hi", "artifacts": [1]})))
    assert turn.prompt_result(plain, agent=FOREIGN) == {"stopReason": "end_turn"}


# --- errors ------------------------------------------------------------------------------------------------------


@unhurried
@given(
    st.integers(-33000, 33000).filter(lambda code: code != -32800),
    st.text(max_size=5),
    st.just(ABSENT) | ANY,
    st.booleans(),
)
def test_an_agents_error_is_answered_word_by_word(code: int, message: str, data: Any, encoded: bool) -> None:
    given_ = Raw(dumped(data)) if encoded and data is not ABSENT else data
    failed, end = after([turn.failed(RpcError(code, message, given_))])
    with pytest.raises(RpcError) as raised:
        turn.prompt_result(failed, end, agent=NATIVE)
    told = raised.value.error
    assert (told.code, told.message) == (code, message)
    assert told.data is ABSENT if data is ABSENT else delta.same(told.data, data)


def test_an_agents_error_is_a_failure_to_everyone_else() -> None:
    failed, end = after([turn.failed(RpcError(-32603, "boom"))])
    assert failed.failure == Failure(code="agent_failed", message="boom")
    with pytest.raises(RpcError, match="boom") as raised:
        turn.prompt_result(failed, end, agent=FOREIGN)
    assert raised.value.error.code == -32603
    assert raised.value.error.data == {"code": "agent_failed", "details": "boom"}


def test_request_cancelled_is_no_error() -> None:
    assert isinstance(turn.failed(RpcError(-32800, "Request cancelled")), e.RunCancelled)


def test_a_run_that_failed_without_a_word_is_an_internal_error() -> None:
    gone = Failure(code="agent_gone", message="the agent went away", retryable=True)
    with pytest.raises(RpcError) as raised:
        turn.prompt_result(run(RunStatus.ERROR, failure=gone))
    assert raised.value.error.data == {"code": "agent_gone", "details": "the agent went away", "retryable": True}


@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        (tree.Invalid("x", path="/a"), -32602, {"code": "invalid", "path": "/a"}),
        (tree.NotFound("x"), -32002, {"code": "not_found"}),
        (tree.Conflict("x"), -32600, {"code": "conflict"}),
        (tree.Unsupported("x"), -32601, {"code": "unsupported"}),
        (tree.Denied("x"), -32000, {"code": "denied"}),
        (tree.TooLarge("x"), -32602, {"code": "too_large"}),
        (tree.AgentGone("x"), -32603, {"code": "agent_gone", "retryable": True}),
        (tree.Unavailable("x"), -32603, {"code": "unavailable", "retryable": True, "retryAfter": 1.0}),
        (tree.Limited("x", retry_after=2.5), -32029, {"code": "limited", "retryable": True, "retryAfter": 2.5}),
        (tree.InterlinguaError("x"), -32603, {"code": "internal"}),
    ],
)
def test_errors_say_what_and_where(error: tree.InterlinguaError, code: int, data: Any) -> None:
    told = errors.to_rpc(error).error
    assert (told.code, told.message, told.data) == (code, "x", data)
    valid("Error", {"code": told.code, "message": told.message, "data": told.data})


def test_an_error_of_the_protocols_own_stays_as_it_is() -> None:
    own = RpcError(-1, "x", {"a": 1})
    assert errors.to_rpc(own) is own and errors.answer(ValueError("x")).code == -32603
