"""Metrics as an OTLP collector receives them: those of `/metrics`, and no others."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
)

from gateway import tracing
from gateway.config import Telemetry
from gateway.tracing import metrics, otel
from tests.support.processes import Gateway, Process
from tests.tracing.conftest import Received

Samples = dict[str, float]


def on_page(page: str) -> Samples:
    found = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in found}


def exported(families: dict[str, Metric]) -> Samples:
    """The samples of a page that says what was sent."""
    found: Samples = {}
    for name, metric in families.items():
        if metric.HasField("histogram"):
            for histogram in metric.histogram.data_points:
                total = 0
                for bound, count in zip(
                    (*histogram.explicit_bounds, float("inf")), histogram.bucket_counts, strict=True
                ):
                    total += count
                    le = "+Inf" if bound == float("inf") else str(int(bound)) if bound.is_integer() else str(bound)
                    found[_sample(f"{name}_bucket", histogram, le=le)] = total
                found[_sample(f"{name}_sum", histogram)] = histogram.sum
                found[_sample(f"{name}_count", histogram)] = histogram.count
        for point in metric.sum.data_points:
            found[_sample(name, point)] = point.as_double if point.HasField("as_double") else point.as_int
    return found


def _sample(name: str, point: NumberDataPoint | HistogramDataPoint, **more: str) -> str:
    labels = {item.key: item.value.string_value for item in point.attributes} | more
    return name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")


def test_of_observations_that_wait_to_be_collected_none_is_lost(
    receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "MOST_OBSERVED", 3)
    assert tracing.configure(Telemetry.model_validate({"otlp": receiver.url}))
    for _ in range(5):
        metrics.run_seconds.observe(0.2, "mail", "success")
    tracing.shutdown()
    (point,) = receiver.metrics["interlingua_run_duration_seconds"].histogram.data_points
    assert (point.count, round(point.sum, 6)) == (5, 1.0)


def test_what_is_exported_is_what_the_page_says(
    receiver: Received, agent_connect_agent: Process, tmp_path: Path
) -> None:
    routes = f"""
routes:
  - {{name: echo, target: {{protocol: agent_connect, url: "{agent_connect_agent.url}", agent: echo}}}}
  - {{name: failing, target: {{protocol: agent_connect, url: "{agent_connect_agent.url}", agent: nobody}}}}
telemetry: {{otlp: "{receiver.url}"}}
"""
    with Gateway(routes, tmp_path) as gateway:
        for agent in ("echo", "failing", "echo", "unknown"):
            body = {"agent_id": agent, "input": {"message": "hello"}}
            httpx2.post(f"{gateway.url}/agent-connect/runs/wait", json=body, timeout=60)
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"message": "a"}},
        }
        httpx2.post(f"{gateway.url}/agent-communication/mcp", json=call, timeout=60)
        page = httpx2.get(f"{gateway.url}/metrics").text
        assert gateway.process.terminate(60) == 0
    samples = exported(receiver.metrics)
    assert samples == on_page(page)
    assert samples['interlingua_runs_started_total{agent="echo",protocol="agent_connect"}'] == 2
    assert samples['interlingua_requests_total{protocol="agent_communication",status="ok"}'] == 1
    assert 'interlingua_run_duration_seconds_bucket{agent="echo",status="success",le="0.25"}' in samples
    assert receiver.resource["service.name"] == "interlingua"


def test_counters_rise_and_gauges_do_not(receiver: Received) -> None:
    metrics.watchers.add(3, "door")
    metrics.events.add(7, "mail")
    tracing.configure(Telemetry.model_validate({"otlp": receiver.url}))
    metrics.watchers.add(-1, "door")
    tracing.shutdown()
    watchers, events = receiver.metrics["interlingua_watchers"].sum, receiver.metrics["interlingua_events_total"].sum
    assert events.is_monotonic and not watchers.is_monotonic
    assert watchers.data_points[0].as_double == 2
    assert events.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_a_histogram_keeps_its_bounds(receiver: Received) -> None:
    tracing.configure(Telemetry.model_validate({"otlp": receiver.url}))
    metrics.run_seconds.observe(0.2, "mail", "success")
    tracing.shutdown()
    (point,) = receiver.metrics["interlingua_run_duration_seconds"].histogram.data_points
    assert tuple(point.explicit_bounds) == metrics.run_seconds.bounds and point.sum == 0.2


@pytest.mark.parametrize(("given", "instance"), [("service.instance.id=pod-a", "pod-a.2"), ("", None)])
def test_each_of_several_workers_is_an_instance_of_its_own(
    given: str, instance: str | None, receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", given)
    found = []
    for worker in (1, 2):
        tracing.configure(Telemetry.model_validate({"otlp": receiver.url}), worker=worker)
        metrics.events.add(1, "mail")
        tracing.shutdown()
        found.append(receiver.resource["service.instance.id"])
    assert found[0] != found[1] and instance in (None, found[1])


Sent = set[str]
BOTH, TRACES, METRICS, NEITHER = {"/v1/traces", "/v1/metrics"}, {"/v1/traces"}, {"/v1/metrics"}, set[str]()


@pytest.mark.parametrize(
    ("file", "environment", "sent"),
    [
        (True, {}, BOTH),
        (True, {"OTEL_METRICS_EXPORTER": "none"}, TRACES),
        (True, {"OTEL_METRICS_EXPORTER": "prometheus"}, TRACES),
        (True, {"OTEL_TRACES_EXPORTER": "none"}, METRICS),
        (True, {"OTEL_SDK_DISABLED": "true"}, NEITHER),
        (False, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "/v1/metrics"}, METRICS),
        (False, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "/v1/traces"}, TRACES),
        (False, {"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_METRICS_EXPORTER": "otlp"}, BOTH),
    ],
)
def test_each_signal_is_sent_where_the_file_or_the_standard_variables_say(
    file: bool, environment: dict[str, str], sent: Sent, receiver: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, receiver.url + value if variable.endswith("ENDPOINT") else value)
    traced = tracing.configure(Telemetry.model_validate({"otlp": receiver.url} if file else {}))
    with tracing.call_span("other"):
        metrics.events.add(1, "mail")
    tracing.shutdown()
    assert set(receiver.paths) == sent
    assert traced == ("/v1/traces" in sent)


def test_an_address_that_is_that_of_traces_is_turned_into_that_of_metrics(receiver: Received) -> None:
    tracing.configure(Telemetry.model_validate({"otlp": f"{receiver.url}/v1/traces", "headers": {"x-key": "k"}}))
    metrics.events.add(1, "mail")
    tracing.shutdown()
    assert receiver.paths == ["/v1/metrics"] and receiver.headers[0]["x-key"] == "k"


def test_a_collector_that_wants_differences_gets_them(receiver: Received, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    tracing.configure(Telemetry.model_validate({"otlp": receiver.url}))
    metrics.events.add(7, "mail")
    metrics.run_seconds.observe(0.2, "mail", "success")
    tracing.shutdown()
    delta = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    assert receiver.metrics["interlingua_events_total"].sum.aggregation_temporality == delta
    assert receiver.metrics["interlingua_run_duration_seconds"].histogram.aggregation_temporality == delta
