"""A real OTLP/HTTP receiver."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from gateway import tracing
from gateway.tracing import metrics, otel
from tests.support.serving import Quiet, in_a_thread


@dataclass
class Received:
    """What arrived, decoded."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    metrics: dict[str, Metric] = field(default_factory=dict)
    """As they were last sent, by name."""

    def span(self, prefix: str) -> Span:
        """The only span whose name begins so."""
        (found,) = [span for span in self.spans if span.name.startswith(prefix)]
        return found


def attributes(owner: Span | Span.Event) -> dict[str, object]:
    """A span's or an event's attributes as plain values."""
    return {item.key: getattr(item.value, str(item.value.WhichOneof("value"))) for item in owner.attributes}


def work(call: Callable[[], object]) -> int:
    """How many of the interpreter's instructions a call takes, at best: the same on every machine, however busy."""
    counts: list[int] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        counts[-1] += event == "opcode"
        return trace

    before = sys.gettrace()
    for _ in range(5):
        counts.append(0)
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)
    return min(counts[1:])  # Python 3.12 counts from the second on


class _Empty:
    """A context manager of the same shape that does nothing."""

    def __enter__(self) -> _Empty:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def empty() -> None:
    with _Empty():
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    monkeypatch.setattr(otel, "SHUTDOWN_SECONDS", 60.0)  # all is to come here, however slow the machine is
    received = Received()

    class Handler(Quiet):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.paths.append(self.path)
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            if self.path == "/v1/metrics":
                for sent in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    received.resource |= {item.key: item.value.string_value for item in sent.resource.attributes}
                    received.metrics |= {
                        metric.name: metric for scope in sent.scope_metrics for metric in scope.metrics
                    }
            else:
                for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                    received.resource |= {item.key: item.value.string_value for item in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        received.spans.extend(scope.spans)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with in_a_thread(Handler) as received.url:
        yield received
        tracing.shutdown()  # else what was not sent yet is sent again and again to nobody


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of the environment's, nothing of the last test's."""
    for variable in ("ENDPOINT", "TRACES_ENDPOINT", "METRICS_ENDPOINT", "PROTOCOL", "TRACES_PROTOCOL", "HEADERS"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{variable}", raising=False)
    for variable in ("SDK_DISABLED", "TRACES_EXPORTER", "METRICS_EXPORTER", "SERVICE_NAME", "RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(f"OTEL_{variable}", raising=False)
    metrics.clear()
    yield
    tracing.shutdown()
    metrics.clear()
