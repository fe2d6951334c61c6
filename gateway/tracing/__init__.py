"""Traces and metrics. The engine and the application wrap their work in the spans made here; nothing else uses them.

    inbound_span    the client's HTTP request              made by the application around each request
      RequestSpans  its JSON-RPC request, whatever it      made by the engine, entered by the inbound half that serves
                    came over                              the request (`Gateway.requests`)
      run_span      the run, from dispatch to its end      made by the engine; its parent is `Run.request.traceparent`
        call_span   the call of the agent                  made by the engine around `Outbound.run` and `attach`
        (tools)     its tool calls                         made by the run's span, of the events that the engine emits
        RunSpan.approval  whether one may be made          made around the question, by who asks it
    describe_span   asking an agent what it is             made by the engine around `Outbound.describe`
    callback_span   one attempt to deliver a callback      made by the engine around the request

Nothing is traced until `configure` finds an OTLP endpoint, and nothing of OpenTelemetry is imported before. Without
one, and below a parent that was not sampled, a span is a small object that passes the `traceparent` on unchanged.
Metrics are always kept (metrics.py),
and sent where there is an endpoint for them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec import Raw, Struct

from gateway.core.events import ToolCallEnded, ToolCallStarted, UsageReported
from gateway.core.types import Agent, Failure, Interrupt, Outcome, Run, RunStatus
from gateway.tracing import metrics, names

if TYPE_CHECKING:
    from gateway.config import Telemetry
    from gateway.contract import TargetOptions
    from gateway.tracing.otel import Backend, Export, Recording

__all__ = [
    "ApprovalSpan",
    "RequestSpans",
    "RunSpan",
    "Span",
    "call_span",
    "callback_span",
    "configure",
    "describe_span",
    "inbound_span",
    "joined",
    "metrics",
    "run_span",
    "shutdown",
    "traceparent",
    "tracing",
]

MOST_ORIGINAL = 100
"""The most characters to record of a client's own words: an unknown method, an id."""

SUCCESS_ENDS = 300

_backend: Backend | None = None
_export: Export | None = None
_current: ContextVar[Span | None] = ContextVar("interlingua_span", default=None)


def configure(telemetry: Telemetry, *, worker: int | None = None) -> bool:
    """Begin to trace and to send metrics, if the file or the environment names an OTLP endpoint.

    Called once at start. True if anything is traced. worker: which of several this process is.
    """
    global _backend, _export  # noqa: PLW0603 - the switches of this module
    from gateway.tracing.endpoint import METRICS, TRACES, endpoint

    shutdown()
    if (to := endpoint(telemetry, TRACES)) is not None:
        from gateway.tracing.otel import Backend

        _backend = Backend(to, worker)
    if (to := endpoint(telemetry, METRICS)) is not None:
        from gateway.tracing.otel import Export

        _export = Export(to, worker)
    return _backend is not None


def shutdown() -> None:
    """Send the rest, waiting for the endpoint for a bounded time, then stop."""
    global _backend, _export
    backend, _backend, export, _export = _backend, None, _export, None
    if backend is not None:
        backend.shutdown()
    if export is not None:
        export.shutdown()


def tracing() -> bool:
    """Whether anything is traced."""
    return _backend is not None


class Span(Struct, eq=False):
    """A span. Enter it around the work; an exception that leaves it marks it as failed.

    The innermost entered span is the parent of those made inside it, in child tasks too.

    traceparent: the W3C header that makes the receiver's work part of this span; the incoming one if nothing is traced.
    over: whether it was left. Work that still runs in its context no longer belongs to it.
    """

    traceparent: str | None
    _recording: Recording | None
    over: bool = False
    _before: Span | None = None

    def __post_init__(self) -> None:
        if self._recording is not None:
            self.traceparent = self._recording.traceparent

    def __enter__(self) -> Self:
        self._before = _current.get()
        _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _current.set(self._before)
        self.over = True
        if self._recording is not None:
            self._recording.end(error)

    def answered(self, status: int) -> None:
        if self._recording is not None:
            self._recording.http(status)


class RequestSpan(Span, kw_only=True):
    """A client's JSON-RPC request, which is counted when it is left."""

    protocol: str
    method: str | None
    code: Callable[[Exception], int]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        status = metrics.OK if error is None else metrics.CANCELLED
        if isinstance(error, Exception):
            code = self.code(error)
            status = metrics.code(code)
            if self._recording is not None:
                self._recording.rpc(code)
        metrics.requests.values[self.protocol, status] += 1
        super().__exit__(None, None, None)

    def tool_failed(self) -> None:
        if self._recording is not None:
            self._recording.failed(names.TOOL_FAILED)

    def about(self, agent: str) -> None:
        """Note the run of an agent that it started. The first one names the span."""
        if self._recording is not None and self.method is not None:
            self._recording.set({names.GEN_AI_AGENT_NAME: agent})
            self._recording.rename(names.REQUEST_SPAN_OF_AGENT.format(method=self.method, agent=agent))
            self.method = None


class CallSpan(Span):
    """The call of an agent."""

    def goes_to(self, target: TargetOptions) -> None:
        """Note the target that the run is sent to, of several: the last one that was tried."""
        if self._recording is not None:
            self._recording.called(target.protocol, getattr(target, "url", None))


class RequestSpans:
    """See `gateway.contract.Requests`, and `Gateway.requests` for the parameters."""

    def __init__(
        self, protocol: str, methods: Collection[str], code: Callable[[Exception], int], *, mcp: bool = False
    ) -> None:
        self._protocol = protocol
        self._methods = frozenset(methods)
        self._code = code
        self._mcp = mcp

    def __call__(self, method: str, params: Raw, id: object, *, session: str = "", version: str = "") -> RequestSpan:
        ambient = _around()
        if _backend is None:
            return RequestSpan(ambient, None, protocol=self._protocol, method=None, code=self._code)
        known = method in self._methods
        named = method if known else names.UNKNOWN
        said: dict[str, str | int | bool] = {
            names.PROTOCOL: self._protocol,
            names.RPC_SYSTEM: names.JSONRPC,
            names.RPC_METHOD: named,
        }
        if not known:
            said[names.RPC_METHOD_ORIGINAL] = method[:MOST_ORIGINAL]
        if id is not None:
            said[names.RPC_ID] = str(id)[:MOST_ORIGINAL]
        if self._mcp:
            said[names.MCP_METHOD] = named
            said |= {names.MCP_SESSION: session} if session else {}
            said |= {names.MCP_VERSION: version} if version else {}
        recording = _backend.request(named, params, ambient, said)
        its = method if known else None
        return RequestSpan(ambient, recording, protocol=self._protocol, method=its, code=self._code)


class ApprovalSpan(Span):
    """The span of an approval."""

    def decided(self, outcome: Outcome, *, approved: bool) -> None:
        """Note the outcome. The audit log has the person."""
        if self._recording is not None:
            said = names.NOBODY if outcome is Outcome.CANCELLED else names.APPROVED if approved else names.REJECTED
            self._recording.set({names.APPROVAL_OUTCOME: said})


class CallbackSpan(Span):
    """One attempt to deliver a callback."""

    def ended(self, *, again: bool, status: int | None = None, why: Exception | None = None) -> None:
        """Note the end: a status, or an exception. `again`: it will be tried again."""
        if self._recording is None:
            return
        failed = why is not None or (status is not None and status >= SUCCESS_ENDS)
        outcome = names.AGAIN if again else names.DROPPED if failed else names.DELIVERED
        self._recording.set({names.CALLBACK_OUTCOME: outcome})
        if status is not None:
            self._recording.set({names.HTTP_STATUS: status})
            if failed:
                self._recording.failed(str(status))
        elif why is not None:
            self._recording.failed(getattr(why, "code", type(why).__qualname__))


class RunSpan(Span, kw_only=True):
    """A run with its metrics. Enter it at once."""

    labels: tuple[str, str]
    began: float
    _losses: Counter[str] | None = None
    _tools: dict[str, Recording] = {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        metrics.runs_active.values[self.labels] -= 1
        for tool in self._tools.values():
            tool.end(None)
        super().__exit__(kind, error, _)

    def record_tool(self, event: ToolCallStarted | ToolCallEnded) -> None:
        """Begin or end the span of a tool call, without its input and output."""
        if self._recording is None or _backend is None or not self._recording.sampled:
            return
        if isinstance(event, ToolCallStarted):
            if event.call not in self._tools:
                self._tools[event.call] = _backend.tool(event, self._recording.traceparent)
        elif (tool := self._tools.pop(event.call, None)) is not None:
            if event.failed:
                tool.failed(names.TOOL_FAILED)
            tool.end(None)

    def approval(self, tool: str, call: str, policy: str | None) -> ApprovalSpan:
        """Make the span of an approval, from the question to its answer."""
        if self._recording is None or _backend is None:
            return ApprovalSpan(self.traceparent, None)
        return ApprovalSpan(self.traceparent, _backend.approval(tool, call, policy, self.traceparent))

    def record_interrupt(self, interrupt: Interrupt) -> None:
        metrics.interrupts.add(1, self.labels[0], metrics.kind(interrupt.kind))
        if self._recording is not None:
            about = {names.INTERRUPT_ID: interrupt.id, names.INTERRUPT_KIND: interrupt.kind}
            self._recording.event(names.INTERRUPT_EVENT, about)

    def record_answer(self, interrupt_id: str, outcome: Outcome) -> None:
        """Note that it was answered, declined or cancelled. The answer itself is never recorded."""
        if self._recording is not None:
            about = {names.INTERRUPT_ID: interrupt_id, names.ANSWER_OUTCOME: str(outcome)}
            self._recording.event(names.ANSWER_EVENT, about)

    def record_loss(self, what: str, count: int = 1) -> None:
        """Note a loss. May be called for every token: only the first becomes an event."""
        metrics.losses.add(count, *self.labels, what)
        if self._recording is not None:
            if self._losses is None:
                self._losses = Counter()
            if what not in self._losses:
                self._recording.event(names.LOSS_EVENT, {names.LOSS_WHAT: what})
            self._losses[what] += count

    def finish(
        self, status: RunStatus, *, usage: UsageReported | None = None, events: int = 0, failure: Failure | None = None
    ) -> None:
        """Note the end of the run, once, before the span is left. `events`: how many its log has.

        A run that is let go of unfinished (shutdown) leaves its span without.
        """
        agent, protocol = self.labels
        metrics.runs_ended.values[agent, protocol, status] += 1
        metrics.events.values[(agent,)] += events
        metrics.run_seconds.observe(max(0.0, time.time() - self.began), agent, status)
        said: dict[str, str | int] = {}
        if usage is not None:
            for name, direction, count in (
                (names.GEN_AI_INPUT_TOKENS, "input", usage.input_tokens),
                (names.GEN_AI_OUTPUT_TOKENS, "output", usage.output_tokens),
            ):
                if count is not None:
                    said[name] = count
                    metrics.tokens.add(count, agent, direction)
        if self._recording is not None:
            said |= {names.RUN_STATUS: status.value, names.DELTAS: events}
            said |= {names.LOSS.format(what=what): count for what, count in (self._losses or {}).items()}
            self._recording.set(said)
            if failure is not None:
                self._recording.failed(failure.code)


def _recorder(given: str | None) -> Backend | None:
    """Return what records a span below `given`; None where nothing is, or that was not sampled."""
    return None if _backend is None or (given is not None and _backend.leaves_out(given)) else _backend


def inbound_span(protocol: str, operation: str, traceparent: str | None = None) -> Span:
    """Make the span of a client's request. `operation`: the protocol's name for it (`agents/run`)."""
    to = _recorder(traceparent)
    return Span(traceparent, to.inbound(protocol, operation, traceparent) if to is not None else None)


def run_span(run: Run, agent: Agent, *, resumed: bool = False) -> RunSpan:
    """Make the span of a run that is dispatched now, or (`resumed`) was found again after a restart."""
    given, labels = run.request.traceparent, (metrics.agent(run.request.agent), run.request.protocol)
    if not resumed:
        metrics.runs_started.values[labels] += 1
    metrics.runs_active.values[labels] += 1
    to = None if _backend is None else _recorder(given)
    recording = None if to is None else to.run(run, agent, given, resumed)
    return RunSpan(given, recording, labels=labels, began=run.created_at)


def call_span(protocol: str, target: TargetOptions | None = None) -> CallSpan:
    """Make the span of calling an agent that speaks `protocol`. Send its `traceparent`.

    target: None for one of several, of which `going_to` tells.
    """
    given = traceparent()
    to = _recorder(given)
    return CallSpan(given, to.call(protocol, getattr(target, "url", None), given) if to is not None else None)


def going_to(target: TargetOptions) -> None:
    """Note in the span of the call which of several targets it goes to."""
    if isinstance(current := _current.get(), CallSpan):
        current.goes_to(target)


def joined(given: str | None, agent: str) -> str | None:
    """Return the `traceparent` of a new run of `agent`, for a request that carried `given`."""
    current = _current.get()
    if current is None:
        return given
    if isinstance(current, RequestSpan) and not current.over:
        current.about(agent)
    return traceparent(given)


def describe_span(agent: str, protocol: str, target: TargetOptions | None = None) -> Span:
    """Make the span of describing an agent, below the request that asks for it, if that is still open."""
    given = _around()
    to = _recorder(given)
    return Span(given, to.describe(agent, protocol, getattr(target, "url", None), given) if to is not None else None)


def callback_span(run: Run, protocol: str, url: str, attempt: int) -> CallbackSpan:
    """Make the span of one attempt (from 1) to notify a client of its run, in the client's trace."""
    given = run.request.traceparent
    to = _recorder(given)
    return CallbackSpan(given, None if to is None else to.callback(run, protocol, url, attempt))


def _around() -> str | None:
    """Return the caller's current span, if it is still open."""
    current = _current.get()
    return None if current is None or current.over else current.traceparent


def traceparent(given: str | None = None) -> str | None:
    """Return what a new run has to remember, for a request that carried `given`.

    The current request's span if that continues the client's trace (or the client has none). A client that names
    another trace in its message than in its headers is believed, and the request's span is linked to it.
    """
    current = _current.get()
    if current is None:
        return given
    own = current.traceparent
    if given is None or own is None or current._recording is None:
        return given or own
    if own.split("-")[1:2] == given.split("-")[1:2]:
        return own
    current._recording.link(given)
    return given
