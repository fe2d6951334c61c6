"""The only file that knows OpenTelemetry: manual spans and our counters through the SDK, sent by threads of its own.

Imported when an endpoint is configured, never before. The providers are our own and not installed globally.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct, field
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import Histogram, MeterProvider, ObservableCounter, ObservableUpDownCounter
from opentelemetry.sdk.metrics.export import CardinalityLimits, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.core.errors import InterlinguaError
from gateway.core.events import ToolCallStarted
from gateway.core.types import Agent, Run
from gateway.tracing import metrics, names
from gateway.tracing.endpoint import OtlpEndpoint

Attributes = Mapping[str, str | int | bool]
SERVER_ERROR = 500
INSTANCE = "service.instance.id"
SHUTDOWN_SECONDS = 3.0
TOOL_METHODS = ("tools/call",)
MOST_TOOLS = 1000
"""Tools after which spans are named: agents may call any."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""A tool's name. Some agents give a call's title instead, which may contain arguments."""
MOST_NAME = 100
"""Characters that are recorded of a name that a client made up."""

_NOT_SAMPLED = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][02468ace]")
"""A `traceparent` whose flags say so."""
_FOLLOWING = "remoteParentNotSampled:AlwaysOffSampler"

_propagator = TraceContextTextMapPropagator()


def _context(traceparent: str | None) -> Context:
    """The remote parent; an empty context (a new trace) without one, or with one that is not valid."""
    return _propagator.extract({"traceparent": traceparent} if traceparent else {}, Context())


class _Given(Struct):
    """The part of a request's params that is read."""

    name: Any = None
    meta: dict[str, Any] = field(name="_meta", default_factory=dict)


def _given(params: Raw) -> _Given:
    try:
        return _decode(params)
    except (msgspec.DecodeError, RecursionError):
        return _Given()


_decode = msgspec.json.Decoder(_Given).decode


class Recording:
    """A recorded span."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        self._span.set_attributes(attributes)

    @property
    def sampled(self) -> bool:
        """Whether recorded spans are sent."""
        return self._span.is_recording()

    def event(self, name: str, attributes: Attributes) -> None:
        """Record an event at this moment."""
        self._span.add_event(name, attributes)

    def link(self, traceparent: str) -> None:
        """Link it with a span of another trace."""
        context = get_current_span(_context(traceparent)).get_span_context()
        if context.is_valid:
            self._span.add_link(context)

    def http(self, status: int) -> None:
        """Set the answer's status. From 500 on the span has failed."""
        self._span.set_attribute(names.HTTP_STATUS, status)
        if status >= SERVER_ERROR:
            self.failed(str(status))

    def rpc(self, code: int) -> None:
        """Set the code of the error that answers the request."""
        self._span.set_attribute(names.RPC_STATUS, str(code))
        self.failed(str(code))

    def rename(self, name: str) -> None:
        """Change the name, when more is known."""
        if self._span.is_recording():
            self._span.update_name(name)

    def called(self, protocol: str, url: str | None) -> None:
        """Set which agent is called."""
        self.set({names.TARGET_PROTOCOL: protocol, **_server(url)})
        self.rename(names.CALL_SPAN.format(protocol=protocol))

    def failed(self, code: str) -> None:
        """`code` is one of the error tree's, a status, or an exception's name; no message, it may be private."""
        self._span.set_attribute(names.ERROR_TYPE, code)
        self._span.set_status(Status(StatusCode.ERROR, code))

    def end(self, error: BaseException | None) -> None:
        """End the span. A cancellation is not a failure."""
        if isinstance(error, InterlinguaError):
            self.failed(error.code)
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            self.failed(type(error).__qualname__)
        self._span.end()


def _server(url: str | None) -> dict[str, str | int]:
    """Return the attributes of an address."""
    if url is None:
        return {}
    parts = urlsplit(str(url))
    found: dict[str, str | int] = {names.SERVER_ADDRESS: parts.hostname} if parts.hostname else {}
    return found | ({names.SERVER_PORT: parts.port} if parts.port else {})


MOST_SETS = 1_000_000
"""Sets of labels of one metric that are exported: metrics.py has bounds of its own."""
SETS: CardinalityLimits = {
    ObservableCounter: MOST_SETS,
    ObservableUpDownCounter: MOST_SETS,
    Histogram: MOST_SETS,
}


class Backend:
    """A tracer and where its spans go."""

    def __init__(self, to: OtlpEndpoint, worker: int | None = None) -> None:
        self._provider = TracerProvider(resource=_resource(to.service, worker), shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint=to.url, headers=to.headers or None)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(names.SCOPE)
        self._tools = metrics.Labels(MOST_TOOLS)
        self._follows = _FOLLOWING in self._provider.sampler.get_description()

    def leaves_out(self, parent: str) -> bool:
        """Whether no span below this `traceparent` is recorded: it was not sampled, and the sampler goes by that."""
        return self._follows and _NOT_SAMPLED.fullmatch(parent) is not None

    def inbound(self, protocol: str, operation: str, traceparent: str | None) -> Recording:
        """The span of a client's request."""
        attributes = {names.PROTOCOL: protocol, names.OPERATION: operation}
        name = names.INBOUND_SPAN.format(protocol=protocol, operation=operation)
        return self._start(name, traceparent, SpanKind.SERVER, attributes)

    def request(self, method: str, params: Raw, ambient: str | None, attributes: dict[str, str]) -> Recording:
        """The span of a client's JSON-RPC request. `method` is UNKNOWN for one that is not known.

        The message's own parent counts; the HTTP request that it came in (`ambient`) is linked to then.
        """
        given = _given(params)
        if method in TOOL_METHODS and isinstance(given.name, str):
            attributes |= {names.GEN_AI_OPERATION: names.GEN_AI_EXECUTE, names.GEN_AI_TOOL_NAME: given.name[:MOST_NAME]}
        name = names.UNKNOWN_REQUEST_SPAN if method == names.UNKNOWN else method
        parent = given.meta.get("traceparent")
        own = isinstance(parent, str)
        recording = self._start(name, parent if own else ambient, SpanKind.SERVER, attributes)
        if own and ambient is not None:
            recording.link(ambient)
        return recording

    def run(self, run: Run, agent: Agent, traceparent: str | None, resumed: bool) -> Recording:
        """The span of a run."""
        attributes: dict[str, str | bool] = {
            names.GEN_AI_OPERATION: names.GEN_AI_INVOKE,
            names.GEN_AI_AGENT_NAME: agent.name,
            names.GEN_AI_AGENT_ID: agent.id,
            names.GEN_AI_AGENT_VERSION: agent.version,
            names.RUN_ID: run.id,
            names.PROTOCOL: run.request.protocol,
        }
        if agent.description:
            attributes[names.GEN_AI_AGENT_DESCRIPTION] = agent.description
        if run.thread is not None:
            attributes[names.GEN_AI_CONVERSATION] = run.thread
        if resumed:
            attributes[names.RUN_RESUMED] = True
        return self._start(names.RUN_SPAN.format(agent=agent.name), traceparent, SpanKind.INTERNAL, attributes)

    def call(self, protocol: str, url: str | None, traceparent: str | None) -> Recording:
        """The span of the call of an agent."""
        attributes = {names.TARGET_PROTOCOL: protocol, **_server(url)}
        return self._start(names.CALL_SPAN.format(protocol=protocol), traceparent, SpanKind.CLIENT, attributes)

    def describe(self, agent: str, protocol: str, url: str | None, traceparent: str | None) -> Recording:
        """The span of asking an agent what it is."""
        attributes = {names.GEN_AI_AGENT_NAME: agent, names.TARGET_PROTOCOL: protocol, **_server(url)}
        return self._start(names.DESCRIBE_SPAN.format(agent=agent), traceparent, SpanKind.CLIENT, attributes)

    def callback(self, run: Run, protocol: str, url: str, attempt: int) -> Recording:
        """The span of one attempt to deliver a callback."""
        attributes: dict[str, str | int] = {
            names.PROTOCOL: protocol,
            names.RUN_ID: run.id,
            names.GEN_AI_AGENT_NAME: run.request.agent,
            names.HTTP_METHOD: "POST",
            names.CALLBACK_ATTEMPT: attempt,
            **_server(url),
        }
        name = names.CALLBACK_SPAN.format(protocol=protocol)
        return self._start(name, run.request.traceparent, SpanKind.CLIENT, attributes)

    def tool(self, event: ToolCallStarted, traceparent: str) -> Recording:
        """The span of a tool call of a run."""
        attributes = {names.GEN_AI_OPERATION: names.GEN_AI_EXECUTE, names.TOOL_KIND: event.kind[:MOST_NAME]}
        return self._of_call(names.TOOL_SPAN, event.name, event.call, traceparent, attributes)

    def approval(self, tool: str, call: str, policy: str | None, traceparent: str | None) -> Recording:
        """The span of the question whether a tool may be called."""
        attributes = {names.APPROVAL_POLICY: policy} if policy is not None else {}
        return self._of_call(names.APPROVAL_SPAN, tool, call, traceparent, attributes)

    def _of_call(
        self, name: str, tool: str, call: str, traceparent: str | None, attributes: dict[str, str]
    ) -> Recording:
        attributes[names.GEN_AI_TOOL_CALL] = call[:MOST_NAME]
        named = self._tools.label(tool) if _NAME.fullmatch(tool) and tool != call else metrics.OTHERS
        if named == metrics.OTHERS:
            name = name.removesuffix(" {tool}")
        else:
            attributes[names.GEN_AI_TOOL_NAME] = named
        return self._start(name.format(tool=named), traceparent, SpanKind.INTERNAL, attributes)

    def shutdown(self) -> None:
        """Send the rest and stop the thread. Gives up after a few seconds if the endpoint does not answer."""
        _finish(self._provider.shutdown, self._exporter.shutdown)

    def _start(self, name: str, traceparent: str | None, kind: SpanKind, attributes: Attributes) -> Recording:
        return Recording(self._tracer.start_span(name, _context(traceparent), kind, attributes))


class Export:
    """Sends every metric of metrics.py, now and then (OTEL_METRIC_EXPORT_INTERVAL) and at the end (decision 0024).

    The SDK has no observable histogram: its own is told each value at the moment that ours is.
    """

    def __init__(self, to: OtlpEndpoint, worker: int | None = None) -> None:
        self._exporter = OTLPMetricExporter(endpoint=to.url, headers=to.headers or None)
        reader = PeriodicExportingMetricReader(self._exporter, cardinality_limits=SETS)
        self._provider = MeterProvider([reader], _resource(to.service, worker), shutdown_on_exit=False)
        meter = self._provider.get_meter(names.SCOPE)
        for metric in metrics.families:
            if isinstance(metric, metrics.Histogram):
                histogram = meter.create_histogram(
                    metric.name, description=metric.help, explicit_bucket_boundaries_advisory=metric.bounds
                )
                metric.listen(histogram.record)
                continue
            # A gauge of ours is a sum of changes: what several gateways say of it can be added up.
            rises = not isinstance(metric, metrics.Gauge)
            create = meter.create_observable_counter if rises else meter.create_observable_up_down_counter
            create(metric.name, [_reading(metric)], description=metric.help)

    def shutdown(self) -> None:
        """Send the current values and stop the thread, in bounded time."""
        for metric in metrics.families:
            if isinstance(metric, metrics.Histogram):
                metric.listen(None)
        _finish(self._provider.shutdown, self._exporter.shutdown)


def _reading(metric: metrics.Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
    """Export in the SDK's own thread."""

    def read(_: CallbackOptions) -> Iterable[Observation]:
        values: Mapping[tuple[str, ...], float] = metric.values.copy()  # at once: the loop's thread goes on counting
        return [Observation(value, dict(zip(metric.labels, labels, strict=True))) for labels, value in values.items()]

    return read


def _resource(service: str | None, worker: int | None) -> Resource:
    """This gateway. `service`: its name in routes.yaml.

    The environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) counts where the file names none. An instance that it
    names is all workers together: each gets a name of its own, since a receiver takes two with one name for one.
    """
    own = {}
    if worker is not None and (named := _from_environment().attributes.get(INSTANCE)) is not None:
        own[INSTANCE] = f"{named}.{worker}"
    with contextlib.suppress(metadata.PackageNotFoundError):  # run from a checkout that is not installed
        own["service.version"] = metadata.version(names.SERVICE)
    if service:
        own["service.name"] = service
    return Resource({"service.name": names.SERVICE}).merge(_from_environment()).merge(Resource(own))


def _finish(send: Callable[[], object], give_up: Callable[[], object]) -> None:
    """Send the rest, stop the thread. An endpoint that does not answer is given up after SHUTDOWN_SECONDS."""
    last = threading.Thread(target=send, daemon=True)
    last.start()
    last.join(SHUTDOWN_SECONDS)
    if last.is_alive():
        give_up()


def _from_environment() -> Resource:
    found = Resource.create()
    given = dict(found.attributes)
    if str(given.get("service.name", "")).startswith("unknown_service"):
        del given["service.name"]
    return Resource(given)
