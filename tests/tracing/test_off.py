"""Where nothing is traced: an incoming trace goes on unchanged, and almost nothing is spent."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
from msgspec import Raw

from gateway import tracing
from gateway.config import Telemetry
from gateway.core.types import Agent, Run, RunRequest, RunStatus
from tests.tracing.conftest import Received, empty, work

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
AGENT = Agent(name="mail", input_schema={}, output_schema={})


def a_run(traceparent: str | None = CLIENT) -> Run:
    request = RunRequest(agent="mail", input={}, protocol="door", traceparent=traceparent)
    return Run(id="r", request=request, created_at=0.0, updated_at=0.0)


def test_the_clients_traceparent_reaches_the_agent_unchanged() -> None:
    assert not tracing.configure(Telemetry())
    with tracing.inbound_span("door", "op", CLIENT):
        run = a_run(tracing.traceparent(CLIENT))
    with tracing.run_span(run, AGENT), tracing.call_span("other") as call:
        assert call.traceparent == CLIENT


def test_a_traceparent_in_the_headers_alone_is_passed_on_too() -> None:
    with tracing.inbound_span("door", "op", CLIENT):
        assert tracing.traceparent() == CLIENT


def test_a_message_that_names_a_trace_has_its_run_in_it() -> None:
    other = "00-11111111111111111111111111111111-2222222222222222-01"
    requests = tracing.RequestSpans("door", {"tools/call"}, lambda error: -32603, mcp=True)
    with tracing.inbound_span("door", "op", CLIENT), requests("tools/call", Raw(b"{}"), 1):
        assert tracing.joined(None, "mail") == CLIENT
        assert tracing.joined(other, "mail") == other


def test_without_a_traceparent_none_is_sent() -> None:
    with tracing.inbound_span("door", "op"), tracing.run_span(a_run(None), AGENT), tracing.call_span("o") as call:
        assert call.traceparent is None


def test_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys; from gateway import tracing; from gateway.config import Telemetry; tracing.configure(Telemetry());"
        "span = tracing.inbound_span('door', 'op', None); span.__enter__(); span.__exit__(None, None, None);"
        "span = tracing.RequestSpans('door', (), id)('m', None, 1); span.__enter__(); span.__exit__(None, None, None);"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150)
    assert out.stdout.strip() == "[]"


def test_a_span_costs_a_few_times_what_anempty_one_does() -> None:
    def span() -> None:
        with tracing.inbound_span("door", "op", CLIENT):
            pass

    assert work(empty) < work(span) < 15 * work(empty)


def test_a_json_rpc_request_costs_a_few_times_what_anempty_span_does() -> None:
    requests = tracing.RequestSpans("door", {"tools/call"}, lambda error: -32603, mcp=True)

    def request() -> None:
        with requests("tools/call", Raw(b"{}"), 1, session="s", version="v"):
            pass

    assert work(empty) < work(request) < 25 * work(empty)


def test_a_lost_token_costs_a_few_times_what_anempty_span_does() -> None:
    with tracing.run_span(a_run(), AGENT) as span:
        assert 0 < work(lambda: span.record_loss("thought")) < 15 * work(empty)
        span.finish(RunStatus.SUCCESS)


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_the_standard_variables_switch_tracing_on(
    variable: str, receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/traces" if "TRACES" in variable else ""
    monkeypatch.setenv(variable, receiver.url + path)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "named-outside")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    assert tracing.configure(Telemetry())
    with tracing.call_span("other"):
        pass
    tracing.shutdown()
    assert receiver.paths == ["/v1/traces"]
    assert receiver.resource["service.name"] == "named-outside"
    assert receiver.resource["deployment.environment"] == "test"


@pytest.mark.parametrize(("variable", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_the_standard_variables_switch_it_off(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    assert not tracing.configure(Telemetry.model_validate({"otlp": "http://127.0.0.1:1"}))


def test_a_grpc_endpoint_is_warned_about(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with caplog.at_level(logging.WARNING):
        tracing.configure(Telemetry())
    assert "gRPC" in caplog.text
