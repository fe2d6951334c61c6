"""Spans as an OTLP collector receives them."""

from __future__ import annotations

import asyncio
import time

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway import tracing
from gateway.config import Telemetry
from gateway.core.errors import AgentGone
from gateway.core.events import UsageReported
from gateway.core.types import Agent, Failure, Interrupt, Outcome, Run, RunRequest, RunStatus, agent_id
from gateway.tracing import otel
from tests.runs.test_targets import Program, away, engine, grouped, ran
from tests.tracing.conftest import Received, attributes, empty, work

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENT = f"00-{TRACE}-b7ad6b7169203331-01"
AGENT = Agent(name="mail", version="1.2.3", description="Writes mail.", input_schema={}, output_schema={})


class Target:
    url = "http://user:secret@agents.example:9001/base"


def a_run(traceparent: str | None = CLIENT) -> Run:
    request = RunRequest(agent="mail", input={}, protocol="door", traceparent=traceparent, thread="t-1")
    return Run(id="r-1", request=request, created_at=time.time(), updated_at=time.time())


def on(receiver: Received, **more: object) -> None:
    assert tracing.configure(Telemetry.model_validate({"otlp": receiver.url, **more}))


def test_a_request_its_run_and_the_call_out_are_three_spans_of_the_clients_trace(receiver: Received) -> None:
    on(receiver)
    with tracing.inbound_span("door", "POST /runs/wait", CLIENT) as inbound:
        run = a_run(tracing.traceparent(CLIENT))
        inbound.answered(200)
    with tracing.run_span(run, AGENT) as span:
        with tracing.call_span("other", Target()) as call:  # type: ignore[arg-type]
            sent = call.traceparent
        span.finish(RunStatus.SUCCESS, usage=UsageReported(input_tokens=7, output_tokens=11), events=200)
    tracing.shutdown()
    assert len(receiver.spans) == 3
    server, middle, client = receiver.span("door "), receiver.span("invoke_agent"), receiver.span("call ")
    assert {span.trace_id.hex() for span in receiver.spans} == {TRACE}
    assert server.parent_span_id.hex() == "b7ad6b7169203331"
    assert middle.parent_span_id == server.span_id
    assert client.parent_span_id == middle.span_id
    assert sent == f"00-{TRACE}-{client.span_id.hex()}-01"
    kinds = [server.kind, middle.kind, client.kind]
    assert kinds == [Span.SPAN_KIND_SERVER, Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CLIENT]
    assert attributes(server) == {
        "interlingua.protocol": "door",
        "interlingua.operation": "POST /runs/wait",
        "http.response.status_code": 200,
    }
    assert middle.name == "invoke_agent mail"
    assert attributes(middle) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "mail",
        "gen_ai.agent.id": agent_id("mail"),
        "gen_ai.agent.version": "1.2.3",
        "gen_ai.agent.description": "Writes mail.",
        "gen_ai.conversation.id": "t-1",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 11,
        "interlingua.protocol": "door",
        "interlingua.run.id": "r-1",
        "interlingua.run.status": "success",
        "interlingua.stream.deltas": 200,
    }
    assert attributes(client) == {
        "interlingua.target.protocol": "other",
        "server.address": "agents.example",
        "server.port": 9001,
    }
    assert receiver.resource["service.name"] == "interlingua"
    assert sorted(receiver.paths) == ["/v1/metrics", "/v1/traces"]


def test_a_thousand_lost_tokens_are_one_event_and_a_count(receiver: Received) -> None:
    on(receiver)
    with tracing.run_span(a_run(), AGENT) as span:
        for _ in range(1000):
            span.record_loss("thought")
        span.record_loss("plan", 3)
        span.finish(RunStatus.SUCCESS, events=1000)
    tracing.shutdown()
    (only,) = receiver.spans
    lost = [attributes(event)["interlingua.loss.what"] for event in only.events]
    assert lost == ["thought", "plan"]
    assert attributes(only)["interlingua.loss.thought"] == 1000
    assert attributes(only)["interlingua.loss.plan"] == 3


def test_a_question_and_its_outcome_are_events_but_never_what_was_said(receiver: Received) -> None:
    on(receiver)
    with tracing.run_span(a_run(), AGENT) as span:
        span.record_interrupt(Interrupt(id="q-1", kind="approve", message="private", payload={"secret": "private"}))
        span.record_answer("q-1", Outcome.DECLINED)
    tracing.shutdown()
    (only,) = receiver.spans
    assert [event.name for event in only.events] == ["interlingua.interrupt", "interlingua.answer"]
    assert attributes(only.events[0]) == {"interlingua.interrupt.id": "q-1", "interlingua.interrupt.kind": "approve"}
    assert attributes(only.events[1])["interlingua.answer.outcome"] == "declined"
    assert b"private" not in only.SerializeToString()


def test_a_failed_run_and_a_failed_call_say_the_code_and_not_the_message(receiver: Received) -> None:
    on(receiver)
    with tracing.run_span(a_run(), AGENT) as span:
        with pytest.raises(AgentGone), tracing.call_span("other"):
            raise AgentGone("refused by 10.0.0.1")
        span.finish(RunStatus.ERROR, failure=Failure(code="agent_gone", message="refused by 10.0.0.1"))
    tracing.shutdown()
    for found in receiver.spans:
        assert found.status.code == Status.STATUS_CODE_ERROR
        assert attributes(found)["error.type"] == "agent_gone"
        assert b"10.0.0.1" not in found.SerializeToString()


def test_a_cancelled_call_is_no_error(receiver: Received) -> None:
    on(receiver)
    with pytest.raises(asyncio.CancelledError), tracing.call_span("other"):
        raise asyncio.CancelledError
    tracing.shutdown()
    assert receiver.spans[0].status.code == Status.STATUS_CODE_UNSET


def test_an_answer_from_500_up_is_an_error_of_the_request(receiver: Received) -> None:
    on(receiver)
    for status in (404, 503):
        with tracing.inbound_span("door", f"op-{status}") as span:
            span.answered(status)
    tracing.shutdown()
    assert receiver.span("door op-404").status.code == Status.STATUS_CODE_UNSET
    assert receiver.span("door op-503").status.code == Status.STATUS_CODE_ERROR


def test_a_message_of_another_trace_than_its_request_is_believed_and_linked(receiver: Received) -> None:
    on(receiver)
    other = "00-11111111111111111111111111111111-2222222222222222-01"
    with tracing.inbound_span("door", "agents/run", CLIENT):
        assert tracing.traceparent(other) == other
    tracing.shutdown()
    (link,) = receiver.spans[0].links
    assert link.trace_id.hex() == "1" * 32


def test_without_a_clients_trace_a_new_one_joins_all_three(receiver: Received) -> None:
    on(receiver)
    with tracing.inbound_span("door", "op"):
        run = a_run(tracing.traceparent())
    with tracing.run_span(run, AGENT), tracing.call_span("other"):
        pass
    tracing.shutdown()
    assert len({span.trace_id for span in receiver.spans}) == 1


def test_a_traceparent_that_is_not_one_begins_a_new_trace(receiver: Received) -> None:
    on(receiver)
    with tracing.inbound_span("door", "op", "00-zz-1-01") as span:
        own = span.traceparent
    tracing.shutdown()
    assert own is not None
    assert own.startswith("00-")
    assert "zz" not in own


@pytest.mark.parametrize("given", [f"01-{TRACE}-b7ad6b7169203331-01-more", f"00-{TRACE}-b7ad6b7169203331-03"])
def test_a_newer_traceparent_is_continued(given: str, receiver: Received) -> None:
    on(receiver)
    with tracing.inbound_span("door", "op", given) as span:
        own = span.traceparent
    tracing.shutdown()
    (only,) = receiver.spans
    assert own == f"00-{TRACE}-{only.span_id.hex()}-{given[53:55]}"
    assert only.parent_span_id.hex() == "b7ad6b7169203331"


def test_limits_of_the_environment_hold(receiver: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "4")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "9")
    monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", "1")
    on(receiver)
    with tracing.run_span(a_run(), AGENT) as span:
        for loss in ("thought", "plan"):
            span.record_loss(loss)
        span.finish(RunStatus.SUCCESS)
    tracing.shutdown()
    (only,) = receiver.spans
    assert (len(only.attributes), only.dropped_attributes_count) == (9, 3)
    assert attributes(only)["interlingua.run.status"] == "succ"
    assert [attributes(event)["interlingua.loss.what"] for event in only.events] == ["plan"]
    assert only.dropped_events_count == 1


def test_what_is_told_after_the_end_is_not_recorded(receiver: Received) -> None:
    on(receiver)
    with tracing.run_span(a_run(), AGENT) as span:
        pass
    span.finish(RunStatus.ERROR, failure=Failure(code="agent_gone", message=""))
    span.record_loss("plan")
    tracing.shutdown()
    (only,) = receiver.spans
    assert only.status.code == Status.STATUS_CODE_UNSET
    assert not only.events
    assert "interlingua.run.status" not in attributes(only)


def test_the_three_spans_of_a_run_cost_little_where_they_are_recorded(receiver: Received) -> None:
    def spans() -> None:
        with tracing.inbound_span("door", "POST /runs/wait", CLIENT) as inbound:
            inbound.answered(200)
        with tracing.run_span(a_run(), AGENT) as span:
            with tracing.call_span("other", Target()):  # type: ignore[arg-type]
                pass
            span.finish(RunStatus.SUCCESS)

    on(receiver)
    assert work(spans) < 200 * work(empty)


async def _in_a_child_task(receiver: Received) -> None:
    async def child() -> None:
        with tracing.call_span("other"):
            pass

    with tracing.run_span(a_run(), AGENT):
        await asyncio.create_task(child())


def test_a_call_made_in_a_child_task_belongs_to_its_run(receiver: Received) -> None:
    on(receiver)
    asyncio.run(_in_a_child_task(receiver))
    tracing.shutdown()
    assert receiver.span("call").parent_span_id == receiver.span("invoke_agent").span_id


def test_a_run_found_again_after_a_restart_says_so(receiver: Received) -> None:
    on(receiver)
    with tracing.run_span(a_run(), AGENT, resumed=True):
        pass
    tracing.shutdown()
    assert attributes(receiver.spans[0])["interlingua.run.resumed"] is True


def test_headers_and_service_name_come_from_the_file(receiver: Received) -> None:
    on(receiver, headers={"x-key": "k"}, service_name="edge")
    with tracing.call_span("other"):
        pass
    tracing.shutdown()
    assert receiver.headers[0]["x-key"] == "k"
    assert receiver.resource["service.name"] == "edge"


def test_an_endpoint_that_is_gone_does_not_hold_the_gateway_back_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "SHUTDOWN_SECONDS", 0.1)
    tracing.configure(Telemetry.model_validate({"otlp": "http://127.0.0.1:1"}))
    with tracing.call_span("other"):
        pass
    began = time.monotonic()
    tracing.shutdown()
    assert time.monotonic() - began < 5


def test_of_several_targets_the_span_names_the_one_that_was_used(receiver: Received) -> None:
    one, two = Program("one.example"), Program("two.example:9002")
    one.fate = [away()]

    async def main() -> None:
        async with engine(grouped([one, two], weights=(1.0, 0.0))) as made:
            assert (await ran(made)).status is RunStatus.SUCCESS

    on(receiver)
    asyncio.run(main())
    tracing.shutdown()
    assert attributes(receiver.span("call ")) == {
        "interlingua.target.protocol": "scripted",
        "server.address": "two.example",
        "server.port": 9002,
    }
    assert attributes(receiver.span("describe_agent")).keys() == {"gen_ai.agent.name", "interlingua.target.protocol"}
