"""The only file that knows OpenTelemetry: spans and our counters, sent by the SDK's threads.

Imported when an endpoint is configured, never before. Nothing is installed globally. The SDK samples, queues and sends
spans; a span is an object of ours until it ends (docs/decisions/0046-a-run-has-what-somebody-needs.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct, field
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import Histogram, MeterProvider, ObservableCounter, ObservableUpDownCounter
from opentelemetry.sdk.metrics.export import CardinalityLimits, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util import types

from gateway.core.errors import InterlinguaError
from gateway.core.events import ToolCallStarted
from gateway.core.types import Agent, Run
from gateway.tracing import metrics, names
from gateway.tracing.endpoint import OtlpEndpoint

Value = str | int | bool
Record = Callable[[float, Mapping[str, str]], None]
Attributes = Mapping[str, Value]
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

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACE, _SPAN, _FLAGS = slice(3, 35), slice(36, 52), slice(53, 55)
_FOLLOWING = ("remoteParentSampled:AlwaysOnSampler", "remoteParentNotSampled:AlwaysOffSampler")
"""The parts of its description that say that a sampler goes by the parent."""
_NOT_SAMPLED = frozenset("02468ace")
_UNSET = Status()

_propagator = TraceContextTextMapPropagator()


def _remote(traceparent: str) -> Context:
    return _propagator.extract({"traceparent": traceparent}, Context())


def _valid(traceparent: str | None) -> str | None:
    """Return a parent as version 00 writes it; None without one, or for one that is not valid."""
    if traceparent is None or _TRACEPARENT.fullmatch(traceparent) is not None:
        return traceparent
    context = get_current_span(_remote(traceparent)).get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}" if context.is_valid else None


def _flags(traceparent: str) -> int:
    return int(traceparent[_FLAGS], 16)


def _context(traceparent: str, state: TraceState | None = None, *, remote: bool) -> SpanContext:
    """What a valid `traceparent` says, as the SDK has it."""
    trace, span = int(traceparent[_TRACE], 16), int(traceparent[_SPAN], 16)
    return SpanContext(trace, span, remote, TraceFlags(_flags(traceparent)), state)


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
    """A recorded span: what is noted of it until it ends, which is when the SDK gets it. Where it is not sampled it
    has nothing but its `traceparent`.
    """

    __slots__ = (
        *("_attributes", "_began", "_events", "_kind", "_links", "_name", "_parent", "_state", "_status", "_to"),
        "traceparent",
    )

    def __init__(  # noqa: PLR0917
        self,
        to: Backend | None,
        name: str,
        kind: SpanKind,
        parent: str | None,
        own: str,
        attributes: dict[str, Value],
        state: TraceState | None,
    ) -> None:
        self._to = to
        self._name, self._kind, self._parent, self._state = name, kind, parent, state
        self.traceparent = own
        self._attributes = attributes
        self._events: BoundedList[Event] | None = None
        self._links: BoundedList[Link] | None = None
        self._status = _UNSET
        self._began = time.time_ns()

    @property
    def sampled(self) -> bool:
        """Whether it is open and will be sent."""
        return self._to is not None

    def set(self, attributes: Attributes) -> None:
        if self._to is not None:
            self._attributes.update(attributes)

    def event(self, name: str, attributes: Attributes) -> None:
        if (to := self._to) is not None:
            if self._events is None:
                self._events = BoundedList(to.limits.max_events)
            self._events.append(Event(name, to.of_event(attributes)))

    def link(self, traceparent: str) -> None:
        if (to := self._to) is not None and (other := _valid(traceparent)) is not None:
            if self._links is None:
                self._links = BoundedList(to.limits.max_links)
            self._links.append(Link(_context(other, remote=True)))

    def http(self, status: int) -> None:
        """Set the answer's status. From 500 on the span has failed."""
        self.set({names.HTTP_STATUS: status})
        if status >= SERVER_ERROR:
            self.failed(str(status))

    def rpc(self, code: int) -> None:
        """Set the code of the error that answers the request."""
        self.set({names.RPC_STATUS: str(code)})
        self.failed(str(code))

    def rename(self, name: str) -> None:
        self._name = name

    def called(self, protocol: str, url: str | None) -> None:
        self.set({names.TARGET_PROTOCOL: protocol, **_server(url)})
        self.rename(names.CALL_SPAN.format(protocol=protocol))

    def failed(self, code: str) -> None:
        """`code` is one of the error tree's, a status, or an exception's name; no message, it may be private."""
        self.set({names.ERROR_TYPE: code})
        self._status = Status(StatusCode.ERROR, code)

    def end(self, error: BaseException | None) -> None:
        """End the span. A cancellation is not a failure."""
        if isinstance(error, InterlinguaError):
            self.failed(error.code)
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            self.failed(type(error).__qualname__)
        if (to := self._to) is None:
            return
        self._to = None
        to.send(
            ReadableSpan(
                self._name,
                _context(self.traceparent, self._state, remote=False),
                None if self._parent is None else _context(self._parent, remote=True),
                to.resource,
                to.of_span(self._attributes),
                self._events or (),
                self._links or (),
                self._kind,
                None,
                self._status,
                self._began,
                time.time_ns(),
                _SCOPE,
            )
        )


_SCOPE = InstrumentationScope(names.SCOPE, "")


@lru_cache(256)
def _server(url: str | None) -> Attributes:
    """Return the attributes of an address, which nobody may change."""
    if url is None:
        return {}
    parts = urlsplit(str(url))
    found: dict[str, str | int] = {names.SERVER_ADDRESS: parts.hostname} if parts.hostname else {}
    return found | ({names.SERVER_PORT: parts.port} if parts.port else {})


MOST_OBSERVED = 10_000
"""Observations of histograms that wait to be collected."""
MOST_SETS = 1_000_000
"""Sets of labels of one metric that are exported: metrics.py has bounds of its own."""
SETS: CardinalityLimits = {ObservableCounter: MOST_SETS, ObservableUpDownCounter: MOST_SETS, Histogram: MOST_SETS}


class Backend:
    """Makes spans, and sends those that are sampled."""

    def __init__(self, to: OtlpEndpoint, worker: int | None = None) -> None:
        self.resource = _resource(to.service, worker)
        self.limits = SpanLimits()
        self._exporter = OTLPSpanExporter(endpoint=to.url, headers=to.headers or None)
        self._processor = BatchSpanProcessor(self._exporter)
        self.send = self._processor.on_end
        self._tools = metrics.Labels(MOST_TOOLS)
        provider = TracerProvider(resource=self.resource, shutdown_on_exit=False)
        self._sampler, self._ids = provider.sampler, provider.id_generator
        described = self._sampler.get_description()
        self._follows = all(part in described for part in _FOLLOWING)

    def leaves_out(self, parent: str) -> bool:
        """Whether no span below this `traceparent` is recorded: it was not sampled, and the sampler goes by that."""
        return self._follows and parent[-1:] in _NOT_SAMPLED and _TRACEPARENT.fullmatch(parent) is not None

    def of_span(self, attributes: Attributes) -> types.Attributes:
        """The attributes of a span, within the limits of the environment."""
        limits = self.limits
        return _within(limits.max_span_attributes, limits.max_span_attribute_length, attributes)

    def of_event(self, attributes: Attributes) -> types.Attributes:
        """The attributes of an event, within the limits of the environment."""
        return _within(self.limits.max_event_attributes, self.limits.max_attribute_length, attributes)

    def inbound(self, protocol: str, operation: str, traceparent: str | None) -> Recording:
        attributes: dict[str, Value] = {names.PROTOCOL: protocol, names.OPERATION: operation}
        name = names.INBOUND_SPAN.format(protocol=protocol, operation=operation)
        return self._start(name, traceparent, SpanKind.SERVER, attributes)

    def request(self, method: str, params: Raw, ambient: str | None, attributes: dict[str, Value]) -> Recording:
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
        attributes: dict[str, Value] = {
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
        attributes = {names.TARGET_PROTOCOL: protocol, **_server(url)}
        return self._start(names.CALL_SPAN.format(protocol=protocol), traceparent, SpanKind.CLIENT, attributes)

    def describe(self, agent: str, protocol: str, url: str | None, traceparent: str | None) -> Recording:
        attributes = {names.GEN_AI_AGENT_NAME: agent, names.TARGET_PROTOCOL: protocol, **_server(url)}
        return self._start(names.DESCRIBE_SPAN.format(agent=agent), traceparent, SpanKind.CLIENT, attributes)

    def callback(self, run: Run, protocol: str, url: str, attempt: int) -> Recording:
        attributes: dict[str, Value] = {
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
        attributes: dict[str, Value] = {
            names.GEN_AI_OPERATION: names.GEN_AI_EXECUTE,
            names.TOOL_KIND: event.kind[:MOST_NAME],
        }
        return self._of_call(names.TOOL_SPAN, event.name, event.call, traceparent, attributes)

    def approval(self, tool: str, call: str, policy: str | None, traceparent: str | None) -> Recording:
        """The span of the question whether a tool may be called."""
        attributes: dict[str, Value] = {names.APPROVAL_POLICY: policy} if policy is not None else {}
        return self._of_call(names.APPROVAL_SPAN, tool, call, traceparent, attributes)

    def _of_call(
        self, name: str, tool: str, call: str, traceparent: str | None, attributes: dict[str, Value]
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
        _finish(self._processor.shutdown, self._exporter.shutdown)

    def _start(self, name: str, traceparent: str | None, kind: SpanKind, attributes: dict[str, Value]) -> Recording:
        """Without a parent, or with one that is not valid, it begins a trace."""
        parent = _valid(traceparent)
        if parent is None:
            trace = f"{self._ids.generate_trace_id():032x}"
            flags = TraceFlags.RANDOM_TRACE_ID if self._ids.is_trace_id_random() else TraceFlags.DEFAULT
        else:
            trace, flags = parent[_TRACE], _flags(parent)
        state = None
        if parent is None or not self._follows:
            remote = Context() if parent is None else _remote(parent)
            found = self._sampler.should_sample(remote, int(trace, 16), name, kind, attributes, ())
            flags = flags & TraceFlags.RANDOM_TRACE_ID | (
                TraceFlags.SAMPLED if found.decision is Decision.RECORD_AND_SAMPLE else 0
            )
            state, attributes = found.trace_state, dict(found.attributes)
        own = f"00-{trace}-{self._ids.generate_span_id():016x}-{flags & _KNOWN_FLAGS:02x}"
        return Recording(self if flags & TraceFlags.SAMPLED else None, name, kind, parent, own, attributes, state)


def _within(most: int | None, longest: int | None, attributes: Attributes) -> types.Attributes:
    if longest is None and (most is None or len(attributes) <= most):
        return attributes
    return BoundedAttributes(most, attributes, max_value_len=longest)


_KNOWN_FLAGS = TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID


class Export:
    """Sends every metric of metrics.py, now and then (OTEL_METRIC_EXPORT_INTERVAL) and at the end (decision 0024).

    The SDK has no observable histogram: its own is told what ours observed, in the thread that collects.
    """

    def __init__(self, to: OtlpEndpoint, worker: int | None = None) -> None:
        self._exporter = OTLPMetricExporter(endpoint=to.url, headers=to.headers or None)
        reader = PeriodicExportingMetricReader(self._exporter, cardinality_limits=SETS)
        self._observed: deque[tuple[Record, tuple[str, ...], float, tuple[str, ...]]] = deque()
        self._provider = MeterProvider([reader], _resource(to.service, worker), shutdown_on_exit=False)
        meter = self._provider.get_meter(names.SCOPE)
        for metric in metrics.families:
            if isinstance(metric, metrics.Histogram):
                histogram = meter.create_histogram(
                    metric.name, description=metric.help, explicit_bucket_boundaries_advisory=metric.bounds
                )
                metric.listen(partial(self._observe, histogram.record, metric.labels))
                continue
            # A gauge of ours is a sum of changes: what several gateways say of it can be added up.
            rises = not isinstance(metric, metrics.Gauge)
            create = meter.create_observable_counter if rises else meter.create_observable_up_down_counter
            create(metric.name, [self._recorded, _reading(metric)], description=metric.help)

    def shutdown(self) -> None:
        """Send the current values and stop the thread, in bounded time."""
        for metric in metrics.families:
            if isinstance(metric, metrics.Histogram):
                metric.listen(None)
        _finish(self._last, self._exporter.shutdown)

    def _last(self) -> None:
        self._record(len(self._observed))
        self._provider.shutdown()

    def _observe(self, record: Record, named: tuple[str, ...], value: float, labels: tuple[str, ...]) -> None:
        """Keep an observation until others are collected. Of more than MOST_OBSERVED the oldest is recorded at once."""
        self._observed.append((record, named, value, labels))
        if len(self._observed) > MOST_OBSERVED:
            self._record(1)

    def _recorded(self, _: CallbackOptions) -> Iterable[Observation]:
        self._record(len(self._observed))
        return ()

    def _record(self, count: int) -> None:
        with contextlib.suppress(IndexError):  # the loop's thread takes some, too
            for _ in range(count):
                record, named, value, labels = self._observed.popleft()
                record(value, dict(zip(named, labels, strict=True)))


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
