"""Manual spans through OpenTelemetry's SDK, sent in batches by its own thread.

Imported when an endpoint is configured, never before. The provider is our own and not installed globally.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct, field
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.core.errors import InterlinguaError
from gateway.core.types import Agent, Run
from gateway.tracing import names
from gateway.tracing.endpoint import Endpoint
from gateway.tracing.resource import finish, resource

Attributes = Mapping[str, str | int | bool]
SERVER_ERROR = 500
TOOL_METHODS = ("tools/call",)
MOST_NAME = 100
"""Characters that are recorded of a name that a client made up."""

_propagator = TraceContextTextMapPropagator()


def _context(traceparent: str | None) -> Context:
    """The remote parent; an empty context (a new trace) without one, or with one that is not valid."""
    return _propagator.extract({"traceparent": traceparent} if traceparent else {}, Context())


class _Given(Struct):
    """What is read of a request's params."""

    name: Any = None
    meta: dict[str, Any] = field(name="_meta", default_factory=dict)


def _given(params: Raw) -> _Given:
    try:
        return _decode(params)
    except (msgspec.DecodeError, RecursionError):
        return _Given()


_decode = msgspec.json.Decoder(_Given).decode


class Recording:
    """One span that is recorded."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def set(self, attributes: Attributes) -> None:
        """More attributes."""
        self._span.set_attributes(attributes)

    def event(self, name: str, attributes: Attributes) -> None:
        """Something that happened at this moment."""
        self._span.add_event(name, attributes)

    def link(self, traceparent: str) -> None:
        """Belongs together with a span of another trace."""
        context = get_current_span(_context(traceparent)).get_span_context()
        if context.is_valid:
            self._span.add_link(context)

    def http(self, status: int) -> None:
        """The answer's status; from 500 the span has failed."""
        self._span.set_attribute(names.HTTP_STATUS, status)
        if status >= SERVER_ERROR:
            self.failed(str(status))

    def rpc(self, code: int) -> None:
        """The code of the error that the request is answered with."""
        self._span.set_attribute(names.RPC_STATUS, str(code))
        self.failed(str(code))

    def rename(self, name: str) -> None:
        """The name, when more is known."""
        if self._span.is_recording():
            self._span.update_name(name)

    def failed(self, code: str) -> None:
        """`code` is one of the error tree's, a status, or an exception's name; no message, it may be private."""
        self._span.set_attribute(names.ERROR_TYPE, code)
        self._span.set_status(Status(StatusCode.ERROR, code))

    def end(self, error: BaseException | None) -> None:
        """The work is done. A cancellation is no failure."""
        if isinstance(error, InterlinguaError):
            self.failed(error.code)
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            self.failed(type(error).__qualname__)
        self._span.end()


class Backend:
    """A tracer and where its spans go."""

    def __init__(self, to: Endpoint) -> None:
        self._provider = TracerProvider(resource=resource(to.service), shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(endpoint=to.url, headers=to.headers or None)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(names.SCOPE)

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
        attributes: dict[str, str | int] = {names.TARGET_PROTOCOL: protocol}
        if url is not None:
            parts = urlsplit(str(url))
            if parts.hostname:
                attributes[names.SERVER_ADDRESS] = parts.hostname
            if parts.port:
                attributes[names.SERVER_PORT] = parts.port
        return self._start(names.CALL_SPAN.format(protocol=protocol), traceparent, SpanKind.CLIENT, attributes)

    def shutdown(self) -> None:
        """Send the rest, stop the thread. An endpoint that does not answer is given up after a few seconds."""
        finish(self._provider.shutdown, self._exporter.shutdown)

    def _start(self, name: str, traceparent: str | None, kind: SpanKind, attributes: Attributes) -> Recording:
        return Recording(self._tracer.start_span(name, _context(traceparent), kind, attributes))
