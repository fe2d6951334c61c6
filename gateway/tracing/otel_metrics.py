"""The gateway's counters over OTLP: the OpenTelemetry SDK reads them when it exports (decision 0024).

The SDK has no observable histogram. Its own histogram is told each value at the moment that ours is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import Histogram, MeterProvider, ObservableCounter, ObservableUpDownCounter
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from gateway.tracing import metrics, names
from gateway.tracing.endpoint import Endpoint
from gateway.tracing.resource import finish, resource

MOST_SETS = 1_000_000
"""Sets of labels of one metric that are exported: metrics.py has bounds of its own."""
KINDS = (ObservableCounter, ObservableUpDownCounter, Histogram)


class Export:
    """Sends every metric of metrics.py, now and then (OTEL_METRIC_EXPORT_INTERVAL) and at the end."""

    def __init__(self, to: Endpoint) -> None:
        self._exporter = OTLPMetricExporter(endpoint=to.url, headers=to.headers or None)
        reader = PeriodicExportingMetricReader(self._exporter, cardinality_limits=dict.fromkeys(KINDS, MOST_SETS))
        self._provider = MeterProvider([reader], resource(to.service), shutdown_on_exit=False)
        meter = self._provider.get_meter(names.SCOPE)
        for metric in metrics.families:
            if isinstance(metric, metrics.Histogram):
                histogram = meter.create_histogram(
                    metric.name, description=metric.help, explicit_bucket_boundaries_advisory=metric.bounds
                )
                metric.also = histogram.record
                continue
            # A gauge of ours is a sum of changes: what several gateways say of it can be added up.
            rises = not isinstance(metric, metrics.Gauge)
            create = meter.create_observable_counter if rises else meter.create_observable_up_down_counter
            create(metric.name, [_reading(metric)], description=metric.help)

    def shutdown(self) -> None:
        """Send how things are now, stop the thread; bounded."""
        for metric in metrics.families:
            if isinstance(metric, metrics.Histogram):
                metric.also = None
        finish(self._provider.shutdown, self._exporter.shutdown)


def _reading(metric: metrics.Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """What the SDK calls in a thread of its own."""

    def read(_: CallbackOptions) -> Iterable[Observation]:
        values: Mapping[tuple[str, ...], float] = metric.values.copy()  # at once: the loop's thread goes on counting
        return [Observation(value, dict(zip(metric.labels, labels, strict=True))) for labels, value in values.items()]

    return read
