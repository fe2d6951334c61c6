"""How a prompt ends, and errors: both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from adapters.agent_client.codec import turn
from gateway.core import delta
from gateway.core import errors as tree
from gateway.core import events as e
from gateway.core.stream import Opener
from gateway.core.types import Failure, Run, RunRequest, RunStatus, StopReason
from gateway.wire.jsonrpc import ABSENT, RpcError
from tests.adapters.agent_client.codec_cases import ANY, FOREIGN, NATIVE, dumped, unhurried


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
